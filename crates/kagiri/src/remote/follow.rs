//! Follows a job of a console to its end: the same lines of progress as of a run here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::outcome::{Phase, Run, Trial};
use base::part::Live;
use base::plan::Plan;
use base::workload::Presentation;
use run::engine::{Event as RunEvent, Observer};
use run::search::{Step, TrialResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sys::clock::Deadline;
use web::client::{Client, ClientError, Event, Events, JobView, Next};

use super::command_of;
use crate::estimate::Estimate;
use crate::exit::Failure;
use crate::json_lines::{JsonLines, RunLines};
use crate::output;
use crate::progress::{Progress, Shown};

/// How often to look for Ctrl-C.
const POLL: Duration = Duration::from_millis(100);
/// A console sends a comment every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(50);
/// How long a console that is gone is waited for: it may be started again.
const RECONNECT_WITHIN: Duration = Duration::from_secs(30);
const RECONNECT_EVERY: Duration = Duration::from_secs(1);
/// A run that was stopped cleans up its hosts first.
const STOP_WITHIN: Duration = Duration::from_secs(180);

/// What is known of the run before it begins.
pub struct Expected<'a> {
    pub plan: &'a Plan,
    pub presentation: &'static Presentation,
    pub estimate: Estimate,
    /// The run that is continued, as it was when it broke off.
    pub stored: Option<&'a Run>,
}

pub struct Follower<'a> {
    client: &'a Client,
    job: JobView,
    plan: &'a Plan,
    presentation: &'static Presentation,
    /// Taken when the run begins.
    estimate: Option<Estimate>,
    /// The run that is continued; taken when its first search begins.
    stored: Option<&'a Run>,
    quiet: bool,
    json_lines: Option<JsonLines>,
    stop: Arc<AtomicBool>,
    progress: Option<Progress>,
    lines: Option<RunLines>,
    has_ended: bool,
    /// The last event that has an id.
    position: Option<u64>,
    /// The last line about the queue.
    waiting: Option<String>,
    /// Set when the console was asked to stop the run.
    stop_deadline: Option<Deadline>,
}

/// How a job ended.
pub struct Followed {
    pub job: JobView,
    /// The lines of `--json-lines`, which lack the end of the run.
    pub lines: Option<RunLines>,
    /// Whether the run itself came to an end, however it ended.
    pub has_ended: bool,
}

#[derive(Deserialize)]
struct RunBegan {
    run: String,
    unit: String,
}

#[derive(Deserialize)]
struct Preparing {
    variant: String,
    repetition: u32,
}

#[derive(Deserialize)]
struct TrialBegan {
    variant: String,
    load: u64,
    phase: Phase,
}

#[derive(Deserialize)]
struct TrialAt {
    done: Option<f64>,
    /// A number that JSON does not have is `null`.
    live: BTreeMap<String, Option<f64>>,
}

#[derive(Deserialize)]
struct TrialEnded {
    trial: Trial,
}

impl<'a> Follower<'a> {
    pub fn new(
        client: &'a Client,
        job: JobView,
        expected: Expected<'a>,
        quiet: bool,
        json_lines: Option<JsonLines>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let Expected { plan, presentation, estimate, stored } = expected;
        Self {
            client,
            job,
            plan,
            presentation,
            estimate: Some(estimate),
            stored,
            quiet,
            json_lines,
            stop,
            progress: None,
            lines: None,
            has_ended: false,
            position: None,
            waiting: None,
            stop_deadline: None,
        }
    }

    /// Follows the job until it has ended.
    /// Errors: the console is gone for too long, or does not end a run that was stopped.
    pub fn follow(mut self) -> Result<Followed, Failure> {
        let ended = self.until_bye();
        if let Some(progress) = &self.progress {
            progress.clear();
        }
        ended?;
        let job = self.client.job(&self.job.id).map_err(|error| self.lost(&error))?;
        Ok(Followed { job, lines: self.lines, has_ended: self.has_ended })
    }

