//! A second process that undoes the changes of this one when it is killed.
//!
//! It holds one end of a pipe of which the other end closes with this process, however that ends. Then it
//! replays this process's journal.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::child::spawn_in_own_session;
use crate::clock::Deadline;
use crate::journal::{Journal, UndoResult};
use crate::{Error, Result};

/// The line by which the second process says that it is ready.
const READY: &str = "guarding";
const READY_WITHIN: Duration = Duration::from_secs(10);
/// More output than this before the line means another program.
const OUTPUT_BYTES: usize = 64 << 10;
/// How long the kernel may take to end this process after its pipe is closed, and how often to look.
const END_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The second process, seen from the first. Dropping it ends it: do so after the journal is empty.
#[derive(Debug)]
pub struct Guardian {
    process: Child,
}

/// What the second process has undone, newest first.
#[derive(Debug)]
pub struct GuardReport {
    pub results: Vec<UndoResult>,
}

impl Guardian {
    /// Starts `command`, which must call [`guard`] with the path of this process's journal, and waits until
    /// it has. It gets a session of its own, so that a signal of the terminal does not end it. Its standard
    /// input and output are used; standard error is the caller's choice.
    /// Errors: it cannot be started, or it is not ready within 10 s.
    pub fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut this = Self { process: spawn_in_own_session(command)? };
        // Its end of the pipe must not close before the message to end.
        let Some(output) = this.process.stdout.take() else { return Err(not_ready("has no output")) };
        this.wait_ready(File::from(std::os::fd::OwnedFd::from(output))).map(|()| this)
    }

    /// Whether it still runs. If not, nothing undoes the changes when this process is killed, except `kagiri
    /// undo`: start another.
    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn wait_ready(&mut self, mut output: File) -> Result<()> {
        let deadline = Deadline::after(READY_WITHIN);
        let mut said = Vec::new();
        loop {
            let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(deadline.left_ms()).unwrap_or(PollTimeout::MAX);
            let is_ready = poll(&mut fds, wait).is_ok_and(|ready| ready > 0);
            if !is_ready && deadline.passed() {
                return Err(not_ready("is not ready within 10 s"));
            }
            if !is_ready {
                continue;
            }
            let mut bytes = [0; 4096];
            match output.read(&mut bytes) {
                Ok(0) => return Err(not_ready("ended at once")),
                Ok(read) => said.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::call("read what the guardian process writes", error)),
            }
            if String::from_utf8_lossy(&said).lines().any(|line| line == READY) {
                return Ok(());
            }
            if said.len() > OUTPUT_BYTES {
                return Err(not_ready("is another program"));
            }
        }
    }
}

fn not_ready(what: &str) -> Error {
    Error::Refused(format!(
        "the guardian process, which undoes all changes if this one is killed, {what}; nothing was changed"
    ))
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // This process undoes its changes itself, or its journal has them.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The second process's part: waits until standard input is closed, then undoes what is in the journal at
/// `path`, which another process has opened and which that one leaves behind. Returns an empty report if that
/// one has ended in good order.
///
/// Requests to end (SIGTERM, SIGINT, SIGHUP) are ignored: a service manager sends them to both processes, and
/// this one ends soon after the other.
/// Errors: the journal cannot be read.
pub fn guard(path: &Path) -> Result<GuardReport> {
    for ignored in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: SIG_IGN is no function of ours, so nothing runs when the signal comes.
        let set = unsafe { signal(ignored, SigHandler::SigIgn) };
        set.map_err(|error| Error::call(format!("ignore {ignored}"), error))?;
    }
    // A host without memory must not end this process before the other. Only root may ask for that.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let mut output = std::io::stdout();
    writeln!(output, "\n{READY}")
        .and_then(|()| output.flush())
        .map_err(|error| Error::call("say that the guardian process is ready", error))?;
    wait_closed(&mut std::io::stdin())?;
    let leftover = Journal::leftover_at(path, END_WITHIN, LOOK_EVERY)?;
    Ok(GuardReport { results: leftover.map(|leftover| leftover.replay()).unwrap_or_default() })
}

fn wait_closed(input: &mut impl Read) -> Result<()> {
    let mut byte = [0; 64];
    loop {
        match input.read(&mut byte) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::call("wait for the end of the guarded process", error)),
        }
    }
}
