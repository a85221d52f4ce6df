//! Reports of several hosts as one: nothing is lost, counted twice, or taken for another's.

use crate::common::reports;
use base::doubt::Doubt;
use base::verdict::Verdict;
use proptest::prelude::*;
use reports::{clean, stream};
use stream::doubt::StreamDoubt;
use stream::judge::{Players, judge, judge_reports};
use stream::report::merge::merge;
use stream::report::{Broken, Sample, SlackSum, ViewerReport};

/// What one stream of a group has seen.
#[derive(Debug, Clone)]
struct Seen {
    samples: Vec<Sample>,
    slack: Vec<SlackSum>,
    begins_at_s: f64,
    retransmits: Option<u64>,
    stopped: bool,
}

/// Four samples and three seconds.
fn seen() -> impl Strategy<Value = Seen> {
    let sample = (0..2_u32, proptest::option::of(0..2_000_000_000_u64), 0..1_000_000_u64).prop_map(
        |(playing, slack_min_ns, bytes)| Sample {
            playing,
            begun: u32::from(slack_min_ns.is_some()),
            slack_min_ns,
            received_bytes: bytes,
            buffered_ns: slack_min_ns.unwrap_or(0),
        },
    );
    let second = (0..2_000_000_000_u64, 0..2_u32)
        .prop_map(|(ns, streams)| SlackSum { slack_ns: ns * u64::from(streams), streams });
    let lists = (proptest::collection::vec(sample, 4), proptest::collection::vec(second, 3));
    (lists, 0..600_u32, proptest::option::of(0..9_u64), proptest::bool::weighted(0.1)).prop_map(
        |((samples, slack), begins_at_s, retransmits, stopped)| Seen {
            samples,
            slack,
            begins_at_s: f64::from(begins_at_s),
            retransmits,
            stopped,
        },
    )
}

/// The report of one group of these streams, added up here in another way than the program does it.
fn group(streams: &[(usize, &Seen)]) -> ViewerReport {
    let mut report = clean();
    let thread = report.threads.remove(0);
    report.streams.clear();
    report.samples = vec![Sample::default(); 4];
    report.slack = vec![SlackSum::default(); 3];
    for (number, seen) in streams {
        report
            .streams
            .push(stream::report::StreamReport { begins_at_s: seen.begins_at_s, ..stream(*number as u64) });
        report.threads.push(stream::report::ThreadReport { thread_id: *number as i32, ..thread.clone() });
        for (sum, one) in report.samples.iter_mut().zip(&seen.samples) {
            sum.playing += one.playing;
            sum.begun += one.begun;
            sum.received_bytes += one.received_bytes;
            sum.buffered_ns += one.buffered_ns;
        }
        for (sum, one) in report.slack.iter_mut().zip(&seen.slack) {
            sum.slack_ns += one.slack_ns;
            sum.streams += one.streams;
        }
    }
    for at in 0..4 {
        let all = streams.iter().filter_map(|(_, seen)| seen.samples[at].slack_min_ns);
        report.samples[at].slack_min_ns = all.min();
    }
    let known: Vec<u64> = streams.iter().filter_map(|(_, seen)| seen.retransmits).collect();
    report.retransmits = (!known.is_empty()).then(|| known.iter().sum());
    report.stopped = streams.iter().any(|(_, seen)| seen.stopped);
    report
}

proptest! {
    /// However the streams are spread over hosts, the merged report is that of one group of them all.
    #[test]
    fn split_group_merges_to_the_original(
        all in proptest::collection::vec(seen(), 1..10),
        hosts in 1..5_usize,
        turn in any::<u64>(),
    ) {
        let all: Vec<(usize, &Seen)> = all.iter().enumerate().collect();
        let whole = group(&all);
        let share = |host: usize| -> Vec<(usize, &Seen)> {
            let at = |number: usize| (number + (turn >> (number % 32)) as usize) % hosts;
            all.iter().filter(|(number, _)| at(*number) == host).copied().collect()
        };
        let shares: Vec<_> = (0..hosts).map(share).filter(|share| !share.is_empty()).collect();
        let mut merged = merge(shares.iter().map(|share| (None, group(share))).collect()).unwrap();
        merged.threads.sort_by_key(|thread| thread.thread_id);
        prop_assert_eq!(&merged, &whole);
        prop_assert_eq!(judge(&merged, Players::Trusted), judge(&whole, Players::Trusted));
    }
}

/// Two hosts with two streams each: stream 0 and 2 on pc-1, 1 and 3 on pc-2.
fn two() -> [ViewerReport; 2] {
    [0, 1].map(|host| ViewerReport { streams: vec![stream(host), stream(host + 2)], ..clean() })
}

fn merged([one, other]: [ViewerReport; 2]) -> ViewerReport {
    merge(vec![(Some("pc-1"), one), (Some("pc-2"), other)]).unwrap()
}

#[test]
fn single_report_is_unchanged_by_merge() {
    assert_eq!(merge(vec![(None, clean())]).unwrap(), clean());
    let named = merge(vec![(Some("pc-1"), clean())]).unwrap();
    assert!(named.streams.iter().all(|stream| stream.host.as_deref() == Some("pc-1")));
}

