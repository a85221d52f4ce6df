use serde_json::json;

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
fn limit_is_found_from_reports() {
    let slow = |cause, count| {
        let mut reports = reports();
        reports.hosts[0].builders[0].causes = [(cause, count)].into();
        reports
    };
    let full = |cpu_s, busiest| {
        let mut reports = reports();
        reports.hosts[0].builders[0].completion.record_ns(10_000_000);
        reports.hosts[0].builders[0].cpu_s = cpu_s;
        reports.sources[0].busiest = Some(busiest);
        reports
    };
    let max = json!({ "sources": 80 });
    let in_time = json!({ "triggers": "100/s", "objective": { "completion_p99_max": "20ms" } });
    let late = json!({ "triggers": "100/s", "objective": { "completion_p99_max": "5ms" } });
    let cases = [
        (json!({ "link": "82Mbit/s" }), reports(), Some(LimitCause::Link)),
        (json!({ "link": "200Mbit/s" }), slow(Cause::TailLossProbe, 30), Some(LimitCause::Buffer)),
        (
            json!({ "sources": 80, "link": "200Mbit/s", "buffer": "64KiB" }),
            slow(Cause::TailLossProbe, 30),
            Some(LimitCause::Buffer),
        ),
        (
            json!({ "sources": 10, "link": "200Mbit/s", "buffer": "64KiB" }),
            slow(Cause::TailLossProbe, 30),
            Some(LimitCause::LossyPath),
        ),
        (max.clone(), slow(Cause::Unknown, 30), None),
        (max.clone(), slow(Cause::Silent, 30), None),
        (max.clone(), slow(Cause::Order, 5), Some(LimitCause::Orders)),
        (json!({ "drop_orders_percent": 1.0 }), slow(Cause::Order, 5), None),
        (max.clone(), slow(Cause::Host, 50), None),
        (max.clone(), full(0.95, 0.99), Some(LimitCause::BuilderCpu)),
        (max.clone(), full(0.5, 0.99), Some(LimitCause::SourceCpu)),
        (json!({ "triggers": "100/s" }), reports(), Some(LimitCause::Offered)),
        (json!({ "triggers": "100/s" }), full(0.95, 0.99), Some(LimitCause::Offered)),
        (in_time, full(0.95, 0.99), Some(LimitCause::Offered)),
        (late, full(0.95, 0.99), Some(LimitCause::BuilderCpu)),
        (max, reports(), None),
    ];
    for (text, reports, expected) in cases {
        let found = limit_cause(&settings(text.clone()), &reports);
        assert_eq!(found.map(|(cause, _)| cause), expected, "{text}");
    }
}

#[test]
fn unneeded_retransmissions_are_no_losses_and_uncounted_stalls_are_predicted() {
    let mut reports = reports();
    reports.hosts[0].builders[0].causes = [(Cause::TailLossProbe, 30)].into();
    reports.sources[0].sources[0].dsacks = Some(50);
    assert_eq!(limit_cause(&settings(json!({})), &reports), None, "every retransmission was unneeded");
    reports.sources[0].sources[0].retransmits = None;
    assert_eq!(limit_cause(&settings(json!({})), &reports), Some((LimitCause::Buffer, Certainty::Predicted)));
    let limit = of(&settings(json!({ "buffer": "64KiB", "link": "200Mbit/s" })), &reports);
    assert_eq!(limit.resource, Resource::Workload(&PORT_BUFFER));
    let said: Vec<_> = limit.evidence.iter().map(|evidence| evidence.statement.as_str()).collect();
    assert!(said.iter().any(|line| line.contains("a buffer of 64KiB holds 52")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("80 Mbit/s of the 200 Mbit/s")), "{said:?}");
}

#[test]
fn full_buffer_is_confirmed_only_by_its_size() {
    let mut reports = reports();
    reports.hosts[0].builders[0].causes = [(Cause::TailLossProbe, 30)].into();
    for (text, resource, certainty) in [
        (json!({ "sources": 80 }), Resource::Workload(&PORT_BUFFER), Certainty::Predicted),
        (
            json!({ "sources": 80, "link": "200Mbit/s", "buffer": "64KiB" }),
            Resource::Workload(&PORT_BUFFER),
            Certainty::Confirmed,
        ),
        (
            json!({ "sources": 10, "link": "200Mbit/s", "buffer": "64KiB" }),
            Resource::Network,
            Certainty::Confirmed,
        ),
    ] {
        let limit = of(&settings(text.clone()), &reports);
        assert_eq!((limit.resource, limit.certainty), (resource, certainty), "{text}");
        let said = limit.evidence[0].statement.contains("overflowed");
        assert_eq!(said, text["sources"] == 80 && certainty == Certainty::Confirmed, "{limit:?}");
    }
}

#[test]
fn unknown_counters_are_not_said_as_zero() {
    let mut reports = reports();
    (reports.sources[0].sources[0].dsacks, reports.sources[0].orders_missed) = (None, 3);
    let said = evidence(&settings(json!({})), &reports).join("; ");
    for unknown in ["it is unknown how many of them were unneeded", "unknown number of timeouts"] {
        assert!(said.contains(unknown), "{said}");
    }
    assert!(said.contains("3 orders did not") && said.contains("full sockets is unknown"), "{said}");
    assert!(!said.contains(" 0 "), "{said}");
}

#[test]
fn limit_without_reports_is_unknown() {
    let limit = of(&DaqSettings::default(), &TrialReports::default());
    assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
}
