//! From the reports of both sides to the verdict, with the reasons as sentences. Pure.

use std::collections::BTreeSet;

use base::doubt::Doubt;
use base::format::{number, quantity};
use base::limit_rules::{BURST_MIN, BUSIEST_SECOND, BUSIEST_SECOND_SIGN};
use base::verdict::Verdict;
use base::workload::Judgement;

use super::doubt::DaqDoubt;
use super::report::BuilderReport;
use super::settings::{Carrier, DaqSettings, Pattern};
use super::trial_reports::TrialReports;
use super::{metrics, missing_sources, series, summary};

/// Incomplete events whose missing sources are named in a reason.
const NAMED_MAX: usize = 3;

#[must_use]
pub fn judge(settings: &DaqSettings, reports: &TrialReports) -> Judgement {
    let broke_off = reports.broke_off();
    let is_ended_early = reports.is_ended_early();
    let wrong = disagreements(settings, reports);
    let missed = missed(settings, reports);
    let is_full = reports.sources_busiest().is_some_and(|share| BUSIEST_SECOND.is_used_up(share));
    let verdict = match () {
        () if broke_off.is_some() || is_ended_early => Verdict::Invalid,
        () if !wrong.is_empty() => Verdict::Fail,
        () if missed.is_empty() => Verdict::Pass,
        () if is_full => Verdict::Invalid,
        () => Verdict::Fail,
    };
    let is_definite = !wrong.is_empty() && verdict == Verdict::Fail;
    let mut reasons: Vec<String> = broke_off.into_iter().collect();
    if is_ended_early {
        reasons.push("the trial was ended before its time".to_owned());
    }
    reasons.extend(wrong);
    if is_full && !missed.is_empty() {
        reasons.push("the sources' threads were full, so the sources may be at fault".to_owned());
    }
    reasons.extend(missed);
    Judgement {
        reasons,
        is_definite,
        metrics: metrics::of(settings, reports),
        series: series::of(reports),
        doubts: doubts(settings, reports).into_iter().map(Doubt::from).collect(),
        account: summary::of(settings, reports),
        ..Judgement::new(verdict, reports.hold_s())
    }
}

/// Faults that no objective allows: TCP loses nothing while its connections stand.
fn disagreements(settings: &DaqSettings, reports: &TrialReports) -> Vec<String> {
    let lost = reports.balance(settings).and_then(|balance| balance.lost()).unwrap_or(0);
    let (events, ledger) = (reports.events(), reports.ledger());
    // An event of the warm-up may have been given up, too.
    let is_given_up = events.incomplete > 0 || ledger.in_incomplete > 0;
    let is_explained = is_given_up || ledger.broken_connections > 0 || settings.protocol == Carrier::Udp;
    let corrupt: u64 =
        ["payload_checksum", "payload_length"].iter().filter_map(|reason| ledger.refused.get(*reason)).sum();
    let lost = (lost > 0 && !is_explained).then(|| {
        format!("{lost} sent fragments were neither received nor reported missing: the counts disagree")
    });
    // What a front end meant to send is unknown.
    let how = match settings.front_ends {
        0 => "arrived with other bytes than were sent",
        _ => "had a payload that does not match its checksum or length",
    };
    let corrupt = (corrupt > 0).then(|| format!("{corrupt} fragments {how}"));
    lost.into_iter().chain(corrupt).collect()
}

