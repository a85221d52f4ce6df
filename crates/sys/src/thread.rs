//! What one thread or process asks of the kernel about itself: wake-up precision, placement, CPU time, file
//! limit.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

/// Sets how much later than asked the kernel may wake this thread, in nanoseconds (`PR_SET_TIMERSLACK`,
/// `prctl(2)`). The default is 50,000 ns; 1 is the least. 0 would mean "back to the default", so it is read
/// as 1.
///
/// Threads started later by this thread inherit the value.
pub fn set_timer_slack_ns(slack_ns: u64) -> io::Result<()> {
    let slack = libc::c_ulong::try_from(slack_ns.max(1)).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory of ours.
    let code = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// This thread's timer slack in nanoseconds (`PR_GET_TIMERSLACK`).
pub fn timer_slack_ns() -> io::Result<u64> {
    // SAFETY: PR_GET_TIMERSLACK takes no arguments and returns the value.
    let code = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    u64::try_from(code).map_err(|_| io::Error::last_os_error())
}

/// Says that this thread serves a block device or file system (`PR_SET_IO_FLUSHER`, `prctl(2)`, since Linux
/// 5.6): the kernel then neither makes it wait for the very writes it is to serve nor asks it to free memory
/// by such writes.
///
/// Threads started later by this thread inherit it. Error: no right to (`CAP_SYS_RESOURCE`), or an older
/// kernel.
pub fn set_io_flusher() -> io::Result<()> {
    /// linux/prctl.h; libc has no name for it yet.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: PR_SET_IO_FLUSHER takes one integer and touches no memory of ours; the others must be 0.
    let code = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets this thread run before all that are scheduled normally (`SCHED_FIFO` of the lowest priority,
/// sched(7)): for one that stands for a device, works in microseconds and then waits again.
///
/// Threads started later by this thread inherit it. Error: no right to (`CAP_SYS_NICE`).
pub fn set_realtime() -> io::Result<()> {
    // SAFETY: all fields are integers (some systems have more than the priority), for which zero is a value.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = 1;
    // SAFETY: the structure is initialised and outlives the call; 0 means this thread.
    let code = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Adds to this thread's nice value (`nice(2)`, which on Linux changes one thread); the kernel keeps the sum
/// within -20 and 19.
///
/// Error: `PermissionDenied` for less than it was, without `CAP_SYS_NICE` or a sufficient `RLIMIT_NICE`.
pub fn add_nice(increment: i32) -> io::Result<()> {
    // SAFETY: getpriority takes two integers; 0 means this thread. The call itself returns 20 - nice.
    let rank = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) };
    let rank = i32::try_from(rank).ok().filter(|rank| *rank >= 0).ok_or_else(io::Error::last_os_error)?;
    let nice = (20 - rank).saturating_add(increment);
    // SAFETY: setpriority takes three integers and touches no memory of ours.
    let code = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    if code == 0 { Ok(()) } else { Err(denied(io::Error::last_os_error())) }
}

/// setpriority(2) says EACCES where others say EPERM.
fn denied(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EACCES) => io::Error::from_raw_os_error(libc::EPERM),
        _ => error,
    }
}

