//! Sizes and clocks of the content, read back from its packets.

use crate::common;
use common::{VARIANTS, go_on, spec_named};
use mpegts::{ContentSpec, PACKET_BYTES, RateMode, write_content};
use std::collections::BTreeSet;

/// A PCR, and the offset of the byte that it is the time of.
struct Clock {
    offset: u64,
    /// 27 MHz.
    time: u64,
}

fn clocks(bytes: &[u8]) -> Vec<Clock> {
    let packets = bytes.chunks(PACKET_BYTES).enumerate();
    packets
        .filter(|(_, p)| p[3] & 0x20 != 0 && p[4] >= 7 && p[5] & 0x10 != 0)
        .map(|(i, p)| {
            let value = p[6..12].iter().fold(0_u64, |v, &b| v << 8 | u64::from(b));
            Clock { offset: (i * PACKET_BYTES + 10) as u64, time: (value >> 15) * 300 + (value & 511) }
        })
        .collect()
}

/// 27 MHz; the first DTS is one second.
const FIRST_DTS: u64 = 27_000_000;

#[test]
fn every_picture_arrives_before_it_is_decoded() {
    for name in VARIANTS {
        let spec = ContentSpec { duration_s: 12.0, ..spec_named(name) };
        let mut bytes = Vec::new();
        let index = write_content(&spec, &mut bytes, &mut go_on).expect(name);
        let clocks = clocks(&bytes);
        let with_clock: BTreeSet<usize> = clocks.iter().map(|c| index.frames_complete(c.offset)).collect();
        assert!(with_clock.into_iter().eq(0..index.frame_count()), "{name}: a PCR in every frame");
        for pair in clocks.windows(2) {
            let frame = index.frames_complete(pair[0].offset);
            let decoded = FIRST_DTS + index.dts_ns(frame).expect("exists") * 27 / 1000;
            // The next PCR is later than all bytes of this frame until there.
            assert!(pair[1].time <= decoded, "{name}: frame {frame} comes {} late", pair[1].time - decoded);
            let step = pair[1].time - pair[0].time;
            // ISO/IEC 13818-1, 2.7.2: at most 100 ms.
            assert!((1..=2_700_000).contains(&step), "{name}: frame {frame}");
        }
    }
}

#[test]
fn constant_rate_is_constant_in_every_byte() {
    for name in VARIANTS {
        let spec = ContentSpec { mode: RateMode::Cbr, duration_s: 12.0, ..spec_named(name) };
        let mut bytes = Vec::new();
        write_content(&spec, &mut bytes, &mut go_on).expect(name);
        let clocks = clocks(&bytes);
        for clock in &clocks {
            let bits = (clock.offset - clocks[0].offset) * 8;
            let wanted = u128::from(bits) * 27_000_000 / u128::from(spec.rate_bit_per_s);
            // PCR accuracy allows 500 ns (2.4.2.2); this is one tick of 27 MHz.
            assert!((clock.time - clocks[0].time).abs_diff(wanted as u64) <= 1, "{name}");
        }
    }
}

#[test]
fn frame_sizes_follow_the_model() {
    let spec = ContentSpec { duration_s: 120.0, ..spec_named("hd mpeg2 vbr") };
    let index = write_content(&spec, &mut std::io::sink(), &mut go_on).expect("content");
    let off = index.total_bytes().abs_diff(spec.total_bytes()) as f64 / spec.total_bytes() as f64;
    assert!(off < 1e-3, "off by {off}");
    let bytes = |frame: usize| {
        let before = frame.checked_sub(1).map_or(0, |f| index.end_offset(f).expect("exists"));
        (index.end_offset(frame).expect("exists") - before) as f64
    };
    let mut sizes = Vec::new();
    for gop in index.gops() {
        assert_eq!(gop.end_frame - gop.first_frame, 12);
        let others: f64 = (gop.first_frame + 1..gop.end_frame).map(bytes).sum::<f64>() / 11.0;
        let ratio = bytes(gop.first_frame) / others;
        assert!((4.9..5.1).contains(&ratio), "a key frame of {ratio} times another");
        sizes.push((gop.end_offset - gop.start_offset) as f64);
    }
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let deviation = (sizes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / sizes.len() as f64).sqrt();
    assert!((0.24..0.40).contains(&(deviation / mean)), "{}", deviation / mean);

    let constant = ContentSpec { mode: RateMode::Cbr, ..spec };
    let index = write_content(&constant, &mut std::io::sink(), &mut go_on).expect("content");
    let sizes: Vec<u64> = index.gops().map(|g| (g.end_offset - g.start_offset) / 188).collect();
    assert!(sizes.iter().max() <= sizes.iter().min().map(|s| s + 1).as_ref(), "{sizes:?}");
}

#[test]
fn tables_repeat_every_three_frames() {
    for name in VARIANTS {
        let spec = spec_named(name);
        let mut bytes = Vec::new();
        let index = write_content(&spec, &mut bytes, &mut go_on).expect(name);
        let tables = bytes.chunks(PACKET_BYTES).filter(|p| p[..3] == [0x47, 0x40, 0x00]).count();
        let wanted: usize = index.gops().map(|g| (g.end_frame - g.first_frame).div_ceil(3)).sum();
        assert_eq!(tables, wanted, "{name}");
        let mut checker = mpegts::TsChecker::new(index.video_pid());
        checker.feed(&bytes);
        let counts = checker.counts();
        let faults = counts.sync_errors + counts.continuity_errors + counts.damaged + counts.duplicates;
        assert_eq!(faults, 0, "{name}: {counts:?}");
        assert_eq!(counts.frames as usize, index.frame_count(), "{name}");
    }
}
