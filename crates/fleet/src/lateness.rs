//! How late a host begins what it was told to begin at a moment: what parts that start together can hope for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sys::clock::{monotonic_ns, sleep_until_ns};

/// A lateness that a thread will have seen; 0 until then.
pub type Late = Arc<AtomicU64>;

/// See at the moment itself how late a thread runs then.
///
/// # Errors
/// There are no threads left.
pub fn watch(at_ns: u64) -> std::io::Result<Late> {
    let late = Late::default();
    let seen = Arc::clone(&late);
    let watch = move || {
        // Without it the watch itself would be late by 50 us.
        let _ = sys::thread::set_timer_slack_ns(1);
        sleep_until_ns(at_ns);
        seen.store(monotonic_ns().saturating_sub(at_ns).max(1), Ordering::Relaxed);
    };
    std::thread::Builder::new().name("start".to_owned()).spawn(watch)?;
    Ok(late)
}

/// What was seen; nothing before the moment.
pub fn seen(late: &Late) -> Option<u64> {
    Some(late.load(Ordering::Relaxed)).filter(|late_ns| *late_ns > 0)
}
