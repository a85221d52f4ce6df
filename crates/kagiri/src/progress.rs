//! What the user sees while it measures: a bar with the time on a terminal, plain lines elsewhere. Both say
//! what is tried now, how long it has been at it, and how long it will take.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::format::{duration_rounded_up, metric, plural};
use base::outcome::{Phase, Trial};
use base::part::Live;
use base::verdict::Verdict;
use base::workload::Presentation;
use indicatif::{ProgressBar, ProgressStyle};
use run::engine::{Event, Observer};
use run::search::{Step, TrialResult};

use crate::estimate::{Estimate, UpperBound};
use crate::interval_lines::IntervalLines;
use crate::json_lines::{Clock, RunLines};
use crate::{output, stop};

/// What is shown beside or instead of the bar and the lines on standard error.
#[derive(Clone, Default)]
pub struct Shown {
    /// Neither bar nor lines.
    pub quiet: bool,
    /// `--json-lines`.
    pub json_lines: Option<RunLines>,
    /// What passes in each interval, and whether standard output takes these lines.
    pub intervals: Option<(IntervalLines, bool)>,
}

/// Shows progress on standard error.
#[derive(Clone)]
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    stop: Arc<AtomicBool>,
    /// What a load counts, for the lines.
    unit: String,
    presentation: &'static Presentation,
    has_variants: bool,
    /// Whether later trials depend on earlier ones.
    is_search: bool,
    began: Instant,
    json_lines: Option<RunLines>,
    now: Arc<Mutex<Now>>,
}

struct Now {
    estimate: Estimate,
    intervals: Option<(IntervalLines, bool)>,
    /// What is tried, or prepared, for the bar.
    doing: String,
    /// What passes now and what the target does, for the bar.
    live: String,
    /// The trial under way.
    step: Option<Step>,
    /// Whether the first line contains the time of the whole run.
    estimate_shown: bool,
}

impl Progress {
    /// Progress of a run whose loads count `unit` and which takes as long as estimated; ends the run when
    /// `stop` is raised.
    pub fn new(
        unit: &str,
        presentation: &'static Presentation,
        estimate: Estimate,
        shown: Shown,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let Shown { quiet, json_lines, intervals } = shown;
        let on_terminal = !quiet && std::io::stderr().is_terminal();
        let bar = on_terminal.then(|| {
            let bar = ProgressBar::new(100);
            bar.set_style(
                ProgressStyle::with_template("{elapsed_precise} {bar:12} {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar.enable_steady_tick(Duration::from_millis(200));
            stop::bar_begins(&bar);
            bar
        });
        let (has_variants, is_search) = (estimate.variants() > 1, estimate.is_search());
        let now = Now {
            estimate,
            intervals,
            doing: String::new(),
            live: String::new(),
            step: None,
            estimate_shown: false,
        };
        let now = Arc::new(Mutex::new(now));
        let (unit, began) = (unit.to_owned(), Instant::now());
        Self { bar, quiet, stop, unit, presentation, has_variants, is_search, began, json_lines, now }
    }

    pub fn line(&self, text: &str) {
        match (&self.bar, self.quiet) {
            (_, true) => {}
            (Some(bar), _) => bar.println(output::fitted(text)),
            (None, _) => output::say(text),
        }
    }

    /// A line that the user needs, even with `--quiet`.
    pub fn announce(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(output::fitted(text)),
            None => output::say(text),
        }
    }

    /// A short-lived note: on the bar where there is one, else a line.
    pub fn note(&self, text: &str) {
        if self.bar.is_none() {
            return self.line(text);
        }
        text.clone_into(&mut self.now().doing);
        self.show();
    }

    /// Take the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // A thread that panicked while it held the lock has left no misleading values.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn times(&self) -> Clock {
        let elapsed_s = self.elapsed_s();
        Clock { elapsed_s, left_s: self.now().estimate.left_s(elapsed_s) }
    }

