//! A policy in force as a part of a run: kind `qos.policy`. It runs `kagiri qos run` on its host, so that
//! `kagiri qos status` and `kagiri qos clear` see it as any other, and its guardian undoes it if it dies.
//! Hosts that share the bottleneck have a [`coordinator`].

pub mod coordinator;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use base::permit::SystemChange;
use serde::{Deserialize, Serialize};
use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::file::OwnedFolder;
use sys::journal::Journal;
use workload::part::{Part, Peers};
use workload::program_text;

use crate::daemon::Status;
use crate::policy::Policy;
use coordinator::{CoordinatorPart, Membership};

/// It lists the sockets of the host and starts its guardian meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// It puts back what a thousand sockets had before.
const END_WITHIN: Duration = Duration::from_secs(20);
/// What `kagiri qos run` says once the policy is in force.
pub const READY: &str = "is in force";
/// What it says once the coordinator has granted it the first rates.
pub const LEASED: &str = "grants this host its share";
/// A coordinator lets hosts gather for a second; a connection that fails is tried again.
const LEASED_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyTask {
    /// Name of the policy's file.
    pub name: String,
    pub text: String,
    /// The part that coordinates the hosts, and this host's name among them; `None`: the run has none.
    #[serde(default)]
    pub coordinator: Option<(String, String)>,
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

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        host.permit.system_change(SystemChange::Network)?;
        if !sys::environment::is_root() {
            return Err(PartError::new(
                "a policy changes the sockets of other programs, and needs root: run kagiri, or its agent, \
                 with sudo",
            ));
        }
        let membership = match &self.task.coordinator {
            Some((part, own)) => Some(peers.get::<CoordinatorPart>(part)?.membership(own)?),
            None => None,
        };
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let (folder, file) = folder_with_policy(&self.task.name, &self.task.text, host, &journal)?;
        let mut spawn =
            Spawn::new(&host.program).args(["qos", "run"]).arg(&file).args(["--json", "--no-sockets"]);
        let credentials = match &membership {
            Some(membership) => {
                spawn = spawn.args(["--coordinator", &membership.endpoint]);
                membership.write_bundle(folder.path())?
            }
            None => self.own_credentials(host),
        };
        if let Some(credentials) = credentials {
            spawn = spawn.arg("--credentials").arg(credentials);
        }
        let mut enforcer = spawn.start(&journal).map_err(PartError::new)?;
        let why = |enforcer: &Child, error: sys::Error| {
            let why = said_why(enforcer, &error);
            // The user knows the policy by its own name.
            let why = why.replace(&file.display().to_string(), &self.task.name);
            PartError::new(format!("the policy is not in force: {why}"))
        };
        if let Err(error) = enforcer.wait_line(READY_WITHIN, |line| line.contains(READY)) {
            return Err(why(&enforcer, error));
        }
        if let Some(Membership { endpoint, .. }) = &membership
            && let Err(error) = enforcer.wait_line(LEASED_WITHIN, |line| line.contains(LEASED))
        {
            return Err(PartError::new(format!(
                "the coordinator at {endpoint} has granted this host no rates: {error}"
            )));
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
                    program_text::end(&said)
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
        match program_text::document(&said) {
            Some(report) if status.success() => Ok(report),
            _ => Err(PartError::new(format!(
                "the policy {} ended with {status}: {}",
                self.task.name,
                program_text::end(&said)
            ))),
        }
    }
}

impl PolicyPart {
    /// This host's credentials in its fleet, if the policy names a coordinator that asks for some.
    fn own_credentials(&self, host: &HostContext) -> Option<PathBuf> {
        let policy = Policy::parse(&self.task.text).ok()?;
        let is_tls = policy.bottleneck.coordinator?.starts_with("tls/");
        host.credentials.clone().filter(|_| is_tls)
    }
}

/// A folder of this part's own with the policy in it, under the name that the user gave, and the policy's
/// path.
fn folder_with_policy(
    name: &str,
    text: &str,
    host: &HostContext,
    journal: &Journal,
) -> Result<(OwnedFolder, PathBuf), PartError> {
    let path = host.data_dir.join(format!("qos-{:016x}", sys::random::number()));
    let folder = OwnedFolder::create(journal, &path).map_err(PartError::new)?;
    let folder = folder.ok_or_else(|| PartError::new(format!("{} exists already", path.display())))?;
    let file = folder.path().join(file_name(name));
    std::fs::write(&file, text).map_err(|error| cannot_write(&file, &error))?;
    Ok((folder, file))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> PartError {
    PartError::new(format!("cannot write {}: {error}", file.display()))
}

/// The last part of the path, so that messages show the name that the user gave.
fn file_name(name: &str) -> String {
    let last = Path::new(name).file_name().map(|name| name.to_string_lossy().into_owned());
    last.filter(|name| !name.is_empty()).unwrap_or_else(|| "policy.toml".to_owned())
}

/// Why a program did not become ready: the error that it wrote, or else what went wrong with it.
fn said_why(program: &Child, error: &sys::Error) -> String {
    program_text::error(&program.output_tail()).map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_found_among_other_lines() {
        let document = "{\n  \"schema\": 1,\n  \"age_s\": 2.5,\n  \"status\": { \"interface\": \"eth0\", \
                        \"classes\": [], \"sockets\": [], \"problems\": [] }\n}\n";
        for said in [document.to_owned(), format!("eth0: p.toml is in force\n{document}kagiri: bye\n")] {
            let found: PolicyReport = program_text::document(&said).expect("a report");
            assert_eq!((found.age_s, found.status.interface.as_str()), (2.5, "eth0"));
        }
        assert!(program_text::document::<PolicyReport>("eth0: p.toml is in force\n").is_none());
        assert_eq!(
            program_text::error("undid 1 change\nerror: no such interface\n"),
            Some("no such interface")
        );
        assert_eq!(file_name("../qos/robots.toml"), "robots.toml");
        assert_eq!(file_name(".."), "policy.toml");
    }
}
