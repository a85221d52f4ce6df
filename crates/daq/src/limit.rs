//! What limits the event rate. Pure: from the reports of both roles to a resource, its certainty, and the
//! evidence as sentences.

use std::collections::BTreeMap;

use base::format::{number, quantity};
use base::limit_rules::{BUILDER_CPU_WAIT, LOSS, THREAD};
use base::outcome::{Certainty, Evidence, Limit, Resource};

use super::PORT_BUFFER;
use super::report::Cause;
use super::settings::{DaqSettings, Pattern, Triggers};
use super::slow_event_causes;
use super::trial_reports::TrialReports;

/// Less dead time than this, in %, counts as none.
const DEAD_PERCENT_NONE: f64 = 1.0;

/// The prediction of the cliff is within 15 % of the truth: only fewer fragments fit for sure.
const FITS_SHARE: f64 = 0.85;

/// What set the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitCause {
    Link,
    /// Fragments were lost; confirmed: more arrived at once than the port's buffer holds.
    Buffer,
    /// Fragments were lost although the port's buffer holds all that are sent at once.
    LossyPath,
    Socket,
    /// Orders were lost.
    Orders,
    BuilderCpu,
    /// Other programs use the CPUs of the builder's host.
    HostCpu,
    SourceCpu,
    /// Nothing: the requested rate was reached.
    Offered,
}

impl LimitCause {
    /// The resource that was exhausted, and how it is said.
    fn meaning(self, certainty: Certainty) -> (Resource, &'static str) {
        let buffer = Resource::Workload(&PORT_BUFFER);
        match self {
            Self::Link => (Resource::Network, "the builder's port carries all that its rate allows"),
            Self::Buffer if certainty == Certainty::Confirmed => (
                buffer,
                "fragments that arrived at once overflowed the port's buffer, and events waited for TCP to \
                 retransmit the lost ones",
            ),
            Self::Buffer => (
                buffer,
                "events waited for lost fragments: the port's buffer was full, or a link loses packets (with \
                 --buffer and --link kagiri tells which)",
            ),
            Self::LossyPath => (
                Resource::Network,
                "events waited for lost fragments although the port's buffer holds all that are sent at \
                 once: a link or a device on the way loses packets",
            ),
            Self::Socket => (
                buffer,
                "the builder's UDP socket was full: raise net.core.rmem_max on its host, or use --pattern \
                 grant",
            ),
            Self::Orders => {
                (Resource::Network, "orders to the sources were lost, and events waited for their repetition")
            }
            Self::BuilderCpu => {
                (Resource::Cpu, "the builder's thread ran, or waited for a CPU, nearly all the time")
            }
            Self::HostCpu => (
                Resource::Cpu,
                "the CPUs of the builder's host are busy: the builder's thread waited for one",
            ),
            Self::SourceCpu => (Resource::Player, "a thread of the sources ran nearly all the time"),
            Self::Offered => {
                (Resource::None, "less than 1 % of due triggers were vetoed: the requested rate was reached")
            }
        }
    }
}

/// What set the limit, and how certain that is; `None`: unknown.
pub fn limit_cause(settings: &DaqSettings, reports: &TrialReports) -> Option<(LimitCause, Certainty)> {
    let signs = Signs::of(settings, reports);
    let lost_segments = signs.lost_segments.is_some_and(|segments| segments > 0);
    let confirmed = |cause| Some((cause, Certainty::Confirmed));
    match () {
        () if signs.link_share.is_some_and(|share| Resource::Network.rule().is_used_up(share)) => {
            confirmed(LimitCause::Link)
        }
        () if LOSS.is_used_up(signs.stalled_share) && lost_segments => match fits(settings, reports) {
            Some(false) => confirmed(LimitCause::Buffer),
            Some(true) => confirmed(LimitCause::LossyPath),
            None => Some((LimitCause::Buffer, Certainty::Predicted)),
        },
        () if LOSS.is_used_up(signs.overflowed_share) => confirmed(LimitCause::Socket),
        () if LOSS.is_used_up(signs.orders_share) => confirmed(LimitCause::Orders),
        // A thread that is busy, or waits for a CPU, limits nothing while each event is built in time.
        () if signs.is_all_in_time && !LOSS.is_used_up(signs.stalled_share) => confirmed(LimitCause::Offered),
        () if BUILDER_CPU_WAIT.is_used_up(signs.builder_waited) => confirmed(LimitCause::HostCpu),
        () if THREAD.is_used_up(signs.builder_share) => confirmed(LimitCause::BuilderCpu),
        () if THREAD.is_used_up(signs.sources_share) => confirmed(LimitCause::SourceCpu),
        () if LOSS.is_used_up(signs.stalled_share) => match fits(settings, reports) {
            Some(true) => Some((LimitCause::LossyPath, Certainty::Predicted)),
            _ => Some((LimitCause::Buffer, Certainty::Predicted)),
        },
        () => None,
    }
}

