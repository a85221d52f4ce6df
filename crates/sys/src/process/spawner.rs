//! Starting children from a thread that never ends.
//!
//! The kernel sends the parent-death signal when the *thread* that started the child ends (prctl(2)), so a
//! child started by a short-lived worker would be killed in the middle of its work.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::Signal;

use crate::{Error, Result};

struct Request {
    command: Command,
    answer: SyncSender<io::Result<Child>>,
}

/// Requests to the thread, which the first spawn starts.
static SPAWNER: Mutex<Option<Sender<Request>>> = Mutex::new(None);

/// Runs `command.spawn()` on the thread that lives as long as the process.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (answer, receive) = sync_channel(1);
    let sender = {
        let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
        match &*spawner {
            Some(sender) => sender.clone(),
            None => spawner.insert(start_thread()?).clone(),
        }
    };
    let gone = || io::Error::other("the thread that starts programs has ended");
    sender.send(Request { command, answer }).map_err(|_| gone())?;
    // `spawn` returns when the child has executed its program or failed to, which is bounded by the kernel.
    receive.recv().map_err(|_| gone())?
}

fn start_thread() -> io::Result<Sender<Request>> {
    let (sender, receiver) = channel::<Request>();
    std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
        for mut request in receiver {
            // The caller may have ended; the child is then dropped, not killed, but keeps its death signal.
            let _ = request.answer.send(request.command.spawn());
        }
    })?;
    Ok(sender)
}

/// What the child does between `fork` and `exec`. Only raw system calls on memory made before the fork.
struct BeforeExec {
    groups: Vec<File>,
    namespace: Option<Arc<OwnedFd>>,
    death_signal: libc::c_int,
    parent: libc::pid_t,
}

impl BeforeExec {
    fn run(&self) -> io::Result<()> {
        // SAFETY: PR_SET_PDEATHSIG takes one integer; `getppid` has no preconditions.
        let (code, parent) = unsafe {
            let signal = libc::c_ulong::try_from(self.death_signal).unwrap_or(9);
            (libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0), libc::getppid())
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before the signal was set.
        if parent != self.parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for group in &self.groups {
            write_self(group.as_raw_fd())?;
        }
        if let Some(namespace) = &self.namespace {
            // SAFETY: `setns` takes a descriptor, which is open, and a flag.
            if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// `0` means "the writer" in `cgroup.procs` of both versions.
pub(crate) fn write_self(group: RawFd) -> io::Result<()> {
    // SAFETY: the buffer is one readable byte and the descriptor is open.
    let written = unsafe { libc::write(group, c"0".as_ptr().cast(), 1) };
    if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes `command` lead its own process group and do the rest before `exec`.
pub(crate) fn prepare(
    command: &mut Command,
    group_files: &[PathBuf],
    namespace: Option<Arc<OwnedFd>>,
    death_signal: Signal,
) -> Result<()> {
    let mut groups = Vec::new();
    for path in group_files {
        let file = OpenOptions::new().write(true).open(path);
        groups.push(file.map_err(|error| Error::file("join control group", path, error))?);
    }
    let parent = nix::unistd::getpid().as_raw();
    let before = BeforeExec { groups, namespace, death_signal: death_signal as libc::c_int, parent };
    command.process_group(0);
    // SAFETY: the closure makes system calls only, on descriptors and integers that were made before the
    // fork; it takes no lock and allocates nothing (`io::Error` from an errno does not allocate).
    unsafe { command.pre_exec(move || before.run()) };
    Ok(())
}
