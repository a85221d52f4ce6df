//! Indexes of segment pools: damaged ones are named; in accepted ones no two files share a segment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pool::index::replay;

/// Checksums are set right, because no fuzzer guesses them; a line that begins with `!` keeps its own.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let lines = data.split(|&byte| byte == b'\n').map(|line| match line {
        [b'!', line @ ..] => [line, b"\n"].concat(),
        line => [format!("{:08x} ", crc32c::crc32c(line)).as_bytes(), line, b"\n"].concat(),
    });
    lines.flatten().collect()
}

fuzz_target!(|data: &[u8]| {
    let log = with_checksums(data);
    let state = match replay(&log) {
        Ok(state) => state,
        Err(damage) => return assert!(damage.record > 0 && !damage.reason.is_empty()),
    };
    assert!(state.whole_bytes <= log.len() as u64);
    let runs = state.files.values().flat_map(|file| &file.runs);
    let mut all: Vec<_> = runs.flat_map(|&(first, count)| first..first + count).collect();
    let used = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), used, "a segment belongs to one file");
    assert_eq!(used + state.free_segments() as usize, state.segments as usize);
});
