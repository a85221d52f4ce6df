//! Clocks in nanoseconds. Durations and deadlines are measured on the monotonic clock only.

use std::mem::MaybeUninit;
use std::time::Duration;

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds since an arbitrary start (boot, on Linux), never set back; `CLOCK_MONOTONIC`,
/// `clock_gettime(2)`.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// As [`monotonic_ns`], and it counts the time in which the machine is suspended; `CLOCK_BOOTTIME`,
/// `clock_gettime(2)`.
#[inline]
pub fn boottime_ns() -> u64 {
    read_ns(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds since 1970-01-01 UTC; may jump when the clock is set. `CLOCK_REALTIME`, `clock_gettime(2)`.
#[inline]
pub fn realtime_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME)
}

/// Sleeps until the monotonic clock reads at least `deadline_monotonic_ns`; returns at once if it already
/// does.
///
/// An absolute deadline does not drift: the time between computing a sleep and entering it is not added
/// (`clock_nanosleep(2)`, `TIMER_ABSTIME`). How late the thread wakes depends on its timer slack, see
/// [`crate::thread::set_timer_slack_ns`]. A signal does not shorten the sleep.
pub fn sleep_until_ns(deadline_monotonic_ns: u64) {
    let deadline = timespec_from_ns(deadline_monotonic_ns);
    loop {
        // SAFETY: `deadline` is a valid timespec that outlives the call, and a null remainder is allowed for
        // absolute sleeps.
        let code = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const deadline,
                std::ptr::null_mut(),
            )
        };
        // The call returns the error itself. Only EINTR can happen with these arguments.
        if code != libc::EINTR {
            return;
        }
    }
}

/// Kernel accounting ticks per second, the unit of `/proc/stat` (`sysconf(_SC_CLK_TCK)`); 100 on Linux.
pub fn tick_hz() -> u64 {
    // SAFETY: `sysconf` has no preconditions.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // -1 would mean "unknown"; the kernel's user-visible rate has been 100 on every supported architecture.
    u64::try_from(hz).ok().filter(|hz| *hz > 0).unwrap_or(100)
}

/// Reads any clock of `clock_gettime(2)`. The clocks passed in this crate always exist, so the call cannot
/// fail.
#[inline]
pub(crate) fn read_ns(clock: libc::clockid_t) -> u64 {
    try_read_ns(clock).unwrap_or(0)
}

/// Reads a clock that may not exist, such as the CPU clock of another process.
#[inline]
pub(crate) fn try_read_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is valid for a write of one timespec.
    let code = unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it has filled `time`.
    let time = unsafe { time.assume_init() };
    Some(ns_from_timespec(&time))
}

fn ns_from_timespec(time: &libc::timespec) -> u64 {
    #[allow(clippy::unnecessary_cast)] // 32-bit on some targets
    let (seconds, nanos) = (time.tv_sec as i64, time.tv_nsec as i64);
    // Times before 1970 have no use here and would only come from a clock that was never set.
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds.saturating_mul(NS_PER_S).saturating_add(u64::try_from(nanos).unwrap_or(0))
}

fn timespec_from_ns(ns: u64) -> libc::timespec {
    let seconds = i64::try_from(ns / NS_PER_S).unwrap_or(i64::MAX);
    // Below 10^9, so it fits `c_long` on every target.
    libc::timespec { tv_sec: seconds, tv_nsec: (ns % NS_PER_S) as libc::c_long }
}

/// A monotonic deadline for a bounded wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    at_ns: u64,
}

impl Deadline {
    pub fn after(within: Duration) -> Self {
        let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        Self { at_ns: monotonic_ns().saturating_add(within_ns) }
    }

    pub fn passed(&self) -> bool {
        monotonic_ns() >= self.at_ns
    }

    /// What is left; zero when it has passed.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.at_ns.saturating_sub(monotonic_ns()))
    }

    /// What is left in milliseconds, rounded up, for `poll(2)`: a wait never ends before the deadline.
    pub fn left_ms(&self) -> i32 {
        let ms = self.at_ns.saturating_sub(monotonic_ns()).div_ceil(1_000_000);
        i32::try_from(ms).unwrap_or(i32::MAX)
    }

    /// Waits a moment before the next try of something that cannot be waited for by a descriptor, never
    /// beyond the deadline. Returns `false` when the deadline has passed.
    pub fn pause(&self, step: Duration) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(step.min(left));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn monotonic_never_goes_back() {
        let mut last = monotonic_ns();
        for _ in 0..10_000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn sleep_reaches_the_deadline() {
        let deadline = monotonic_ns() + 2_000_000;
        sleep_until_ns(deadline);
        assert!(monotonic_ns() >= deadline);
        sleep_until_ns(0);
    }

    #[test]
    fn realtime_is_after_2024() {
        assert!(realtime_ns() > 1_704_067_200 * NS_PER_S);
    }

    #[test]
    fn clock_ticks_match_the_system() {
        let shown = std::process::Command::new("getconf").arg("CLK_TCK").output().expect("getconf");
        let shown: u64 = String::from_utf8_lossy(&shown.stdout).trim().parse().expect("a number");
        assert_eq!(tick_hz(), shown);
    }

    #[test]
    fn unknown_clock_has_no_reading() {
        assert_eq!(try_read_ns(9999), None);
    }

    #[test]
    fn deadlines_round_up_and_expire() {
        let deadline = Deadline::after(Duration::from_micros(1500));
        assert!(deadline.left_ms() <= 2);
        while deadline.pause(Duration::from_millis(1)) {}
        assert!(deadline.passed());
        assert_eq!(deadline.left(), Duration::ZERO);
        assert_eq!(Deadline::after(Duration::MAX).left_ms(), i32::MAX);
    }

    proptest! {
        #[test]
        fn timespec_round_trips(ns in 0..=i64::MAX as u64) {
            prop_assert_eq!(ns_from_timespec(&timespec_from_ns(ns)), ns);
        }
    }
}
