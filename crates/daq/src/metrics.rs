//! The numbers of a trial.

use std::collections::BTreeMap;

use base::metric::Better::{Higher, Lower, Neither};
use base::metric::{MetricSpec, Metrics, metric};

use super::report::{BuilderReport, SourceSent};
use super::settings::{DaqSettings, Size};
use super::trial_reports::TrialReports;

/// Every number of a trial: the workload's own, and what the samplers add.
#[rustfmt::skip]
pub const METRICS: &[MetricSpec] = &[
    metric("events_per_s", "1/s", Higher, "complete events per second"),
    metric("ideal_percent", "%", Higher, "the same, in % of what the builders' ports can carry"),
    metric("completion_p99_ms", "ms", Lower, "trigger due to last fragment, 99th percentile"),
    metric("events_incomplete", "", Lower, "events given up after the timeout, with fragments missing"),
    metric("dead_time_percent", "%", Lower, "vetoed triggers (window full), in % of the due ones"),
    metric("goodput_bit_per_s", "bit/s", Higher, "payload that arrived at the builders in the judged time"),
    metric("events_complete", "", Neither, "events with every fragment"),
    metric("completion_p50_ms", "ms", Lower, "trigger due to last fragment, median"),
    metric("completion_p90_ms", "ms", Lower, "90th percentile of these times"),
    metric("completion_p999_ms", "ms", Lower, "99.9th percentile of these times"),
    metric("completion_p9999_ms", "ms", Lower, "99.99th percentile of these times"),
    metric("completion_max_ms", "ms", Lower, "the longest of these times"),
    metric("first_fragment_p50_ms", "ms", Lower, "trigger due to first fragment, median"),
    metric("spread_p50_ms", "ms", Lower, "from an event's first fragment to its last, median"),
    metric("wire_bit_per_s", "bit/s", Neither, "goodput plus all headers, fragments in packets of their own"),
    metric("link_bit_per_s", "bit/s", Neither, "rate of the builders' ports, as set or reported by devices"),
    metric("events_vetoed", "", Lower, "triggers that were vetoed"),
    metric("outstanding_max", "", Neither, "most events in progress at once at one builder"),
    metric("builder_memory_bytes_max", "B", Lower, "most memory of one builder for unfinished events"),
    metric("fragments_sent", "", Neither, "fragments given to the sources' kernels, warm-up included"),
    metric("fragments_lost", "", Lower, "of these, not received by any builder"),
    metric("fragments_unexplained", "", Lower, "received fragments that no source counted"),
    metric("fragments_late", "", Lower, "fragments that arrived after their event was given up"),
    metric("fragments_duplicate", "", Lower, "fragments that arrived a second time"),
    metric("fragments_refused", "", Lower, "fragments of sources that builders refused"),
    metric("strangers_refused", "", Lower, "refused connections and datagrams of unidentified peers"),
    metric("send_skew_p50_us", "us", Lower, "first to last send time of an event, median"),
    metric("send_skew_p99_us", "us", Lower, "99th percentile of these times"),
    metric("send_skew_max_us", "us", Lower, "the longest of these times"),
    metric("clock_bound_us", "us", Lower, "largest possible error of a source's send time, worst clock"),
    metric("clock_probes", "", Neither, "answered clock probes"),
    metric("clock_violations", "", Lower, "of these, wrong by more than their bound, where known"),
    metric("jain_delay", "", Higher, "Jain's fairness index of the sources' mean delays; 1 = equal"),
    metric("retransmits", "", Lower, "TCP segments that the sources retransmitted"),
    metric("timeouts", "", Lower, "retransmission timeouts of the sources' TCP"),
    metric("timeout_ms", "ms", Lower, "total time of connections in these timeouts"),
    metric("dsacks", "", Lower, "unneeded retransmissions, as the builder's TCP reported (D-SACK)"),
    metric("recovery_p99_ms", "ms", Lower, "trigger to a fragment with a lost or late order, p99"),
    metric("orders_repeated", "", Lower, "repeated orders, to all or to single sources"),
    metric("orders_dropped", "", Neither, "orders that sources dropped on purpose"),
    metric("orders_missed", "", Lower, "triggers that a group of sources did not receive"),
    metric("orders_overflowed", "", Lower, "orders dropped at full sockets of the sources"),
    metric("datagrams_overflowed", "", Lower, "datagrams dropped at a builder's full socket (UDP)"),
    metric("nacks", "", Lower, "requests for lost bytes (UDP)"),
    metric("credit", "", Neither, "maximum number of fragments in flight (grant and pull)"),
    metric("cliff_sources", "", Neither, "predicted number of sources whose fragments the buffer holds"),
    metric("connect_s", "s", Lower, "time until all connections of the slowest host were established"),
    metric("builder_cpu_us_per_fragment", "us", Lower, "CPU time of the builders per fragment"),
    metric("source_cpu_us_per_fragment", "us", Lower, "CPU time of the sources per fragment"),
    metric("builder_cpu_percent", "%", Lower, "the busiest builder's thread, in % of its core"),
    metric("player_cpu_percent", "%", Lower, "the sources' busiest thread, busiest second, in % of its core"),
    metric("source_memory_bytes", "B", Lower, "memory of the sources, all hosts"),
    metric("source_memory_bytes_each", "B", Lower, "the same per source"),
    metric("server_cpu_percent", "%", Lower, "CPU of the builder's process, in % of one core"),
    metric("server_memory_bytes", "B", Lower, "resident memory of the builder's process"),
    metric("disk_bit_per_s", "bit/s", Neither, "read from the disk of the builder's host"),
    metric("network_bit_per_s", "bit/s", Neither, "carried by the link of the builder's host"),
];

