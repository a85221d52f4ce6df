//! Programs run as children that never outlive this one: with a deadline to become ready and a way to end.

mod detached;
mod foreground;
mod output;
pub mod suspended_child;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub use nix::sys::signal::Signal;

use crate::cgroup::{Cgroup, ExistingGroup};
use crate::clock::Deadline;
use crate::journal::{EntryId, Journal, Undo};
use crate::netns::Namespace;
use crate::proc::start_ticks;
use crate::process::{KILL_FOR, PidFd, kill_group, spawner};
use crate::{Error, Result};
use output::Output;

pub use crate::process::{is_running, terminate};
pub use detached::{redirect_output, spawn_in_own_session, start_detached};
pub use foreground::run_in_foreground;

/// How long the last words of an ended process may take. Its pipes are closed by then, for its group was
/// killed with it; only the threads that read them may still wait for a CPU, or one that left the group hold
/// them open.
pub const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);

/// How to start a program. It gets its own process group, dies with this program, and may be put into a
/// control group and a network namespace before it runs its first instruction.
#[derive(Debug)]
pub struct Spawn {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    group_files: Vec<PathBuf>,
    namespace: Option<Arc<OwnedFd>>,
    death_signal: Signal,
}

impl Spawn {
    /// Starts `program` (a path, or a name looked up in `PATH`).
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: PathBuf::from(program.as_ref()),
            arguments: Vec::new(),
            variables: Vec::new(),
            folder: None,
            group_files: Vec::new(),
            namespace: None,
            death_signal: Signal::SIGKILL,
        }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn current_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Puts it into `group` before it runs.
    pub fn cgroup(mut self, group: &Cgroup) -> Self {
        self.group_files.extend(group.process_files());
        self
    }

    /// Puts it into an existing group that this program did not make.
    pub fn join(mut self, group: &ExistingGroup) -> Self {
        self.group_files.extend(group.process_files());
        self
    }

    pub fn namespace(mut self, namespace: &Namespace) -> Self {
        self.namespace = Some(namespace.descriptor());
        self
    }

    /// The signal it gets when this program dies; SIGKILL if not set. A server that has started workers may
    /// need SIGTERM to take them along.
    pub fn death_signal(mut self, signal: Signal) -> Self {
        self.death_signal = signal;
        self
    }

    /// Starts it and writes it down in `journal`. Errors: no such program, or the kernel refused the group,
    /// the namespace or the start.
    pub fn start(self, journal: &Journal) -> Result<Child> {
        let name = self.program.display().to_string();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        spawner::prepare(&mut command, &self.group_files, self.namespace, self.death_signal)?;
        let mut process = spawner::spawn(command).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Refused(format!(
                "cannot start `{name}`: no such program (or the folder or interpreter it needs is missing)"
            )),
            _ => Error::call(format!("start `{name}`"), error),
        })?;
        let output = Output::drain(process.stdout.take(), process.stderr.take());
        let pid = i32::try_from(process.id()).unwrap_or(i32::MAX);
        Child::adopt(process, pid, name, output, journal)
    }
}

/// A running child. Dropping it ends it at once (SIGKILL to its whole process group).
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    handle: PidFd,
    pid: i32,
    name: String,
    output: Output,
    journal: Journal,
    entry: EntryId,
    ended: Option<ExitStatus>,
}

