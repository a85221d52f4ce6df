//! What the user sees while it measures: a bar with the time on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::outcome::{Phase, Trial};
use base::verdict::Verdict;
use indicatif::{ProgressBar, ProgressStyle};
use run::engine::{Event, Observer};

/// Shows progress on standard error.
#[derive(Clone)]
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    stop: Arc<AtomicBool>,
    /// What a load counts, for the lines.
    unit: String,
    /// What the current trial is, for the bar.
    now: String,
}

impl Progress {
    /// Progress of a run whose loads count `unit`; ends the run when `stop` is raised.
    pub fn new(unit: &str, quiet: bool, stop: Arc<AtomicBool>) -> Self {
        let on_terminal = !quiet && std::io::stderr().is_terminal();
        let bar = on_terminal.then(|| {
            let bar = ProgressBar::new(100);
            bar.set_style(
                ProgressStyle::with_template("{elapsed_precise} {bar:24} {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, quiet, stop, unit: unit.to_owned(), now: String::new() }
    }

    /// One line about what is done now.
    pub fn line(&self, text: &str) {
        match (&self.bar, self.quiet) {
            (_, true) => {}
            (Some(bar), _) => bar.println(text),
            (None, _) => eprintln!("{text}"),
        }
    }

    /// A short-lived note: on the bar where there is one, else a line.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => self.line(text),
        }
    }

    /// Take the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn trial(&self, trial: &Trial) {
        let mark = match trial.verdict {
            Verdict::Pass => "pass   ",
            Verdict::Fail => "FAIL   ",
            Verdict::Invalid => "invalid",
        };
        let seconds = trial.hold_to_s - trial.hold_from_s;
        let reason = trial.reasons.first().map(|reason| format!("  {reason}")).unwrap_or_default();
        let phase = phase_word(trial.phase);
        self.line(&format!("  {:>5} {}  {mark}  {phase:<8} {seconds:>5.1} s{reason}", trial.load, self.unit));
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Search => "search",
        Phase::Confirm => "confirm",
        Phase::RampDown => "down",
        Phase::Single => "single",
    }
}

impl Observer for Progress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Preparing { variant, repetition } => {
                let again = if repetition > 1 { format!(", repetition {repetition}") } else { String::new() };
                self.line(&format!("{variant}{again}"));
                self.note("preparing");
            }
            Event::TrialBegan { step, .. } => {
                self.now = format!("{} {} ({})", step.load, self.unit, phase_word(step.phase));
                if let Some(bar) = &self.bar {
                    bar.set_position(0);
                    bar.set_message(self.now.clone());
                }
            }
            Event::TrialAt(done) => {
                if let Some(bar) = &self.bar {
                    bar.set_position((done * 100.0) as u64);
                }
            }
            Event::TrialEnded(trial) => self.trial(trial),
        }
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
