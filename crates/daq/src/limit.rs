//! What kept events from being built faster. Pure: from the reports of both sides to a resource, how it is
//! known, and the evidence as sentences.

use std::collections::BTreeMap;

use base::format::{number, quantity};
use base::limit_rules::{LOSS, THREAD};
use base::outcome::{Certainty, Evidence, Limit, Resource};

use super::presentation::PORT_BUFFER;
use super::report::Cause;
use super::settings::{DaqSettings, Pattern, Triggers};
use super::slow_event_causes;
use super::trial_reports::TrialReports;

/// A thread that waited for a CPU for this share of its time had to share it.
const CPU_SHARE_WAITED: f64 = 0.4;
/// Fewer vetoed triggers than this, in %, are none.
const DEAD_PERCENT_NONE: f64 = 1.0;

/// What set the limit, in the words of this workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    Link,
    Buffer,
    Socket,
    /// The way of the orders.
    Orders,
    BuilderCpu,
    /// The CPUs of the builder's host, which others have.
    HostCpu,
    SourceCpu,
    /// Nothing: all triggers that were due were taken.
    Offered,
}

impl Held {
    fn resource(self) -> Resource {
        match self {
            Self::Link | Self::Orders => Resource::Network,
            Self::Buffer | Self::Socket => Resource::Workload(&PORT_BUFFER),
            Self::BuilderCpu | Self::HostCpu => Resource::Cpu,
            Self::SourceCpu => Resource::Player,
            Self::Offered => Resource::None,
        }
    }
}

/// What set the limit, where anything tells, and how that is known.
pub fn held(settings: &DaqSettings, reports: &TrialReports) -> Option<(Held, Certainty)> {
    let signs = Signs::of(settings, reports);
    let lost_segments = signs.lost_segments.is_some_and(|segments| segments > 0);
    let confirmed = |held| Some((held, Certainty::Confirmed));
    match () {
        () if signs.link_share.is_some_and(|share| Resource::Network.rule().is_used_up(share)) => {
            confirmed(Held::Link)
        }
        () if LOSS.is_used_up(signs.stalled_share) && lost_segments => confirmed(Held::Buffer),
        () if LOSS.is_used_up(signs.overflowed_share) => confirmed(Held::Socket),
        () if LOSS.is_used_up(signs.orders_share) => confirmed(Held::Orders),
        () if signs.builder_waited >= CPU_SHARE_WAITED => confirmed(Held::HostCpu),
        () if THREAD.is_used_up(signs.builder_share) => confirmed(Held::BuilderCpu),
        () if THREAD.is_used_up(signs.sources_share) => confirmed(Held::SourceCpu),
        () if LOSS.is_used_up(signs.stalled_share) => Some((Held::Buffer, Certainty::Predicted)),
        () if settings.triggers != Triggers::Max && signs.is_all_taken => confirmed(Held::Offered),
        () => None,
    }
}

pub fn of(settings: &DaqSettings, reports: &TrialReports) -> Limit {
    let held = held(settings, reports);
    let (resource, certainty) = match held {
        Some((held, certainty)) => (held.resource(), certainty),
        None => (Resource::None, Certainty::Unknown),
    };
    let statements = std::iter::once(said(held)).chain(evidence(settings, reports));
    let evidence = statements.map(|statement| Evidence::counted(resource, statement)).collect();
    Limit { resource, certainty, evidence }
}

fn said(held: Option<(Held, Certainty)>) -> String {
    let text = match held {
        Some((Held::Link, _)) => "the builder's port carries all that its rate allows",
        Some((Held::Buffer, Certainty::Confirmed)) => {
            "fragments that arrived at once overflowed the port's buffer, and events waited for TCP to \
             retransmit the lost ones"
        }
        Some((Held::Buffer, _)) => "events waited for lost fragments, as with a full buffer",
        Some((Held::Socket, _)) => {
            "the builder's UDP socket was full: raise net.core.rmem_max on its host, or use --pattern grant"
        }
        Some((Held::Orders, _)) => "orders to the sources were lost, and events waited for their repetition",
        Some((Held::BuilderCpu, _)) => "the builder's thread ran, or waited for a CPU, nearly all the time",
        Some((Held::HostCpu, _)) => {
            "the CPUs of the builder's host are busy: the builder's thread waited for one"
        }
        Some((Held::SourceCpu, _)) => "a thread of the sources ran nearly all the time",
        Some((Held::Offered, _)) => "no due trigger was vetoed: the requested rate was reached",
        None => "no measured resource was exhausted",
    };
    text.to_owned()
}

