//! A measurement that was asked for here.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{Targets, TuneOptions};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Queued,
    Running,
    /// It was asked to end, and ends with what it has measured.
    Stopping,
    Ended,
    Failed,
    /// Stopped; what was measured is stored.
    Interrupted,
}

impl State {
    /// Whether it has a process.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Stopping)
    }

    pub fn has_ended(self) -> bool {
        matches!(self, Self::Ended | Self::Failed | Self::Interrupted)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What the process of a job does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Run,
    Tune(TuneOptions),
    /// What is left of a stored run.
    Resume(Resume),
}

/// A stored run that broke off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resume {
    pub run: String,
    /// The job that began it, whose folder its relative paths are in; `None`: it was begun in a terminal, or
    /// the job was removed.
    pub begun_by: Option<String>,
}

/// A process, distinguished from later ones with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    pub start_ticks: u64,
}

impl Process {
    pub fn is_running(self) -> bool {
        sys::process::is_running(self.pid, self.start_ticks)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub kind: Kind,
    pub name: String,
    pub workload: String,
    pub state: State,
    pub created: Timestamp,
    pub began: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    /// The stored run; of `tune auto`, the last one.
    pub run: Option<String>,
    /// Why it waits, or what happened.
    pub message: Option<String>,
    pub tags: Vec<String>,
    pub targets: Targets,
    pub process: Option<Process>,
    /// The document of `tune auto`.
    pub answer: Option<Value>,
    /// Of its process, once that has ended; `None` also if it is unknown.
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub live: LiveState,
}

/// What its last events say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveState {
    pub unit: Option<String>,
    pub phase: Option<String>,
    pub load: Option<f64>,
    pub variant: Option<String>,
    pub elapsed_s: Option<f64>,
    pub left_s: Option<f64>,
    /// State and failure of the run, from its last event.
    pub run_state: Option<String>,
    pub run_failure: Option<String>,
    /// Trials that have ended, without those that a stop has cut.
    #[serde(default)]
    pub trials: u32,
    /// The last numbers of the trial under way.
    #[serde(skip)]
    pub numbers: serde_json::Map<String, Value>,
}

impl LiveState {
    /// Takes over an event of `--json-lines`.
    pub fn take(&mut self, event: &Value) {
        let text = |key: &str| event[key].as_str().map(str::to_owned);
        let times = |this: &mut Self| {
            this.elapsed_s = event["elapsed_s"].as_f64().or(this.elapsed_s);
            this.left_s = event["left_s"].as_f64();
        };
        match event["event"].as_str().unwrap_or_default() {
            // 'tune auto' measures several runs.
            "run" => {
                self.unit = text("unit");
                (self.run_state, self.run_failure) = (None, None);
            }
            "preparing" => (self.phase, self.variant) = (Some("preparing".to_owned()), text("variant")),
            "trial_began" => {
                (self.phase, self.variant) = (text("phase"), text("variant"));
                self.load = event["load"].as_f64();
                times(self);
            }
            "progress" => {
                times(self);
                self.numbers = event["live"].as_object().cloned().unwrap_or_default();
            }
            "trial" => {
                // One that a stop has cut is not kept.
                let is_cut = event["trial"]["account"]["is_cut"] == true;
                self.trials += u32::from(!is_cut);
                self.numbers.clear();
            }
            "end" => {
                (self.run_state, self.run_failure) = (text("state"), text("failure"));
                self.phase = None;
                self.numbers.clear();
            }
            _ => {}
        }
    }
}

impl Job {
    #[cfg(test)]
    pub fn queued_for_tests(kind: Kind) -> Self {
        Self {
            id: "a".into(),
            kind,
            name: "n".into(),
            workload: "transfer".into(),
            state: State::Queued,
            created: Timestamp::UNIX_EPOCH,
            began: None,
            ended: None,
            run: None,
            message: None,
            tags: Vec::new(),
            targets: Targets { is_here: true, ..Targets::default() },
            process: None,
            answer: None,
            exit_code: None,
            live: LiveState::default(),
        }
    }

    /// Whether it continues this run, or will.
    pub fn continues(&self, run: &str) -> bool {
        let is_of_run = matches!(&self.kind, Kind::Resume(resume) if resume.run == run);
        is_of_run && !self.state.has_ended()
    }

