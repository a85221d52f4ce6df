//! A policy in force as a part of a run: kind `qos.policy`. It runs `kagiri qos run` on its host, so that
//! `kagiri qos status` and `kagiri qos clear` see it as any other, and its guardian undoes it if it dies.

use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use base::permit::SystemChange;
use serde::{Deserialize, Serialize};
use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::file::OwnedFolder;
use sys::journal::Journal;
use workload::part::{Part, Peers};

use crate::daemon::Status;

/// It lists the sockets of the host and starts its guardian meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// It puts back what a thousand sockets had before.
const END_WITHIN: Duration = Duration::from_secs(20);
/// What `kagiri qos run` says once the policy is in force.
pub const READY: &str = "is in force";
const SAID_BYTES_MAX: usize = 400;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyTask {
    /// Name of the policy's file.
    pub name: String,
    pub text: String,
}

/// What was in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyReport {
    /// How long it was in force, in seconds.
    pub age_s: f64,
    /// As of its end.
    pub status: Status,
}

pub struct PolicyPart {
    task: PolicyTask,
    /// Dropped first: its file is in the folder.
    enforcer: Option<Child>,
    folder: Option<OwnedFolder>,
}

impl Part for PolicyPart {
    const KIND: &'static str = "qos.policy";
    type Task = PolicyTask;
    type Endpoint = ();
    type Report = PolicyReport;

    fn new(task: PolicyTask) -> Result<Self, PartError> {
        Ok(Self { task, enforcer: None, folder: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        host.permit.system_change(SystemChange::Network)?;
        if !sys::environment::is_root() {
            return Err(PartError::new(
                "a policy changes the sockets of other programs, and needs root: run kagiri, or its agent, \
                 with sudo",
            ));
        }
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let path = host.data_dir.join(format!("qos-{:016x}", sys::random::number()));
        let folder = OwnedFolder::create(&journal, &path).map_err(PartError::new)?;
        let folder = folder.ok_or_else(|| PartError::new(format!("{} exists already", path.display())))?;
        let file = folder.path().join(file_name(&self.task.name));
        std::fs::write(&file, &self.task.text)
            .map_err(|error| PartError::new(format!("cannot write {}: {error}", file.display())))?;
        let spawn =
            Spawn::new(&host.program).args(["qos", "run"]).arg(&file).args(["--json", "--no-sockets"]);
        let mut enforcer = spawn.start(&journal).map_err(PartError::new)?;
        if let Err(error) = enforcer.wait_line(READY_WITHIN, |line| line.contains(READY)) {
            let said = enforcer.output_tail();
            let why = own_error(&said).map_or_else(|| error.to_string(), str::to_owned);
            // The user knows the policy by its own name.
            let why = why.replace(&file.display().to_string(), &self.task.name);
            return Err(PartError::new(format!("the policy is not in force: {why}")));
        }
        (self.enforcer, self.folder) = (Some(enforcer), Some(folder));
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match self.enforcer.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => {
                let said = self.enforcer.as_ref().map(Child::output_tail).unwrap_or_default();
                Progress::Failed(PartError::new(format!(
                    "the policy {} ended during the trial ({status}): {}",
                    self.task.name,
                    last(&said)
                )))
            }
            _ => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<PolicyReport, PartError> {
        let Some(mut enforcer) = self.enforcer.take() else {
            return Err(PartError::new(format!("the policy {} was not in force", self.task.name)));
        };
        enforcer.signal(sys::child::Signal::SIGINT).map_err(PartError::new)?;
        let status = enforcer.wait(END_WITHIN).map_err(PartError::new)?;
        let said = enforcer.last_words(Deadline::after(sys::child::LAST_WORDS_WITHIN));
        drop(enforcer);
        self.folder = None;
        match report(&said) {
            Some(report) if status.success() => Ok(report),
            _ => Err(PartError::new(format!(
                "the policy {} ended with {status}: {}",
                self.task.name,
                last(&said)
            ))),
        }
    }
}

/// The last part of the path, so that messages show the name that the user gave.
fn file_name(name: &str) -> String {
    let last = std::path::Path::new(name).file_name().map(|name| name.to_string_lossy().into_owned());
    last.filter(|name| !name.is_empty()).unwrap_or_else(|| "policy.toml".to_owned())
}

/// The document among the lines that were written.
fn report(said: &str) -> Option<PolicyReport> {
    let begin = if said.starts_with("{\n") { 0 } else { said.find("\n{\n")? };
    let mut documents = serde_json::Deserializer::from_str(&said[begin..]).into_iter();
    documents.next()?.ok()
}

/// The message of an error among the lines that were written.
fn own_error(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("error: "))
}

fn last(said: &str) -> &str {
    let start = said.char_indices().rev().nth(SAID_BYTES_MAX).map_or(0, |(at, _)| at);
    said[start..].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_found_among_other_lines() {
        let document = "{\n  \"schema\": 1,\n  \"age_s\": 2.5,\n  \"status\": { \"interface\": \"eth0\", \
                        \"classes\": [], \"sockets\": [], \"problems\": [] }\n}\n";
        for said in [document.to_owned(), format!("eth0: p.toml is in force\n{document}kagiri: bye\n")] {
            let found = report(&said).expect("a report");
            assert_eq!((found.age_s, found.status.interface.as_str()), (2.5, "eth0"));
        }
        assert!(report("eth0: p.toml is in force\n").is_none());
        assert_eq!(own_error("undid 1 change\nerror: no such interface\n"), Some("no such interface"));
        assert_eq!(file_name("../qos/robots.toml"), "robots.toml");
        assert_eq!(file_name(".."), "policy.toml");
    }
}