/// The metrics that summarise one load, the main one first.
pub const HEADLINE: &[&str] =
    &["events_per_s", "events_incomplete", "completion_p99_ms", "dead_time_percent", "goodput_bit_per_s"];

/// The same of pattern `bulk`, which builds no events.
pub const HEADLINE_BULK: &[&str] = &["goodput_bit_per_s"];

/// Sources that have a goodput of their own among the metrics.
pub(crate) const SOURCES_NAMED_MAX: u64 = 4;

#[must_use]
pub fn of(settings: &DaqSettings, reports: &TrialReports) -> Metrics {
    let mut metrics = Metrics::new();
    let mut set = |name: &str, value: Option<f64>| metrics.insert(name.to_owned(), value);
    let events = reports.events();
    let builders = reports.builders();
    let sum = |of: fn(&BuilderReport) -> u64| builders.iter().map(|builder| of(builder)).sum::<u64>() as f64;
    let rate = reports.per_s(|builder| builder.events.complete);
    let bit_per_s = |of: fn(&BuilderReport) -> u64| reports.per_s(of).map(|bytes| bytes * 8.0);
    set("events_per_s", rate);
    let ideal = reports.ideal_events_per_s(settings);
    set("ideal_percent", rate.zip(ideal).map(|(rate, ideal)| 100.0 * rate / ideal));
    let has_held = builders.iter().any(|builder| builder.has_held());
    let of_hold = |count: u64| known(&builders, count).filter(|_| has_held);
    set("events_complete", of_hold(events.complete));
    set("events_incomplete", of_hold(events.incomplete));
    set("events_vetoed", of_hold(events.vetoed));
    let offered = Some(events.offered as f64).filter(|offered| *offered > 0.0);
    set("dead_time_percent", offered.map(|offered| 100.0 * events.vetoed as f64 / offered));
    set("goodput_bit_per_s", bit_per_s(|builder| builder.payload_bytes));
    set("wire_bit_per_s", bit_per_s(|builder| builder.wire_bytes));
    set("link_bit_per_s", reports.link_bit_per_s(settings));
    set("cliff_sources", reports.cliff_sources(settings));
    set("outstanding_max", most(builders.iter().map(|builder| f64::from(builder.outstanding_max))));
    let overflowed: Vec<u64> = builders.iter().filter_map(|builder| builder.datagrams_overflowed).collect();
    set("datagrams_overflowed", (!overflowed.is_empty()).then(|| overflowed.iter().sum::<u64>() as f64));
    set("builder_memory_bytes_max", most(builders.iter().map(|builder| builder.memory_bytes_max as f64)));
    set("credit", most(builders.iter().filter_map(|builder| builder.credit.map(f64::from))));
    set("orders_repeated", known(&builders, sum(|b| b.orders.repeated + b.orders.unicast) as u64));
    set("nacks", known(&builders, sum(|builder| builder.orders.nacks) as u64));
    let fragments = Some(sum(|builder| builder.fragments)).filter(|fragments| *fragments > 0.0);
    let cpu_s: f64 = builders.iter().map(|builder| builder.cpu_s).sum();
    set("builder_cpu_us_per_fragment", fragments.map(|fragments| 1e6 * cpu_s / fragments));
    set("builder_cpu_percent", reports.builder_busiest().map(|(_, worked)| 100.0 * worked));
    metrics.extend(times(reports));
    metrics.extend(fragments_of(settings, reports));
    metrics.extend(clocks(&builders));
    metrics.extend(sources(reports));
    metrics.extend(of_each_source(settings, reports));
    metrics
}

