//! Follows the process of a job: passes its events on, and notes how it ended.

use std::fs;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use store::{Store, StoreError};

use super::events::{Chunk, Lines, frame, frames, parsed};
use super::job::{Job, Kind, Process, State};
use super::{Jobs, files};
use crate::program::message_of;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the job itself is sent while only its elapsed time changes.
const JOB_EVERY: Duration = Duration::from_secs(1);
const STDERR_BYTES: u64 = 16 * 1024;
/// Exit code of a run that was stopped.
const INTERRUPTED: i32 = 130;
/// Exit code of a run whose requirements do not all hold.
const REQUIREMENT_MISSED: i32 = 3;

/// Starts a thread that follows a job. `child`: its process, if this server has started it.
pub fn start(jobs: &Arc<Jobs>, id: &str, child: Option<Child>) {
    let (shared, name) = (Arc::clone(jobs), id.to_owned());
    let thread = std::thread::Builder::new().name("job".into());
    if let Err(error) = thread.spawn(move || Follower::new(&shared, &name, child).run()) {
        // The process continues; its run is stored.
        let mut all = jobs.lock();
        if let Some(job) = all.get_mut(id) {
            job.message = Some(format!("its progress cannot be followed: {error}"));
        }
    }
}

struct Follower<'a> {
    jobs: &'a Jobs,
    id: &'a str,
    child: Option<Child>,
    process: Option<Process>,
    lines: Lines,
    sent: Instant,
}

impl<'a> Follower<'a> {
    fn new(jobs: &'a Jobs, id: &'a str, child: Option<Child>) -> Self {
        let process = jobs.lock().get(id).and_then(|job| job.process);
        Self { jobs, id, child, process, lines: Lines::new(), sent: Instant::now() }
    }

    fn run(mut self) {
        let code = loop {
            // Asked before its events are read: those that it wrote last count, too.
            let ended = self.ended();
            while self.read() {}
            if let Some(code) = ended {
                break code;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        self.conclude(code);
    }

    /// The exit code of a process that has ended: unknown if another server had started it.
    fn ended(&mut self) -> Option<Option<i32>> {
        match (&mut self.child, self.process) {
            (Some(child), _) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.code()),
                Err(_) => Some(None),
            },
            (None, Some(process)) => (!process.is_running()).then_some(None),
            (None, None) => Some(None),
        }
    }

    /// Passes on some events. Returns whether there may be more.
    fn read(&mut self) -> bool {
        let path = files::events_file(&self.jobs.folder_of(self.id));
        // There is no file yet.
        let Ok((lines, has_more)) = self.lines.read(&path) else { return false };
        let Some(last) = lines.last() else { return has_more };
        let end = Some(last.end);
        let mut text = frames(&lines);
        let mut is_progress = true;
        {
            let mut all = self.jobs.lock();
            let Some(job) = all.get_mut(self.id) else { return false };
            for event in lines.iter().filter_map(parsed) {
                is_progress &= event["event"] == "progress";
                if event["event"] == "run" {
                    job.run = event["run"].as_str().map(str::to_owned);
                    self.jobs.keep(job);
                }
                job.live.take(&event);
            }
        }
        let is_due = !is_progress || self.sent.elapsed() >= JOB_EVERY;
        if let Some(view) = is_due.then(|| self.jobs.view(self.id).ok()).flatten() {
            self.sent = Instant::now();
            text += &frame(None, "job", &view.to_string());
            let _ = self.jobs.changes.send(frame(None, "jobs", &view.to_string()).into());
        }
        self.jobs.stream(self.id).send(Chunk { end, bytes: text.into(), is_last: false });
        has_more
    }

    /// Whether the store has no run of this id. A store that cannot be read does not say so.
    fn is_missing(&self, run: &str) -> bool {
        let store = Store::open_to_read(&self.jobs.data_dir);
        matches!(store.and_then(|store| store.check_known(run)), Err(StoreError::NoRun { .. }))
    }