#[test]
fn streams_of_two_hosts_are_merged() {
    let judgement = judge(&merged(two()), Players::Trusted);
    assert_eq!((judgement.verdict, judgement.reasons), (Verdict::Pass, vec![]));
    assert_eq!(judgement.metrics["frames_played"], Some(1000.0));
    assert_eq!(judgement.metrics["received_bit_per_s"], Some(100e6));
    assert_eq!(judgement.metrics["streams_parsed"], Some(4.0));
}

type Change = fn(&mut [ViewerReport; 2]);

#[test]
fn reasons_and_doubts_name_the_host() {
    let cases: [(Change, Verdict, &str); 5] = [
        (
            |r| r[1].streams[1].broken = Some(Broken { at_s: 3.0, message: "it ended".into() }),
            Verdict::Fail,
            "stream 3 on pc-2 broke 3.0 s into the judged time: it ended",
        ),
        (
            |r| r[1].threads[0].cpu_percent = Some(93.0),
            Verdict::Invalid,
            "a player thread on pc-2 used 93 % of its core: the players are the limit",
        ),
        (
            |r| r[0].threads[0].late_ms_max = 501.0,
            Verdict::Invalid,
            "the players on pc-1 read up to 501 ms later than intended: they are the limit",
        ),
        (|r| r[0].hold_s = None, Verdict::Invalid, "the trial was ended before its time"),
        (|r| r[1].stopped = true, Verdict::Invalid, "the trial was ended before its time"),
    ];
    for (change, verdict, sentence) in cases {
        let mut reports = two();
        change(&mut reports);
        let judgement = judge(&merged(reports), Players::Trusted);
        assert_eq!((judgement.verdict, judgement.reasons[0].as_str()), (verdict, sentence));
    }
    let mut reports = two();
    reports[1].threads[0].cpu_percent = Some(80.0);
    let doubts = judge(&merged(reports), Players::Trusted).doubts;
    assert_eq!(doubts, [Doubt::from(StreamDoubt::GeneratorNearSaturation { cpu_percent: 80.0 }).on("pc-2")]);
}

#[test]
fn merged_hold_is_the_common_part() {
    let mut reports = two();
    reports[0].aborted = true;
    reports[0].hold_s = Some((6.0, 8.0));
    for stream in &mut reports[0].streams {
        // Half of the rate, for a fifth of the time.
        (stream.held_s, stream.received_bytes, stream.stalled_s) = (Some(2.0), 3_125_000, 1.0);
    }
    reports[0].samples = vec![Sample::default(); 80];
    reports[1].samples = vec![Sample { received_bytes: 7, ..Sample::default() }; 160];
    let merged = merged(reports);
    assert_eq!((merged.hold_s, merged.aborted), (Some((6.0, 8.0)), true));
    assert_eq!((merged.samples.len(), merged.samples[79].received_bytes), (80, 7));
    let metrics = judge(&merged, Players::Trusted).metrics;
    assert_eq!(metrics["received_bit_per_s"], Some(75e6), "each stream over the time that it held");
    assert!((metrics["rebuffer_ratio"].unwrap() - 2.0 / 24.0).abs() < 1e-9);
}

#[test]
fn overlap_is_counted_across_hosts() {
    let mut reports = two();
    for (at, report) in reports.iter_mut().enumerate() {
        // 16 s of hold and warm-up and a cap of 2 s: each host's own are 300 s apart.
        report.overlapping = Some(0);
        report.streams[0].begins_at_s = 10.0 * at as f64;
        report.streams[1].begins_at_s = 300.0 + 100.0 * at as f64;
    }
    assert_eq!(merged(reports).overlapping, Some(2));
}

#[test]
fn merge_rejects_different_content_and_no_measurement() {
    let [one, mut other] = two();
    other.url = "http://mirror/film.ts".into();
    let error = merge(vec![(Some("pc-1"), one), (Some("pc-2"), other)]).unwrap_err().to_string();
    assert!(
        error.contains("pc-1 were redirected to http://nas/film.ts, those on pc-2 to http://mirror"),
        "{error}"
    );
    assert_eq!(merge(vec![]).unwrap_err().to_string(), "the players left no report");

    // If one host has no connection, the host or the network is at fault; if none has one, nothing was
    // measured.
    let lost = |mut report: ViewerReport| {
        for stream in &mut report.streams {
            stream.startup_s = None;
            stream.broken = Some(Broken { at_s: -1.0, message: "Connection refused".into() });
        }
        report
    };
    let [one, other] = two();
    let whole = one.clone();
    let (one, other) = (lost(one), lost(other));
    let judged = |reports: [&ViewerReport; 2]| {
        let reports = [Some("pc-1"), Some("pc-2")].into_iter().zip(reports.map(Clone::clone));
        judge_reports(reports.collect(), Players::Trusted)
    };
    assert_eq!(judged([&whole, &other]).unwrap().verdict, Verdict::Fail);
    let error = judged([&one, &other]).unwrap_err().to_string();
    assert!(error.contains("no stream showed a picture: Connection refused"), "{error}");
}
