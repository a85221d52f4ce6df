use super::*;
use crate::recorder::OrderTimes;
use crate::report::Cause;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
const SOURCES: u32 = 10;

fn plan() -> RecorderPlan {
    RecorderPlan {
        sources: SOURCES,
        carrier: Carrier::Tcp,
        front_ends: 0,
        is_push: true,
        fragment_bytes: 1024,
        queue_full_ns: None,
        start_ns: 1_000 * MS,
        window: None,
    }
}

/// A usual event: sources send 100 us apart, each transit takes 50 us.
fn usual(due_ns: u64) -> Vec<ArrivedFragment> {
    let fragment = |source: u32| {
        let sent_ns = due_ns + u64::from(source + 1) * 100 * US;
        ArrivedFragment {
            source,
            payload_bytes: 1024,
            sent_ns: Some(sent_ns),
            arrived_ns: sent_ns + 50 * US,
            recovered: false,
        }
    };
    (0..SOURCES).map(fragment).collect()
}

/// Records an event whose sources were all ordered at its trigger, and perhaps again later.
fn record(
    collect: &mut TrialRecorder,
    event: u64,
    due_ns: u64,
    again_ns: Option<u64>,
    fragments: Vec<ArrivedFragment>,
) -> EventTimes {
    let mut ordered = OrderTimes::default();
    ordered.add(0, SOURCES, due_ns);
    if let Some(again_ns) = again_ns {
        ordered.add_repeated(0, SOURCES, again_ns);
    }
    let missing: Vec<u32> =
        (0..SOURCES).filter(|source| fragments.iter().all(|fragment| fragment.source != *source)).collect();
    let last_ns = fragments.iter().map(|fragment| fragment.arrived_ns).max().unwrap_or(due_ns);
    let ended_ns = if missing.is_empty() { last_ns } else { due_ns + 1_000 * MS };
    collect.triggered(due_ns);
    let ended = EndedEvent {
        event,
        due_ns,
        triggers_late_ns: 0,
        ended_ns,
        order_times: &ordered,
        missing: &missing,
        gone: false,
        read_late_ns: 0,
        was_requested: false,
    };
    collect.ended(&ended, fragments.into_iter())
}

#[test]
fn report_counts_the_hold_only() {
    let mut collect = TrialRecorder::new(plan());
    let measured = record(&mut collect, 0, 1_001 * MS, None, usual(1_001 * MS));
    let expected =
        EventTimes { took_ns: 1050 * US, transit_ns: 50 * US, spread_ns: 900 * US, wire_bytes: 11_540 };
    assert_eq!(measured, expected, "also before the hold");
    collect.begin_hold(2_000 * MS, Some(1_000 * MS), true);
    for event in 1..=100 {
        let due_ns = (2_000 + event * 2) * MS;
        record(&mut collect, event, due_ns, None, usual(due_ns));
    }
    collect.vetoed(2_100 * MS, 3);
    collect.vetoed(1_900 * MS, 3);
    collect.triggered(2_300 * MS);
    collect.unfinished(2_300 * MS);
    collect.held_until(2_201 * MS);
    collect.report.builder = 7;
    let report = collect.report();
    let events = report.events;
    assert_eq!((events.offered, events.vetoed, events.triggered), (104, 3, 101));
    assert_eq!((events.complete, events.incomplete, events.unfinished), (100, 0, 1));
    assert_eq!((report.fragments, report.payload_bytes, report.wire_bytes), (1000, 1_024_000, 1_154_000));
    assert_eq!((report.completion.count(), report.recovery.count(), report.builder), (100, 0, 7));
    assert!(report.completion.percentile_ns(50.0).is_some_and(|ns| ns.abs_diff(1050 * US) < 2 * US));
    assert!(report.first_fragment.max_ns().is_some_and(|ns| ns.abs_diff(150 * US) < US));
    assert!(report.skew.max_ns().is_some_and(|ns| ns.abs_diff(900 * US) < 2 * US));
    assert!(report.skews.len() == 100 && report.skews[0] == (1, 900 * US));
    assert!((report.hold_from_s - 1.0).abs() < 1e-9 && (report.hold_to_s - 1.201_05).abs() < 1e-9);
    let seen = &report.sources_seen;
    assert!(seen.iter().map(|seen| seen.last).eq([0, 0, 0, 0, 0, 0, 0, 0, 0, 100]));
    assert!(seen.iter().all(|seen| seen.fragments == 100 && seen.missed == 0));
    assert!((seen[3].delay_mean_us.unwrap() - 450.0).abs() < 1e-6);
    assert!((seen[3].delay_p99_us.unwrap() / 450.0 - 1.0).abs() < 0.017);
    let p99_us = report.completion.percentile_ns(99.0).unwrap() as f64 / 1e3;
    assert!(seen.iter().all(|seen| seen.delay_p99_us.unwrap() <= p99_us), "at most the events' own");
    assert!(report.causes.is_empty() && report.slow.is_empty() && report.incomplete.is_empty());
    assert_eq!(report.intervals.iter().map(|interval| interval.complete).sum::<u64>(), 100);
    assert_eq!(report.intervals.iter().map(|interval| interval.vetoed).sum::<u64>(), 3);
    assert!(report.heat.len() > 32 && report.heat.iter().all(|(_, delays)| delays[9] == Some(1050)));
    assert!(report.pictures.iter().all(|picture| picture.arrivals.len() == 10 && picture.complete));
}

