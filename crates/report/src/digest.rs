//! The numbers of a run per variant and load: what tables, figures and sentences are made from.

use base::metric::{Better, MetricSpec};
use base::outcome::{Run, Trial};
use base::statistics::median;
use base::verdict::Verdict;

use base::format;

/// How the trials of one load become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    Median,
    /// The least of the trials: for a margin.
    Least,
    /// The greatest of the trials: for damage, which a median would hide.
    Most,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its head, without the unit.
    pub heading: String,
    pub metric: String,
    /// The base unit as printed.
    pub unit: &'static str,
    /// Turns the metric's value into that unit.
    pub factor: f64,
    /// How trials become one number.
    pub fold: Fold,
    /// Whether it is left out where there is little room.
    pub spare: bool,
}

/// The columns that every report of a server shows, by the names that their metrics may have.
const KNOWN: [(&str, &str, Fold); 11] = [
    ("CPU", "server_cpu_percent", Fold::Median),
    ("RSS", "server_memory_bytes", Fold::Median),
    ("socket", "socket_memory_bytes", Fold::Median),
    ("cache", "page_cache_bytes", Fold::Median),
    ("kernel objects", "slab_bytes", Fold::Median),
    ("disk", "disk_bit_per_s", Fold::Median),
    ("network", "network_bit_per_s", Fold::Median),
    ("slack", "slack_min_s", Fold::Least),
    ("stalls", "stalls", Fold::Most),
    ("start-up", "startup_max_s", Fold::Most),
    ("read late", "tick_late_max_ms", Fold::Most),
];

/// Merits of a workload that a table has room for; a workload names them in the order of their weight.
const MERITS_MAX: usize = 6;

/// Columns for wide tables only.
const SPARE: [&str; 2] = ["slab_bytes", "tick_late_max_ms"];

/// Words in the names of metrics that speak for a limit: shown as evidence where they are large enough to
/// matter.
const EVIDENCE: [&str; 9] = [
    "throttled",
    "pressure",
    "cpu_wait",
    "disk_await",
    "disk_busy",
    "disk_queue",
    "drops",
    "retransmits",
    "limited",
];

/// Below these an idle machine's numbers would drown the telling ones.
fn matters(name: &str, value: f64) -> bool {
    match name {
        _ if name.ends_with("_percent") => value >= 5.0,
        _ if name.ends_with("_ms") => value >= 5.0,
        "disk_queue" => value >= 1.0,
        _ => value > 0.0,
    }
}

/// A counter in words.
fn in_words(name: &str) -> String {
    let waits = match name {
        "pressure_cpu_percent" => "tasks waited for a CPU",
        "pressure_io_percent" => "tasks waited for I/O",
        "pressure_memory_percent" => "tasks waited for memory",
        "cpu_wait_percent" => "the server's threads waited for a CPU",
        _ => return format::metric_words(name),
    };
    waits.to_owned()
}

/// The columns that this run can fill: a metric that no trial names is left out, one that is named but
/// unknown is shown as unknown.
pub fn columns(run: &Run, specs: &[MetricSpec]) -> Vec<Column> {
    let named = |name: &str| run.trials.iter().any(|trial| trial.metrics.contains_key(name));
    let column = |heading: &str, name: &str, fold| {
        let (unit, factor) = format::unit_of(name);
        let spare = SPARE.contains(&name);
        Column { spare, heading: heading.to_owned(), metric: name.to_owned(), unit, factor, fold }
    };
    let mut shown = Vec::new();
    for (heading, name, fold) in KNOWN.into_iter().filter(|(_, name, _)| named(name)) {
        shown.push(column(heading, name, fold));
    }
    // Another workload than streams brings its own merits: those that were measured, the first of them first.
    if !named("stalls") {
        let measured =
            |name: &str| run.trials.iter().any(|trial| trial.metrics.get(name).copied().flatten().is_some());
        shown.retain(|column| measured(&column.metric));
        let merits = specs
            .iter()
            .filter(|spec| spec.better != Better::Neither && measured(spec.name))
            .take(MERITS_MAX);
        let fresh: Vec<_> = merits.filter(|spec| shown.iter().all(|c| c.metric != spec.name)).collect();
        shown.extend(fresh.into_iter().map(|s| column(&format::metric_words(s.name), s.name, Fold::Median)));
    }
    shown
}

