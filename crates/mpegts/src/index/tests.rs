use super::*;
use crate::error::IndexError;
use proptest::prelude::*;

/// Two groups, three frames; the first group begins 376 bytes into the file.
fn small() -> ContentIndex {
    let mut builder = IndexBuilder::default();
    builder.push_gop(376);
    builder.push_frame(1128, 0);
    builder.push_frame(1504, 3600);
    builder.push_gop(1504);
    builder.push_frame(2256, 7200);
    builder.push_gop_crc(0x0102_0304);
    builder.push_gop_crc(0x0A0B_0C0D);
    builder.finish(whole()).expect("keeps the rules")
}

fn whole() -> ContentInfo {
    ContentInfo {
        codec: Codec::H264,
        frame_rate: FrameRate::FPS_25,
        video_pid: 0x100,
        total_bytes: 2444,
        made: Some(Made { rate_bit_per_s: 1_000_000, mode: RateMode::Cbr, width: 320, height: 180, seed: 9 }),
    }
}

/// The test vector of the format.
#[rustfmt::skip]
const SMALL: [u8; 124] = [
    b'k', b'g', b'i', 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 1, 0, 2, 2, 0x00, 0x01, 0, 0,
    25, 0, 0, 0, 1, 0, 0, 0, 0x8C, 0x09, 0, 0, 0, 0, 0, 0,
    0x40, 0x42, 0x0F, 0, 0, 0, 0, 0, 0x40, 0x01, 0, 0, 0xB4, 0, 0, 0,
    9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
    0x78, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1,
    0xE0, 0x05, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0x0D, 0x0C, 0x0B, 0x0A,
    0xF0, 0x02, 0, 0, 0, 0, 0, 0, 0x78, 0x01, 0, 0, 0x10, 0x0E, 0, 0, 0xF0, 0x02, 0, 0, 0x10, 0x0E, 0, 0,
    0, 0, 0, 0,
];

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..body]);
    bytes[body..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn index_format_matches_its_description() {
    let vector = sealed(SMALL.to_vec());
    assert_eq!(small().to_bytes().expect("fits"), vector);
    assert_eq!(ContentIndex::read(&vector), Ok(small()));
}

#[test]
fn index_answers_queries() {
    let index = small();
    assert_eq!((index.frame_count(), index.gop_count(), index.total_bytes()), (3, 2, 2444));
    assert_eq!((index.end_offset(1), index.end_offset(3)), (Some(1504), None));
    assert_eq!((index.dts_ns(2), index.dts_ns(3)), (Some(80_000_000), None));
    assert_eq!(index.duration_ns(), 120_000_000);
    assert_eq!(index.rate_bit_per_s(), 2068 * 8 * 1000 / 120);
    let complete = [0, 1127, 1128, 1503, 1504, 2255, 2256, u64::MAX].map(|o| index.frames_complete(o));
    assert_eq!(complete, [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!([0, 1, 2, 9].map(|f| index.gop_of_frame(f)), [0, 0, 1, 1]);
    assert_eq!([0, 376, 1503, 1504, 9999].map(|o| index.gop_of_offset(o)), [0, 0, 0, 1, 1]);
    let until = [0, 39_999_999, 40_000_000, 80_000_000, u64::MAX].map(|t| index.bytes_until(t));
    assert_eq!(until, [1128, 1128, 1504, 2256, 2256]);
    let second =
        Gop { start_offset: 1504, end_offset: 2444, first_frame: 2, end_frame: 3, crc32c: 0x0A0B_0C0D };
    assert_eq!((index.gop(1), index.gop(2)), (Some(second), None));
    assert_eq!(index.gops().map(|g| g.end_frame - g.first_frame).sum::<usize>(), 3);
}

#[test]
fn invalid_index_fields_are_named() {
    let change = |at: usize, new: &[u8]| {
        let mut bytes = SMALL.to_vec();
        bytes[at..at + new.len()].copy_from_slice(new);
        ContentIndex::read(&sealed(bytes)).expect_err("a lie").to_string()
    };
    for (at, new, words) in [
        (0, &b"PK"[..], "no kagiri index"),
        (8, &[2][..], "version 2"),
        (8, &[0], "`version` is 0"),
        (10, &[9], "`codec` is 9"),
        (11, &[3], "`origin` is 3"),
        (13, &[0x40], "`video PID`"),
        (16, &[0], "`frame rate` is 0"),
        (24, &[0, 0], "frame entry 2 ends after the end"),
        (56, &[0], "`frame count` is 0"),
        (56, &[4], "bytes long where 132 were expected"),
        (59, &[0xFF], "`frame count`"),
        (60, &[4], "`GOP count` is 4"),
        (60, &[1], "bytes long where"),
        (64, &[0xFF; 8], "frame entry 0 ends beyond any file"),
        (72, &[1], "GOP entry 0 does not begin with frame 0"),
        (80, &[0], "GOP entry 1 does not begin at its key frame"),
        (88, &[0], "GOP entry 1 does not begin after"),
        (88, &[3], "GOP entry 1 begins with a frame that does not exist"),
        (100, &[7], "frame entry 0 does not begin at time 0"),
        (104, &[0, 0], "frame entry 1 does not end after"),
        (108, &[0, 0], "frame entry 1 is not later"),
    ] {
        let message = change(at, new);
        assert!(message.contains(words), "{message} at {at}");
        assert!(message.contains("make it again") || message.contains("make the index again"), "{message}");
    }
}

#[test]
fn content_longer_than_a_year_is_rejected() {
    let mut builder = IndexBuilder::default();
    builder.push_gop(0);
    builder.push_gop_crc(0);
    let year = 365 * 86_400 * 90_000;
    for (frame, dts) in [0, year, year + 1].into_iter().enumerate() {
        builder.push_frame(188 * (frame as u64 + 1), dts);
    }
    let error = builder.finish(whole()).expect_err("too long").to_string();
    assert!(error.contains("frame entry 2 is more than a year after the first"), "{error}");
}

#[test]
fn truncated_index_is_rejected() {
    let whole = sealed(SMALL.to_vec());
    for length in 0..whole.len() {
        let error = ContentIndex::read(&whole[..length]).expect_err("cut off");
        let expected = if length == 0 {
            matches!(error, IndexError::Magic)
        } else {
            matches!(error, IndexError::Length { .. })
        };
        assert!(expected || matches!(error, IndexError::Magic), "{length}: {error}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(matches!(ContentIndex::read(&longer), Err(IndexError::Length { .. })));
}

fn any_index() -> impl Strategy<Value = ContentIndex> {
    let frames =
        prop::collection::vec((1..5_000_000_u64, 1..1_000_000_u64, any::<bool>(), any::<u32>()), 1..60);
    (frames, 0..10_000_u64, 0..1000_u64).prop_map(|(frames, head, tail)| {
        let (mut builder, mut end, mut dts) = (IndexBuilder::default(), head, 0);
        for (at, (bytes, ticks, key, crc)) in frames.into_iter().enumerate() {
            if at == 0 || key {
                builder.push_gop(end);
                builder.push_gop_crc(crc);
            }
            dts += if at == 0 { 0 } else { ticks };
            end += bytes;
            builder.push_frame(end, dts);
        }
        builder
            .finish(ContentInfo { total_bytes: end + tail, made: None, ..whole() })
            .expect("keeps the rules")
    })
}

proptest! {
    #[test]
    fn index_round_trips(index in any_index()) {
        let bytes = index.to_bytes().expect("fits");
        prop_assert_eq!(ContentIndex::read(&bytes).expect("reads"), index);
    }

    #[test]
    fn one_flipped_bit_is_detected(index in any_index(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut bytes = index.to_bytes().expect("fits");
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(ContentIndex::read(&bytes).is_err());
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300), from in 0..124_usize) {
        let _ = ContentIndex::read(&noise);
        // Noise behind a good start, sealed so that it reaches the inner checks.
        let mut bytes = SMALL.to_vec();
        for (byte, new) in bytes[from..].iter_mut().zip(&noise) {
            *byte = *new;
        }
        if let Ok(index) = ContentIndex::read(&sealed(bytes)) {
            prop_assert!(index.bytes_until(0) <= index.total_bytes());
            let _ = (index.rate_bit_per_s(), index.duration_ns(), index.gops().count());
        }
    }

    #[test]
    fn queries_agree_with_counting(
        index in any_index(),
        offset in 0..300_000_000_u64,
        time in 0..700_000_000_000_u64,
        known in 0..70_usize,
    ) {
        let ends: Vec<u64> = (0..index.frame_count()).filter_map(|f| index.end_offset(f)).collect();
        let complete = ends.iter().filter(|&&e| e <= offset).count();
        prop_assert_eq!(index.frames_complete(offset), complete);
        prop_assert_eq!(index.frames_complete_from(known.min(complete), offset), complete);
        let due = (0..index.frame_count()).filter(|&f| index.dts_ns(f).is_some_and(|d| d <= time)).count();
        prop_assert_eq!(index.frames_due(time), due);
        prop_assert_eq!(index.bytes_until(time), ends[due - 1]);
        let gop = index.gop(index.gop_of_offset(offset)).expect("exists");
        prop_assert!(gop.start_offset <= offset || gop.first_frame == 0);
        prop_assert!(offset < gop.end_offset || offset >= index.total_bytes());
        for frame in 0..index.frame_count() {
            let gop = index.gop(index.gop_of_frame(frame)).expect("exists");
            prop_assert!((gop.first_frame..gop.end_frame).contains(&frame));
            // A time given as ns finds its frame again.
            prop_assert_eq!(index.frames_due(index.dts_ns(frame).expect("exists")), frame + 1);
        }
    }
}