/// The conditions of the objective that did not hold.
fn missed(settings: &DaqSettings, reports: &TrialReports) -> Vec<String> {
    let (events, objective) = (reports.events(), &settings.objective);
    let mut reasons = Vec::new();
    if events.complete == 0 {
        reasons.push(match events.triggered {
            0 => "no trigger was due in the judged time".to_owned(),
            triggered => format!("none of {triggered} events was completed"),
        });
    }
    if events.incomplete > objective.incomplete_max {
        let allowed = match objective.incomplete_max {
            0 => String::new(),
            allowed => format!(", more than the accepted {allowed}"),
        };
        reasons.push(format!(
            "{} of {} events ended incomplete after {}{allowed}",
            events.incomplete, events.triggered, settings.timeout
        ));
        reasons.extend(named(reports));
    }
    let p99_ns = reports.merged(|builder| &builder.completion).percentile_ns(99.0);
    if let Some((most, p99_ns)) = objective.completion_p99_max.zip(p99_ns)
        && p99_ns > most.ns()
    {
        let took = quantity(Some(p99_ns as f64 / 1e9), "s");
        let most = quantity(Some(most.s()), "s");
        reasons.push(format!("99 % of the events took up to {took}, more than {most}"));
    }
    let dead = (events.offered > 0).then(|| 100.0 * events.vetoed as f64 / events.offered as f64);
    if let Some((most, dead)) = objective.dead_time_percent_max.zip(dead)
        && dead > most
    {
        reasons.push(format!("{} % of the triggers were vetoed, more than {most} %", number(dead)));
    }
    reasons
}

fn named(reports: &TrialReports) -> Vec<String> {
    let builders = reports.builders();
    let all = builders.iter().flat_map(|builder| &builder.incomplete);
    let say = |one: &super::report::Incomplete| {
        format!("event {} lacked {}", one.event, missing_sources::text(one.missing, &one.sources))
    };
    all.take(NAMED_MAX).map(say).collect()
}

fn doubts(settings: &DaqSettings, reports: &TrialReports) -> Vec<DaqDoubt> {
    let mut doubts = Vec::new();
    let near = reports.sources_busiest().filter(|share| BUSIEST_SECOND_SIGN.is_used_up(*share));
    doubts.extend(near.map(|share| DaqDoubt::SourcesNearSaturation { cpu_percent: 100.0 * share }));
    doubts.extend(burst_paced(settings, reports));
    let builders = reports.builders();
    let clocks = || builders.iter().flat_map(|builder| &builder.clocks);
    let unknown: u64 = clocks().filter(|c| c.bound_ns.is_none()).map(|c| u64::from(c.sources.max(1))).sum();
    if unknown > 0 {
        doubts.push(DaqDoubt::ClocksNotCompared { sources: unknown });
    }
    doubts.extend(implausible_times(&builders));
    let contradictory = clocks().filter(|clock| clock.contradictory);
    doubts.extend(
        contradictory.map(|clock| DaqDoubt::ClocksContradictory { sources: summary::clock_sources(clock) }),
    );
    if clocks().any(|clock| clock.same_kernel) {
        doubts.push(DaqDoubt::CpusShared);
    }
    let more = reports.balance(settings).map_or(0, |balance| balance.unexplained());
    if more > 0 {
        doubts.push(DaqDoubt::CountsDisagree { more });
    }
    let notes: BTreeSet<&String> =
        builders.iter().filter_map(|builder| builder.orders_note.as_ref()).collect();
    doubts.extend(notes.into_iter().map(|why| DaqDoubt::OrdersAnotherWay { why: why.clone() }));
    doubts
}

/// Names the sources whose send times cannot be right.
fn implausible_times(builders: &[&BuilderReport]) -> Option<DaqDoubt> {
    let seen = builders.iter().flat_map(|builder| &builder.sources_seen);
    let wrong = seen.filter(|seen| seen.implausible_times > 0);
    let (sources, counts): (BTreeSet<u32>, Vec<u64>) =
        wrong.map(|seen| (seen.source, seen.implausible_times)).unzip();
    let sources: Vec<u32> = sources.into_iter().collect();
    (!sources.is_empty()).then(|| DaqDoubt::SendTimesImplausible {
        sources: missing_sources::text(sources.len() as u32, &sources),
        fragments: counts.iter().sum(),
    })
}

