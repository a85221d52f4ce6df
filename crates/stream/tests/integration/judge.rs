//! From reports to verdicts: a table of what can go wrong, one at a time.

use crate::common::reports;
use base::objective::Objective;
use base::outcome::Certainty;
use base::verdict::Verdict;
use reports::{clean, falling, stream};
use serde_json::Value;
use stream::doubt::StreamDoubt;
use stream::judge::{METRICS, Players, judge, judge_reports};
use stream::report::{Broken, StallReport, ViewerReport};
use stream::viewer::part::Viewers;
use workload::part::Reports;

fn stall(at_s: f64, length_s: f64, ended: bool) -> StallReport {
    StallReport { at_s, length_s, ended }
}

type Change = fn(&mut ViewerReport);

const DISTURBANCES: [(Change, &str); 12] = [
    (
        |r| {
            r.streams[3].stalls = vec![stall(2.4, 0.8, true)];
            r.streams[3].stall_count = 1;
        },
        "stream 3 stalled 2.4 s into the judged time, for 0.8 s",
    ),
    (
        |r| {
            r.streams[1].stalls = vec![stall(-0.5, 10.5, false)];
            r.streams[1].stall_count = 7;
        },
        "stream 1 stalled 0.5 s before the judged time, for at least 10.5 s, 7 times in all",
    ),
    (
        |r| r.streams[2].broken = Some(Broken { at_s: 3.0, message: "it ended".into() }),
        "stream 2 broke 3.0 s into the judged time: it ended",
    ),
    (
        |r| {
            r.streams[0].startup_s = None;
            r.streams[0].waited_for = Some("an answer".into());
        },
        "stream 0 never showed a picture: it was waiting for an answer",
    ),
    (
        |r| r.streams[0].startup_s = Some(2.5),
        "stream 0 showed its first picture 2.5 s after it had connected, later than 2 s",
    ),
    (|r| r.streams[0].frames_played = 248, "stream 0 showed 248 of 250 frames"),
    (
        |r| {
            r.streams[0].throughput_ratio_worst = Some(0.9);
            r.streams[0].slack_min_s = Some(1.4);
        },
        "stream 0 received 90 % of what it needed within 5 s, and its buffer fell to 1.4 s",
    ),
    (
        |r| r.streams[0].throughput_ratio_worst = Some(1.1),
        "stream 0 received 110 % of what it needed within 5 s",
    ),
    (|r| r.streams[0].receive_gap_max_s = 1.2, "stream 0 received nothing for 1.2 s although it wanted to"),
    (
        |r| r.streams[0].checks.as_mut().unwrap().continuity_errors = 3,
        "stream 0 lost sync 0 times and missed packets 3 times",
    ),
    (|r| r.streams[0].checks.as_mut().unwrap().hash_errors = 1, "stream 0 received 1 groups of wrong bytes"),
    (
        |r| {
            r.slack = falling(50_000_000);
            r.streams.iter_mut().for_each(|stream| stream.received_bytes -= 1_000_000);
        },
        "the buffers lose 50 ms each second and would be empty 39 s into the judged time",
    ),
];

#[test]
fn each_disturbance_fails_with_its_reason() {
    assert_eq!(judge(&clean(), Players::Trusted).verdict, Verdict::Pass);
    assert_eq!(judge(&clean(), Players::Trusted).doubts, vec![]);
    for (change, sentence) in DISTURBANCES {
        let mut report = clean();
        change(&mut report);
        let judgement = judge(&report, Players::Trusted);
        assert_eq!(judgement.verdict, Verdict::Fail, "{sentence}");
        assert!(judgement.reasons[0].contains(sentence), "{sentence}: {:?}", judgement.reasons);
    }
}

#[test]
fn values_within_tolerance_pass() {
    let cases: [Change; 6] = [
        |r| r.streams[0].frames_played = 249,
        |r| r.streams[0].throughput_ratio_worst = Some(0.96),
        // A dip that the buffer absorbed.
        |r| {
            r.streams[0].throughput_ratio_worst = Some(0.93);
            r.streams[0].slack_min_s = Some(1.64);
        },
        // A player that still filled its buffer.
        |r| {
            r.streams[0].throughput_ratio_worst = Some(1.4);
            r.streams[0].throughput_was_full = false;
        },
        |r| r.threads[0].late_before_ms_max = 900.0,
        |r| r.threads[0].cpu_before_percent_max = Some(99.0),
    ];
    for change in cases {
        let mut report = clean();
        change(&mut report);
        let judgement = judge(&report, Players::Trusted);
        assert_eq!(judgement.verdict, Verdict::Pass, "{:?}", judgement.reasons);
    }
}