/// The goodput of each of a few sources, whose fragments are of one size: `source_1_goodput_bit_per_s`.
fn of_each_source(settings: &DaqSettings, reports: &TrialReports) -> Metrics {
    let mut fragments: BTreeMap<u32, u64> = BTreeMap::new();
    for seen in reports.builders().into_iter().flat_map(|builder| &builder.sources_seen) {
        *fragments.entry(seen.source).or_default() += seen.fragments;
    }
    let is_few = (2..=SOURCES_NAMED_MAX).contains(&settings.sources);
    let all = fragments.values().sum::<u64>() as f64;
    let goodput = reports.per_s(|builder| builder.payload_bytes).map(|bytes| bytes * 8.0);
    let Some(goodput) = goodput.filter(|_| is_few && all > 0.0 && matches!(settings.size, Size::Fixed(_)))
    else {
        return Metrics::new();
    };
    let of_source = |(source, fragments): (u32, u64)| {
        (format!("source_{source}_goodput_bit_per_s"), Some(goodput * fragments as f64 / all))
    };
    fragments.into_iter().map(of_source).collect()
}

/// A count; unknown without a builder's report.
fn known(builders: &[&BuilderReport], count: u64) -> Option<f64> {
    (!builders.is_empty()).then_some(count as f64)
}

fn most(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.max_by(f64::total_cmp)
}

