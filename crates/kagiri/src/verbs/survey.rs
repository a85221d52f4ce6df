//! `kagiri survey`: this machine in a few minutes, one report. It grows with every workload.

use std::collections::BTreeMap;

use base::outcome::{Ceiling, Resource};
use base::plan::Plan;
use base::units::BitRate;
use clap::Args;
use serde_json::{Value, json};

use crate::cli::Common;
use crate::exit::{Failure, Outcome};
use crate::measure::{self, Session};

/// The survey's search begins here: any machine of today carries more.
const FIRST_LOAD: u64 = 50;
/// And ends here at the latest.
const LOAD_MAX: u64 = 6400;

/// Measure this machine in a few minutes and write one report.
#[derive(Args)]
#[command(
    after_help = "First the ceilings of CPU, disk, loopback and memory, then how many video streams of 25 Mbit/s a \
    server on this machine carries. It needs no root, about 700 MB of disk and two minutes, and names its \
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
                eprintln!("{line}");
            }
        };
        // What would make the survey's result useless is found now, not after minutes of measuring.
        measure::check_requirements(&self.plan(&BTreeMap::new())?)?;
        let session = Session::open(&self.common, &say)?;
        say(
            "Surveying this machine; it takes about two minutes if nobody else uses it. Ctrl-C ends it and keeps what was \
             measured.",
        );
        say("1 of 2: ceilings of CPU, disk and loopback, some seconds");
        let stopped = || session.is_stopped();
        let data = session.data_dir();
        let ceilings = observe::calibrate::all(data, &mut |line| say(&format!("  {line}")), &stopped);
        if stopped() {
            return Err(Failure::Interrupted("interrupted before anything was measured".into()));
        }
        for (resource, ceiling) in &ceilings {
            say(&format!("  {resource}: {} ({})", words(*resource, ceiling), ceiling.source));
        }
        say("2 of 2: video streams of 25 Mbit/s from the embedded content server");
        session.run_plan(&self.plan(&ceilings)?, &self.common)
    }

    fn plan(&self, ceilings: &BTreeMap<Resource, Ceiling>) -> Result<Plan, Failure> {
        let settings = run::registry::resolve("stream", settings(ceilings)).map_err(Failure::usage)?;
        Ok(self.common.over(Plan::of_one("stream", "survey", "embedded server", settings)))
    }
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
    json!({
        "first": FIRST_LOAD,
        "max": LOAD_MAX,
        "hold": "5s",
        "search_hold": "3s",
        "confirmations": 1,
        "resolution_percent": 10.0,
        "player": { "warm_up": "4s" },
        "ceiling": known,
    })
}

fn words(resource: Resource, ceiling: &Ceiling) -> String {
    match resource {
        Resource::Disk | Resource::Network => BitRate::from_bit_per_s(ceiling.value as u64).to_string(),
        _ => format!("{:.0} {}", ceiling.value, resource.unit()),
    }
}