pub fn of(settings: &DaqSettings, reports: &TrialReports) -> Limit {
    let ((resource, statement), certainty) = match limit_cause(settings, reports) {
        Some((cause, certainty)) => (cause.meaning(certainty), certainty),
        None => ((Resource::None, "no measured resource was exhausted"), Certainty::Unknown),
    };
    let statements = std::iter::once(statement.to_owned()).chain(evidence(settings, reports));
    let mut evidence: Vec<_> = statements.map(|statement| Evidence::counted(resource, statement)).collect();
    let share = Signs::of(settings, reports).link_share;
    let full =
        share.filter(|share| resource == Resource::Network && Resource::Network.rule().is_used_up(*share));
    if let (Some(share), [first, ..]) = (full, &mut evidence[..]) {
        first.values.insert(Limit::LINK_PERCENT.to_owned(), 100.0 * share);
    }
    Limit { resource, certainty, evidence }
}

/// The indicators that a limit is derived from.
struct Signs {
    /// Wire rate in the hold, share of the port's rate.
    link_share: Option<f64>,
    /// Events that waited for a lost fragment or were given up, share of those that ended.
    stalled_share: f64,
    /// Datagrams that found no room at the builder's socket, for each fragment.
    overflowed_share: f64,
    /// Events that waited for a lost order, share of those that ended.
    orders_share: f64,
    /// Needed retransmissions.
    lost_segments: Option<u64>,
    /// Time that the busiest builder worked or waited for a CPU, share.
    builder_share: f64,
    /// Time that it waited for a CPU alone, share.
    builder_waited: f64,
    /// The busiest second of the sources' busiest thread, share of a CPU.
    sources_share: f64,
    /// Whether triggers came at a rate, less than [`DEAD_PERCENT_NONE`] of them were vetoed, no event was
    /// incomplete, and the completion met its objective.
    is_all_in_time: bool,
}

impl Signs {
    fn of(settings: &DaqSettings, reports: &TrialReports) -> Self {
        let (events, causes) = (reports.events(), slow_event_causes::all(reports));
        let ended = (events.complete + events.incomplete).max(1) as f64;
        let share =
            |which: &[Cause]| which.iter().filter_map(|cause| causes.get(cause)).sum::<u64>() as f64 / ended;
        let fragments: u64 = reports.builders().iter().map(|builder| builder.fragments).sum();
        let dead_percent = 100.0 * events.vetoed as f64 / events.offered.max(1) as f64;
        let p99_ns = reports.merged(|builder| &builder.completion).percentile_ns(99.0);
        let is_late =
            settings.objective.completion_p99_max.zip(p99_ns).is_some_and(|(most, p99)| p99 > most.ns());
        Self {
            link_share: wire_bit_per_s(reports)
                .zip(reports.link_bit_per_s(settings))
                .map(|(wire, link)| wire / link),
            stalled_share: share(&[Cause::TailLossProbe, Cause::RetransmissionTimeout, Cause::Loss]),
            overflowed_share: overflowed(reports) as f64 / fragments.max(1) as f64,
            orders_share: if drops_orders(settings) { 0.0 } else { share(&[Cause::Order]) },
            lost_segments: lost_segments(reports),
            builder_share: reports.builder_busiest().map_or(0.0, |(taken, _)| taken),
            builder_waited: reports.builder_busiest().map_or(0.0, |(taken, worked)| taken - worked),
            sources_share: reports.sources_busiest().unwrap_or(0.0),
            is_all_in_time: settings.triggers != Triggers::Max
                && dead_percent < DEAD_PERCENT_NONE
                && events.incomplete == 0
                && events.complete > 0
                && !is_late,
        }
    }
}

/// Whether orders are dropped on purpose: then lost orders are no limit.
fn drops_orders(settings: &DaqSettings) -> bool {
    settings.drop_orders_percent > 0.0
}

fn wire_bit_per_s(reports: &TrialReports) -> Option<f64> {
    reports.per_s(|builder| builder.wire_bytes).map(|bytes| bytes * 8.0)
}

/// Retransmitted segments without those that the receiver reported as duplicates (D-SACK).
fn lost_segments(reports: &TrialReports) -> Option<u64> {
    let needless = reports.sum_of_sources(|source| source.dsacks).unwrap_or(0);
    Some(reports.sum_of_sources(|source| source.retransmits)?.saturating_sub(needless))
}

fn evidence(settings: &DaqSettings, reports: &TrialReports) -> Vec<String> {
    let all = [
        link_sentence(settings, reports),
        buffer_sentence(settings, reports),
        again_sentence(reports),
        slow_sentence(&slow_event_causes::all(reports)),
        overflow_sentence(reports),
        orders_sentence(settings, reports),
        builder_sentence(reports),
        sources_sentence(reports),
        window_sentence(settings, reports),
    ];
    all.into_iter().flatten().collect()
}

