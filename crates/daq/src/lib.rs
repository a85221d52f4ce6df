//! The `daq` workload: can this network build events from a thousand sources at once?
//!
//! A *port* ([`listen_addresses`]) on each builder's host reserves the builders' addresses. In each trial
//! *builders* ([`builder`]) send orders and assemble events, and *sources* ([`source`]) send their fragments
//! in the format of [`wire`]. [`judge`] derives metrics and a verdict from the reports of both. With
//! the pattern [`bulk`], a throughput test takes their place.

pub mod assembly;
pub mod builder;
pub mod bulk;
mod doubt;
mod fd_limit;
pub mod figures;
pub mod judge;
pub mod limit;
pub mod listen_addresses;
pub mod metrics;
mod missing_sources;
pub mod part_settings;
mod recorder;
pub mod report;
mod scheduling;
mod series;
pub mod settings;
mod slow_event_causes;
pub mod source;
mod summary;
pub mod theory;
pub mod trial_reports;
pub mod wire;

use std::time::Duration;

use base::limit_rules::LOSS;
use base::metric::MetricSpec;
use base::outcome::{Figure, ResourceSpec, Trial};
use base::part::{HERE, PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{HoldTime, LoadPlan, TrialTime};
use base::units::Span;
use base::workload::{Judgement, Presentation, TrialContext};
use workload::Workload;
use workload::part::{self, Peers, Reports};

use self::builder::part::BuilderPart;
use self::listen_addresses::PortPart;
use self::part_settings::{BuilderTask, FRONT_ENDS_TIMEOUT_S, PortTask, SourcesTask};
use self::settings::{BuilderChoice, DaqSettings, Pattern, Vary};
use self::source::part::SourcesPart;
use self::trial_reports::TrialReports;

pub struct Daq;

/// The role of the builders, and the name of their part; on several hosts `builder@HOST`.
pub const BUILDER: &str = "builder";
/// The role of the sources, and the name of their part; on several hosts `sources@HOST`.
pub const SOURCES: &str = "sources";
/// The name of the port; on several hosts `port@HOST`.
pub const PORT: &str = "port";

/// What a trial may take beyond its omitted beginning, its hold and the last events: connections that are
/// made, front ends that are waited for, credit that is tried.
const OVERTIME: Duration = Duration::from_secs(150);
/// How long events that were asked for by number may take.
const EVENTS_WITHIN: Duration = Duration::from_secs(86_400);

/// The buffer of a switch's port.
pub static PORT_BUFFER: ResourceSpec = ResourceSpec {
    name: "buffer",
    label: "the buffer of the port",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a smaller burst (daq: --pattern grant, a smaller --credit, --stagger), or a larger port buffer",
    rule: LOSS,
};

pub static PRESENTATION: Presentation =
    Presentation { target: "builder", resources: &[&PORT_BUFFER], ..Presentation::DEFAULT };

/// `sources` split evenly over `hosts`: the first number and the count of each.
fn split(sources: u32, hosts: u32) -> impl Iterator<Item = (u32, u32)> {
    let (each, rest) = (sources / hosts.max(1), sources % hosts.max(1));
    (0..hosts).map(move |host| (host * each + host.min(rest), each + u32::from(host < rest)))
}

fn builders_all(settings: &DaqSettings, hosts: usize) -> Result<u16, PartError> {
    if hosts > 1 && settings.builder_choice != BuilderChoice::Modulo {
        return Err(PartError::usage(
            "daq.builder_choice: builders on several hosts support only modulo; use modulo, or one host",
        ));
    }
    let all = u64::from(settings.builders) * hosts as u64;
    u16::try_from(all)
        .map_err(|_| PartError::usage(format!("{all} builders are more than the maximum of 65535")))
}

/// Each host of sources has one at least, if not at each load of a search.
fn enough_sources(settings: &DaqSettings, hosts: u64) -> Result<(), PartError> {
    let searched = settings.search.as_ref().filter(|search| search.vary == Vary::Sources);
    let most = searched.map_or(settings.sources, |search| search.max.value());
    let own = most.saturating_sub(settings.front_ends);
    if hosts < 2 || own >= hosts {
        return Ok(());
    }
    let key = if searched.is_some() { "daq.search.max" } else { "daq.sources" };
    let sources = if own == 1 { "source" } else { "sources" };
    let problem = format!("{key}: {own} {sources} cannot be split over {hosts} hosts");
    Err(PartError::usage(format!("{problem}: use more sources, or place them on fewer hosts")))
}

fn one_receiver(settings: &DaqSettings, hosts: usize) -> Result<(), PartError> {
    if settings.pattern == Pattern::Bulk && hosts > 1 {
        let problem = "daq.pattern: bulk has one receiver; place the role builder on one host";
        return Err(PartError::usage(problem));
    }
    Ok(())
}

impl Workload for Daq {
    const NAME: &'static str = "daq";
    type Settings = DaqSettings;

    fn load_unit(&self, settings: &DaqSettings) -> &'static str {
        match settings.search.as_ref().map(|search| search.vary) {
            Some(Vary::Rate) => "events/s",
            Some(Vary::Size) => "bytes",
            _ => "sources",
        }
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    fn headline_metrics(&self, settings: &DaqSettings) -> &'static [&'static str] {
        if settings.pattern == Pattern::Bulk { metrics::HEADLINE_BULK } else { metrics::HEADLINE }
    }

    fn presentation(&self) -> &'static Presentation {
        &PRESENTATION
    }

    fn roles(&self) -> &'static [Role] {
        &[
            Role {
                name: BUILDER,
                many: true,
                meaning: "Hosts of the builders; each runs `builders` of them.",
            },
            Role {
                name: SOURCES,
                many: true,
                meaning: "Hosts that send fragments; the sources are split evenly over them.",
            },
        ]
    }

    fn part_kinds(&self) -> &'static [PartKind] {
        const {
            &[
                part::kind::<PortPart>(),
                part::kind::<BuilderPart>(),
                part::kind::<SourcesPart>(),
                part::kind::<bulk::ReceiverPart>(),
                part::kind::<bulk::SendersPart>(),
            ]
        }
    }

    fn load_plan(&self, settings: &DaqSettings) -> LoadPlan {
        settings.load_plan()
    }

    /// A number of events takes as long as their triggers.
    fn trial_time(&self, settings: &DaqSettings) -> TrialTime {
        let is_rate_searched = settings.search.as_ref().is_some_and(|search| search.vary == Vary::Rate);
        let hold = match (settings.events, settings.triggers.rate_per_s()) {
            (None, _) => HoldTime::OfPlan,
            (Some(events), _) if is_rate_searched => HoldTime::AtLoad(events as f64),
            (Some(events), Some(per_s)) => HoldTime::S(events as f64 / per_s),
            (Some(_), None) => HoldTime::Unknown,
        };
        let wait_s = if settings.front_ends > 0 { FRONT_ENDS_TIMEOUT_S } else { 0 };
        TrialTime { hold, warm_up: settings.omit, wait_max: Span::from_s(wait_s), beyond: None }
    }

    /// The last events are waited for; a number of events takes as long as it does.
    fn max_overtime(&self, settings: &DaqSettings) -> Duration {
        let events = if settings.events.is_some() { EVENTS_WITHIN } else { Duration::ZERO };
        OVERTIME + settings.omit.duration() + 2 * settings.timeout.duration() + events
    }

    /// What was built until then was built. A load that is searched is judged by its whole hold.
    fn keeps_interrupted(&self, settings: &DaqSettings) -> bool {
        settings.search.is_none()
    }

    /// Fragments go from host to host; sources that are all front ends have no host of their own.
    fn networked_roles(&self, settings: &DaqSettings) -> &'static [&'static str] {
        if settings.front_ends >= settings.sources { &[BUILDER] } else { &[BUILDER, SOURCES] }
    }

    fn standing(&self, settings: &DaqSettings, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        let (hosts, sources) = (placement.hosts(BUILDER), placement.hosts(SOURCES));
        builders_all(settings, hosts.len())?;
        one_receiver(settings, hosts.len())?;
        enough_sources(settings, sources.len() as u64)?;
        let port = |host: &&str| {
            let sources_elsewhere =
                settings.front_ends > 0 && *host != HERE || sources.iter().any(|s| s != host);
            let task = PortTask { settings: settings.clone(), sources_elsewhere };
            part::spec::<PortPart>(part::name(PORT, host, hosts.len() == 1), host, &task)
        };
        hosts.iter().map(port).collect()
    }

    fn offering(
        &self,
        settings: &DaqSettings,
        trial: &TrialContext,
        _: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let mut settings = settings.at_load(trial.load);
        settings.time = trial.hold;
        let (hosts, sources) = (placement.hosts(BUILDER), placement.hosts(SOURCES));
        let builders_all = builders_all(&settings, hosts.len())?;
        let is_only_host = hosts.len() == 1;
        let mut parts = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let task = BuilderTask {
                settings: settings.clone(),
                port: part::name(PORT, host, is_only_host),
                builder_first: (number as u64 * u64::from(settings.builders)) as u16,
                builders_all,
                seed: trial.seed,
            };
            let name = part::name(BUILDER, host, is_only_host);
            parts.push(match settings.pattern {
                Pattern::Bulk => part::spec::<bulk::ReceiverPart>(name, host, &task),
                _ => part::spec::<BuilderPart>(name, host, &task),
            }?);
        }
        let ports: Vec<String> = hosts.iter().map(|host| part::name(PORT, host, is_only_host)).collect();
        let own = u32::try_from(settings.sources - settings.front_ends.min(settings.sources))
            .map_err(|_| PartError::usage("too many sources"))?;
        let shares = split(own, sources.len() as u32);
        for (host, (source_first, count)) in sources.iter().zip(shares).filter(|(_, (_, count))| *count > 0) {
            let task = SourcesTask {
                settings: settings.clone(),
                ports: ports.clone(),
                source_first,
                sources: count,
                seed: trial.seed,
            };
            let name = part::name(SOURCES, host, sources.len() == 1);
            parts.push(match settings.pattern {
                Pattern::Bulk => part::spec::<bulk::SendersPart>(name, host, &task),
                _ => part::spec::<SourcesPart>(name, host, &task),
            }?);
        }
        Ok(parts)
    }

    fn judge(
        &self,
        settings: &DaqSettings,
        trial: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError> {
        if settings.pattern == Pattern::Bulk {
            let received = reports.of_role::<bulk::ReceiverPart>(BUILDER)?;
            let (_, received) = received.first().ok_or_else(|| PartError::new("no receiver reported"))?;
            let sent = reports.of_role::<bulk::SendersPart>(SOURCES)?;
            let sent: Vec<_> = sent.into_iter().map(|(_, sent)| sent).collect();
            return Ok(bulk::judge(settings, received, &sent));
        }
        let reports = TrialReports::new(reports)?;
        if reports.hosts.is_empty() {
            return Err(PartError::new("no builder reported"));
        }
        Ok(judge::judge(&settings.at_load(trial.load), &reports))
    }

    fn figures(&self, settings: &DaqSettings, trials: &[&Trial]) -> Vec<Figure> {
        figures::of_trials(settings, trials)
    }
}

#[cfg(test)]
mod tests;