    /// Whether it continues, or will, the run of another job, and works in its folder.
    pub fn works_in_folder_of(&self, id: &str) -> bool {
        let is_of_job = matches!(&self.kind, Kind::Resume(resume) if resume.begun_by.as_deref() == Some(id));
        is_of_job && !self.state.has_ended()
    }

    /// The job as the API has it. `position`: its place in the queue, from 1. `host`: this machine's name.
    pub fn view(&self, position: Option<usize>, host: &str) -> Value {
        let live = &self.live;
        let is_live = self.state.is_active();
        // The clock of a run, and what is left of it, are not those of all the runs of 'tune auto'.
        let is_tune = matches!(self.kind, Kind::Tune(_));
        // The clock of the run begins a moment after the job's.
        let elapsed_s = match (is_live, self.began, self.ended) {
            (true, ..) if !is_tune => live.elapsed_s,
            (_, Some(began), ended) => {
                let end = ended.unwrap_or_else(Timestamp::now);
                Some(end.duration_since(began).as_secs_f64().max(0.0))
            }
            _ => None,
        };
        let left_s = live.left_s.filter(|_| is_live && !is_tune);
        let done = match self.state {
            State::Ended => Some(1.0),
            _ => {
                elapsed_s.zip(left_s).map(|(elapsed, left)| elapsed / (elapsed + left).max(f64::MIN_POSITIVE))
            }
        };
        json!({
            "id": self.id,
            "kind": if is_tune { "tune" } else { "run" },
            "name": self.name,
            "workload": self.workload,
            "state": self.state.name(),
            "position": position,
            "run": self.run,
            "created": self.created.to_string(),
            "began": self.began.map(|at| at.to_string()),
            "ended": self.ended.map(|at| at.to_string()),
            "elapsed_s": elapsed_s,
            "left_s": left_s,
            "done": done,
            "phase": live.phase.as_ref().filter(|_| is_live),
            "load": live.load.filter(|_| is_live),
            "unit": live.unit,
            "variant": live.variant.as_ref().filter(|_| is_live),
            "message": self.message,
            "tags": self.tags,
            "targets": self.targets.names(host),
            "answer": self.answer,
            "exit_code": self.exit_code,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: State) -> Job {
        Job { state, ..Job::queued_for_tests(Kind::Run) }
    }

    #[test]
    fn time_of_one_run_is_not_that_of_all_runs_of_tune_auto() {
        let mut job = job(State::Running);
        job.kind = Kind::Tune(TuneOptions::default());
        job.began = Some(Timestamp::now() - jiff::SignedDuration::from_secs(100));
        job.live.take(&json!({"event": "progress", "elapsed_s": 2.0, "left_s": 3.0, "live": {}}));
        let view = job.view(None, "desk");
        assert_eq!((&view["left_s"], &view["done"]), (&Value::Null, &Value::Null));
        assert!(view["elapsed_s"].as_f64().is_some_and(|s| s >= 100.0), "{view}");
    }

    #[test]
    fn events_become_the_state_of_the_job() {
        let mut job = job(State::Running);
        for event in [
            json!({"event": "run", "unit": "flows"}),
            json!({"event": "trial_began", "variant": "v", "load": 4, "phase": "search", "elapsed_s": 1.0}),
            json!({"event": "progress", "done": 0.5, "elapsed_s": 5.0, "left_s": 5.0, "live": {"x_ms": 1.0}}),
        ] {
            job.live.take(&event);
        }
        let view = job.view(None, "desk");
        assert_eq!(
            (&view["done"], &view["load"], &view["unit"]),
            (&json!(0.5), &json!(4.0), &json!("flows"))
        );
        assert_eq!((&view["targets"], &view["phase"]), (&json!(["desk"]), &json!("search")));
        job.live.take(&json!({"event": "trial", "trial": {}}));
        job.live.take(&json!({"event": "trial", "trial": {"account": {"is_cut": true}}}));
        assert_eq!(job.live.trials, 1);
        // What is not known is null, and of an ended job nothing is under way.
        job.live.take(&json!({"event": "progress", "elapsed_s": 6.0, "left_s": null, "live": {}}));
        assert_eq!(job.view(None, "desk")["done"], Value::Null);
        job.state = State::Failed;
        let view = job.view(None, "desk");
        assert_eq!(
            (&view["left_s"], &view["load"], &view["done"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
    }
}
