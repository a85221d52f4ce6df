//! Process handles that stay valid when the process id is reused: pidfd_open(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::clock::Deadline;
use crate::proc::start_ticks;
use crate::{Error, Result};

/// How long a killed process may take to disappear.
pub(crate) const KILL_FOR: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    pub(crate) fn open(pid: i32) -> Result<Self> {
        Self::try_open(pid).map_err(|error| Error::call(format!("open a handle on process {pid}"), error))
    }

    pub(crate) fn try_open(pid: i32) -> io::Result<Self> {
        // SAFETY: `pidfd_open` takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is new and it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Duplicates descriptor `fd` of the process into this one (pidfd_getfd(2), since Linux 5.6). While the
    /// duplicate is open, the process's own close(2) does not close what is behind it.
    pub(super) fn duplicate(&self, fd: RawFd) -> io::Result<OwnedFd> {
        // SAFETY: `pidfd_getfd` takes three integers and returns a new descriptor or -1.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), fd, 0) };
        let copy = i32::try_from(copy).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is new and it has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(copy) })
    }

    /// Sends `signal`; a process that has ended is no error.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let null = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, the signal is valid, and a null siginfo means the default one.
        let code = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal as libc::c_int, null, 0)
        };
        match (code, Errno::last()) {
            (0, _) | (_, Errno::ESRCH) => Ok(()),
            (_, error) => Err(error.into()),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.wait_ended(Deadline::after(Duration::ZERO))
    }

    /// Waits until the process has ended (it may still be a zombie); `false` when the deadline passed first.
    pub(crate) fn wait_ended(&self, deadline: Deadline) -> bool {
        loop {
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(deadline.left_ms()).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, wait) {
                Ok(ready) if ready > 0 => return true,
                _ if deadline.passed() => return false,
                _ => {}
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Kills the remaining processes of group `group`. Call only while its leader has not been reaped.
pub(crate) fn kill_group(group: i32) {
    if group > 1 {
        // The group may already be gone.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// Whether process `pid` runs and was started at `started` (see [`start_ticks`]). A zombie does not run.
pub fn is_running(pid: i32, started: u64) -> bool {
    let Ok(handle) = PidFd::try_open(pid) else { return false };
    start_ticks(Path::new("/"), pid).is_ok_and(|ticks| ticks == started) && !handle.has_ended()
}

/// Sends SIGINT, as Ctrl-C does, to process `pid` if it was started at `started`. Returns whether it runs.
/// Errors: no permission to signal it.
pub fn interrupt(pid: i32, started: u64) -> Result<bool> {
    let Ok(handle) = PidFd::try_open(pid) else { return Ok(false) };
    if !start_ticks(Path::new("/"), pid).is_ok_and(|ticks| ticks == started) || handle.has_ended() {
        return Ok(false);
    }
    handle.signal(Signal::SIGINT).map_err(|error| Error::call(format!("interrupt process {pid}"), error))?;
    Ok(true)
}

/// Sends SIGTERM to process `pid` if it was started at `started`, and SIGKILL after `within`. Does nothing
/// when the process has ended or the id belongs to another process.
/// Errors: no permission to signal it, or it hangs in the kernel.
pub fn terminate(pid: i32, started: u64, within: Duration) -> Result<()> {
    let Ok(handle) = PidFd::try_open(pid) else { return Ok(()) };
    if !start_ticks(Path::new("/"), pid).is_ok_and(|ticks| ticks == started) {
        return Ok(());
    }
    for (signal, within) in [(Signal::SIGTERM, within), (Signal::SIGKILL, KILL_FOR)] {
        handle.signal(signal).map_err(|error| Error::call(format!("end process {pid}"), error))?;
        if handle.wait_ended(Deadline::after(within)) {
            return Ok(());
        }
    }
    Err(Error::Deadline { what: format!("the end of process {pid}"), within, detail: String::new() })
}

/// Ends the processes that `find` returns (SIGTERM, after `grace` SIGKILL), and repeats until it returns
/// none: a process can start others while it is signalled. Returns whether there were any.
/// Errors: no permission to signal one, or one is left after `grace` and 5 s.
pub(crate) fn end_all(
    grace: Duration,
    mut find: impl FnMut() -> Vec<PidFd>,
) -> std::result::Result<bool, String> {
    let deadline = Deadline::after(grace + KILL_FOR);
    let mut signal = Signal::SIGTERM;
    loop {
        let found = find();
        if found.is_empty() {
            return Ok(signal != Signal::SIGTERM);
        }
        if deadline.passed() {
            return Err(format!(
                "{} processes are left: they start others, or hang in the kernel",
                found.len()
            ));
        }
        for process in &found {
            process.signal(signal).map_err(|error| error.to_string())?;
        }
        let round = if signal == Signal::SIGTERM { Deadline::after(grace) } else { deadline };
        for process in &found {
            process.wait_ended(round);
        }
        signal = Signal::SIGKILL;
    }
}
