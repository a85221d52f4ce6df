//! The kernel's numbers of its tracepoints, out of tracefs, and filters of their events.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::attributes::owned;
use super::{control, refused};
use crate::trace::{Backend, TraceError};

const IOC_SET_FILTER: libc::Ioctl = 0x4008_2406;

/// The kernel's numbers of the tracepoints, which differ from kernel to kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tracepoints {
    pub(super) enter: u16,
    pub(super) leave: u16,
    pub(super) softirq_entry: u16,
    pub(super) softirq_exit: u16,
}

impl Tracepoints {
    /// Reads them.
    ///
    /// Where tracefs is not mounted, it is mounted for this process alone, nowhere in the tree of files:
    /// nothing of it outlasts the process.
    /// Errors: tracefs is not there and must not be mounted, or must not be read.
    pub(super) fn read() -> Result<Self, TraceError> {
        let folders = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"].map(Path::new);
        let mut refused = None;
        for folder in folders {
            match Self::read_below(folder) {
                Ok(found) => return Ok(found),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => refused = Some(error),
            }
        }
        let of_call = |error| TraceError::of_call(Backend::Perf, "read /sys/kernel/tracing", error);
        if let Some(error) = refused {
            return Err(of_call(error));
        }
        // `ip netns exec` mounts another /sys, below which there is no tracefs; a container has none at all.
        if let Ok(own) = mounted_nowhere(c"tracefs") {
            let events = format!("/proc/self/fd/{}/events", own.as_raw_fd());
            return Self::read_below(Path::new(&events)).map_err(of_call);
        }
        let why = "no tracefs at /sys/kernel/tracing; as root, kagiri mounts one for itself. For others: \
                   mount it (mount -t tracefs none /sys/kernel/tracing), or enter a network namespace with \
                   'nsenter --net=/run/netns/NAME' where 'ip netns exec' hides it";
        Err(TraceError::Unsupported { backend: Backend::Perf, why: why.to_owned() })
    }

    fn read_below(folder: &Path) -> io::Result<Self> {
        // Only a listing shows whether nothing is mounted there, or nothing is permitted.
        std::fs::read_dir(folder)?;
        let number = |name: &str| -> io::Result<u16> {
            let text = std::fs::read_to_string(folder.join(name).join("id"))?;
            text.trim().parse().map_err(|_| io::Error::other(format!("{name}/id is no number")))
        };
        Ok(Self {
            enter: number("raw_syscalls/sys_enter")?,
            leave: number("raw_syscalls/sys_exit")?,
            softirq_entry: number("irq/softirq_entry")?,
            softirq_exit: number("irq/softirq_exit")?,
        })
    }
}

/// Mounts a file system without a place in the tree of files: it is gone when the descriptor is closed
/// (fsopen(2), fsmount(2); Linux 5.2).
/// Errors: the kernel is too old, or this process lacks `CAP_SYS_ADMIN`.
fn mounted_nowhere(kind: &CStr) -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const READ_ONLY: libc::c_uint = 1;
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the name ends with a zero and outlives the call.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    // SAFETY: this command takes neither a key nor a value, and the descriptor is open.
    let made =
        unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain numbers, and the descriptor is open.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, READ_ONLY) })
}

/// The filter that lets the wanted calls through, checked in the kernel (Documentation/trace/events.rst) from
/// left to right: the fewer terms, the less a call costs.
pub(super) fn call_filter(calls: &[u16]) -> String {
    let mut sorted = calls.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|before, after| before + 1 == *after);
    let terms = runs.map(|run| match run {
        [only] => format!("id=={only}"),
        [first, .., last] => format!("(id>={first}&&id<={last})"),
        [] => String::new(),
    });
    terms.collect::<Vec<_>>().join("||")
}

pub(super) fn set_filter(event: &OwnedFd, filter: &str) -> Result<(), TraceError> {
    let Ok(text) = std::ffi::CString::new(filter) else { return Ok(()) };
    control(event, IOC_SET_FILTER, text.as_ptr() as libc::c_ulong)
        .map_err(|error| refused("set a filter", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_name_every_wanted_call() {
        assert_eq!(call_filter(&[44, 0, 46, 45]), "id==0||(id>=44&&id<=46)");
        assert_eq!(call_filter(&[]), "");
    }

    #[test]
    fn mountless_image_is_read_and_removed() {
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        match mounted_nowhere(c"tracefs") {
            Ok(own) => {
                Tracepoints::read_below(Path::new(&format!("/proc/self/fd/{}/events", own.as_raw_fd())))
                    .unwrap();
            }
            Err(error) => features::skip(&error.to_string()),
        }
        assert_eq!(before, std::fs::read_to_string("/proc/self/mountinfo").unwrap());
    }
}