    fn conclude(self, code: Option<i32>) {
        let folder = self.jobs.folder_of(self.id);
        let mut stderr = files::tail(&files::stderr_file(&folder), STDERR_BYTES);
        if stderr.trim().is_empty() && files::is_disk_full(&folder) {
            // It could not write why it failed.
            let place = folder.display();
            stderr = format!("error: no space left on the disk of {place}; free some space there");
        }
        // The event names a run before it is stored, which may have failed.
        let named = self.jobs.lock().get(self.id).and_then(|job| job.run.clone());
        let stored = named.filter(|run| !self.is_missing(run));
        let (run, tags) = {
            let mut all = self.jobs.lock();
            let Some(job) = all.get_mut(self.id) else { return };
            if matches!(job.kind, Kind::Tune(_)) {
                let text = fs::read(files::stdout_file(&folder)).unwrap_or_default();
                job.answer = serde_json::from_slice(&text).ok();
            }
            (job.state, job.message) = how_it_ended(job, code, &stderr);
            (job.ended, job.process, job.exit_code) = (Some(Timestamp::now()), None, code);
            // One that was to continue a stored run has that, whenever it failed.
            let continued = || match &job.kind {
                Kind::Resume(resume) => Some(resume.run.clone()),
                _ => None,
            };
            job.run = stored.or_else(continued);
            self.jobs.keep(job);
            (job.run.clone(), job.tags.clone())
        };
        if let (Some(run), false) = (run, tags.is_empty()) {
            // The run keeps the note that it may have got meanwhile, and the tags of what it continues.
            let tagged = Store::open(&self.jobs.data_dir).and_then(|mut store| {
                let mut known = store.annotations()?.remove(&run).unwrap_or_default();
                let new: Vec<_> = tags.into_iter().filter(|tag| !known.tags.contains(tag)).collect();
                known.tags.extend(new);
                store.annotate(&run, &known)
            });
            if let (Err(error), Some(job)) = (tagged, self.jobs.lock().get_mut(self.id)) {
                job.message = Some(format!("its run has no tags: {error}"));
            }
        }
        self.jobs.changed(self.id);
        self.jobs.wake.notify_all();
    }
}

/// The state of a job whose process has ended, and what happened.
fn how_it_ended(job: &Job, code: Option<i32>, stderr: &str) -> (State, Option<String>) {
    let error = || {
        let failure = job.live.run_failure.clone();
        Some(failure.unwrap_or_else(|| message_of(stderr)))
    };
    let run_state = match (&job.kind, code, job.live.run_state.as_deref()) {
        // Other runs were to follow, unless it has answered.
        (Kind::Tune(_), None, Some("complete")) if job.answer.is_none() => None,
        (.., state) => state,
    };
    match (code, run_state) {
        (Some(INTERRUPTED), _) | (_, Some("interrupted")) => {
            let words = match job.live.trials {
                0 => "stopped before a trial ended",
                _ => "stopped; what was measured is stored",
            };
            (State::Interrupted, Some(words.to_owned()))
        }
        (Some(0), _) | (None, Some("complete")) => (State::Ended, None),
        (Some(REQUIREMENT_MISSED), _) => {
            (State::Ended, Some("a requirement of the plan does not hold; the report names it".to_owned()))
        }
        (None, None) if job.state == State::Stopping => {
            (State::Interrupted, Some("its process was ended at once".to_owned()))
        }
        // What it wrote before is its progress, unless it is an error.
        (None, None) if !stderr.lines().any(|line| line.starts_with("error: ")) => (
            State::Failed,
            Some("its process ended before the run did; finished trials are stored".to_owned()),
        ),
        _ => (State::Failed, error()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::TuneOptions;

    #[test]
    fn tune_auto_that_was_killed_between_its_runs_has_not_ended() {
        let job = |answer: Option<Value>, events: &[Value]| {
            let mut job = Job::queued_for_tests(Kind::Tune(TuneOptions::default()));
            (job.state, job.answer) = (State::Running, answer);
            events.iter().for_each(|event| job.live.take(event));
            job
        };
        let complete = json!({ "event": "end", "state": "complete" });
        let next = json!({ "event": "run", "run": "b", "unit": "flows" });
        let state = |job: &Job, code: Option<i32>| how_it_ended(job, code, "").0;
        let ended = std::slice::from_ref(&complete);
        // Its exit code is unknown: a signal has killed it, or another server had started it.
        assert_eq!(state(&job(None, ended), None), State::Failed);
        assert_eq!(state(&job(None, &[complete.clone(), next]), None), State::Failed);
        assert_eq!(state(&job(Some(json!({})), ended), None), State::Ended);
        assert_eq!(state(&job(None, ended), Some(0)), State::Ended);
        let mut run = job(None, ended);
        run.kind = Kind::Run;
        assert_eq!(state(&run, None), State::Ended);
    }
}