fn named<const N: usize>(all: [(&str, Option<f64>); N]) -> Metrics {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn times(reports: &TrialReports) -> Metrics {
    let completion = reports.merged(|builder| &builder.completion);
    let skew = reports.merged(|builder| &builder.skew);
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    let p50_ms = |of| ms(reports.merged(of).percentile_ns(50.0));
    named([
        ("completion_p50_ms", ms(completion.percentile_ns(50.0))),
        ("completion_p90_ms", ms(completion.percentile_ns(90.0))),
        ("completion_p99_ms", ms(completion.percentile_ns(99.0))),
        ("completion_p999_ms", ms(completion.percentile_ns(99.9))),
        ("completion_p9999_ms", ms(completion.percentile_ns(99.99))),
        ("completion_max_ms", ms(completion.max_ns())),
        ("first_fragment_p50_ms", p50_ms(|builder| &builder.first_fragment)),
        ("spread_p50_ms", p50_ms(|builder| &builder.spread)),
        ("send_skew_p50_us", us(skew.percentile_ns(50.0))),
        ("send_skew_p99_us", us(skew.percentile_ns(99.0))),
        ("send_skew_max_us", us(skew.max_ns())),
        ("recovery_p99_ms", ms(reports.merged(|builder| &builder.recovery).percentile_ns(99.0))),
        ("jain_delay", jain(reports)),
    ])
}

/// (sum x)^2 / (n sum x^2), Jain, Chiu and Hawe, 1984.
fn jain(reports: &TrialReports) -> Option<f64> {
    let delays = reports.delays_us();
    let (sum, squares) = delays.values().fold((0.0, 0.0), |(sum, squares), us| (sum + us, squares + us * us));
    (squares > 0.0).then(|| sum * sum / (delays.len() as f64 * squares))
}

fn fragments_of(settings: &DaqSettings, reports: &TrialReports) -> Metrics {
    let (ledger, balance) = (reports.ledger(), reports.balance(settings));
    let builders = reports.builders();
    let sent = reports.sent().map(|source| source.sent).sum::<u64>();
    // Of front ends it is unknown.
    let is_sent_known = !reports.sources.is_empty() && settings.front_ends == 0;
    named([
        ("fragments_sent", is_sent_known.then_some(sent as f64)),
        ("fragments_lost", balance.and_then(|balance| balance.lost()).map(|lost| lost as f64)),
        ("fragments_unexplained", balance.map(|balance| balance.unexplained() as f64)),
        ("fragments_late", known(&builders, ledger.late)),
        ("fragments_duplicate", known(&builders, ledger.duplicate)),
        ("fragments_refused", known(&builders, ledger.refused_all())),
        ("strangers_refused", known(&builders, ledger.turned_away.values().sum())),
    ])
}

fn clocks(builders: &[&BuilderReport]) -> Metrics {
    let clocks = || builders.iter().flat_map(|builder| &builder.clocks);
    let violations: Vec<u64> = clocks().filter_map(|clock| clock.violations).collect();
    named([
        ("clock_bound_us", most(clocks().filter_map(|clock| Some(clock.bound_ns? as f64 / 1e3)))),
        ("clock_probes", known(builders, clocks().map(|clock| clock.probes).sum())),
        ("clock_violations", (!violations.is_empty()).then(|| violations.iter().sum::<u64>() as f64)),
    ])
}

fn sources(reports: &TrialReports) -> Metrics {
    let hosts = &reports.sources;
    let is_known = !hosts.is_empty();
    let of_connections =
        |of: fn(&SourceSent) -> Option<u64>| reports.sum_of_sources(of).map(|count| count as f64);
    let (sources, sent) = (reports.sent().count(), reports.sent().map(|source| source.sent).sum::<u64>());
    let cpu_s: f64 = hosts.iter().map(|host| host.cpu_s).sum();
    let memory: Option<f64> = hosts.iter().map(|host| host.memory_bytes.map(|bytes| bytes as f64)).sum();
    let memory = memory.filter(|_| is_known);
    let overflowed: Option<f64> =
        hosts.iter().map(|host| host.orders_overflowed.map(|orders| orders as f64)).sum();
    let orders = |of: fn(&super::report::SourcesReport) -> u64| {
        is_known.then(|| hosts.iter().map(of).sum::<u64>() as f64)
    };
    named([
        ("retransmits", of_connections(|source| source.retransmits)),
        ("timeouts", of_connections(|source| source.timeouts)),
        ("timeout_ms", of_connections(|source| source.timeout_ms)),
        ("dsacks", of_connections(|source| source.dsacks)),
        ("orders_dropped", orders(|host| host.orders_dropped)),
        ("orders_missed", orders(|host| host.orders_missed)),
        ("orders_overflowed", overflowed.filter(|_| is_known)),
        ("connect_s", most(hosts.iter().map(|host| host.connect_s))),
        ("source_cpu_us_per_fragment", (sent > 0).then(|| 1e6 * cpu_s / sent as f64)),
        ("player_cpu_percent", reports.sources_busiest().map(|share| 100.0 * share)),
        ("source_memory_bytes", memory),
        ("source_memory_bytes_each", memory.filter(|_| sources > 0).map(|bytes| bytes / sources as f64)),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::report::{EventCounts, Ledger, SourceSeen, SourcesReport};
    use super::*;

    fn built(seen: u64, sent: u64) -> TrialReports {
        let builder = BuilderReport {
            hold_from_s: 1.0,
            hold_to_s: 3.0,
            events: EventCounts { offered: 10, vetoed: 2, triggered: 8, complete: 8, ..Default::default() },
            ledger: Ledger { built: seen, ..Ledger::default() },
            fragments: 16,
            payload_bytes: 16_000,
            wire_bytes: 20_000,
            cpu_s: 32e-6,
            ..BuilderReport::default()
        };
        let source = |source| SourceSent { source, sent, retransmits: Some(1), ..SourceSent::default() };
        let sources = vec![source(0), source(1)];
        TrialReports::of_one(builder, vec![SourcesReport { sources, ..SourcesReport::default() }])
    }

    #[test]
    fn metrics_cover_the_hold_and_balance_the_whole_trial() {
        let settings = DaqSettings { sources: 2, link: "1Mbit/s".parse().ok(), ..DaqSettings::default() };
        let metrics = of(&settings, &built(20, 10));
        assert_eq!(metrics["events_per_s"], Some(4.0));
        assert_eq!(metrics["dead_time_percent"], Some(20.0));
        assert_eq!(metrics["goodput_bit_per_s"], Some(64_000.0));
        // 1 Mbit/s carries 50 events of two fragments of 1250 bytes a second.
        assert_eq!(metrics["ideal_percent"], Some(8.0));
        assert_eq!(metrics["builder_cpu_us_per_fragment"], Some(2.0));
        assert_eq!((metrics["fragments_lost"], metrics["fragments_unexplained"]), (Some(0.0), Some(0.0)));
        assert_eq!(metrics["retransmits"], Some(2.0));
        assert_eq!(metrics["timeouts"], None, "timeouts are unknown, not 0");
    }

    #[test]
    fn few_sources_have_a_goodput_each() {
        let mut reports = built(20, 10);
        let seen = |source, fragments| SourceSeen { source, fragments, ..SourceSeen::default() };
        reports.hosts[0].builders[0].sources_seen = vec![seen(0, 12), seen(1, 4)];
        let metrics = of(&DaqSettings { sources: 2, ..DaqSettings::default() }, &reports);
        assert_eq!(metrics["source_0_goodput_bit_per_s"], Some(48_000.0));
        assert_eq!(metrics["source_1_goodput_bit_per_s"], Some(16_000.0));
        let many = of(&DaqSettings { sources: 5, ..DaqSettings::default() }, &reports);
        assert!(!many.contains_key("source_0_goodput_bit_per_s"));
    }

    #[test]
    fn lost_and_unexplained_fragments_are_counted() {
        let settings = DaqSettings { sources: 2, ..DaqSettings::default() };
        let lost = of(&settings, &built(17, 10));
        assert_eq!((lost["fragments_lost"], lost["fragments_unexplained"]), (Some(3.0), Some(0.0)));
        let more = of(&settings, &built(21, 10));
        assert_eq!((more["fragments_lost"], more["fragments_unexplained"]), (Some(0.0), Some(1.0)));
        let others = of(&DaqSettings { front_ends: 1, ..settings.clone() }, &built(21, 10));
        assert_eq!(others["fragments_lost"], None, "what front ends sent is unknown");
        let mut cut = built(17, 10);
        cut.hosts[0].builders[0].events.unfinished = 1;
        assert_eq!(of(&settings, &cut)["fragments_lost"], None, "they may be under way");
    }

    #[test]
    fn every_metric_is_declared_and_unknown_without_reports() {
        let metrics = of(&DaqSettings::default(), &TrialReports::default());
        assert!(metrics.keys().all(|name| METRICS.iter().any(|metric| metric.name == name)), "{metrics:?}");
        assert!(metrics.values().all(Option::is_none), "{metrics:?}");
        assert!(HEADLINE.iter().all(|name| metrics.contains_key(*name)));
    }

    #[test]
    fn jain_index_is_computed_from_delays() {
        let mut reports = built(20, 10);
        let seen = |source, us| SourceSeen {
            source,
            fragments: 8,
            delay_mean_us: Some(us),
            ..SourceSeen::default()
        };
        reports.hosts[0].builders[0].sources_seen = vec![seen(0, 100.0), seen(1, 300.0)];
        let metrics = of(&DaqSettings::default(), &reports);
        assert_eq!(metrics["jain_delay"], Some(0.8));
    }
}