/// Gives this thread's I/O a level in the best-effort class, 0 (first) to 7 (`ioprio_set(2)`). Only some I/O
/// schedulers look at it (bfq, mq-deadline).
pub fn set_io_priority(level: u8) -> io::Result<()> {
    /// linux/ioprio.h; libc has no names for them.
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_BEST_EFFORT: libc::c_int = 2;
    const CLASS_SHIFT: libc::c_int = 13;
    const LEVEL_MAX: u8 = 7;
    // The kernel takes further bits for something else.
    if level > LEVEL_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let priority = (CLASS_BEST_EFFORT << CLASS_SHIFT) | libc::c_int::from(level);
    // SAFETY: ioprio_set takes three integers; 0 means this thread.
    let code = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps this thread on one CPU (`sched_setaffinity(2)`). `cpu` is the kernel's number, see [`online_cpus`].
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

/// The CPUs this thread may run on, in ascending order (`sched_getaffinity(2)`). Inside a container or a
/// cpuset these are fewer than the machine has.
pub fn online_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

/// CPU time this thread has used, in nanoseconds (`CLOCK_THREAD_CPUTIME_ID`).
#[inline]
pub fn thread_cpu_ns() -> u64 {
    crate::clock::read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Time this thread has been ready to run and had no CPU, in nanoseconds (`/proc/thread-self/schedstat`);
/// `None` where the kernel does not account for it.
pub fn thread_ready_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Bytes that this process has caused to be read from storage so far, over all its threads (`read_bytes` of
/// `/proc/self/io`, proc_pid_io(5)): what the page cache had is not in it. `None` where the kernel does not
/// account for it. File systems without a block device do not count all of their reads in it.
pub fn process_storage_read_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// CPU time this process has used over all its threads, in nanoseconds (`CLOCK_PROCESS_CPUTIME_ID`).
#[inline]
pub fn process_cpu_ns() -> u64 {
    crate::clock::read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// What `work` returns on a thread of its own, which ends with it: what it changes about itself, such as its
/// namespace, changes no other thread.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// This thread's kernel id (`gettid(2)`), as it appears in `/proc/PID/task`.
pub fn thread_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Raises the number of files this process may have open to `wanted`, and returns the limit that then holds.
///
/// The soft limit is raised up to the hard one; the hard one only when the process may (root). The answer may
/// be less than `wanted`: the caller says so. A higher limit is left as it is. Errors: those of
/// `setrlimit(2)` other than a refusal.
pub fn raise_file_limit(wanted: u64) -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= wanted {
        return Ok(soft);
    }
    if hard < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_ok() {
        return Ok(wanted);
    }
    let reachable = wanted.min(hard);
    if reachable > soft {
        setrlimit(Resource::RLIMIT_NOFILE, reachable, hard)?;
    }
    Ok(reachable.max(soft))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_is_set_for_this_thread() {
        std::thread::spawn(|| {
            set_timer_slack_ns(1).unwrap();
            assert_eq!(timer_slack_ns().unwrap(), 1);
            set_timer_slack_ns(0).unwrap();
            assert_eq!(timer_slack_ns().unwrap(), 1, "0 must not mean the 50 us default");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn pinned_thread_may_run_on_its_cpu_only() {
        std::thread::spawn(|| {
            let all = online_cpus().unwrap();
            assert!(!all.is_empty());
            pin_to_cpu(all[0]).unwrap();
            assert_eq!(online_cpus().unwrap(), [all[0]]);
            assert!(pin_to_cpu(100_000).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn nice_and_io_level_are_those_of_this_thread_alone() {
        // Field 19 of proc_pid_stat(5), the third behind the name being the state.
        let nice = || {
            let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            text.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse::<i32>().unwrap()
        };
        let before = nice();
        std::thread::spawn(move || {
            add_nice(2).unwrap();
            add_nice(1).unwrap();
            assert_eq!(nice(), (before + 3).min(19));
            set_io_priority(7).unwrap();
            assert!(set_io_priority(200).is_err(), "no further bits are set");
        })
        .join()
        .unwrap();
        assert_eq!(nice(), before);
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let process = process_cpu_ns();
        let thread = thread_cpu_ns();
        let mut sum = 0u64;
        while thread_cpu_ns() < thread + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_ns() >= process + 1_000_000);
    }

    #[test]
    fn file_limit_is_never_lowered() {
        let before = getrlimit(Resource::RLIMIT_NOFILE).unwrap().0;
        assert_eq!(raise_file_limit(1).unwrap(), before);
        let now = raise_file_limit(before + 1).unwrap();
        assert!(now >= before);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, now);
    }
}