impl Child {
    fn adopt(
        mut process: std::process::Child,
        pid: i32,
        name: String,
        output: Output,
        journal: &Journal,
    ) -> Result<Self> {
        // The id is not known before the start, so this is the one change that is written down after it was
        // made; the death signal covers the moment in between.
        let prepared = start_ticks(Path::new("/"), pid)
            .map_err(|error| Error::call(format!("look at process {pid}"), error))
            .and_then(|start_ticks| journal.record(Undo::KillProcess { pid, start_ticks, group: true }))
            .and_then(|entry| Ok((entry, PidFd::open(pid)?)));
        match prepared {
            Ok((entry, handle)) => {
                Ok(Self { process, handle, pid, name, output, journal: journal.clone(), entry, ended: None })
            }
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(error)
            }
        }
    }

    /// Its process id, also the id of its process group.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The program it runs, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until it has written a line that `accept` takes, on standard output or standard error, and
    /// returns that line. Errors: it ended first, or `within` passed; both say what it wrote last.
    pub fn wait_line(&mut self, within: Duration, accept: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Deadline::after(within);
        loop {
            if let Some(line) = self.output.find(&accept) {
                return Ok(line);
            }
            if let Some(status) = self.try_wait()? {
                // Its last words may have come after the look above.
                let stderr = self.last_words(Deadline::after(LAST_WORDS_WITHIN));
                if let Some(line) = self.output.find(&accept) {
                    return Ok(line);
                }
                let status = format!("{status}, before it was ready");
                return Err(Error::Command { command: self.name.clone(), status, stderr });
            }
            if deadline.passed() {
                return Err(Error::Deadline {
                    what: format!("the line that says `{}` is ready", self.name),
                    within,
                    detail: self.said(),
                });
            }
            self.output.wait_change(deadline.left().min(Duration::from_millis(50)));
        }
    }

    /// The lines it wrote last, at most 64 KiB, newest last. Of one that has ended, [`Self::last_words`] are
    /// more.
    pub fn output_tail(&self) -> String {
        self.output.tail()
    }

    /// As [`Self::output_tail`], of one that has ended: all it wrote has been read. Waits for that, as what
    /// it wrote last may not have been read yet when its end is seen; [`LAST_WORDS_WITHIN`] is long
    /// enough.
    pub fn last_words(&self, deadline: Deadline) -> String {
        self.output.wait_closed(deadline);
        self.output.tail()
    }

    fn said(&self) -> String {
        let tail = self.output.tail();
        if tail.is_empty() { ": it wrote nothing".to_owned() } else { format!(": it wrote: {tail}") }
    }

    /// How it ended; `None` while it runs.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() && self.handle.has_ended() {
            self.reap()?;
        }
        Ok(self.ended)
    }

    /// Waits until it has ended by itself. Error: `within` passed first.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let deadline = Deadline::after(within);
        if self.ended.is_none() && !self.handle.wait_ended(deadline) {
            return Err(Error::Deadline {
                what: format!("the end of `{}`", self.name),
                within,
                detail: self.said(),
            });
        }
        self.reap()
    }

    /// Asks it to end (SIGTERM), waits `grace`, and then kills it and its process group. Returns how it
    /// ended.
    pub fn stop(mut self, grace: Duration) -> Result<ExitStatus> {
        self.end(grace)
    }

    /// Sends it a signal; one that has ended already is no error.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.handle.signal(signal).map_err(|error| Error::call(format!("signal `{}`", self.name), error))
    }

    fn end(&mut self, grace: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        if !grace.is_zero() && self.signal(Signal::SIGTERM).is_ok() {
            self.handle.wait_ended(Deadline::after(grace));
        }
        self.reap_within(KILL_FOR)
    }

    /// Kills what is left of its group while its own id is still taken (by itself or as a zombie), so that
    /// the id cannot mean another group; then takes its status.
    fn reap_within(&mut self, within: Duration) -> Result<ExitStatus> {
        kill_group(self.pid);
        let _ = self.signal(Signal::SIGKILL);
        if !self.handle.wait_ended(Deadline::after(within)) {
            return Err(Error::Deadline {
                what: format!("the end of `{}` (process {}) after SIGKILL", self.name, self.pid),
                within,
                detail: ": it hangs in the kernel, most likely waiting for a disk".to_owned(),
            });
        }
        self.reap()
    }

    fn reap(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        kill_group(self.pid);
        let status =
            self.process.wait().map_err(|error| Error::call(format!("wait for `{}`", self.name), error))?;
        self.ended = Some(status);
        self.journal.done(self.entry)?;
        Ok(status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nothing can be reported from here; the journal keeps the entry if it fails.
        let _ = self.end(Duration::ZERO);
    }
}
