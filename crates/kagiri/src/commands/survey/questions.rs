//! What a survey asks: one plan for each workload, put so that one machine can answer it.

use std::collections::BTreeMap;
use std::path::Path;

use base::outcome::{Ceiling, Resource};
use base::plan::Plan;
use report::survey::{SurveyFact, SurveyRow};
use serde_json::{Value, json};

use crate::args::MeasureArgs;
use crate::exit::Failure;

/// Number of questions.
pub(super) const COUNT: usize = 5;
/// Default rate of the streams, in bit/s.
const STREAM_BIT_PER_S: f64 = 25e6;
/// Upper bound of the search.
const LOAD_MAX: u64 = 2000;
/// Lower bound of [`load_max`]: the loopback's ceiling may have been measured on a busy machine.
const LOAD_MAX_LEAST: u64 = 100;
/// The search starts five doublings below its bound.
const FIRST_SHARE: u64 = 32;

/// One workload's measurement.
pub(super) struct Question {
    /// For the progress.
    pub what: &'static str,
    /// The name of its row; several variants have their own.
    pub name: &'static str,
    /// The metric that answers it, of variants that have it; else the workload's first.
    pub main: Option<&'static str>,
    pub plan: Plan,
    /// Whether it takes so long that its trials are shown.
    pub is_long: bool,
}

impl Question {
    /// What is stored with its run, so that the report of the survey can be written again.
    pub fn fact(&self, before: &[SurveyRow]) -> SurveyFact {
        SurveyFact { name: self.name.to_owned(), main: self.main.map(str::to_owned), rows: before.to_vec() }
    }
}

/// All questions in their order; the streams come last, because their search needs the ceilings.
pub(super) fn all(
    ceilings: &BTreeMap<Resource, Ceiling>,
    data: &Path,
    common: &MeasureArgs,
) -> Result<[Question; COUNT], Failure> {
    let short = |what, name, main, plan| Question { what, name, main, plan, is_long: false };
    let mut all = [
        short(
            "throughput and requests over loopback (some seconds)",
            "transfers",
            Some("response_p99_us"),
            transfer_plan()?,
        ),
        short(
            "replies to messages over loopback (two seconds)",
            "replies, 10 kB",
            Some("response_p99_ms"),
            exchange_plan()?,
        ),
        short(
            "events from 100 simultaneous sources (some seconds)",
            "events, 100 sources",
            None,
            daq_plan()?,
        ),
        short(
            "work of a file server in the data folder (some seconds)",
            "file server",
            None,
            files_plan(data)?,
        ),
        streams(ceilings, common)?,
    ];
    for question in &mut all {
        question.plan.seed = common.seed.unwrap_or(question.plan.seed);
    }
    Ok(all)
}

/// How many streams this machine serves and plays at once: with few cores the players are a part of the
/// answer, and not what prevents one. `--require` and `--repeat` apply to it.
pub(super) fn streams(
    ceilings: &BTreeMap<Resource, Ceiling>,
    common: &MeasureArgs,
) -> Result<Question, Failure> {
    Ok(Question {
        what: "video streams of 25 Mbit/s, served and played here",
        name: "25 Mbit/s streams",
        main: None,
        plan: common.over(plan_of_one("stream", "survey", "embedded server", settings(ceilings))?),
        is_long: true,
    })
}

fn plan_of_one(workload: &str, name: &str, variant: &str, settings: Value) -> Result<Plan, Failure> {
    let settings = run::registry::BUILT_IN.resolve(workload, settings).map_err(Failure::usage)?;
    Ok(Plan::of_one(workload, name, variant, settings))
}

/// Classic tests of a network stack, two seconds each. Requests are answered by their 99th percentile, which
/// says more than a rate of one flow.
fn transfer_plan() -> Result<Plan, Failure> {
    let of =
        |variant, settings| plan_of_one("transfer", "survey: transfers over loopback", variant, settings);
    let mut plan = of("TCP, 1 flow", json!({ "time": "2s" }))?;
    for (variant, settings) in [
        ("TCP, 8 flows", json!({ "time": "2s", "flows": 8 })),
        ("UDP, 1472 B", json!({ "time": "2s", "protocol": "udp" })),
        ("requests, 1 B", json!({ "time": "2s", "requests": {} })),
    ] {
        plan.variants.extend(of(variant, settings)?.variants);
    }
    Ok(plan)
}

/// Messages at a rate that no machine finds hard: what is measured is how soon replies come. Enough of them
/// for a 99th percentile.
fn exchange_plan() -> Result<Plan, Failure> {
    let settings = json!({
        "clients": 2, "size": "10kB", "rate_per_s": 100.0, "time": "2s", "timeout": "2s"
    });
    plan_of_one("exchange", "survey: replies to messages over loopback", "10 kB", settings)
}

fn daq_plan() -> Result<Plan, Failure> {
    let settings = json!({ "sources": 100, "time": "2s" });
    plan_of_one("daq", "survey: events over loopback", "push", settings)
}