/// What speaks for one limit or another.
struct Signs {
    /// What the port carried of what it can, in the hold.
    link_share: Option<f64>,
    /// Events that waited for a lost fragment or were given up, share of those that ended.
    stalled_share: f64,
    /// Datagrams that found no room at the builder's socket, for each fragment.
    overflowed_share: f64,
    /// Events that waited for a lost order, share of the same.
    orders_share: f64,
    /// Segments that were sent again, and not for nothing.
    lost_segments: Option<u64>,
    /// Time that the busiest builder worked or waited for a CPU, share.
    builder_share: f64,
    /// Time that it waited for a CPU alone, share.
    builder_waited: f64,
    /// The busiest second of the sources' busiest thread, share of a CPU.
    sources_share: f64,
    /// Whether hardly any trigger was vetoed.
    is_all_taken: bool,
}

impl Signs {
    fn of(settings: &DaqSettings, reports: &TrialReports) -> Self {
        let (events, causes) = (reports.events(), slow_event_causes::all(reports));
        let ended = (events.complete + events.incomplete).max(1) as f64;
        let share =
            |which: &[Cause]| which.iter().filter_map(|cause| causes.get(cause)).sum::<u64>() as f64 / ended;
        let fragments: u64 = reports.builders().iter().map(|builder| builder.fragments).sum();
        let dead_percent = 100.0 * events.vetoed as f64 / events.offered.max(1) as f64;
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
            is_all_taken: dead_percent < DEAD_PERCENT_NONE && events.incomplete == 0 && events.complete > 0,
        }
    }
}

/// Whether orders are dropped on purpose: then that they are missing is no limit of anything.
fn drops_orders(settings: &DaqSettings) -> bool {
    settings.drop_orders_percent > 0.0
}

fn wire_bit_per_s(reports: &TrialReports) -> Option<f64> {
    reports.per_s(|builder| builder.wire_bytes).map(|bytes| bytes * 8.0)
}

/// Segments sent again less those that the other end said it had: an alarm that was false shows as such.
fn lost_segments(reports: &TrialReports) -> Option<u64> {
    let sum = |of: fn(&super::report::SourceSent) -> Option<u64>| {
        let all: Vec<u64> = reports.sent().filter_map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum::<u64>())
    };
    let again = sum(|source| source.retransmits)?;
    Some(again.saturating_sub(sum(|source| source.dsacks).unwrap_or(0)))
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

/// The predicted cliff beside what was sent at once.
fn buffer_sentence(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let cliff = reports.cliff_sources(settings)?;
    let at_once = match settings.pattern {
        Pattern::Push => settings.sources as f64,
        Pattern::Grant | Pattern::Pull => {
            let credit = reports.builders().iter().filter_map(|builder| builder.credit).max();
            f64::from(credit.or(settings.credit)?)
        }
    };
    let fits = if at_once <= cliff { "fit" } else { "do not fit" };
    let buffer = settings.buffer?;
    Some(format!("{at_once:.0} fragments at once {fits}: a buffer of {buffer} holds {cliff:.0}"))
}

