//! Indexing of transport streams that others made: raw bytes, or packets behind tables with right checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mpegts::{ContentIndex, scan};
use std::ops::ControlFlow;
use stream::content::Content;
use stream::content::timeline::TimelineError;

fuzz_target!(|data: &[u8]| {
    let (how, rest) = fuzz::choice(data);
    let content = if how & 1 == 0 { fuzz::stream(rest) } else { rest.to_vec() };
    let Ok(index) = scan(&mut content.as_slice(), None, &mut |_| ControlFlow::Continue(())) else { return };
    assert_eq!(index.total_bytes(), content.len() as u64);
    for gop in index.gops() {
        let bytes = &content[gop.start_offset as usize..gop.end_offset as usize];
        assert_eq!(crc32c::crc32c(bytes), gop.crc32c, "the checksum of {gop:?}");
    }
    let written = index.to_bytes().expect("a small index fits");
    assert_eq!(ContentIndex::read(&written).as_ref(), Ok(&index));
    if let Err(error) = Content::new(&index, true) {
        assert_eq!(error, TimelineError::Short, "what was indexed cannot be played");
    }
});