#[test]
fn slow_events_get_their_cause_and_source() {
    let mut collect = TrialRecorder::new(plan());
    collect.begin_hold(1_000 * MS, None, true);
    let mut expected = Vec::new();
    for event in 0..200_u64 {
        let due_ns = (1_000 + event * 300) * MS;
        let mut fragments = usual(due_ns);
        let mut again_ns = None;
        match event {
            // Before the median is known.
            3 | 50 => {
                fragments[4].sent_ns = Some(due_ns + 40 * MS);
                fragments[4].arrived_ns = due_ns + 41 * MS;
                expected.push((event, Cause::Host, 4));
            }
            60 => {
                fragments[2].arrived_ns += 205 * MS;
                expected.push((event, Cause::TailLossProbe, 2));
            }
            70 => {
                again_ns = Some(due_ns + 5 * MS);
                for fragment in &mut fragments {
                    fragment.sent_ns = fragment.sent_ns.map(|sent_ns| sent_ns + 5 * MS);
                    fragment.arrived_ns += 5 * MS;
                    fragment.recovered = true;
                }
                expected.push((event, Cause::Order, 9));
            }
            80 => {
                fragments.retain(|fragment| fragment.source != 6);
                expected.push((event, Cause::RetransmissionTimeout, 6));
            }
            _ => {}
        }
        fragments.sort_by_key(|fragment| fragment.arrived_ns);
        record(&mut collect, event, due_ns, again_ns, fragments);
    }
    let report = collect.report();
    let mut found: Vec<_> = report.slow.iter().map(|slow| (slow.event, slow.cause, slow.source)).collect();
    found.sort_by_key(|(event, ..)| *event);
    assert_eq!(found, expected);
    assert_eq!(report.causes.values().sum::<u64>(), 5);
    assert!(report.slow.is_sorted_by(|a, b| a.took_ns >= b.took_ns));
    assert_eq!((report.recovered, report.recovery.count()), (1, 10));
    let given_up = Incomplete { event: 80, missing: 1, sources: vec![6] };
    assert_eq!((report.incomplete, report.sources_seen[6].missed), (vec![given_up], 1));
    let worst = report.pictures.last().expect("a picture of the worst");
    assert_eq!((worst.event, worst.complete, worst.arrivals.len()), (80, false, 9));
    let heat = report.heat.iter().find(|(event, _)| *event == 80).expect("the worst is in the heat map");
    assert_eq!((heat.1[6], heat.1[0]), (None, Some(150)));
}

