//! Index files, as they come from a disk or a stranger's server. Half of the inputs get the length and
//! checksum that their counts ask for, so that what lies behind those checks is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mpegts::ContentIndex;
use stream::content::Content;

const HEADER_BYTES: usize = 64;

/// `data` as an index file whose magic, version, counts, length and checksum are right.
fn repaired(data: &[u8], gops: usize) -> Vec<u8> {
    let mut file = data.to_vec();
    file.resize(file.len().max(HEADER_BYTES + 24), 1);
    let gops = gops.clamp(1, (file.len() - HEADER_BYTES) / 24);
    let frames = (file.len() - HEADER_BYTES - 16 * gops) / 8;
    file.truncate(HEADER_BYTES + 16 * gops + 8 * frames);
    file[..10].copy_from_slice(b"kgi\r\n\x1a\n\0\x01\0");
    file[56..60].copy_from_slice(&(frames as u32).to_le_bytes());
    file[60..64].copy_from_slice(&(gops as u32).to_le_bytes());
    file.extend_from_slice(&crc32c::crc32c(&file).to_le_bytes());
    file
}

fuzz_target!(|data: &[u8]| {
    let (how, data) = fuzz::choice(data);
    let file = if how & 1 == 0 { repaired(data, usize::from(how >> 1)) } else { data.to_vec() };
    let Ok(index) = ContentIndex::read(&file) else { return };
    let written = index.to_bytes().expect("what was read from an index fits into one");
    assert_eq!(ContentIndex::read(&written).as_ref(), Ok(&index));
    let _ = (index.duration_ns(), index.rate_bit_per_s(), index.memory_bytes());
    for gop in index.gops() {
        assert!(gop.start_offset < gop.end_offset && gop.first_frame < gop.end_frame);
        assert_eq!(index.gop_of_frame(gop.first_frame), index.gop_of_offset(gop.start_offset));
    }
    for ns in [0, 1_000_000_000, u64::MAX] {
        assert!(index.bytes_until(ns) <= index.total_bytes());
    }
    // Refused are films that are over at once, or faster than any link.
    let Ok(content) = Content::new(&index, false) else { return };
    let timeline = &content.timeline;
    for gop in 0..timeline.gops().len().min(4) {
        for ns in [0, 1_000_000_000, 86_400_000_000_000] {
            let _ = (timeline.bytes_until(gop, ns), timeline.frames_until(gop, ns));
        }
    }
});
