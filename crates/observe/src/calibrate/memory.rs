//! How fast one core copies memory: what a server that copies its content spends at least.

use std::hint::black_box;

use base::statistics::median;
use sys::clock::monotonic_ns;

use super::REPEATS;

/// Larger than the caches of most machines.
const BUFFER_BYTES: usize = 64 << 20;

/// Bytes copied per second from one buffer of 64 MiB to another, median of 3; about 0.1 s.
pub fn memory_copy_bytes_per_s() -> f64 {
    let from = vec![1u8; BUFFER_BYTES];
    // Not zeroes: the pages must be there before the clock runs.
    let mut to = vec![2u8; BUFFER_BYTES];
    let mut rates = [0.0; REPEATS];
    for rate in &mut rates {
        let started_ns = monotonic_ns();
        to.copy_from_slice(black_box(&from));
        black_box(&to);
        let elapsed_ns = monotonic_ns().saturating_sub(started_ns).max(1);
        *rate = BUFFER_BYTES as f64 * 1e9 / elapsed_ns as f64;
    }
    median(&rates).expect("REPEATS is not 0")
}