fn again_sentence(reports: &TrialReports) -> Option<String> {
    let sum =
        |of: fn(&super::report::SourceSent) -> Option<u64>| -> u64 { reports.sent().filter_map(of).sum() };
    let (again, needless) = (sum(|source| source.retransmits), sum(|source| source.dsacks));
    let timeouts = sum(|source| source.timeouts);
    (again > 0).then(|| {
        format!(
            "TCP retransmitted {again} segments ({needless} of them unneeded) and had {timeouts} timeouts"
        )
    })
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
    let overflowed: u64 = reports.sources.iter().filter_map(|host| host.orders_overflowed).sum();
    let on_purpose = if drops_orders(settings) { " (most were dropped on purpose)" } else { "" };
    (missed + overflowed > 0).then(|| {
        format!(
            "{missed} orders did not reach their sources{on_purpose}; {overflowed} were dropped at full \
             sockets"
        )
    })
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

/// With sequential events no resource is full, and yet the rate has a limit.
fn window_sentence(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let is_waiting = settings.triggers == Triggers::Max && held(settings, reports).is_none();
    is_waiting.then(|| match settings.window {
        1 => "events are sequential (--window 1): a larger --window may build more events".to_owned(),
        window => format!("at most {window} events are in progress: a larger --window may build more events"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::{BuilderReport, EventCounts, SourceSent, SourcesReport};
    use super::*;

    fn reports() -> TrialReports {
        let builder = BuilderReport {
            hold_to_s: 1.0,
            events: EventCounts { offered: 100, triggered: 100, complete: 100, ..Default::default() },
            fragments: 8000,
            wire_bytes: 10_000_000,
            cpu_s: 0.2,
            ..BuilderReport::default()
        };
        let source = SourceSent { retransmits: Some(50), dsacks: Some(10), ..SourceSent::default() };
        let sources = SourcesReport { sources: vec![source], busiest: Some(0.4), ..Default::default() };
        TrialReports::of_one(builder, vec![sources])
    }

    fn settings(text: serde_json::Value) -> DaqSettings {
        DaqSettings::read(text).unwrap()
    }

    #[test]
    fn each_limit_has_its_signs() {
        let slow = |cause, count| {
            let mut reports = reports();
            reports.hosts[0].builders[0].causes = [(cause, count)].into();
            reports
        };
        let full = |cpu_s, busiest| {
            let mut reports = reports();
            reports.hosts[0].builders[0].cpu_s = cpu_s;
            reports.sources[0].busiest = Some(busiest);
            reports
        };
        let max = serde_json::json!({ "sources": 80 });
        let cases = [
            (serde_json::json!({ "link": "82Mbit/s" }), reports(), Some(Held::Link)),
            (serde_json::json!({ "link": "200Mbit/s" }), slow(Cause::TailLossProbe, 30), Some(Held::Buffer)),
            (max.clone(), slow(Cause::Order, 5), Some(Held::Orders)),
            (serde_json::json!({ "drop_orders_percent": 1.0 }), slow(Cause::Order, 5), None),
            (max.clone(), slow(Cause::Host, 50), None),
            (max.clone(), full(0.95, 0.99), Some(Held::BuilderCpu)),
            (max.clone(), full(0.5, 0.99), Some(Held::SourceCpu)),
            (serde_json::json!({ "triggers": "100/s" }), reports(), Some(Held::Offered)),
            (max, reports(), None),
        ];
        for (text, reports, expected) in cases {
            let found = held(&settings(text.clone()), &reports);
            assert_eq!(found.map(|(held, _)| held), expected, "{text}");
        }
    }

    #[test]
    fn false_alarms_are_no_losses_and_a_stall_without_a_count_is_a_guess() {
        let mut reports = reports();
        reports.hosts[0].builders[0].causes = [(Cause::TailLossProbe, 30)].into();
        reports.sources[0].sources[0].dsacks = Some(50);
        assert_eq!(
            held(&settings(serde_json::json!({})), &reports),
            None,
            "all that was sent again had come"
        );
        reports.sources[0].sources[0].retransmits = None;
        assert_eq!(
            held(&settings(serde_json::json!({})), &reports),
            Some((Held::Buffer, Certainty::Predicted))
        );
        let limit = of(&settings(serde_json::json!({ "buffer": "64KiB", "link": "200Mbit/s" })), &reports);
        assert_eq!(limit.resource, Resource::Workload(&PORT_BUFFER));
        let said: Vec<_> = limit.evidence.iter().map(|evidence| evidence.statement.as_str()).collect();
        assert!(said.iter().any(|line| line.contains("a buffer of 64KiB holds 52")), "{said:?}");
        assert!(said.iter().any(|line| line.contains("80 Mbit/s of the 200 Mbit/s")), "{said:?}");
    }

    #[test]
    fn without_any_report_nothing_is_known() {
        let limit = of(&DaqSettings::default(), &TrialReports::default());
        assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
    }
}
