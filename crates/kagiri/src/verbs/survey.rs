//! `kagiri survey`: this machine in a few minutes, one report. It grows with every workload.

use std::collections::BTreeMap;

use base::outcome::{Ceiling, Resource, VariantOutcome};
use base::plan::Plan;
use base::units::BitRate;
use clap::Args;
use serde_json::{Value, json};

use crate::cli::Common;
use crate::exit::{Failure, Outcome};
use crate::hosts::{HostArgs, Places};
use crate::measure::{self, Session};
use crate::output;

/// The rate of the streams, in bit/s: what the workload makes unless it is told otherwise.
const STREAM_BIT_PER_S: f64 = 25e6;
/// The survey's search ends here at the latest.
const LOAD_MAX: u64 = 2000;
/// And does not end below, whatever the loopback's ceiling seems to be: other programs may have had a part in it.
const LOAD_MAX_LEAST: u64 = 100;
/// It begins at this share of its end: five doublings.
const FIRST_SHARE: u64 = 32;

/// Measure this machine in a few minutes and write one report.
#[derive(Args)]
#[command(
    after_help = "First the ceilings of CPU, disk, loopback and memory, then how fast bytes and requests move over \
    loopback ('kagiri transfer') and how quickly events are built from 100 sources ('kagiri daq'), then how many video streams of \
    25 Mbit/s a server on this machine carries ('kagiri stream'). It needs no root, about 700 MB of disk and two to three minutes, and names its \
    report at the end.\n\n\
    Examples:\n  \
    kagiri survey\n  \
    kagiri survey --out survey/                   all files in one place\n  \
    kagiri survey --json --quiet > survey.json    for a script"
)]
pub struct Survey {
    #[command(flatten)]
    common: Common,
}

impl Survey {
    /// Calibrate, then measure.
    pub fn perform(self) -> Outcome {
        let say = |line: &str| {
            if !self.common.quiet {
                output::say(line);
            }
        };
        // What would make the survey's result useless is found now, not after minutes of measuring.
        measure::check_plan(&self.plan(&BTreeMap::new())?, &HostArgs::default(), Places::Options)?;
        let mut session = Session::open(&self.common, &say)?;
        say(
            "Surveying this machine; it takes two to three minutes if nobody else uses it. Ctrl-C ends it and keeps \
             finished trials.",
        );
        say("1 of 4: ceilings of CPU, disk and loopback, some seconds");
        let stopped = || session.is_stopped();
        let data = session.data_dir();
        let ceilings = observe::calibrate::all(data, &mut |line| say(&format!("  {line}")), &stopped);
        if stopped() {
            return Err(Failure::Interrupted("interrupted before anything was measured".into()));
        }
        for (resource, ceiling) in &ceilings {
            say(&format!("  {resource}: {} ({})", words(*resource, ceiling), ceiling.source));
        }
        say("2 of 4: bytes and requests over loopback, some seconds");
        let transfers = self.beside(&mut session, &transfer_plan()?)?;
        for line in &transfers {
            say(&format!("  {line}"));
        }
        session.add_fact("transfers", json!(transfers));
        say("3 of 4: events from 100 sources that send at once, some seconds");
        let events = self.beside(&mut session, &daq_plan()?)?;
        for line in &events {
            say(&format!("  {line}"));
        }
        session.add_fact("events", json!(events));
        say("4 of 4: video streams of 25 Mbit/s from the embedded content server");
        session.run_plan(&self.plan(&ceilings)?, &self.common, &HostArgs::default())
    }

    /// What came of each variant of a plan beside the survey's own, a sentence each; stored as a run of its own.
    fn beside(&self, session: &mut Session, plan: &Plan) -> Result<Vec<String>, Failure> {
        let quiet = Common { quiet: true, seed: self.common.seed, ..Common::default() };
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
        let settings = run::registry::resolve("stream", settings(ceilings)).map_err(Failure::usage)?;
        Ok(self.common.over(Plan::of_one("stream", "survey", "embedded server", settings)))
    }
}

/// The classic questions to a network stack, two seconds each.
fn transfer_plan() -> Result<Plan, Failure> {
    let variants = [
        ("TCP, 1 flow", json!({})),
        ("TCP, 8 flows", json!({ "flows": 8 })),
        ("UDP, 1472 B", json!({ "protocol": "udp" })),
        ("requests, 1 B", json!({ "requests": {} })),
    ];
    let mut plan: Option<Plan> = None;
    for (name, mut settings) in variants {
        settings["time"] = json!("2s");
        let settings = run::registry::resolve("transfer", settings).map_err(Failure::usage)?;
        let one = Plan::of_one("transfer", "survey: transfers over loopback", name, settings);
        match &mut plan {
            Some(plan) => plan.variants.extend(one.variants),
            None => plan = Some(one),
        }
    }
    plan.ok_or_else(|| Failure::usage("there is nothing to transfer"))
}

/// All at once, and as many as a port would take.
fn daq_plan() -> Result<Plan, Failure> {
    let settings = json!({ "sources": 100, "time": "2s" });
    let settings = run::registry::resolve("daq", settings).map_err(Failure::usage)?;
    Ok(Plan::of_one("daq", "survey: events over loopback", "push", settings))
}

/// Short trials and a coarse search: a survey gives the order of magnitude, `kagiri stream` the number.
fn settings(ceilings: &BTreeMap<Resource, Ceiling>) -> Value {
    let rate = |resource| {
        ceilings.get(&resource).map(|ceiling: &Ceiling| json!(BitRate::from_bit_per_s(ceiling.value as u64)))
    };
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

/// Twice what the loopback carries is more than any server here does.
fn load_max(ceilings: &BTreeMap<Resource, Ceiling>) -> u64 {
    let streams = ceilings.get(&Resource::Network).map(|ceiling| 2.0 * ceiling.value / STREAM_BIT_PER_S);
    streams.map_or(LOAD_MAX, |streams| (streams as u64).clamp(LOAD_MAX_LEAST, LOAD_MAX))
}

/// A ceiling with three digits: it was not measured more precisely.
fn words(resource: Resource, ceiling: &Ceiling) -> String {
    let exponent = ceiling.value.abs().max(1.0).log10().floor() as i32;
    let step = 10f64.powi((exponent - 2).max(0));
    let value = (ceiling.value / step).round() * step;
    report::units::quantity(Some(value), resource.unit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimate;

    fn network(bit_per_s: f64) -> BTreeMap<Resource, Ceiling> {
        [(Resource::Network, Ceiling { value: bit_per_s, source: "test".into() })].into()
    }

    #[test]
    fn ceilings_are_written_in_one_way() {
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
    fn a_survey_measures_for_three_minutes_at_most_whatever_the_machine_carries() {
        let known = [0.01e9, 0.1e9, 1e9, 4e9, 13.2e9, 25e9, 60e9, 400e9].map(network);
        for ceilings in known.iter().chain([&BTreeMap::new()]) {
            let settings = run::registry::resolve("stream", settings(ceilings)).unwrap();
            let loads = run::registry::workload("stream").unwrap().load_plan(&settings);
            assert!(loads.load_first >= 1 && loads.load_first < loads.load_max, "{loads:?}");
            let most = Estimate::new([("a".to_owned(), loads)], 1).most();
            assert!(most.s <= 180.0, "{most:?} with {loads:?}");
        }
    }
}