    fn until_bye(&mut self) -> Result<(), Failure> {
        let mut events = self.client.events(&self.job.id, None).map_err(|error| self.lost(&error))?;
        loop {
            self.pass_stop_on()?;
            let broken = match self.client.next(&mut events, POLL) {
                Ok(Next::Event(event)) if event.name == "bye" => return Ok(()),
                Ok(Next::Event(event)) => {
                    self.take(event)?;
                    continue;
                }
                Ok(Next::Nothing) if events.silent_for() < SILENCE_MAX => continue,
                Ok(Next::Nothing) => format!("it sent nothing for {} s", SILENCE_MAX.as_secs()),
                Ok(Next::End) => "it ended the connection".to_owned(),
                Err(error) if error.is_unreachable() => error.to_string(),
                Err(error) => return Err(self.lost(&error)),
            };
            events = self.reconnect(&broken)?;
        }
    }

    /// Asks the console to stop the run, once Ctrl-C was pressed.
    fn pass_stop_on(&mut self) -> Result<(), Failure> {
        match self.stop_deadline {
            None if self.stop.load(Ordering::Relaxed) => {
                self.line("stopping the run on the console; what was measured is kept");
                self.client.stop(&self.job.id).map_err(|error| self.not_stopped(&error.to_string()))?;
                self.stop_deadline = Some(Deadline::after(STOP_WITHIN));
                Ok(())
            }
            Some(deadline) if deadline.passed() => {
                let why = format!("it was asked to, and has not ended within {} s", STOP_WITHIN.as_secs());
                Err(self.not_stopped(&why))
            }
            _ => Ok(()),
        }
    }