    /// A line about an interval: a result, which `--quiet` does not silence.
    fn interval_line(&self, (line, is_on_stdout): (String, bool)) {
        let print = || match is_on_stdout {
            // The answer that follows reports a full disk.
            true => drop(output::print(&(line + "\n"))),
            false => output::say(&line),
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn left(&self) -> String {
        match self.times().left_s {
            Some(left_s) => format!("about {} left", duration_rounded_up(left_s)),
            None => "time left unknown".to_owned(),
        }
    }

    /// Bring the bar's words up to date.
    fn show(&self) {
        let Some(bar) = &self.bar else { return };
        // What is left comes first: a narrow terminal cuts the end off.
        let words = {
            let left = self.left();
            // Locked once: a lock taken twice in one expression waits for itself.
            let now = self.now();
            let words = output::shown(&format!("{left}: {}{}", now.doing, now.live));
            output::error_columns()
                .map_or_else(|| words.clone(), |width| cut(&words, width.saturating_sub(BESIDE)))
        };
        if bar.message() != words {
            bar.set_message(words);
        }
    }

    fn preparing(&self, variant: &str, repetition: u32, kept: &[TrialResult]) {
        let most = {
            let mut now = self.now();
            now.estimate.search_begins(variant, kept);
            let whole = now.estimate.upper_bound();
            (!std::mem::replace(&mut now.estimate_shown, true)).then_some(whole)
        };
        if let Some(most) = most {
            self.line(&length_words(&most, self.is_search));
        }
        let name = self.has_variants.then(|| format!("variant: {variant}"));
        let again = (repetition > 1).then(|| format!("repetition {repetition}"));
        let parts: Vec<String> = name.into_iter().chain(again).collect();
        if !parts.is_empty() {
            self.line(&parts.join(", "));
        }
        self.note("preparing");
        if let Some(lines) = &self.json_lines {
            lines.preparing(variant, repetition);
        }
    }

    fn trial_began(&self, variant: &str, step: Step) {
        let elapsed_s = self.elapsed_s();
        let load = report::words::load(step.load as f64, &self.unit);
        let what = match step.phase {
            Phase::Single => format!("measuring {load}"),
            phase => format!("measuring {load} ({})", phase_word(phase)),
        };
        {
            let mut now = self.now();
            now.estimate.trial_begins(elapsed_s);
            now.step = Some(step);
            now.doing.clone_from(&what);
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(0);
                self.show();
            }
            None => self.line(&format!("{what}, {} so far, {}", clock(elapsed_s), self.left())),
        }
        if let Some(lines) = &self.json_lines {
            lines.trial_began(variant, step, self.times());
        }
    }

    fn trial_at(&self, done: f64, live: &Live) {
        let elapsed_s = self.elapsed_s();
        let ended = {
            let mut now = self.now();
            now.estimate.trial_at(done, elapsed_s);
            let intervals = now.intervals.as_mut();
            intervals.and_then(|(lines, on_stdout)| Some((lines.look(elapsed_s, live)?, *on_stdout)))
        };
        if let Some(line) = ended {
            self.interval_line(line);
        }
        if let Some(bar) = &self.bar {
            bar.set_position((done * 100.0) as u64);
            self.now().live = live_words(live, self.presentation);
            self.show();
        }
        if let Some(lines) = &self.json_lines {
            lines.progress(done, live, self.times());
        }
    }

    fn trial_ended(&self, trial: &Trial) {
        let hold_s = trial.hold_to_s - trial.hold_from_s;
        let last = {
            let mut now = self.now();
            now.live.clear();
            if now.step.take().is_some() {
                now.estimate.trial_ends(trial.into(), hold_s, self.elapsed_s());
            }
            now.intervals.as_mut().and_then(|(lines, on_stdout)| Some((lines.end()?, *on_stdout)))
        };
        if let Some(line) = last {
            self.interval_line(line);
        }
        if let Some(lines) = &self.json_lines {
            lines.trial(trial);
        }
        let mark = match trial.verdict {
            Verdict::Pass => "pass   ",
            Verdict::Fail => "FAIL   ",
            Verdict::Invalid => "invalid",
        };
        let reason = trial.reasons.first().map(|reason| format!("  {reason}")).unwrap_or_default();
        let phase = phase_word(trial.phase);
        let unit = if trial.load == 1.0 { report::words::singular(&self.unit) } else { &self.unit };
        let width = self.unit.len();
        let phase = if phase.is_empty() { String::new() } else { format!("  {phase:<9}") };
        self.line(&format!("  {:>5} {unit:<width$}  {mark}{phase} {hold_s:>5.1} s{reason}", trial.load));
    }
}

/// Columns beside the bar's words: time, bar and spaces, and the `^C` of a terminal. A line that reaches the
/// edge is not erased if something follows it.
const BESIDE: usize = "00:00:00 ".len() + 12 + " ".len() + "^C".len() + 1;

/// The first words of a text that fit into so many columns.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let start: String = text.chars().take(columns.saturating_sub(1)).collect();
    match start.rsplit_once(' ') {
        Some((whole, _)) => format!("{} …", whole.trim_end_matches([' ', '[', ',', ':'])),
        None => "…".to_owned(),
    }
}

