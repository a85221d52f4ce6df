//! Time for spans: the CPU's time-stamp counter where the kernel itself trusts it, clock_gettime(2)
//! elsewhere.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::clock::monotonic_ns;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The time-stamp counter, turned into nanoseconds when spans are taken.
    Counter,
    /// `CLOCK_MONOTONIC`.
    Kernel,
}

/// 0 unknown, 1 counter, 2 kernel.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

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

/// The kernel uses the counter for its own clocks only if it runs at a constant rate on all CPUs, also while
/// they sleep; it watches it and gives it up otherwise (Documentation/virt/kvm/x86/timekeeping.rst).
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
        // SAFETY: every x86-64 CPU has the instruction, and the kernel that trusts the counter lets programs
        // read it.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    monotonic_ns()
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    ticks: u64,
    ns: u64,
}

impl Anchor {
    /// This moment. Of a few tries the one that took the least, so that an interruption is not taken for
    /// time.
    pub(super) fn now() -> Self {
        let one = || {
            let (before, ns, after) = (ticks(), monotonic_ns(), ticks());
            (after.saturating_sub(before), Self { ticks: before + (after.saturating_sub(before)) / 2, ns })
        };
        let tries = [one(), one(), one(), one(), one()];
        let best = tries.into_iter().min_by_key(|(took, _)| *took);
        best.map_or(Self { ticks: ticks(), ns: monotonic_ns() }, |(_, anchor)| anchor)
    }

    /// The line through this moment and a later one, by which readings become ns of the monotonic clock.
    pub(super) fn line_to(&self, later: &Self) -> Line {
        let (ran, passed) = (later.ticks.saturating_sub(self.ticks), later.ns.saturating_sub(self.ns));
        // Once for all readings: a division each would take as long as the span itself.
        let ns_of_tick =
            if ran == 0 { 1 << FRACTION } else { (i128::from(passed) << FRACTION) / i128::from(ran) };
        Line { from: *self, ns_of_tick }
    }
}

/// Bits of a tick's length behind the point: over an hour of 4 GHz the rest comes to less than 1 ns.
const FRACTION: u32 = 44;

/// How readings become time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    from: Anchor,
    ns_of_tick: i128,
}

impl Line {
    /// A reading as ns of the monotonic clock.
    pub(super) fn ns_of(&self, ticks: u64) -> u64 {
        let since = i128::from(ticks) - i128::from(self.from.ticks);
        u64::try_from(i128::from(self.from.ns) + ((since * self.ns_of_tick) >> FRACTION)).unwrap_or(0)
    }
}
