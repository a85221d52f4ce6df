//! The metric that decides.

use base::metric::{Better as Direction, MetricSpec};
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
/// Metrics that no candidate may make worse without that being named.
const GUARDS: [&str; 6] = [
    "retransmits",
    "loss_ratio",
    "error_ratio",
    "in_time_ratio",
    "socket_memory_max_bytes",
    "server_memory_bytes",
];

#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub name: String,
    pub better: Better,
    /// Other metrics that are compared.
    pub guards: Vec<(&'static str, Better)>,
}

impl Goal {
    /// Errors: the workload has no such metric, or it is better neither higher nor lower.
    pub fn new(workload: &str, named: Option<&str>) -> Result<Self, Failure> {
        let specs = BUILT_IN.workload(workload).map_err(Failure::usage)?.metrics();
        let default = DEFAULTS.iter().find(|(name, _)| *name == workload).map(|(_, goal)| *goal);
        let name = named.or(default).unwrap_or(CAPACITY);
        let guards = specs.iter().filter(|spec| GUARDS.contains(&spec.name) && spec.name != name);
        let guards = guards.filter_map(|spec| Some((spec.name, direction(spec)?))).collect();
        if name == CAPACITY {
            return Ok(Self { name: name.to_owned(), better: Better::Higher, guards });
        }
        let spec = specs.iter().find(|spec| spec.name == name);
        match spec.and_then(direction) {
            Some(better) => Ok(Self { name: name.to_owned(), better, guards }),
            None => {
                let usable = specs.iter().filter(|spec| direction(spec).is_some());
                let names: Vec<&str> = usable.map(|spec| spec.name).chain([CAPACITY]).collect();
                Err(Failure::usage(format!(
                    "--goal {name}: {workload} has no metric of that name that can be better or worse; it \
                     has {}",
                    names.join(", ")
                )))
            }
        }
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
        let refused = Goal::new("exchange", Some("answered")).unwrap_err().to_string();
        assert!(refused.contains("response_p99_ms") && refused.contains("capacity"), "{refused}");
        assert!(Goal::new("nothing", None).is_err());
    }
}