const TARGET: [(&str, &str); 3] =
    [("server_cpu_percent", "CPU"), ("disk_bit_per_s", "disk"), ("network_bit_per_s", "network")];

/// The rates of the bytes that move, and the known resources of the target.
fn live_words(live: &Live, presentation: &Presentation) -> String {
    let moving: Vec<String> = presentation
        .live_rates
        .iter()
        .filter_map(|(name, way)| Some(format!("{} {way}", metric(name, Some(*live.get(*name)?)))))
        .collect();
    let moving = if moving.is_empty() { String::new() } else { format!(", {} now", moving.join(" and ")) };
    let used: Vec<String> = TARGET
        .iter()
        .filter_map(|(name, what)| Some(format!("{what} {}", metric(name, Some(live.get(*name)?.round())))))
        .collect();
    if used.is_empty() { moving } else { format!("{moving} [{}: {}]", presentation.target, used.join(", ")) }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Search => "search",
        Phase::Confirm => "confirm",
        Phase::RampDown => "ramp down",
        Phase::Single => "",
    }
}

/// How long the run takes: `1 trial, about 15 s`.
pub fn length_words(most: &UpperBound, is_search: bool) -> String {
    let trials = plural(most.trials as u64, "trial");
    let again = "; trials that were disturbed or disagree are repeated";
    match most.s().map(duration_rounded_up) {
        None if is_search => format!("up to {trials}, of unknown length{again}"),
        None => format!("{trials} of unknown length"),
        Some(length) if is_search && most.trials != 1 => format!("up to {trials}, {length}{again}"),
        Some(length) => format!("{trials}, about {length}"),
    }
}

/// Elapsed time as minutes and seconds.
fn clock(seconds: f64) -> String {
    let whole = seconds as u64;
    format!("{}:{:02}", whole / 60, whole % 60)
}

impl Observer for Progress {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Skipped { variant } => self.now().estimate.search_skipped(variant),
            Event::Preparing { variant, repetition, kept } => self.preparing(variant, repetition, kept),
            Event::TrialBegan { step, variant } => self.trial_began(variant, step),
            Event::TrialAt { done, live } => self.trial_at(done, live),
            Event::TrialEnded(trial) => self.trial_ended(trial),
        }
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use base::plan::{HoldTime, LoadPlan, TrialTime};
    use base::units::Span;

    use super::*;

    #[test]
    fn live_rates_precede_target_usage() {
        let live = |all: &[(&str, f64)]| {
            let live = all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            live_words(&live, &transfer::presentation::PRESENTATION)
        };
        assert_eq!(live(&[]), "");
        assert_eq!(live(&[("server_cpu_percent", 82.4)]), " [server: CPU 82 %]");
        assert_eq!(
            live(&[("goodput_up_bit_per_s", 941e6), ("server_cpu_percent", 7.0)]),
            ", 941 Mbit/s up now [server: CPU 7 %]"
        );
        let both = [("goodput_up_bit_per_s", 941e6), ("goodput_down_bit_per_s", 1.2e9)];
        assert_eq!(live(&both), ", 941 Mbit/s up and 1.2 Gbit/s down now");
    }

    #[test]
    fn words_beside_the_bar_are_cut_between_words() {
        let words = "about 30 s left: measuring 100 sources [builder: CPU 7 %]";
        assert_eq!(cut(words, 80), words);
        assert_eq!(cut(words, 50), "about 30 s left: measuring 100 sources [builder …");
        assert_eq!(cut(words, 44), "about 30 s left: measuring 100 sources …");
        assert!((0..60).all(|columns| cut(words, columns).chars().count() <= columns.max(1)));
    }

    #[test]
    fn unknown_length_is_said_to_be_unknown() {
        let fixed = |hold| {
            let plan = LoadPlan { fixed: Some(1), ..LoadPlan::search(10, Span::from_s(5)) };
            let time = TrialTime { hold, ..TrialTime::default() };
            Estimate::new([("a".to_owned(), (plan, time))], 1).upper_bound()
        };
        assert_eq!(length_words(&fixed(HoldTime::OfPlan), false), "1 trial, about 15 s");
        assert_eq!(length_words(&fixed(HoldTime::Unknown), false), "1 trial of unknown length");
    }
}