    /// A connection again, where the last one broke off.
    fn reconnect(&mut self, why: &str) -> Result<Events, Failure> {
        let address = self.client.address();
        let within = RECONNECT_WITHIN.as_secs();
        self.line(&format!("lost console {address} ({why}); trying again for {within} s"));
        let deadline = Deadline::after(RECONNECT_WITHIN);
        let mut next_try = Deadline::after(Duration::ZERO);
        loop {
            if self.stop_deadline.is_none() && self.stop.load(Ordering::Relaxed) {
                return Err(self.not_stopped("it cannot be reached"));
            }
            if !next_try.passed() {
                next_try.pause(POLL);
                continue;
            }
            match self.client.events(&self.job.id, self.position) {
                Ok(events) => {
                    self.line(&format!("reached console {address} again"));
                    return Ok(events);
                }
                Err(error) if error.is_unreachable() && !deadline.passed() => {
                    next_try = Deadline::after(RECONNECT_EVERY);
                }
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        // A console that has lost the position begins again.
        if event.id.is_some_and(|id| self.position.is_some_and(|position| id <= position)) {
            return Ok(());
        }
        self.position = event.id.or(self.position);
        match (event.name.as_str(), &mut self.progress) {
            ("job", _) => {
                self.job = self.read(event)?;
                self.say_queue();
            }
            ("run", None) => self.begin(event)?,
            ("preparing", Some(progress)) => {
                let Preparing { variant, repetition } = read(self.client, event)?;
                let stored = self.stored.take();
                let kept = stored.map(|stored| take_over(progress, stored, &variant, repetition));
                let kept = kept.unwrap_or_default();
                progress.event(RunEvent::Preparing { variant: &variant, repetition, kept: &kept });
            }
            ("trial_began", Some(progress)) => {
                let TrialBegan { variant, load, phase } = read(self.client, event)?;
                progress.event(RunEvent::TrialBegan { step: Step { load, phase }, variant: &variant });
            }
            ("progress", Some(progress)) => {
                let TrialAt { done, live } = read(self.client, event)?;
                let known = live.into_iter().filter_map(|(name, value)| Some((name, value?)));
                let live: Live = known.collect();
                progress.event(RunEvent::TrialAt { done: done.unwrap_or(0.0), live: &live });
            }
            ("trial", Some(progress)) => {
                let TrialEnded { trial } = read(self.client, event)?;
                progress.event(RunEvent::TrialEnded(&trial));
            }
            ("end", _) => self.has_ended = true,
            // Others are for newer programs.
            _ => {}
        }
        Ok(())
    }

    /// The run has begun.
    fn begin(&mut self, event: Event) -> Result<(), Failure> {
        let RunBegan { run, unit } = self.read(event)?;
        let Some(estimate) = self.estimate.take() else { return Ok(()) };
        let lines = self.json_lines.as_ref();
        self.lines = lines.map(|lines| lines.of_run(&run, &self.plan.workload, &self.plan.name, &unit));
        self.job.run = Some(run);
        let shown = Shown { quiet: self.quiet, json_lines: self.lines.clone(), intervals: None };
        // The console stops the run, not this program.
        let progress = Progress::new(&unit, self.presentation, estimate, shown, Arc::default());
        self.progress = Some(progress);
        Ok(())
    }

    fn say_queue(&mut self) {
        let JobView { state, position, message, .. } = &self.job;
        if state != "queued" {
            return;
        }
        let position =
            position.map(|position| format!(", place {position} in its queue")).unwrap_or_default();
        let reason = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        let line = format!("the run waits on the console{position}{reason}");
        // A job that begins at once is queued for a moment, without a reason.
        if message.is_some() && self.waiting.as_ref() != Some(&line) {
            self.line(&line);
            self.waiting = Some(line);
        }
    }

    fn line(&self, text: &str) {
        match &self.progress {
            Some(progress) => progress.line(text),
            None => output::say_unless(self.quiet)(text),
        }
    }

    fn read<T: DeserializeOwned>(&self, event: Event) -> Result<T, Failure> {
        read(self.client, event)
    }

    /// The console is gone.
    fn lost(&self, error: &ClientError) -> Failure {
        Failure::runtime(format!("{error}. {}", self.later()))
    }

    fn not_stopped(&self, why: &str) -> Failure {
        let (job, address) = (&self.job.id, self.client.address());
        Failure::Interrupted(format!(
            "interrupted, but job {job} of console {address} was not stopped: {why}; stop it in the browser. \
             {}",
            self.later()
        ))
    }

    /// How to get the result.
    fn later(&self) -> String {
        let command = command_of(self.client);
        match &self.job.run {
            Some(run) => format!(
                "Run {run} does not need the console to go on; get its result when the console is back: \
                 {command} runs show {run}"
            ),
            None => format!(
                "Job {} had not begun; see whether it did when the console is back: {command} runs list",
                self.job.id
            ),
        }
    }
}

/// Reports the ended searches of a run that is continued to `progress`. Returns the results of the search
/// that begins now.
fn take_over(progress: &mut Progress, stored: &Run, variant: &str, repetition: u32) -> Vec<TrialResult> {
    let is_of_search = |trial: &&Trial| trial.variant == variant && trial.repetition == repetition;
    let others = stored.trials.iter().filter(|trial| !is_of_search(trial));
    let mut ended: Vec<(&str, u32)> = others.map(|one| (one.variant.as_str(), one.repetition)).collect();
    ended.dedup();
    for (variant, _) in ended {
        progress.event(RunEvent::Skipped { variant });
    }
    let is_kept = |trial: &&Trial| !trial.account.is_cut && !trial.is_broken_off();
    stored.trials.iter().filter(is_of_search).filter(is_kept).map(Into::into).collect()
}

fn read<T: DeserializeOwned>(client: &Client, event: Event) -> Result<T, Failure> {
    let Event { name, data, .. } = event;
    serde_json::from_value(data).map_err(|error| {
        let (address, its, own) = (client.address(), &client.facts().version, env!("CARGO_PKG_VERSION"));
        Failure::runtime(format!(
            "console {address}: its event '{name}' cannot be read: {error} (it runs kagiri {its}, this is \
             kagiri {own}); the run goes on there, see '{} runs list'",
            command_of(client)
        ))
    })
}
