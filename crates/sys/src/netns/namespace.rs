//! A named network namespace: made, entered, configured in batches, and deleted with what runs in it.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use super::{IP, TC, TOOL_FOR};
use crate::journal::ownership::{NETNS_FOLDER as FOLDER, is_our_namespace, namespace_path};
use crate::journal::{EntryId, Journal, Undo};
use crate::process::HelperCommand;
use crate::thread::on_own_thread;
use crate::{Error, Result};

/// A network namespace with a name under which `ip netns` knows it. It has no links but its own loopback,
/// which is down. Dropping it ends the processes in it and deletes it, with all its links.
#[derive(Debug)]
pub struct Namespace {
    journal: Journal,
    /// In the order they were made.
    entries: Vec<EntryId>,
    name: String,
    descriptor: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes a namespace called `name`, which begins with `kagiri-` and goes on with letters, digits and `-`,
    /// 200 at most.
    /// Errors: no rights, the name is in use.
    pub fn create(journal: &Journal, name: &str) -> Result<Self> {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if name.len() > 200 || !plain || !is_our_namespace(name) {
            return Err(Error::Refused(format!("`{name}` cannot name a network namespace of ours")));
        }
        let path = namespace_path(name);
        if path.exists() {
            return Err(Error::Refused(format!("the network namespace {name} exists already")));
        }
        let mut undos = Vec::new();
        if !Path::new(FOLDER).exists() {
            undos.push(Undo::RemoveFolder { path: FOLDER.into() });
        }
        undos.push(Undo::DeleteNetns { name: name.to_owned(), end_processes: true });
        let entries = journal.record_all(undos)?;
        // There is no `Namespace` yet whose drop would undo it.
        let undo = || entries.iter().rev().for_each(|entry| drop(journal.undo(*entry)));
        if let Err(error) = claim(&path) {
            if error.kind() == ErrorKind::AlreadyExists {
                // Another program took the name since the check above: undoing would delete its namespace.
                entries.last().map_or(Ok(()), |of_name| journal.done(*of_name))?;
            }
            undo();
            return Err(Error::file("create", path, error));
        }
        match make(&path) {
            Ok(descriptor) => Ok(Self {
                journal: journal.clone(),
                entries,
                name: name.to_owned(),
                descriptor: Arc::new(descriptor),
            }),
            Err(error) => {
                undo();
                Err(error)
            }
        }
    }

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace as a descriptor for setns(2).
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.descriptor)
    }

    /// Performs commands of `ip`, one a line without the word `ip`, in the namespace, in one process (ip(8),
    /// `-batch`).
    /// Errors: `ip` is missing, or refuses a command; then those after it are not performed.
    pub fn ip(&self, commands: &str) -> Result<()> {
        self.batch(&IP, commands)
    }

    /// Performs commands of `tc`, one a line without the word `tc`; see [`Namespace::ip`].
    pub fn tc(&self, commands: &str) -> Result<()> {
        self.batch(&TC, commands)
    }

    fn batch(&self, tool: &HelperCommand, commands: &str) -> Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        let done = tool.run_with(&["-batch", "-"], commands.as_bytes(), Some(self.descriptor()), TOOL_FOR);
        done.map(drop).map_err(|error| match error {
            // The tool's message contains the line number: `Command failed -:3`.
            Error::Command { command, status, stderr } => {
                let command = format!("{command} in {}: {}", self.name, failed_line(commands, &stderr));
                Error::Command { command, status, stderr }
            }
            other => other,
        })
    }

    /// Runs `work` on a thread of its own inside the namespace and returns what it returns. Sockets opened
    /// there, and files below `/proc/sys/net`, are those of the namespace.
    /// Errors: the namespace cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let enter = || -> Result<T> {
            // This thread only, which ends with `work`.
            setns(&*self.descriptor, CloneFlags::CLONE_NEWNET)
                .map_err(|error| Error::call(format!("enter {}", self.name), error))?;
            Ok(work())
        };
        on_own_thread(enter)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        for entry in self.entries.drain(..).rev() {
            // What cannot be deleted stays in the journal, which reports it.
            self.journal.undo(entry);
        }
    }
}

fn failed_line<'a>(commands: &'a str, said: &str) -> &'a str {
    let number = said.rsplit("failed -:").next().and_then(|rest| rest.trim().parse::<usize>().ok());
    number.and_then(|number| commands.lines().nth(number.checked_sub(1)?)).unwrap_or_default()
}

/// Moves this thread, and all that it starts later, into the namespace called `name`: setns(2).
/// Errors: no such namespace, or no permission to enter it.
pub fn enter(name: &str) -> Result<()> {
    let path = namespace_path(name);
    let file = File::open(&path).map_err(|error| Error::file("open network namespace", &path, error))?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(|error| Error::file("enter", &path, error))
}

/// Creates the file that gives a namespace its name.
fn claim(path: &Path) -> std::io::Result<()> {
    let make_file = || {
        std::fs::create_dir_all(FOLDER)?;
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    };
    // Another program's undo may take the empty folder away in between; then once more.
    let again = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => make_file(),
        _ => Err(error),
    };
    make_file().or_else(again).map(drop)
}

/// Makes a namespace and names it by the file `path`, where `ip netns` finds it. Not done with `ip netns
/// add`, because that leaves a mount on the folder behind.
fn make(path: &Path) -> Result<OwnedFd> {
    let name_it = || -> Result<OwnedFd> {
        // Only this thread, which ends here, enters the new namespace; the name keeps it.
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| Error::call("make a network namespace", error))?;
        let own = "/proc/thread-self/ns/net";
        mount(Some(own), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|error| Error::file("name a network namespace", path, error))?;
        // Not opened by its name: that would pin the mount, and releasing it would take tens of
        // milliseconds.
        Ok(File::open(own).map_err(|error| Error::file("open", own, error))?.into())
    };
    on_own_thread(name_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_batch_command_is_named() {
        let commands = "link add a\nlink add b\nlink add c";
        let said = "RTNETLINK answers: File exists\nCommand failed -:2";
        assert_eq!(failed_line(commands, said), "link add b");
        assert_eq!(failed_line(commands, "no idea"), "");
        assert_eq!(failed_line(commands, "Command failed -:0"), "");
    }
}
