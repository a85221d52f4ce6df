//! The system calls of a timeline: names and numbers (syscalls(2)).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    /// Its number on this machine's architecture.
    pub number: u16,
    /// Whether it is watched by default.
    pub usual: bool,
}

macro_rules! calls {
    ($usual:literal: $($name:ident = $number:ident),+ $(,)?) => {
        &[$(Call { name: stringify!($name), number: libc::$number as u16, usual: $usual }),+]
    };
}

/// Transfer of bytes, waiting for them, syncing them, and connections.
const USUAL: &[Call] = calls!(true:
    read = SYS_read, write = SYS_write, readv = SYS_readv, writev = SYS_writev,
    pread64 = SYS_pread64, pwrite64 = SYS_pwrite64, preadv = SYS_preadv, pwritev = SYS_pwritev,
    preadv2 = SYS_preadv2, pwritev2 = SYS_pwritev2,
    sendto = SYS_sendto, sendmsg = SYS_sendmsg, sendmmsg = SYS_sendmmsg,
    recvfrom = SYS_recvfrom, recvmsg = SYS_recvmsg, recvmmsg = SYS_recvmmsg,
    pselect6 = SYS_pselect6, ppoll = SYS_ppoll,
    epoll_pwait = SYS_epoll_pwait, epoll_pwait2 = SYS_epoll_pwait2,
    sendfile = SYS_sendfile, splice = SYS_splice, tee = SYS_tee, vmsplice = SYS_vmsplice,
    copy_file_range = SYS_copy_file_range,
    io_uring_enter = SYS_io_uring_enter, io_getevents = SYS_io_getevents, io_submit = SYS_io_submit,
    fsync = SYS_fsync, fdatasync = SYS_fdatasync, sync_file_range = SYS_sync_file_range, msync = SYS_msync,
    accept = SYS_accept, accept4 = SYS_accept4, connect = SYS_connect,
);

/// Calls that newer architectures do not have, because others do the same.
#[cfg(target_arch = "x86_64")]
const USUAL_OF_OLD: &[Call] = calls!(true:
    select = SYS_select, poll = SYS_poll, epoll_wait = SYS_epoll_wait,
);
#[cfg(not(target_arch = "x86_64"))]
const USUAL_OF_OLD: &[Call] = &[];

/// Watched only if asked for: locks and sleeps are called very often, or for hours.
const ON_REQUEST: &[Call] = calls!(false:
    futex = SYS_futex, nanosleep = SYS_nanosleep, clock_nanosleep = SYS_clock_nanosleep,
    openat = SYS_openat, close = SYS_close, fstat = SYS_fstat, lseek = SYS_lseek, fallocate = SYS_fallocate,
    ftruncate = SYS_ftruncate, unlinkat = SYS_unlinkat, mmap = SYS_mmap, munmap = SYS_munmap,
    shutdown = SYS_shutdown, setsockopt = SYS_setsockopt, getsockopt = SYS_getsockopt, ioctl = SYS_ioctl,
    epoll_ctl = SYS_epoll_ctl, wait4 = SYS_wait4, sched_yield = SYS_sched_yield,
);

pub fn all() -> impl Iterator<Item = &'static Call> {
    USUAL.iter().chain(USUAL_OF_OLD).chain(ON_REQUEST)
}

pub fn usual() -> Vec<Call> {
    all().filter(|call| call.usual).copied().collect()
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown system call '{name}'; known: {}", known())]
pub struct UnknownCall {
    pub name: String,
}

fn known() -> String {
    all().map(|call| call.name).collect::<Vec<_>>().join(", ")
}

/// Parses a list of calls: names separated by commas. A name with `+` is added to the default ones; if no
/// name has a `+`, the list replaces them.
pub fn read(text: &str) -> Result<Vec<Call>, UnknownCall> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let adds = words.iter().any(|word| word.starts_with('+'));
    let mut calls = if adds { usual() } else { Vec::new() };
    for word in words {
        let name = word.trim_start_matches('+');
        let call = all().find(|call| call.name == name);
        let call = call.ok_or_else(|| UnknownCall { name: name.to_owned() })?;
        if !calls.contains(call) {
            calls.push(*call);
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_numbers_are_distinct_and_fit() {
        let mut numbers: Vec<u16> = all().map(|call| call.number).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "each has its own number");
        assert!(numbers.iter().all(|number| usize::from(*number) < sys::trace::CALLS_MAX));
        assert!(usual().len() < 127, "places fit a byte with two rows each");
    }

    #[test]
    fn call_lists_add_to_or_replace_the_default() {
        let names = |text: &str| read(text).unwrap().iter().map(|call| call.name).collect::<Vec<_>>();
        assert_eq!(names("read, write"), ["read", "write"]);
        assert_eq!(names("+futex").len(), usual().len() + 1);
        assert!(read("frobnicate").unwrap_err().to_string().contains("'frobnicate'"));
    }
}
