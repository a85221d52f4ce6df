//! The metric that decides.

use base::metric::{Better as Direction, MetricSpec, Metrics};
use base::outcome::{Phase, Run, Trial};
use base::verdict::Verdict;
use run::registry::BUILT_IN;
use tune::trials::Better;

use crate::exit::Failure;

/// Name of the variant with the plan's settings.
pub const CURRENT: &str = "current";

/// The capacity of a search, in the unit of its load.
const CAPACITY: &str = "capacity";
/// What each workload is tuned for unless another metric is named.
const DEFAULTS: [(&str, &str); 5] = [
    ("exchange", "response_p99_ms"),
    ("transfer", "goodput_bit_per_s"),
    ("daq", "completion_p99_ms"),
    ("files", "ops_per_s"),
    ("stream", CAPACITY),
];
/// Metrics that a winner must not make worse, of the workloads that have them.
const GUARDS: [&str; 9] = [
    "response_p99_ms",
    "response_p99_us",
    "completion_p99_ms",
    "p99_ms",
    "first_byte_p99_ms",
    "retransmits",
    "loss_ratio",
    "error_ratio",
    "in_time_ratio",
];
/// Metrics that are named if they become worse. A larger buffer takes more memory: to refuse that would be to
/// refuse every larger buffer.
const NAMED: [&str; 2] = ["socket_memory_max_bytes", "server_memory_bytes"];

/// Ends of the metrics of each class of messages, where there are several: `alarm_response_p99_ms`.
const OF_CLASSES: [(&str, Better); 2] =
    [("_response_p99_ms", Better::Lower), ("_in_time_ratio", Better::Higher)];

/// A metric that is compared beside the goal.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardedMetric {
    pub name: String,
    pub better: Better,
    /// Whether a candidate that makes it worse is not accepted.
    pub refuses: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub name: String,
    pub better: Better,
    pub guards: Vec<GuardedMetric>,
}

impl Goal {
    /// Errors: the workload has no such metric, or it is better neither higher nor lower.
    pub fn new(workload: &str, named: Option<&str>) -> Result<Self, String> {
        let default = DEFAULTS.iter().find(|(name, _)| *name == workload).map(|(_, goal)| *goal);
        let name = named.or(default).unwrap_or(CAPACITY);
        let specs = BUILT_IN.workload(workload).map_err(|error| error.to_string())?.metrics();
        let better = match name {
            CAPACITY => Better::Higher,
            _ => better_of(specs, workload, name)?,
        };
        let is_usual = |spec: &&MetricSpec| GUARDS.contains(&spec.name) || NAMED.contains(&spec.name);
        let guard = |spec: &MetricSpec| {
            let (name, refuses) = (spec.name.to_owned(), GUARDS.contains(&spec.name));
            Some(GuardedMetric { name, better: direction(spec)?, refuses })
        };
        let guards = specs.iter().filter(is_usual).filter(|spec| spec.name != name).filter_map(guard);
        Ok(Self { name: name.to_owned(), better, guards: guards.collect() })
    }

    /// Guards further metrics.
    /// Errors: as [`Self::new`].
    pub fn guard(&mut self, workload: &str, metrics: &[String]) -> Result<(), String> {
        let specs = BUILT_IN.workload(workload).map_err(|error| error.to_string())?.metrics();
        for metric in metrics {
            if metric == CAPACITY {
                return Err(
                    "capacity: it is of a search, not of a trial; it can be the goal: --goal capacity".into(),
                );
            }
            let better = better_of(specs, workload, metric)?;
            self.guards.retain(|guard| guard.name != *metric);
            if *metric != self.name {
                self.guards.push(GuardedMetric { name: metric.clone(), better, refuses: true });
            }
        }
        Ok(())
    }

    /// Guards the classes of messages in the metrics of a trial, too.
    pub fn with_classes(mut self, metrics: &Metrics) -> Self {
        for name in metrics.keys().filter(|name| **name != self.name) {
            if let Some((_, better)) = OF_CLASSES.iter().find(|(end, _)| name.ends_with(end)) {
                let guard = GuardedMetric { name: name.clone(), better: *better, refuses: true };
                self.guards.push(guard);
            }
        }
        self
    }