#[test]
fn generator_fault_makes_trial_invalid() {
    let cases: [(Change, &str); 4] = [
        (|r| r.threads[0].late_ms_max = 501.0, "501 ms later than intended: they are the limit"),
        (|r| r.threads[0].cpu_percent = Some(91.0), "a player thread used 91 % of its core"),
        (
            |r| {
                r.threads[0].late_before_ms_max = 900.0;
                r.streams[0].startup_s = Some(3.0);
            },
            "900 ms later than intended before the judged time",
        ),
        (
            |r| {
                r.threads[0].cpu_before_percent_max = Some(97.0);
                r.streams[0].startup_s = Some(2.1);
            },
            "97 % of its core in a second before the judged time",
        ),
    ];
    for (change, sentence) in cases {
        let mut report = clean();
        report.streams[3].stalls = vec![stall(2.4, 0.8, true)];
        change(&mut report);
        let judgement = judge(&report, Players::Trusted);
        assert_eq!(judgement.verdict, Verdict::Invalid);
        assert!(judgement.reasons[0].contains(sentence), "{:?}", judgement.reasons);
    }
}

#[test]
fn players_that_are_judged_fail_a_trial_and_are_its_limit() {
    let mut report = clean();
    report.threads[0].cpu_percent = Some(97.0);
    let judgement = judge(&report, Players::Judged);
    assert_eq!(judgement.verdict, Verdict::Fail);
    let limit = judgement.account.limit.expect("a limit");
    assert_eq!((limit.resource.word(), limit.certainty), ("players", Certainty::Confirmed));
    let said = &limit.evidence[0].statement;
    assert!(said.contains("streams a player thread used 97 % of its core"), "{said}");
    assert_eq!(judge(&report, Players::Trusted).account.limit, None);
    report.stopped = true;
    assert_eq!(judge(&report, Players::Judged).verdict, Verdict::Invalid, "the user ended it");
    assert_eq!(judge(&clean(), Players::Judged).verdict, Verdict::Pass);
}

#[test]
fn trial_cut_short_can_fail_but_not_pass() {
    let mut report = clean();
    report.stopped = true;
    assert_eq!(judge(&report, Players::Trusted).verdict, Verdict::Invalid);
    report.streams[0].stalls = vec![stall(1.0, 1.0, true)];
    assert_eq!(judge(&report, Players::Trusted).verdict, Verdict::Fail);
    report.hold_s = None;
    report.streams[0] = stream(0);
    let judgement = judge(&report, Players::Trusted);
    assert_eq!((judgement.verdict, judgement.metrics["stalls"]), (Verdict::Invalid, None));
}

#[test]
fn first_five_disturbed_streams_are_named_in_order() {
    let mut report = clean();
    report.streams = (0..100).map(stream).collect();
    for stream in &mut report.streams[10..] {
        stream.stalls = vec![stall(9.0 - stream.stream as f64 / 25.0, 0.6, true)];
        stream.stall_count = 1;
        stream.stalled_s = 0.6;
    }
    let judgement = judge(&report, Players::Trusted);
    assert!(judgement.reasons[0].contains("stream 99 stalled 5.0 s"), "{:?}", judgement.reasons);
    assert_eq!(judgement.reasons[5], "85 more streams were disturbed");
    assert_eq!(judgement.metrics["stalls"], Some(90.0));
    assert!((judgement.metrics["rebuffer_ratio"].unwrap() - 90.0 * 0.6 / 1000.0).abs() < 1e-9);
    assert!((judgement.metrics["stall_first_s"].unwrap() - 5.04).abs() < 1e-9);
}

#[test]
fn doubts_are_reported() {
    let mut report = clean();
    report.threads[0].cpu_percent = Some(80.0);
    report.threads[0].late_ms_max = 200.0;
    report.overlapping = Some(3);
    report.index_made_by_reading = true;
    report.slack.clear();
    let doubts = judge(&report, Players::Trusted).doubts;
    let expected = [
        StreamDoubt::GeneratorNearSaturation { cpu_percent: 80.0 },
        StreamDoubt::GeneratorLate { late_ms_max: 200.0 },
        StreamDoubt::RegionsOverlap { streams: 3, content_s: 600.0 },
        StreamDoubt::IndexMadeByReading,
    ];
    assert!(expected.into_iter().all(|doubt| doubts.contains(&doubt.into())), "{doubts:?}");
    let doubts = serde_json::to_value(doubts).unwrap();
    let is_short =
        |doubt: &Value| doubt["kind"] == "hold_too_short" && doubt["resolves_load"].as_f64().unwrap() > 1.0;
    assert!(doubts.as_array().unwrap().iter().any(is_short), "{doubts}");
}

#[test]
fn report_round_trips_and_every_metric_is_described() {
    let reports = |report| Reports::new([("viewers".to_owned(), report)].into());
    let sent = reports(serde_json::to_value(clean()).unwrap());
    let judged = judge_reports(sent.of_role::<Viewers>("viewers").unwrap(), Players::Trusted);
    assert_eq!(judged.unwrap(), judge(&clean(), Players::Trusted));
    let unreadable = reports(serde_json::json!({"streams": 3}));
    assert!(unreadable.of_role::<Viewers>("viewers").unwrap_err().message.contains("cannot be read"));
    let names = METRICS.iter().map(|spec| spec.name);
    for name in judge(&clean(), Players::Trusted).metrics.keys() {
        assert!(names.clone().any(|known| known == name), "{name} has no description");
    }
    for requirement in
        ["stalls==0", "slack_min>=500ms", "startup_max<=2s", "rebuffer_ratio<=0.5%", "player_cpu<=90%"]
    {
        requirement.parse::<Objective>().unwrap().check_names(names.clone()).unwrap();
    }
}
