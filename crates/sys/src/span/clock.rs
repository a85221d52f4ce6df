//! Time for spans: the CPU's time-stamp counter where the kernel itself trusts it, clock_gettime(2) elsewhere.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::clock::monotonic_ns;

/// What spans are timed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The time-stamp counter, turned into nanoseconds when spans are taken.
    Counter,
    /// `CLOCK_MONOTONIC`.
    Kernel,
}

/// 0 unknown, 1 counter, 2 kernel.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// What spans are timed by on this machine.
pub fn clock() -> Clock {
    choose();
    if CHOSEN.load(Ordering::Relaxed) == 1 { Clock::Counter } else { Clock::Kernel }
}

/// Finds out once.
pub(super) fn choose() {
    if CHOSEN.load(Ordering::Relaxed) == 0 {
        let chosen = if cfg!(target_arch = "x86_64") && is_counter_trusted() { 1 } else { 2 };
        CHOSEN.store(chosen, Ordering::Relaxed);
    }
}

/// The kernel uses the counter for its own clocks only if it runs at a constant rate on all CPUs, also while they sleep;
/// it watches it and gives it up otherwise (Documentation/virt/kvm/x86/timekeeping.rst).
fn is_counter_trusted() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(path).is_ok_and(|name| name.trim() == "tsc")
}

/// A reading of the chosen clock.
#[inline]
#[allow(
    unused_unsafe,
    reason = "whether reading the counter is unsafe differs between versions of the library"
)]
pub(super) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if CHOSEN.load(Ordering::Relaxed) == 1 {
        // SAFETY: every x86-64 CPU has the instruction, and the kernel that trusts the counter lets programs read it.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    monotonic_ns()
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    ticks: u64,
    ns: u64,
}

impl Anchor {
    /// This moment. Of a few tries the one that took the least, so that an interruption is not taken for time.
    pub(super) fn now() -> Self {
        let one = || {
            let (before, ns, after) = (ticks(), monotonic_ns(), ticks());
            (after.saturating_sub(before), Self { ticks: before + (after.saturating_sub(before)) / 2, ns })
        };
        let tries = [one(), one(), one(), one(), one()];
        let best = tries.into_iter().min_by_key(|(took, _)| *took);
        best.map_or(Self { ticks: ticks(), ns: monotonic_ns() }, |(_, anchor)| anchor)
    }

    /// A reading as ns of the monotonic clock, on the line through this moment and a later one.
    pub(super) fn ns_of(&self, ticks: u64, later: &Self) -> u64 {
        let (ran, passed) = (later.ticks.saturating_sub(self.ticks), later.ns.saturating_sub(self.ns));
        if ran == 0 {
            return self.ns;
        }
        let since = i128::from(ticks) - i128::from(self.ticks);
        let ns = i128::from(self.ns) + since * i128::from(passed) / i128::from(ran);
        u64::try_from(ns).unwrap_or(0)
    }
}