#[test]
fn unknown_clocks_and_invalid_sources_are_tolerated() {
    let mut collect = TrialRecorder::new(plan());
    collect.begin_hold(1_000 * MS, None, true);
    let mut fragments = usual(1_500 * MS);
    for fragment in &mut fragments {
        fragment.sent_ns = None;
    }
    record(&mut collect, 1, 1_500 * MS, None, fragments);
    let early =
        ArrivedFragment { source: 77, payload_bytes: 5, sent_ns: Some(0), arrived_ns: 0, recovered: true };
    record(&mut collect, 2, 1_600 * MS, None, vec![early]);
    record(&mut collect, 3, 1_700 * MS, None, Vec::new());
    let report = collect.report();
    assert_eq!((report.events.complete, report.events.incomplete, report.skew.count()), (1, 2, 0));
    let report = TrialRecorder::new(plan()).report();
    assert!(report.intervals.is_empty() && report.heat.is_empty() && report.pictures.is_empty());
}

#[test]
fn frequent_stalls_do_not_become_the_usual_delay() {
    let mut collect = TrialRecorder::new(plan());
    collect.begin_hold(2_000 * MS, None, true);
    for event in 1..=40 {
        let due_ns = (2_000 + event * 300) * MS;
        let mut fragments = usual(due_ns);
        if event % 8 > 0 {
            fragments[9].arrived_ns += 220 * MS;
            fragments[3].sent_ns = Some(due_ns + 5 * MS);
            fragments[3].arrived_ns = due_ns + 6 * MS;
            fragments.sort_by_key(|fragment| fragment.arrived_ns);
        }
        record(&mut collect, event, due_ns, None, fragments);
    }
    let report = collect.report();
    assert_eq!(report.causes, [(Cause::TailLossProbe, 35)].into());
    assert!(report.slow.iter().all(|slow| slow.source == 9), "{:?}", report.slow);
}

#[test]
fn faults_of_front_ends_are_unknown_or_silent_without_a_witness() {
    let mut collect = TrialRecorder::new(RecorderPlan { front_ends: 2, ..plan() });
    collect.begin_hold(1_000 * MS, None, true);
    for event in 0..100_u64 {
        let due_ns = (1_000 + event * 300) * MS;
        let mut fragments = usual(due_ns);
        match event {
            // As with a tail-loss probe; and the same of one of kagiri's own sources.
            40 => fragments[9].arrived_ns += 205 * MS,
            50 => fragments[2].arrived_ns += 205 * MS,
            60 => fragments.retain(|fragment| fragment.source != 8),
            70 => {
                (fragments[9].sent_ns, fragments[9].arrived_ns) = (None, due_ns + 90 * MS);
            }
            _ => {}
        }
        fragments.sort_by_key(|fragment| fragment.arrived_ns);
        record(&mut collect, event, due_ns, None, fragments);
    }
    let report = collect.report();
    let mut found: Vec<_> = report.slow.iter().map(|slow| (slow.event, slow.cause, slow.source)).collect();
    found.sort_by_key(|(event, ..)| *event);
    let expected = [
        (40, Cause::Unknown, 9),
        (50, Cause::TailLossProbe, 2),
        (60, Cause::Silent, 8),
        (70, Cause::Unknown, 9),
    ];
    assert_eq!(found, expected);
}

#[test]
fn delay_of_a_granted_source_counts_from_its_grant() {
    let mut collect = TrialRecorder::new(RecorderPlan { is_push: false, ..plan() });
    collect.begin_hold(1_000 * MS, None, true);
    let mut ordered = OrderTimes::default();
    ordered.add(0, 5, 2_000 * MS);
    ordered.add(5, 5, 2_000 * MS + 500 * US);
    collect.triggered(2_000 * MS);
    let ended = EndedEvent {
        event: 1,
        due_ns: 2_000 * MS,
        triggers_late_ns: 0,
        ended_ns: 2_002 * MS,
        order_times: &ordered,
        missing: &[],
        gone: false,
        read_late_ns: 0,
        was_requested: false,
    };
    collect.ended(&ended, usual(2_000 * MS).into_iter());
    let means: Vec<_> = collect.report().sources_seen.iter().map(|seen| seen.delay_mean_us).collect();
    assert_eq!((means[4], means[5], means[9]), (Some(550.0), Some(150.0), Some(550.0)));
}
