//! Settings and the watch on sockets as parts of a run.
//!
//! Kind `tune.settings` runs `kagiri tune set` on its host, so that `kagiri tune list` and `kagiri tune undo`
//! see it as any other, and its guardian restores the settings if it dies. Kind `tune.watch` observes the
//! sockets of its host during a trial.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use base::permit::SystemChange;
use serde::{Deserialize, Serialize};
use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::journal::Journal;
use workload::part::{Part, Peers};
use workload::program_text;

use crate::advise::{BufferShares, Finding, Statement, advise, buffer_shares, values_of};
use crate::kernel::Kernel;
use crate::observe::Observation;

/// What `kagiri tune set` says once the settings are set.
pub const READY: &str = "restores the values before";
const READY_WITHIN: Duration = Duration::from_secs(20);
const END_WITHIN: Duration = Duration::from_secs(20);
/// Longer than any variant is measured: the part ends it.
const LENGTH: &str = "168h";
/// A trial longer than this is not watched to its end.
const WATCH_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettingsTask {
    /// `NAME=VALUE`, as `kagiri tune set` takes them.
    pub assignments: Vec<String>,
}

/// What became of the settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettingsReport {
    pub settings: Vec<EndedSetting>,
}

/// As `kagiri tune set --json` describes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndedSetting {
    pub name: String,
    pub before: String,
    pub value: String,
    pub outcome: String,
    pub note: Option<String>,
}

impl EndedSetting {
    /// Whether another program changed it meanwhile: then the trials were not made with its value.
    pub fn is_left_alone(&self) -> bool {
        self.outcome == "left_alone"
    }
}

/// Settings that are set while a variant is measured.
pub struct SettingsPart {
    task: SettingsTask,
    setter: Option<Child>,
}

impl Part for SettingsPart {
    const KIND: &'static str = "tune.settings";
    type Task = SettingsTask;
    type Endpoint = ();
    type Report = SettingsReport;

    fn new(task: SettingsTask) -> Result<Self, PartError> {
        Ok(Self { task, setter: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        host.permit.system_change(SystemChange::Network)?;
        if !sys::environment::is_root() {
            return Err(PartError::new(
                "'tune.settings' of a plan changes settings of the kernel, and needs root: run kagiri, or \
                 its agent, with sudo",
            ));
        }
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let spawn = Spawn::new(&host.program)
            .args(["tune", "set", "--json", "--for", LENGTH])
            .args(self.task.assignments.iter().map(String::as_str));
        let mut setter = spawn.start(&journal).map_err(PartError::new)?;
        if let Err(error) = setter.wait_line(READY_WITHIN, |line| line.contains(READY)) {
            let said = setter.output_tail();
            let why = program_text::error(&said).map_or_else(|| error.to_string(), str::to_owned);
            return Err(PartError::new(format!("the settings of the plan are not set: {why}")));
        }
        self.setter = Some(setter);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match self.setter.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => Progress::Failed(PartError::new(format!(
                "the settings {} were restored during the trial ({status})",
                self.task.assignments.join(", ")
            ))),
            _ => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<SettingsReport, PartError> {
        let Some(mut setter) = self.setter.take() else {
            return Err(PartError::new("the settings of the plan were not set"));
        };
        setter.signal(sys::child::Signal::SIGINT).map_err(PartError::new)?;
        let status = setter.wait(END_WITHIN).map_err(PartError::new)?;
        let said = setter.last_words(Deadline::after(sys::child::LAST_WORDS_WITHIN));
        program_text::document(&said).ok_or_else(|| {
            let end = program_text::end(&said);
            PartError::new(format!("'kagiri tune set' ended with {status}: {end}"))
        })
    }
}

/// What was seen of the sockets and counters of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WatchReport {
    pub observed_s: f64,
    /// `None`: no TCP connection sent anything.
    pub buffers: Option<BufferShares>,
    pub statements: Vec<WatchStatement>,
}

/// A statement of `kagiri tune advise`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WatchStatement {
    pub finding: Finding,
    pub text: String,
    /// The setting that it concerns.
    pub setting: Option<String>,
}

impl From<Statement> for WatchStatement {
    fn from(one: Statement) -> Self {
        Self { finding: one.finding, text: one.text, setting: one.setting.map(Cow::into_owned) }
    }
}

/// The watch on the sockets of a host.
pub struct WatchPart {
    is_ended: Arc<AtomicBool>,
    watcher: Option<JoinHandle<std::io::Result<Observation>>>,
}

impl Part for WatchPart {
    const KIND: &'static str = "tune.watch";
    type Task = ();
    type Endpoint = ();
    type Report = WatchReport;

    fn new((): ()) -> Result<Self, PartError> {
        Ok(Self { is_ended: Arc::default(), watcher: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, _: &HostContext) -> Result<(), PartError> {
        let is_ended = Arc::clone(&self.is_ended);
        let watch = move || Observation::make(WATCH_MAX, &|| is_ended.load(Ordering::Relaxed));
        let spawned = std::thread::Builder::new().name("tune-watch".into()).spawn(watch);
        self.watcher = Some(spawned.map_err(PartError::new)?);
        Ok(())
    }

    fn stop(&mut self) -> Result<WatchReport, PartError> {
        self.is_ended.store(true, Ordering::Relaxed);
        let Some(watcher) = self.watcher.take() else {
            return Err(PartError::new("the sockets were not watched"));
        };
        let seen = watcher.join().map_err(|_| PartError::new("the watch on the sockets panicked"))?;
        let seen = seen.map_err(|error| PartError::new(format!("cannot list the sockets: {error}")))?;
        let statements = advise(&seen, &values_of(&Kernel::live()));
        Ok(WatchReport {
            observed_s: seen.length_s,
            buffers: buffer_shares(&seen),
            statements: statements.into_iter().map(WatchStatement::from).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_found_among_other_lines() {
        let document = "{\n  \"schema\": 1,\n  \"settings\": [ { \"name\": \"net.ipv4.tcp_sack\", \
                        \"scope\": \"namespace\", \"before\": \"1\", \"value\": \"0\", \
                        \"outcome\": \"left_alone\", \"note\": \"its value is 2 now\" } ]\n}\n";
        for said in [document.to_owned(), format!("net.ipv4.tcp_sack: 1 -> 0\n{document}")] {
            let found: SettingsReport = program_text::document(&said).expect("a report");
            assert!(found.settings[0].is_left_alone());
        }
        assert!(program_text::document::<SettingsReport>("Set for 168h\n").is_none());
    }
}