fn link_sentence(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let (wire, link) = (wire_bit_per_s(reports)?, reports.link_bit_per_s(settings)?);
    let share = wire / link;
    let text = format!(
        "the port carried {} of the {} that it can",
        quantity(Some(wire), "bit/s"),
        quantity(Some(link), "bit/s")
    );
    Some(match Resource::Network.rule().is_refuted(share) {
        true => format!("{text}, so this rate is wrong: set the true one with --link"),
        false => format!("{text}, {} %", number(100.0 * share)),
    })
}

/// Fragments that are sent at once: of one event, and at most.
fn at_once(settings: &DaqSettings, reports: &TrialReports) -> Option<(f64, f64)> {
    let sources = settings.sources as f64;
    if settings.pattern == Pattern::Push {
        return Some((sources, sources * f64::from(settings.window)));
    }
    let credit = reports.builders().iter().filter_map(|builder| builder.credit).max();
    credit.or(settings.credit).map(|credit| (credit.into(), credit.into()))
}

/// Whether the port's buffer holds what is sent at once; `None`: unknown, or too close to tell.
fn fits(settings: &DaqSettings, reports: &TrialReports) -> Option<bool> {
    let (cliff, (least, most)) = (reports.cliff_sources(settings)?, at_once(settings, reports)?);
    match () {
        () if least > cliff => Some(false),
        () if most <= FITS_SHARE * cliff => Some(true),
        () => None,
    }
}

/// How many fragments fit the buffer, and how many are sent at once.
fn buffer_sentence(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let cliff = reports.cliff_sources(settings)?;
    let (at_once, _) = at_once(settings, reports)?;
    let fits = if at_once <= cliff { "fit" } else { "do not fit" };
    let buffer = settings.buffer?;
    Some(format!("{at_once:.0} fragments at once {fits}: a buffer of {buffer} holds {cliff:.0}"))
}

fn again_sentence(reports: &TrialReports) -> Option<String> {
    let again = reports.sum_of_sources(|source| source.retransmits).filter(|again| *again > 0)?;
    let needless = match reports.sum_of_sources(|source| source.dsacks) {
        Some(needless) => format!("{needless} of them unneeded"),
        None => "it is unknown how many of them were unneeded".to_owned(),
    };
    let timeouts = match reports.sum_of_sources(|source| source.timeouts) {
        Some(timeouts) => format!("had {timeouts} timeouts"),
        None => "had an unknown number of timeouts (Linux counts them from 6.7 on)".to_owned(),
    };
    Some(format!("TCP retransmitted {again} segments ({needless}) and {timeouts}"))
}

fn overflow_sentence(reports: &TrialReports) -> Option<String> {
    let datagrams = overflowed(reports);
    (datagrams > 0).then(|| format!("{datagrams} datagrams were dropped at full UDP sockets of the builders"))
}

fn overflowed(reports: &TrialReports) -> u64 {
    reports.builders().iter().filter_map(|builder| builder.datagrams_overflowed).sum()
}

fn slow_sentence(causes: &BTreeMap<Cause, u64>) -> Option<String> {
    let (cause, count) = causes.iter().max_by_key(|(_, count)| **count)?;
    let all: u64 = causes.values().sum();
    (all > 0)
        .then(|| format!("{count} of {all} slow events {}", slow_event_causes::predicate(*cause, *count)))
}

fn orders_sentence(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let missed: u64 = reports.sources.iter().map(|host| host.orders_missed).sum();
    let overflowed: Option<u64> = reports.sources.iter().map(|host| host.orders_overflowed).sum();
    let on_purpose = if drops_orders(settings) { " (most were dropped on purpose)" } else { "" };
    let at_sockets = match overflowed {
        Some(overflowed) => format!("{overflowed} were dropped at full sockets"),
        None => "how many were dropped at full sockets is unknown".to_owned(),
    };
    (missed + overflowed.unwrap_or(0) > 0)
        .then(|| format!("{missed} orders did not reach their sources{on_purpose}; {at_sockets}"))
}

fn builder_sentence(reports: &TrialReports) -> Option<String> {
    let (taken, worked) = reports.builder_busiest()?;
    let waited = 100.0 * (taken - worked);
    let waited = if waited >= 1.0 {
        format!(" and waited for a CPU {waited:.0} % of the time")
    } else {
        String::new()
    };
    Some(format!("the busiest builder used {:.0} % of a core{waited}", 100.0 * worked))
}

fn sources_sentence(reports: &TrialReports) -> Option<String> {
    let busiest = 100.0 * reports.sources_busiest()?;
    Some(format!("the sources' busiest thread used {busiest:.0} % of a core in its busiest second"))
}

/// Without an exhausted resource, the window limits the rate.
fn window_sentence(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let is_waiting = settings.triggers == Triggers::Max && limit_cause(settings, reports).is_none();
    is_waiting.then(|| match settings.window {
        1 => "events are sequential (--window 1): a larger --window may build more events".to_owned(),
        window => format!("at most {window} events are in progress: a larger --window may build more events"),
    })
}

#[cfg(test)]
#[path = "limit_tests.rs"]
mod tests;
