//! A child process that waits before its `execve` until an observer is ready.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;

use crate::clock::Deadline;
use crate::proc::process::set::{all_pids, parent_of};
use crate::process::{KILL_FOR, PidFd, spawner};
use crate::{Error, Result};

/// Time to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Sent to the child: execute the program, or exit.
const GO: u8 = b'g';
const GIVE_UP: u8 = b'e';

/// A child that has not executed its program yet. Dropping this ends it.
#[derive(Debug)]
pub struct SuspendedChild {
    pid: i32,
    name: String,
    go: Option<io::PipeWriter>,
    spawned: Option<std::thread::JoinHandle<io::Result<Child>>>,
}

/// The child and its descendants, in the foreground with this program's terminal and standard input. Dropping
/// this ends all; the kernel ends the child when this program dies.
#[derive(Debug)]
pub struct ProcessFamily {
    child: Child,
    status: Option<ExitStatus>,
}

impl SuspendedChild {
    /// Prepares `words`, a program with its arguments; it writes its standard output on our standard error if
    /// `output_aside`. From now on this process inherits the orphans among its descendants
    /// (`PR_SET_CHILD_SUBREAPER`, prctl(2)), so the process must not wait for other children meanwhile.
    /// Errors: No program was named, or the kernel refused a process.
    pub fn prepare(words: &[OsString], output_aside: bool) -> Result<Self> {
        let [program, arguments @ ..] = words else {
            return Err(Error::Refused("no program was named".to_owned()));
        };
        let name = program.to_string_lossy().into_owned();
        let failed = |error: io::Error| Error::call(format!("start `{name}`"), error);
        nix::sys::prctl::set_child_subreaper(true).map_err(|error| failed(error.into()))?;
        let (mut said, say) = io::pipe().map_err(failed)?;
        let (wait, go) = io::pipe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments);
        if output_aside {
            let aside = io::stderr();
            let aside = std::os::fd::AsFd::as_fd(&aside).try_clone_to_owned().map_err(failed)?;
            command.stdout(Stdio::from(aside));
        }
        hold(&mut command, say.into(), wait.into());
        // The call returns after execve, so not before the release.
        let spawned = std::thread::spawn(move || spawner::spawn(command));
        let mut pid = [0; 4];
        match said.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: i32::from_ne_bytes(pid), name, go: Some(go), spawned: Some(spawned) }),
            // It failed before the release: the start reports why.
            Err(error) => Err(match spawned.join() {
                Ok(Err(error)) => failed(error),
                _ => failed(error),
            }),
        }
    }

    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute its program.
    pub fn release(mut self) -> Result<ProcessFamily> {
        let name = self.name.clone();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Error::Refused(format!(
                "cannot start `{name}`: no such program (or the interpreter it needs is missing)"
            )),
            io::ErrorKind::PermissionDenied => {
                Error::Refused(format!("cannot start `{name}`: it is not executable, or no program"))
            }
            _ => Error::call(format!("start `{name}`"), error),
        };
        if let Some(mut go) = self.go.take() {
            go.write_all(&[GO]).map_err(failed)?;
        }
        let spawned = self.spawned.take().ok_or_else(|| failed(io::Error::other("it was started before")))?;
        let child = spawned.join().map_err(|_| failed(io::Error::other("its start failed")))?;
        Ok(ProcessFamily { child: child.map_err(failed)?, status: None })
    }
}

impl Drop for SuspendedChild {
    fn drop(&mut self) {
        // The child holds a copy of the writing end, so end of file never comes: it needs a message to exit.
        if let Some(mut go) = self.go.take() {
            let _ = go.write_all(&[GIVE_UP]);
        }
        if let Some(Ok(Ok(mut child))) = self.spawned.take().map(std::thread::JoinHandle::join) {
            let _ = child.wait();
        }
    }
}

/// Makes the child report its pid, wait for the release, and die with this process.
fn hold(command: &mut Command, say: OwnedFd, wait: OwnedFd) {
    let parent = std::process::id().cast_signed();
    let before_exec = move || {
        // SAFETY: PR_SET_PDEATHSIG takes one integer; `getpid` and `getppid` have no preconditions.
        let (own, found) = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
            (libc::getpid(), libc::getppid())
        };
        let number = own.to_ne_bytes();
        let mut answer = [0u8; 1];
        // SAFETY: both buffers are as long as stated, and both descriptors are open.
        let (sent, received) = unsafe {
            let sent = libc::write(say.as_raw_fd(), number.as_ptr().cast(), number.len());
            (sent, libc::read(wait.as_raw_fd(), answer.as_mut_ptr().cast(), 1))
        };
        match found == parent && sent == 4 && received == 1 && answer[0] == GO {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        }
    };
    // SAFETY: the closure makes system calls only, on descriptors and integers that were made before the
    // fork; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}

impl ProcessFamily {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn has_ended(&mut self) -> bool {
        let own = Pid::from_raw(self.child.id().cast_signed());
        // WNOWAIT: the child's own handle reads its status.
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::All, look) {
                Ok(ended) if ended.pid() == Some(own) => match self.child.try_wait() {
                    Ok(Some(status)) => self.status = Some(status),
                    _ => return false,
                },
                // An adopted orphan.
                Ok(ended) => match ended.pid() {
                    Some(pid) => drop(waitpid(pid, Some(WaitPidFlag::WNOHANG))),
                    None => return false,
                },
                Err(Errno::EINTR) => {}
                Err(error) => return error == Errno::ECHILD,
            }
        }
    }

    /// How the child itself ended; `None` while it runs.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Ends all processes: SIGTERM, then SIGKILL.
    /// Errors: Some hang in the kernel.
    pub fn end(&mut self) -> Result<()> {
        for (signal, within) in [(Signal::SIGTERM, GRACE), (Signal::SIGKILL, KILL_FOR)] {
            let deadline = Deadline::after(within);
            loop {
                if self.has_ended() {
                    return Ok(());
                }
                // Repeated: a process may fork between being found and being signalled.
                if signal == Signal::SIGKILL || deadline.left() + Duration::from_millis(50) >= within {
                    signal_descendants(signal);
                }
                if !deadline.pause(Duration::from_millis(5)) {
                    break;
                }
            }
        }
        let (what, detail) = ("the end of what was started".to_owned(), String::new());
        Err(Error::Deadline { what, within: KILL_FOR, detail })
    }
}

impl Drop for ProcessFamily {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn signal_descendants(signal: Signal) {
    for pid in descendants() {
        // By pidfd: the pid cannot be reused between finding and signalling.
        if let Ok(handle) = PidFd::open(pid)
            && is_descendant(pid)
        {
            let _ = handle.signal(signal);
        }
    }
}

fn descendants() -> Vec<i32> {
    let root = Path::new("/");
    let parents = all_pids(root).into_iter().filter_map(|pid| Some((parent_of(root, pid)?, pid)));
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (parent, pid) in parents {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = children.remove(&std::process::id().cast_signed()).unwrap_or_default();
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        found.extend(children.remove(&pid).unwrap_or_default());
        at += 1;
    }
    found
}

fn is_descendant(pid: i32) -> bool {
    let own = std::process::id().cast_signed();
    let mut ancestors = std::iter::successors(Some(pid), |pid| parent_of(Path::new("/"), *pid)).take(4096);
    ancestors.any(|ancestor| ancestor == own)
}