/// All trials of one load of one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    pub load: f64,
    /// Fail if any trial failed, else pass if any passed, else invalid.
    pub verdict: Verdict,
    /// How many of the trials have that verdict.
    pub agreeing: usize,
    /// The trials in the order in which they were made.
    pub trials: Vec<&'a Trial>,
}

/// The loads of one variant in ascending order.
pub fn rows<'a>(run: &'a Run, variant: &'a str) -> Vec<Row<'a>> {
    let mut trials: Vec<_> = run.trials_of(variant).collect();
    trials.sort_by(|a, b| a.load.total_cmp(&b.load));
    let groups = trials.chunk_by(|a, b| a.load == b.load);
    groups.map(|group| row(group.to_vec())).collect()
}

fn row(trials: Vec<&Trial>) -> Row<'_> {
    let count = |verdict| trials.iter().filter(|trial| trial.verdict == verdict).count();
    let (fails, passes) = (count(Verdict::Fail), count(Verdict::Pass));
    let (verdict, agreeing) = match (fails, passes) {
        (0, 0) => (Verdict::Invalid, trials.len()),
        (0, passes) => (Verdict::Pass, passes),
        (fails, _) => (Verdict::Fail, fails),
    };
    Row { load: trials[0].load, verdict, agreeing, trials }
}

impl<'a> Row<'a> {
    /// Whether all its trials came to the same verdict.
    pub fn is_unanimous(&self) -> bool {
        self.agreeing == self.trials.len()
    }

    /// `pass 3/3`: the verdict, and how many of the trials at this load came to it.
    pub fn verdict_words(&self) -> String {
        format!("{} {}/{}", self.verdict, self.agreeing, self.trials.len())
    }

    /// The trials that say something: the valid ones, or all when none is.
    fn telling(&self) -> impl Iterator<Item = &&'a Trial> {
        let any_valid = self.verdict != Verdict::Invalid;
        self.trials.iter().filter(move |trial| !any_valid || trial.verdict != Verdict::Invalid)
    }

    /// The column's number at this load; `None` when no trial knows it.
    pub fn value(&self, column: &Column) -> Option<f64> {
        let known: Vec<_> = self
            .telling()
            .filter_map(|t| Some(t.metrics.get(&column.metric).copied()?? * column.factor))
            .collect();
        match column.fold {
            Fold::Median => median(&known),
            Fold::Least => known.into_iter().min_by(f64::total_cmp),
            Fold::Most => known.into_iter().max_by(f64::total_cmp),
        }
    }

    /// How it went: "steady", or how it failed and after how long.
    pub fn how(&self) -> String {
        if self.verdict == Verdict::Pass {
            return "steady".to_owned();
        }
        let Some(worst) = self.trials.iter().find(|trial| trial.verdict == self.verdict) else {
            return String::new();
        };
        match (self.verdict, first_stall_s(worst)) {
            (Verdict::Fail, Some(s)) if s > 0.0 => {
                format!("stalls {} into the judged time", format::quantity(Some(s), "s"))
            }
            (Verdict::Fail, Some(_)) => "stalls since before the judged time".to_owned(),
            _ => worst.reasons.first().cloned().unwrap_or_else(|| self.verdict.to_string()),
        }
    }

    /// Counters that speak for a limit at this load, as `name value`, the small and the unknown ones left
    /// out.
    pub fn evidence(&self) -> Vec<String> {
        let mut names: Vec<&str> =
            self.telling().flat_map(|t| t.metrics.keys().map(String::as_str)).collect();
        names.retain(|name| EVIDENCE.iter().any(|word| name.contains(word)));
        names.sort_unstable();
        names.dedup();
        let columns = names.into_iter().filter_map(|name| {
            let known: Vec<f64> = self.telling().filter_map(|t| *t.metrics.get(name)?).collect();
            let value = median(&known).filter(|value| matters(name, *value))?;
            if name == "cpu_wait_percent" && value > 100.0 {
                // Summed over threads: no share of the time is above 100 %.
                let threads = format::number(value / 100.0);
                return Some(format!("{threads} of the server's threads waited for a CPU on average"));
            }
            Some(format!("{} {}", in_words(name), format::metric(name, Some(value))))
        });
        columns.collect()
    }
}

