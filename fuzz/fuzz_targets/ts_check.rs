//! The checker of a stream while it is played: what it counts does not depend on how the stream comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mpegts::{PACKET_BYTES, TsChecker};

fuzz_target!(|data: &[u8]| {
    let (how, rest) = fuzz::choice(data);
    let content = if how & 1 == 0 { fuzz::stream(rest) } else { rest.to_vec() };
    let mut whole = TsChecker::new(fuzz::PID_VIDEO);
    whole.feed(&content);
    let mut pieces = TsChecker::new(fuzz::PID_VIDEO);
    for piece in fuzz::pieces(&content, how) {
        pieces.feed(piece);
    }
    assert_eq!(whole.counts(), pieces.counts());
    let counts = whole.counts();
    assert!(counts.skipped_bytes <= content.len() as u64);
    // A packet is counted by its header, so the last one may be cut off.
    assert!(counts.packets <= content.len().div_ceil(PACKET_BYTES) as u64);
    pieces.restart();
    pieces.feed(&content);
});
