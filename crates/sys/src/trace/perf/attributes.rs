//! `struct perf_event_attr` of linux/perf_event.h, and what is opened with it.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub(super) const TYPE_SOFTWARE: u32 = 1;
pub(super) const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_COUNT_SW_DUMMY`: counts nothing, and carries the records of switches, names, starts and ends.
pub(super) const COUNT_DUMMY: u64 = 9;

const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_RAW: u64 = 1 << 10;
/// `PERF_FORMAT_LOST`, since Linux 6.0.
pub(super) const FORMAT_LOST: u64 = 1 << 4;

pub(super) const DISABLED: u64 = 1;
pub(super) const INHERIT: u64 = 1 << 1;
pub(super) const ENABLE_ON_EXEC: u64 = 1 << 12;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const EXCLUDE_HV: u64 = 1 << 6;
/// What the event that carries the records of threads asks for.
pub(super) const OF_THREADS: u64 = COMM | COMM_EXEC | TASK | CONTEXT_SWITCH;

const FLAG_CLOEXEC: libc::c_ulong = 1 << 3;

/// The structure, as of `PERF_ATTR_SIZE_VER5` (Linux 4.1).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

impl Attributes {
    /// An event whose every occurrence becomes a record with thread, time and CPU, by the monotonic clock.
    pub(super) fn new(kind: u32, config: u64, flags: u64, read_format: u64) -> Self {
        let raw = if kind == TYPE_TRACEPOINT { SAMPLE_RAW } else { 0 };
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU | raw,
            read_format,
            flags: flags | SAMPLE_ID_ALL | USE_CLOCKID | EXCLUDE_HV,
            clock: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    /// Opens it for a thread (-1: all) on one CPU.
    pub(super) fn open(&self, thread: i32, cpu: i32) -> io::Result<OwnedFd> {
        // SAFETY: the structure has the kernel's layout and says its size; the rest are integers.
        owned(unsafe {
            libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(self), thread, cpu, -1, FLAG_CLOEXEC)
        })
    }
}

/// What a call gave: a new descriptor, or -1 with `errno`.
pub(super) fn owned(given: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(given).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor is new and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The numbers of the CPUs that are on, whether this process may run there or not.
pub(super) fn cpus() -> io::Result<Vec<u32>> {
    let text = io::read_to_string(File::open("/sys/devices/system/cpu/online")?)?;
    Ok(listed(text.trim()))
}

/// `0-3,8` as numbers (cpuset(7), "List format").
fn listed(text: &str) -> Vec<u32> {
    let ends = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    text.split(',').filter_map(ends).flat_map(|(first, last): (u32, u32)| first..=last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(listed("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(listed("0"), [0]);
        assert_eq!(listed(""), Vec::<u32>::new());
        assert_eq!(size_of::<Attributes>(), 112);
    }
}