/// When the first stall of a trial came, in seconds after its hold's beginning (at most zero: before it):
/// from its metrics, else from its series.
pub fn first_stall_s(trial: &Trial) -> Option<f64> {
    let stated = trial.metrics.get("stall_first_s").copied().flatten();
    stated.or_else(|| stall_times_s(trial).first().map(|at_s| at_s - trial.hold_from_s))
}

/// The times at which a stream fell still, in seconds after the trial's start: where its series of stalls
/// rises, or else where fewer streams play than before, up to the hold's end.
pub fn stall_times_s(trial: &Trial) -> Vec<f64> {
    let named = |name| trial.series.iter().find(|series| series.name == name);
    let (series, sign) = match (named("stalls"), named("streams_playing")) {
        (Some(stalls), _) => (stalls, 1.0),
        (None, Some(playing)) => (playing, -1.0),
        (None, None) => return Vec::new(),
    };
    let mut before = 0.0;
    let mut times = Vec::new();
    for (at_s, value) in series.known(0.0, trial.hold_to_s) {
        if (value - before) * sign > 0.0 {
            times.push(at_s);
        }
        before = value;
    }
    times
}

/// How long a trial lasted in all, in seconds: to its hold's end or its last sample.
pub fn trial_length_s(trial: &Trial) -> f64 {
    let last = trial.series.iter().filter_map(|series| series.at_s.last().copied());
    last.fold(trial.hold_to_s, f64::max).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::outcome::Phase;
    use base::series::Series;

    fn trial(verdict: Verdict, slack_s: Option<f64>) -> Trial {
        Trial {
            number: 1,
            variant: "a".into(),
            repetition: 1,
            phase: Phase::Search,
            load: 6.0,
            verdict,
            reasons: vec!["2 streams stalled".into()],
            metrics: [("slack_min_s".to_owned(), slack_s)].into(),
            doubts: Vec::new(),
            started_at: jiff::Timestamp::UNIX_EPOCH,
            hold_from_s: 4.0,
            hold_to_s: 14.0,
            series: Vec::new(),
            account: Default::default(),
        }
    }

    #[test]
    fn invalid_trials_are_ignored_beside_valid_ones() {
        let trials =
            [trial(Verdict::Invalid, Some(0.0)), trial(Verdict::Pass, Some(1.5)), trial(Verdict::Pass, None)];
        let row = row(trials.iter().collect());
        let slack = Column {
            heading: "slack".into(),
            metric: "slack_min_s".into(),
            unit: "s",
            factor: 1.0,
            fold: Fold::Least,
            spare: false,
        };
        assert_eq!((row.verdict_words().as_str(), row.value(&slack)), ("pass 2/3", Some(1.5)));
        assert_eq!(row.how(), "steady");
    }

    #[test]
    fn stall_is_a_drop_in_playing_streams() {
        let mut failed = trial(Verdict::Fail, None);
        let mut playing = Series::new("streams_playing", "");
        for (at, value) in [(0.0, 0.0), (0.5, 4.0), (1.0, 6.0), (8.0, 4.0), (9.0, 6.0), (14.5, 0.0)] {
            playing.push(at, Some(value));
        }
        failed.series.push(playing);
        assert_eq!(stall_times_s(&failed), [8.0], "streams that end with the trial have not stalled");
    }

    #[test]
    fn stall_is_a_rise_of_its_series() {
        let mut failed = trial(Verdict::Fail, None);
        assert_eq!(row(vec![&failed]).how(), "2 streams stalled");
        let mut series = Series::new("stalls", "");
        for (at, value) in
            [(0.5, Some(0.0)), (5.2, Some(1.0)), (5.3, None), (5.4, Some(1.0)), (6.0, Some(3.0))]
        {
            series.push(at, value);
        }
        failed.series.push(series);
        assert_eq!(stall_times_s(&failed), [5.2, 6.0]);
        assert_eq!(row(vec![&failed]).how(), "stalls 1.2 s into the judged time");
    }
}
