//! How late a thread of this host wakes up at a start time: the best precision that parts can expect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sys::clock::{monotonic_ns, sleep_until_ns};

/// Latency in ns; 0 until the start time.
pub type WakeupLatency = Arc<AtomicU64>;

pub fn measure(at_ns: u64) -> std::io::Result<WakeupLatency> {
    let latency = WakeupLatency::default();
    let measured = Arc::clone(&latency);
    let measure = move || {
        // The default timer slack alone adds 50 us.
        let _ = sys::thread::set_timer_slack_ns(1);
        sleep_until_ns(at_ns);
        measured.store(monotonic_ns().saturating_sub(at_ns).max(1), Ordering::Relaxed);
    };
    std::thread::Builder::new().name("start".to_owned()).spawn(measure)?;
    Ok(latency)
}

/// The measured latency in ns; `None` before the start time.
pub fn read(latency: &WakeupLatency) -> Option<u64> {
    Some(latency.load(Ordering::Relaxed)).filter(|latency_ns| *latency_ns > 0)
}