    /// Errors: the first run cannot be judged by this metric.
    pub fn check(&self, run: &Run) -> Result<(), Failure> {
        let is_search = run.trials.iter().any(|trial| trial.phase != Phase::Single);
        match self.name == CAPACITY {
            false if is_search => Err(Failure::usage(format!(
                "the plan searches a load, and {} depends on the load: fix the load, or use --goal capacity",
                self.name
            ))),
            _ if self.of_repetition(run, CURRENT, 1).is_none() => {
                let why = run.trials.last().map(|trial| trial.reasons.join("; ")).unwrap_or_default();
                Err(Failure::runtime(format!("the first trial has no {}: {why}", self.name)))
            }
            _ => Ok(()),
        }
    }

    /// The value of a variant in a repetition; `None`: unknown, or its trial is invalid.
    pub fn of_repetition(&self, run: &Run, variant: &str, repetition: u32) -> Option<f64> {
        if self.name != CAPACITY {
            return metric_of(run, variant, repetition, &self.name);
        }
        let at = usize::try_from(repetition.checked_sub(1)?).ok()?;
        run.variant(variant)?.repetitions.get(at)?.value
    }
}

/// A metric of the last trial of a variant in a repetition.
pub fn metric_of(run: &Run, variant: &str, repetition: u32, name: &str) -> Option<f64> {
    let of = |trial: &&Trial| trial.repetition == repetition;
    let trial = run.trials_of(variant).filter(of).last()?;
    trial.metrics.get(name).copied().flatten().filter(|_| trial.verdict != Verdict::Invalid)
}

fn better_of(specs: &[MetricSpec], workload: &str, name: &str) -> Result<Better, String> {
    let spec = specs.iter().find(|spec| spec.name == name);
    spec.and_then(direction).ok_or_else(|| {
        let usable = specs.iter().filter(|spec| direction(spec).is_some());
        let names: Vec<&str> = usable.map(|spec| spec.name).chain([CAPACITY]).collect();
        format!(
            "{name}: {workload} has no metric of that name that can be better or worse; it has {}",
            names.join(", ")
        )
    })
}

fn direction(spec: &MetricSpec) -> Option<Better> {
    match spec.better {
        Direction::Higher => Some(Better::Higher),
        Direction::Lower => Some(Better::Lower),
        Direction::Neither => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_metrics_of_the_workload_with_a_direction() {
        for (workload, goal) in DEFAULTS {
            assert_eq!(Goal::new(workload, None).unwrap().name, goal);
        }
        assert_eq!(Goal::new("exchange", Some("write_mean_ms")).unwrap().better, Better::Lower);
        let refused = Goal::new("exchange", Some("answered")).unwrap_err();
        assert!(refused.contains("response_p99_ms") && refused.contains("capacity"), "{refused}");
        let mut goal = Goal::new("exchange", None).unwrap();
        let refusing = |goal: &Goal| {
            let all = goal.guards.iter().filter(|guard| guard.refuses);
            all.map(|guard| guard.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(refusing(&goal), ["in_time_ratio", "error_ratio", "retransmits"], "{goal:?}");
        assert!(goal.guards.iter().any(|guard| guard.name == "socket_memory_max_bytes"), "{goal:?}");
        let more = ["goodput_bit_per_s", "retransmits", "socket_memory_max_bytes", "response_p99_ms"];
        goal.guard("exchange", &more.map(str::to_owned)).unwrap();
        let expected =
            ["in_time_ratio", "error_ratio", "goodput_bit_per_s", "retransmits", "socket_memory_max_bytes"];
        assert_eq!(refusing(&goal), expected, "{goal:?}");
        let of_class = ["alarm_response_p99_ms", "video_response_p50_ms"];
        let metrics = of_class.map(|name| (name.to_owned(), Some(1.0))).into_iter().collect();
        let more = refusing(&goal.clone().with_classes(&metrics));
        assert_eq!(more.last().map(String::as_str), Some("alarm_response_p99_ms"), "{more:?}");
        assert!(goal.guard("exchange", &["speed".to_owned()]).is_err());
        let refused = goal.guard("stream", &[CAPACITY.to_owned()]).unwrap_err();
        assert!(refused.contains("--goal capacity"), "{refused}");
        for (workload, goal, guarded) in [
            ("transfer", "goodput_bit_per_s", "response_p99_us"),
            ("daq", "events_per_s", "completion_p99_ms"),
            ("files", "ops_per_s", "p99_ms"),
        ] {
            let goal = Goal::new(workload, Some(goal)).unwrap();
            assert!(refusing(&goal).iter().any(|name| name == guarded), "{goal:?}");
        }
        assert!(Goal::new("nothing", None).is_err());
    }
}