/// A file server's program with files of 128 MiB together; what it wrote is durable within some seconds, or
/// that is unknown.
fn files_plan(dir: &Path) -> Result<Plan, Failure> {
    let settings = json!({ "dir": dir, "set": { "nfiles": "1000" }, "time": "3s", "durable_within": "10s" });
    plan_of_one("files", "survey: file work", "file server", settings)
}

/// Short trials and a coarse search: the order of magnitude is enough.
fn settings(ceilings: &BTreeMap<Resource, Ceiling>) -> Value {
    let rate = |resource| Some(run::explain::ceiling::setting(resource, ceilings.get(&resource)?));
    let mut known = serde_json::Map::new();
    known.extend(rate(Resource::Disk).map(|value| ("disk".to_owned(), value)));
    known.extend(rate(Resource::Network).map(|value| ("network".to_owned(), value)));
    known.insert("source".into(), json!("calibrated by this survey"));
    let max = load_max(ceilings);
    json!({
        "first": max / FIRST_SHARE,
        "max": max,
        "hold": "3s",
        "search_hold": "2s",
        "confirmations": 1,
        "resolution_percent": 25.0,
        "player": { "warm_up": "4s", "judged": true },
        "ceiling": known,
    })
}

/// Twice the capacity of the loopback, which no server on it exceeds.
fn load_max(ceilings: &BTreeMap<Resource, Ceiling>) -> u64 {
    let streams = ceilings.get(&Resource::Network).map(|ceiling| 2.0 * ceiling.value / STREAM_BIT_PER_S);
    streams.map_or(LOAD_MAX, |streams| (streams as u64).clamp(LOAD_MAX_LEAST, LOAD_MAX))
}

/// The rows of what was calibrated before the first question.
pub(super) fn ceiling_rows(ceilings: &BTreeMap<Resource, Ceiling>) -> Vec<SurveyRow> {
    let row = |resource: Resource, measured: &str, how: &str| {
        let Some(ceiling) = ceilings.get(&resource) else {
            return SurveyRow::unanswered(measured, "not measured");
        };
        SurveyRow {
            result: ceiling_words(resource, ceiling),
            limit: measured.split(',').next().unwrap_or_default().to_owned(),
            ..SurveyRow::unanswered(measured, how)
        }
    };
    vec![
        row(Resource::Disk, "disk, sequential", "median of 3"),
        row(Resource::Network, "loopback, sendfile", "best of 6"),
    ]
}

/// A ceiling with three digits, which is its precision.
pub(super) fn ceiling_words(resource: Resource, ceiling: &Ceiling) -> String {
    let exponent = ceiling.value.abs().max(1.0).log10().floor() as i32;
    let step = 10f64.powi((exponent - 2).max(0));
    let value = (ceiling.value / step).round() * step;
    // The loopback carries more when bytes are sent in another way, as transfers do.
    let least = if resource == Resource::Network { "at least " } else { "" };
    format!("{least}{}", base::format::quantity(Some(value), resource.unit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimate;

    fn network(bit_per_s: f64) -> BTreeMap<Resource, Ceiling> {
        [(Resource::Network, Ceiling { value: bit_per_s, source: "test".into() })].into()
    }

    #[test]
    fn ceilings_are_printed_with_three_digits() {
        for (resource, value, said) in [
            (Resource::Network, 13.242e9, "at least 13.2 Gbit/s"),
            (Resource::Disk, 943.4e6, "943 Mbit/s"),
            (Resource::Disk, 1.0e9, "1 Gbit/s"),
            (Resource::Cpu, 200.0, "200 %"),
        ] {
            assert_eq!(ceiling_words(resource, &Ceiling { value, source: "test".into() }), said);
        }
    }

    #[test]
    fn survey_takes_three_minutes_at_most() {
        let known = [0.01e9, 0.1e9, 1e9, 4e9, 13.2e9, 25e9, 60e9, 400e9].map(network);
        for ceilings in known.iter().chain([&BTreeMap::new()]) {
            let settings = run::registry::BUILT_IN.resolve("stream", settings(ceilings)).unwrap();
            let stream = run::registry::BUILT_IN.workload("stream").unwrap().configure(&settings).unwrap();
            let loads = stream.load_plan();
            assert!(loads.load_first >= 1 && loads.load_first < loads.load_max, "{loads:?}");
            let most = Estimate::new([("a".to_owned(), (loads, stream.trial_time()))], 1).upper_bound();
            assert!(most.s().is_some_and(|s| s <= 180.0), "{most:?} with {loads:?}");
        }
    }

    #[test]
    fn every_plan_can_be_configured_and_names_its_metric() {
        let questions = all(&network(1e9), Path::new("/tmp"), &MeasureArgs::default()).unwrap();
        for question in questions {
            let workload = run::registry::BUILT_IN.workload(&question.plan.workload).unwrap();
            run::engine::configure(&question.plan, workload).unwrap();
            let is_metric = |name: &str| workload.metrics().iter().any(|spec| spec.name == name);
            assert!(question.main.is_none_or(is_metric), "{}", question.name);
        }
    }
}
