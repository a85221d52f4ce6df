//! What the other end of an iperf3 test saw, with whatever numbers: only finite ones at or above zero are
//! taken, and what is taken is written and read again as the same.
#![no_main]

use iperf3::{Results, STREAMS_MAX, StreamResult};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let read = |text: &[u8]| Results::read(text, STREAMS_MAX);
    let Ok(results) = read(data) else { return };
    for percent in [results.cpu_total_percent, results.cpu_user_percent, results.cpu_system_percent] {
        assert!(percent.is_none_or(|percent| percent.is_finite() && percent >= 0.0));
    }
    for stream in &results.streams {
        for number in [stream.jitter_s, stream.seconds].into_iter().flatten() {
            assert!(number.is_finite() && number >= 0.0);
        }
    }
    // What is absent is written as the number that iperf3 takes for it; from then on nothing changes.
    let written = |results: &Results| serde_json::to_vec(&results.to_json()).expect("it is JSON");
    let again = read(&written(&results)).expect("what is written can be read");
    assert_eq!(read(&written(&again)).as_ref(), Ok(&again));
    let ids =
        |results: &Results| results.streams.iter().map(|stream: &StreamResult| stream.id).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&results));
});