/// With push and no stagger all sources should send at once. Software sends one fragment after the other; if
/// it is too slow, the burst is smaller than that of real front ends.
fn burst_paced(settings: &DaqSettings, reports: &TrialReports) -> Option<DaqDoubt> {
    if settings.pattern != Pattern::Push || settings.stagger.is_some() {
        return None;
    }
    let link_bit_per_s = reports.link_bit_per_s(settings)? / reports.hosts.len().max(1) as f64;
    let bytes = reports.fragment_wire_bytes(settings)? * settings.sources as f64;
    let skew_ns = reports.merged(|builder| &builder.skew).percentile_ns(50.0).filter(|ns| *ns > 0)?;
    let offered_bit_per_s = bytes * 8e9 / skew_ns as f64;
    (offered_bit_per_s < BURST_MIN * link_bit_per_s)
        .then_some(DaqDoubt::BurstPaced { offered_bit_per_s, link_bit_per_s })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::report::{
        EventCounts, GroupClock, Incomplete, Ledger, SourceSeen, SourceSent, SourcesReport,
    };
    use super::*;

    fn reports(complete: u64, incomplete: u64) -> TrialReports {
        let mut builder = BuilderReport {
            hold_to_s: 1.0,
            events: EventCounts {
                offered: complete + incomplete,
                triggered: complete + incomplete,
                complete,
                incomplete,
                ..EventCounts::default()
            },
            ledger: Ledger { built: complete * 2, in_incomplete: incomplete, ..Ledger::default() },
            fragments: complete * 2 + incomplete,
            wire_bytes: (complete * 2 + incomplete) * 1250,
            ..BuilderReport::default()
        };
        builder.completion.record_ns_times(10_000_000, complete);
        builder.skew.record_ns_times(100_000, complete);
        builder.incomplete =
            (0..incomplete).map(|event| Incomplete { event, missing: 1, sources: vec![1] }).collect();
        let sent = |source, sent| SourceSent { source, sent, ..SourceSent::default() };
        let sources = SourcesReport {
            sources: vec![sent(0, complete + incomplete), sent(1, complete)],
            busiest: Some(0.5),
            ..SourcesReport::default()
        };
        TrialReports::of_one(builder, vec![sources])
    }

    fn settings(text: serde_json::Value) -> DaqSettings {
        let mut settings = DaqSettings::read(text).unwrap();
        settings.sources = 2;
        settings
    }

    fn verdict(text: serde_json::Value, reports: &TrialReports) -> (Verdict, Vec<String>) {
        let judgement = judge(&settings(text), reports);
        (judgement.verdict, judgement.reasons)
    }

    #[test]
    fn objective_decides_the_verdict() {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let (all, some) = (reports(100, 0), reports(100, 2));
        for (text, reports, expected, said) in [
            ("{}", &all, Verdict::Pass, ""),
            ("{}", &some, Verdict::Fail, "2 of 102 events ended incomplete after 1s"),
            (r#"{"objective": {"incomplete_max": 2}}"#, &some, Verdict::Pass, ""),
            (
                r#"{"objective": {"completion_p99_max": "5ms"}}"#,
                &all,
                Verdict::Fail,
                "up to 10 ms, more than 5 ms",
            ),
            (r#"{"objective": {"completion_p99_max": "20ms"}}"#, &all, Verdict::Pass, ""),
            ("{}", &reports(0, 0), Verdict::Fail, "no trigger was due"),
        ] {
            let (found, reasons) = verdict(json(text), reports);
            assert_eq!(found, expected, "{text}: {reasons:?}");
            assert!(reasons.concat().contains(said), "{reasons:?}");
        }
        let (_, reasons) = verdict(json("{}"), &some);
        assert!(reasons.contains(&"event 0 lacked source 1".to_owned()), "{reasons:?}");
    }

    #[test]
    fn vetoed_triggers_fail_only_with_dead_time_objective() {
        let mut reports = reports(90, 0);
        reports.hosts[0].builders[0].events.offered = 100;
        reports.hosts[0].builders[0].events.vetoed = 10;
        let asked = json!({ "objective": { "dead_time_percent_max": 2.0 } });
        assert_eq!(verdict(asked, &reports).0, Verdict::Fail);
        assert_eq!(verdict(json!({}), &reports).0, Verdict::Pass);
    }

    #[test]
    fn saturated_or_broken_sources_invalidate_the_trial() {
        let mut full = reports(100, 2);
        full.sources[0].busiest = Some(0.99);
        assert_eq!(verdict(json!({}), &full).0, Verdict::Invalid);
        let mut passes = reports(100, 0);
        passes.sources[0].busiest = Some(0.99);
        let judgement = judge(&settings(json!({})), &passes);
        assert_eq!(judgement.verdict, Verdict::Pass, "what was built was built");
        let found = doubts(&settings(json!({})), &passes);
        assert!(found.iter().any(|doubt| matches!(doubt, DaqDoubt::SourcesNearSaturation { .. })));
        let mut broken = reports(100, 0);
        broken.sources[0].broke_off = Some("no more descriptors".to_owned());
        let (found, reasons) = verdict(json!({}), &broken);
        assert_eq!(found, Verdict::Invalid);
        assert!(reasons[0].contains("the sources broke off: no more descriptors"), "{reasons:?}");
        let mut early = reports(100, 0);
        early.hosts[0].builders[0].ended_early = true;
        assert_eq!(verdict(json!({}), &early).0, Verdict::Invalid);
    }

    #[test]
    fn unbalanced_counts_fail_or_give_a_doubt() {
        let mut lost = reports(100, 0);
        lost.sources[0].sources[1].sent += 1;
        let judgement = judge(&settings(json!({})), &lost);
        assert_eq!((judgement.verdict, judgement.is_definite), (Verdict::Fail, true));
        lost.hosts[0].builders[0].ledger.in_incomplete = 1;
        assert_eq!(judge(&settings(json!({})), &lost).verdict, Verdict::Pass, "given up in the warm-up");
        let mut more = reports(100, 0);
        more.sources[0].sources[1].sent -= 1;
        let judgement = judge(&settings(json!({})), &more);
        assert_eq!(judgement.verdict, Verdict::Pass);
        assert!(
            judgement.doubts.contains(&DaqDoubt::CountsDisagree { more: 1 }.into()),
            "{:?}",
            judgement.doubts
        );
    }

    #[test]
    fn paced_burst_and_unknown_clocks_give_doubts() {
        // 2500 bytes within 100 us are 200 Mbit/s.
        for (link, is_paced) in [("40Mbit/s", false), ("100Mbit/s", true)] {
            let doubts = doubts(&settings(json!({ "link": link })), &reports(100, 0));
            let found = doubts.iter().any(|doubt| matches!(doubt, DaqDoubt::BurstPaced { .. }));
            assert_eq!(found, is_paced, "{link}: {doubts:?}");
        }
        let mut unknown = reports(100, 0);
        unknown.hosts[0].builders[0].clocks = vec![GroupClock { sources: 2, ..GroupClock::default() }];
        let judgement = judge(&settings(json!({})), &unknown);
        assert_eq!(judgement.doubts, [DaqDoubt::ClocksNotCompared { sources: 2 }.into()]);
    }

    #[test]
    fn absurd_times_give_a_doubt_that_names_the_sources() {
        let mut wrong = reports(100, 0);
        let seen = |source, implausible_times| SourceSeen { source, implausible_times, ..Default::default() };
        wrong.hosts[0].builders[0].sources_seen = vec![seen(0, 0), seen(1, 100)];
        let clock = GroupClock { contradictory: true, source_range: Some((4, 7)), ..GroupClock::default() };
        wrong.hosts[0].builders[0].clocks = vec![GroupClock { sources: 4, ..clock }];
        let found = doubts(&settings(json!({})), &wrong);
        let said: Vec<_> = found.iter().map(base::doubt::WorkloadDoubt::message).collect();
        let said = said.join("; ");
        assert!(said.contains("the send times of source 1 cannot be right (100 before"), "{said}");
        assert!(said.contains("the clock answers of sources 4-7 contradict"), "{said}");
    }
}
