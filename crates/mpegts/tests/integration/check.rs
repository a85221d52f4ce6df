//! The checker of players against streams with known faults.

use crate::common;
use common::{go_on, spec_named};
use mpegts::{ContentIndex, ContentSpec, PACKET_BYTES, TsChecker, TsCounts, write_content};
use proptest::prelude::*;
use std::sync::OnceLock;

fn content() -> &'static (Vec<u8>, ContentIndex) {
    static CONTENT: OnceLock<(Vec<u8>, ContentIndex)> = OnceLock::new();
    CONTENT.get_or_init(|| {
        let mut bytes = Vec::new();
        let spec = ContentSpec { duration_s: 2.0, ..spec_named("small mpeg2") };
        let index = write_content(&spec, &mut bytes, &mut go_on).expect("content");
        (bytes, index)
    })
}

fn checked(bytes: &[u8]) -> TsCounts {
    let mut checker = TsChecker::new(content().1.video_pid());
    checker.feed(bytes);
    checker.counts()
}

fn clean() -> TsCounts {
    let (bytes, index) = content();
    let (packets, frames) = ((bytes.len() / PACKET_BYTES) as u64, index.frame_count() as u64);
    TsCounts { packets, frames, ..Default::default() }
}

/// A packet in the middle of frame `frame`.
fn inside(frame: usize) -> usize {
    content().1.end_offset(frame).expect("exists") as usize - PACKET_BYTES
}

#[test]
fn undamaged_content_has_no_errors() {
    assert_eq!(checked(&content().0), clean());
}

#[test]
fn dropped_packet_is_one_continuity_error() {
    let mut bytes = content().0.clone();
    bytes.drain(inside(5)..inside(5) + PACKET_BYTES);
    let wanted = TsCounts { packets: clean().packets - 1, continuity_errors: 1, ..clean() };
    assert_eq!(checked(&bytes), wanted);
}

#[test]
fn packet_may_repeat_once() {
    let (at, end) = (inside(5), inside(5) + PACKET_BYTES);
    let packet = &content().0[at..end];
    let twice = [&content().0[..end], packet, &content().0[end..]].concat();
    let wanted = TsCounts { packets: clean().packets + 1, duplicates: 1, ..clean() };
    assert_eq!(checked(&twice), wanted);
    let thrice = [&content().0[..end], packet, packet, &content().0[end..]].concat();
    let wanted = TsCounts { packets: clean().packets + 2, duplicates: 1, continuity_errors: 1, ..clean() };
    assert_eq!(checked(&thrice), wanted);
}

#[test]
fn repeated_start_is_not_a_frame() {
    let (bytes, index) = content();
    // Frame 1 comes without tables: its first packet follows frame 0.
    let at = index.end_offset(0).expect("exists") as usize;
    let end = at + PACKET_BYTES;
    assert_eq!(bytes[at + 1] & 0x40, 0x40);
    let twice = [&bytes[..end], &bytes[at..]].concat();
    let wanted = TsCounts { packets: clean().packets + 1, duplicates: 1, ..clean() };
    assert_eq!(checked(&twice), wanted);
}

#[test]
fn swapped_packets_are_detected() {
    let mut bytes = content().0.clone();
    // Two packets of frame 0, a key frame of many packets.
    let at = 5 * PACKET_BYTES;
    bytes[at..at + 2 * PACKET_BYTES].rotate_left(PACKET_BYTES);
    assert!(checked(&bytes).continuity_errors >= 2);
}

#[test]
fn wrong_sync_byte_is_one_sync_error() {
    let mut bytes = content().0.clone();
    bytes[inside(5)] = 0;
    let wanted = TsCounts {
        packets: clean().packets - 1,
        sync_errors: 1,
        skipped_bytes: PACKET_BYTES as u64,
        ..clean()
    };
    // The counters begin again after the loss: it is not counted twice.
    assert_eq!(checked(&bytes), wanted);
}

#[test]
fn missing_bytes_are_one_sync_error() {
    for missing in [1, 7, 100, 187] {
        let mut bytes = content().0.clone();
        let at = inside(5) + 10;
        bytes.drain(at..at + missing);
        let counts = checked(&bytes);
        assert_eq!((counts.sync_errors, counts.continuity_errors), (1, 0), "{missing}");
        assert!(counts.frames.abs_diff(clean().frames) <= 1, "{missing}");
    }
    // Whole packets: not seen by the sync bytes, but by the counter.
    let mut bytes = content().0.clone();
    bytes.drain(inside(5) + 10..inside(5) + 10 + PACKET_BYTES);
    assert_eq!((checked(&bytes).sync_errors, checked(&bytes).continuity_errors), (0, 1));
}

#[test]
fn sender_flags_are_respected() {
    let mut bytes = content().0.clone();
    let at = inside(5);
    bytes[at + 1] |= 0x80;
    let counts = checked(&bytes);
    // The packet cannot be trusted, so for its PID it is missing.
    assert_eq!((counts.damaged, counts.continuity_errors), (1, 1));

    // A jump that is announced by discontinuity_indicator is no error.
    let jump: Vec<u8> = [(1, 0x10, 0, 0), (9, 0x30, 1, 0x80), (10, 0x10, 0, 0)]
        .into_iter()
        .flat_map(|(counter, control, length, flags)| {
            let mut packet = [0xFF; PACKET_BYTES];
            packet[..6].copy_from_slice(&[0x47, 0x01, 0x00, control | counter, length, flags]);
            packet
        })
        .collect();
    assert_eq!(checked(&jump), TsCounts { packets: 3, ..Default::default() });
}

#[test]
fn restart_allows_a_jump() {
    let (bytes, index) = content();
    let second = index.gop(1).expect("exists").start_offset as usize;
    let mut checker = TsChecker::new(index.video_pid());
    // Leaves in the middle of a packet.
    checker.feed(&bytes[..1000]);
    checker.restart();
    checker.feed(&bytes[second..]);
    let counts = checker.counts();
    assert_eq!(counts.sync_errors + counts.continuity_errors + counts.damaged, 0, "{counts:?}");
}

#[test]
fn tracked_pids_are_bounded() {
    let mut checker = TsChecker::new(0x100);
    for pid in (0..0x2000_u16).chain(0..0x2000) {
        let mut packet = [0xFF; PACKET_BYTES];
        packet[..4].copy_from_slice(&[0x47, (pid >> 8) as u8, pid as u8, 0x10]);
        checker.feed(&packet);
    }
    // The second round repeats the counter of those PIDs that are followed.
    assert_eq!(checker.counts().duplicates, 64);
}

proptest! {
    #[test]
    fn checker_is_independent_of_piece_sizes(
        sizes in prop::collection::vec(1..3000_usize, 1..50),
        faults in prop::collection::vec((any::<prop::sample::Index>(), 0..400_usize), 0..4),
    ) {
        let mut bytes = content().0.clone();
        for (at, missing) in faults {
            let at = at.index(bytes.len() - 400);
            bytes.drain(at..at + missing);
        }
        let mut checker = TsChecker::new(content().1.video_pid());
        let mut rest = &bytes[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at(rest.len().min(*size));
            checker.feed(now);
            rest = later;
        }
        prop_assert_eq!(checker.counts(), checked(&bytes));
    }

    #[test]
    fn noise_never_panics(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..20),
    ) {
        let mut checker = TsChecker::new(0x100);
        let mut bytes = 0;
        for piece in &pieces {
            checker.feed(piece);
            bytes += piece.len() as u64;
        }
        let counts = checker.counts();
        prop_assert!(counts.skipped_bytes <= bytes && counts.frames <= counts.packets);
    }
}
