//! A program in the place of this one: with its terminal, its signals and its exit code.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::process::PidFd;
use crate::process::spawner::write_self;
use crate::{Error, Result};

/// Signals that end programs, and go to the program.
const FORWARDED: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Runs `command` in the control group whose `cgroup.procs` is `group_file`, or in that of this process, and
/// returns its exit code, or 128 and the number of the signal that ended it, as shells do.
///
/// It stays in the process group of this process, so that the terminal is its own. Signals that end programs
/// do not end this one but are sent on; those that the terminal sends (Ctrl-C) reach the program by
/// themselves. Call it before this process has started threads, and without a handler of these signals.
/// Errors: there is no such program, or the kernel refuses the group.
pub fn run_in_foreground(mut command: Command, group_file: Option<&Path>) -> Result<i32> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: Errno| Error::call(format!("run `{name}`"), error);
    let open = |path: &Path| {
        let opened = OpenOptions::new().write(true).open(path);
        opened.map_err(|error| Error::file("join control group", path, error))
    };
    let group = group_file.map(open).transpose()?;
    let signals: SigSet = FORWARDED.into_iter().collect();
    let mask = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).map_err(failed)?;
    let waiting = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let waiting = waiting.map_err(failed)?;
    let raw = group.as_ref().map(std::os::fd::AsRawFd::as_raw_fd);
    // SAFETY: the closure makes system calls only, on a descriptor and a mask that were made before the fork;
    // it takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            raw.map_or(Ok(()), write_self)?;
            Ok(mask.thread_set_mask()?)
        });
    }
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::Refused(format!("cannot run `{name}`: no such program")),
        _ => Error::call(format!("run `{name}`"), error),
    })?;
    let handle = PidFd::open(i32::try_from(child.id()).unwrap_or(i32::MAX))?;
    loop {
        let mut fds =
            [PollFd::new(handle.as_fd(), PollFlags::POLLIN), PollFd::new(waiting.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(failed(error)),
        }
        while let Ok(Some(signal)) = waiting.read_signal() {
            let number =
                i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
            // The terminal's signals go to the whole process group.
            let is_from_terminal = signal.ssi_code == libc::SI_KERNEL;
            if let Some(number) = number.filter(|_| !is_from_terminal) {
                handle.signal(number).map_err(|error| Error::call(format!("signal `{name}`"), error))?;
            }
        }
        if let Some(status) = child.try_wait().map_err(|e| Error::call(format!("wait for `{name}`"), e))? {
            return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
    }
}
