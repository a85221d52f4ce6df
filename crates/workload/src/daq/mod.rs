//! The `daq` workload: can this network build events from a thousand sources at once?
//!
//! A *port* ([`port`]) stands on each builder's host and says where builders listen. For each trial *builders*
//! ([`builder`]) give orders and put events together, *sources* ([`source`]) send their fragments of each event at the same
//! instant, as [`wire`] lays down. [`judge`] makes numbers and a verdict of what both report.

mod account;
pub mod builder;
mod causes;
pub mod figures;
mod files;
pub mod judge;
pub mod limit;
pub mod metrics;
pub mod port;
pub mod report;
mod series;
pub mod settings;
pub mod sides;
pub mod source;
pub mod task;
pub mod theory;
pub mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use base::metric::MetricSpec;
use base::outcome::{Figure, Trial};
use base::part::{Endpoints, HERE, PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{LoadPlan, PlanError};
use base::workload::{Judgement, TrialContext, Workload};
use serde::Serialize;
use serde_json::Value;

use self::settings::{BuilderChoice, DaqSettings, Vary};
use self::sides::Sides;
use self::task::{BuilderTask, PortTask, SourcesTask};

/// The registry entry of `daq`.
pub struct Daq;

/// The role of the builders, and the name of their part; on several hosts `builder@HOST`.
pub const BUILDER: &str = "builder";
/// The role of the sources, and the name of their part; on several hosts `sources@HOST`.
pub const SOURCES: &str = "sources";
/// The name of the port; on several hosts `port@HOST`.
pub const PORT: &str = "port";

/// What a trial may take beyond its omitted beginning, its hold and the last events: connections that are made, front ends
/// that are waited for, credit that is tried.
const OVERTIME: Duration = Duration::from_secs(150);
/// How long events that were asked for by number may take.
const EVENTS_WITHIN: Duration = Duration::from_secs(86_400);

const ROLES: &[Role] = &[
    Role {
        name: BUILDER,
        many: true,
        meaning: "The hosts that put events together, each with all its builders.",
    },
    Role {
        name: SOURCES,
        many: true,
        meaning: "The hosts that send fragments; sources are split evenly over them.",
    },
];

const PARTS: &[PartKind] = &[
    PartKind { name: "daq.port", build: port::build },
    PartKind { name: "daq.builder", build: builder::part::build },
    PartKind { name: "daq.sources", build: source::part::build },
];

/// `builder`, or `builder@HOST` of several.
fn name(part: &str, host: &str, is_alone: bool) -> String {
    if is_alone { part.to_owned() } else { format!("{part}@{host}") }
}

fn spec(kind: &str, name: String, host: &str, task: &impl Serialize) -> Result<PartSpec, PartError> {
    let settings = serde_json::to_value(task).map_err(PartError::new)?;
    Ok(PartSpec { kind: kind.to_owned(), name, host: host.to_owned(), settings })
}

fn read(settings: &Value) -> Result<DaqSettings, PartError> {
    DaqSettings::read(settings.clone()).map_err(PartError::usage)
}

/// `sources` split evenly over so many hosts: the first number and the count of each.
fn split(sources: u32, hosts: u32) -> impl Iterator<Item = (u32, u32)> {
    let (each, rest) = (sources / hosts.max(1), sources % hosts.max(1));
    (0..hosts).map(move |host| (host * each + host.min(rest), each + u32::from(host < rest)))
}

/// How many builders there are on all hosts.
fn builders_all(settings: &DaqSettings, hosts: usize) -> Result<u16, PartError> {
    if hosts > 1 && settings.builder_choice != BuilderChoice::Modulo {
        return Err(PartError::usage(
            "daq.builder_choice: builders on several hosts cannot ask each other who has room; use modulo, or one host",
        ));
    }
    let all = u64::from(settings.builders) * hosts as u64;
    u16::try_from(all).map_err(|_| PartError::usage(format!("{all} builders are more than 65535")))
}

/// Each host of sources has one at least, if not at each load of a search.
fn enough_sources(settings: &DaqSettings, hosts: u64) -> Result<(), PartError> {
    let searched = settings.search.as_ref().filter(|search| search.vary == Vary::Sources);
    let most = searched.map_or(settings.sources, |search| search.max);
    let own = most.saturating_sub(settings.front_ends);
    if hosts < 2 || own >= hosts {
        return Ok(());
    }
    let key = if searched.is_some() { "daq.search.max" } else { "daq.sources" };
    let sources = if own == 1 { "source" } else { "sources" };
    Err(PartError::usage(format!(
        "{key}: {own} {sources} cannot be split over {hosts} hosts: use more sources, or place them on fewer hosts"
    )))
}

impl Workload for Daq {
    fn name(&self) -> &'static str {
        "daq"
    }

    fn load_unit(&self, settings: &Value) -> &'static str {
        match read(settings).ok().and_then(|settings| settings.search) {
            Some(search) if search.vary == Vary::Rate => "events/s",
            Some(search) if search.vary == Vary::Size => "bytes",
            _ => "sources",
        }
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    fn findings(&self, _: &Value) -> &'static [&'static str] {
        metrics::TELLING
    }

    fn roles(&self) -> &'static [Role] {
        ROLES
    }

    fn parts(&self) -> &'static [PartKind] {
        PARTS
    }

    fn resolve(&self, settings: Value) -> Result<Value, PlanError> {
        let read = DaqSettings::read(settings)?;
        serde_json::to_value(read).map_err(|error| PlanError::new(error.to_string()))
    }

    fn load_plan(&self, settings: &Value) -> LoadPlan {
        read(settings).unwrap_or_default().load_plan()
    }

    /// The last events are waited for; a number of events takes as long as it does.
    fn overtime(&self, settings: &Value) -> Duration {
        let settings = read(settings).unwrap_or_default();
        let events = if settings.events.is_some() { EVENTS_WITHIN } else { Duration::ZERO };
        OVERTIME + settings.omit.duration() + 2 * settings.timeout.duration() + events
    }

    /// What was built until then was built. A load that is searched is judged by its whole hold.
    fn keeps_interrupted(&self, settings: &Value) -> bool {
        !settings["search"].is_object()
    }

    /// Fragments go from host to host; sources that are all front ends have no host of their own.
    fn joined(&self, settings: &Value) -> &'static [&'static str] {
        let is_foreign = read(settings).is_ok_and(|settings| settings.front_ends >= settings.sources);
        if is_foreign { &[BUILDER] } else { &[BUILDER, SOURCES] }
    }

    fn standing(&self, settings: &Value, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        let settings = read(settings)?;
        let (hosts, sources) = (placement.hosts(BUILDER), placement.hosts(SOURCES));
        builders_all(&settings, hosts.len())?;
        enough_sources(&settings, sources.len() as u64)?;
        let port = |host: &&str| {
            let sources_elsewhere =
                settings.front_ends > 0 && *host != HERE || sources.iter().any(|s| s != host);
            let task = PortTask { settings: settings.clone(), sources_elsewhere };
            spec("daq.port", name(PORT, host, hosts.len() == 1), host, &task)
        };
        hosts.iter().map(port).collect()
    }

    fn offering(
        &self,
        settings: &Value,
        trial: &TrialContext,
        _: &Endpoints,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let mut settings = read(settings)?.at_load(trial.load);
        settings.time = trial.hold;
        let (hosts, sources) = (placement.hosts(BUILDER), placement.hosts(SOURCES));
        let builders_all = builders_all(&settings, hosts.len())?;
        let is_alone = hosts.len() == 1;
        let mut parts = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let builder_first = (number as u64 * u64::from(settings.builders)) as u16;
            let port = name(PORT, host, is_alone);
            let task = BuilderTask {
                settings: settings.clone(),
                port,
                builder_first,
                builders_all,
                seed: trial.seed,
            };
            parts.push(spec("daq.builder", name(BUILDER, host, is_alone), host, &task)?);
        }
        let ports: Vec<String> = hosts.iter().map(|host| name(PORT, host, is_alone)).collect();
        let own = u32::try_from(settings.sources - settings.front_ends.min(settings.sources))
            .map_err(|_| PartError::usage("more sources than can be numbered"))?;
        let shares = split(own, sources.len() as u32);
        for (host, (source_first, count)) in sources.iter().zip(shares).filter(|(_, (_, count))| *count > 0) {
            let task = SourcesTask {
                settings: settings.clone(),
                ports: ports.clone(),
                source_first,
                sources: count,
                seed: trial.seed,
            };
            parts.push(spec("daq.sources", name(SOURCES, host, sources.len() == 1), host, &task)?);
        }
        Ok(parts)
    }

    fn judge(
        &self,
        settings: &Value,
        trial: &TrialContext,
        reports: &BTreeMap<String, Value>,
    ) -> Result<Judgement, PartError> {
        let settings = read(settings)?.at_load(trial.load);
        let sides = Sides::of(reports)?;
        if sides.hosts.is_empty() {
            return Err(PartError::new("no builder reported"));
        }
        Ok(judge::judge(&settings, &sides))
    }

    fn figures(&self, settings: &Value, trials: &[&Trial]) -> Vec<Figure> {
        read(settings).map(|settings| figures::of_trials(&settings, trials)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
