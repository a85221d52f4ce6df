//! `kagiri survey`: measures this machine with every workload in a few minutes and writes one report.

use std::collections::BTreeMap;
use std::path::Path;

use base::outcome::{Ceiling, Resource, VariantOutcome};
use base::plan::Plan;
use clap::Args;
use serde_json::{Value, json};

use crate::args::MeasureArgs;
use crate::exit::{Failure, Outcome};
use crate::hosts::HostArgs;
use crate::output;
use crate::placement_check::Places;
use crate::session::{self, Session};

/// Default rate of the streams, in bit/s.
const STREAM_BIT_PER_S: f64 = 25e6;
/// Upper bound of the search.
const LOAD_MAX: u64 = 2000;
/// Lower bound of [`load_max`]: the loopback's ceiling may have been measured on a busy machine.
const LOAD_MAX_LEAST: u64 = 100;
/// The search starts five doublings below its bound.
const FIRST_SHARE: u64 = 32;

/// Measure this machine: CPU, disk, memory, loopback, transfers, messages, events, file work and streams.
#[derive(Args)]
#[command(
    after_help = "Measures the maxima of CPU, disk, memory and loopback; throughput and response times \
    over loopback ('kagiri transfer'); replies to messages ('kagiri exchange'); data acquisition from 100 \
    sources ('kagiri daq'); the work of a file server ('kagiri files'); and how many video streams of 25 \
    Mbit/s a server on this machine carries ('kagiri stream'). Takes two to three minutes and about 700 MB \
    of disk, needs no root, and prints the path of its report.\n\n\
    Examples:\n  \
    kagiri survey\n  \
    kagiri survey --out survey/                   write all files to one directory\n  \
    kagiri survey --json --quiet > survey.json    for a script"
)]
pub struct Survey {
    #[command(flatten)]
    common: MeasureArgs,
}

impl Survey {
    pub fn run(self) -> Outcome {
        let say = output::say_unless(self.common.quiet);
        // Find errors before the first measurement.
        session::check_plan(&self.plan(&BTreeMap::new())?, &HostArgs::default(), Places::Options)?;
        let mut session = Session::open(&self.common, &say)?;
        say("Surveying this machine takes two to three minutes if it is idle. Ctrl-C keeps finished trials.");
        say("1 of 6: ceilings of CPU, disk and loopback (some seconds)");
        let stopped = || session.is_stopped();
        let data = session.data_dir();
        let ceilings = observe::calibrate::all(data, &mut |line| say(&format!("  {line}")), &stopped);
        if stopped() {
            return Err(Failure::Interrupted("interrupted before anything was measured".into()));
        }
        for (resource, ceiling) in &ceilings {
            // The loopback carries more when bytes are sent in another way, as transfers do.
            let least = if *resource == Resource::Network { "at least " } else { "" };
            say(&format!("  {resource}: {least}{} ({})", words(*resource, ceiling), ceiling.source));
        }
        say("2 of 6: throughput and requests over loopback (some seconds)");
        let transfers = self.measure_headlines(&mut session, &transfer_plan()?)?;
        for line in &transfers {
            say(&format!("  {line}"));
        }
        session.add_fact("transfers", json!(transfers));
        say("3 of 6: replies to messages over loopback (two seconds)");
        let exchange = self.measure_headlines(&mut session, &exchange_plan()?)?;
        for line in &exchange {
            say(&format!("  {line}"));
        }
        session.add_fact("exchange", json!(exchange));
        say("4 of 6: events from 100 simultaneous sources (some seconds)");
        let events = self.measure_headlines(&mut session, &daq_plan()?)?;
        for line in &events {
            say(&format!("  {line}"));
        }
        session.add_fact("events", json!(events));
        say("5 of 6: work of a file server in the data folder (some seconds)");
        let plan = files_plan(session.data_dir())?;
        let files = self.measure_headlines(&mut session, &plan)?;
        for line in &files {
            say(&format!("  {line}"));
        }
        session.add_fact("files", json!(files));
        say("6 of 6: video streams of 25 Mbit/s from the embedded server");
        session.run_plan(&self.plan(&ceilings)?, &self.common, &HostArgs::default())
    }

    /// Measures a further plan as a run of its own. Returns one sentence per variant.
    fn measure_headlines(&self, session: &mut Session, plan: &Plan) -> Result<Vec<String>, Failure> {
        let quiet = MeasureArgs { quiet: true, seed: self.common.seed, ..MeasureArgs::default() };
        let run = session.measure(plan, &quiet)?;
        if session.is_stopped() {
            return Err(Failure::Interrupted("interrupted before any stream was measured".into()));
        }
        let line = |variant: &VariantOutcome| {
            let said = variant.account.headline.as_deref().unwrap_or("could not be measured");
            format!("{}: {}", variant.name, report::words::lower(said))
        };
        Ok(run.variants.iter().map(line).collect())
    }

    fn plan(&self, ceilings: &BTreeMap<Resource, Ceiling>) -> Result<Plan, Failure> {
        Ok(self.common.over(plan_of_one("stream", "survey", "embedded server", settings(ceilings))?))
    }
}

fn plan_of_one(workload: &str, name: &str, variant: &str, settings: Value) -> Result<Plan, Failure> {
    let settings = run::registry::BUILT_IN.resolve(workload, settings).map_err(Failure::usage)?;
    Ok(Plan::of_one(workload, name, variant, settings))
}

/// Classic tests of a network stack, two seconds each.
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
/// that is not told.
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
        "hold": "5s",
        "search_hold": "2s",
        "confirmations": 1,
        "resolution_percent": 25.0,
        "ramp_down": false,
        "player": { "warm_up": "4s" },
        "ceiling": known,
    })
}

/// Twice the capacity of the loopback, which no server on it exceeds.
fn load_max(ceilings: &BTreeMap<Resource, Ceiling>) -> u64 {
    let streams = ceilings.get(&Resource::Network).map(|ceiling| 2.0 * ceiling.value / STREAM_BIT_PER_S);
    streams.map_or(LOAD_MAX, |streams| (streams as u64).clamp(LOAD_MAX_LEAST, LOAD_MAX))
}

/// A ceiling with three digits, which is its precision.
fn words(resource: Resource, ceiling: &Ceiling) -> String {
    let exponent = ceiling.value.abs().max(1.0).log10().floor() as i32;
    let step = 10f64.powi((exponent - 2).max(0));
    let value = (ceiling.value / step).round() * step;
    base::format::quantity(Some(value), resource.unit())
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
            (Resource::Network, 13.242e9, "13.2 Gbit/s"),
            (Resource::Disk, 943.4e6, "943 Mbit/s"),
            (Resource::Disk, 1.0e9, "1 Gbit/s"),
            (Resource::Cpu, 200.0, "200 %"),
        ] {
            assert_eq!(words(resource, &Ceiling { value, source: "test".into() }), said);
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
}
