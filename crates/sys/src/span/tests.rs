use std::time::Duration;

use super::ring::SPANS;
use super::*;
use crate::clock::monotonic_ns;

static OUTER: SpanName = SpanName::new("outer");
static INNER: SpanName = SpanName::new("inner");

fn recorded(what: impl FnOnce()) -> Recorded {
    let recorder = Recorder::start(1000);
    let joined = recorder.handle().join();
    what();
    drop(joined);
    recorder.finish("test")
}

fn count(recorded: &Recorded, name: &str, state: CallState) -> u64 {
    let rows = recorded.times.calls.iter().filter(|row| row.name == name && row.state == state);
    rows.map(|row| row.count).sum()
}

#[test]
fn span_times_are_of_the_monotonic_clock() {
    let before_ns = monotonic_ns();
    let recorded = recorded(|| {
        let _outer = enter(&OUTER);
        let _inner = enter(&INNER);
        crate::clock::sleep_until_ns(monotonic_ns() + 20_000_000);
    });
    let after_ns = monotonic_ns();
    let [own] = &recorded.threads[..] else { panic!("{recorded:?}") };
    assert_eq!(own.thread, crate::thread::thread_id().cast_unsigned());
    let [inner, outer] = own.spans[..] else { panic!("{own:?}") };
    assert_eq!((inner.name, outer.name), ("inner", "outer"));
    assert!(outer.from_ns <= inner.from_ns && inner.to_ns <= outer.to_ns, "{own:?}");
    // The time-stamp counter and CLOCK_MONOTONIC are compared at the start and end of the recording, so that
    // they differ by no more than the time that it takes to read them.
    assert!(outer.from_ns + 20_000 >= before_ns && outer.to_ns <= after_ns + 20_000, "{own:?}");
    assert!(outer.to_ns - outer.from_ns >= 19_900_000, "{own:?}");
    let row = &recorded.times.calls[0];
    assert!(row.mean_us >= 19_900.0 && row.wall_share > 0.0 && row.wall_share <= 1.01, "{row:?}");
}

#[test]
fn full_ring_counts_lost_records() {
    let ring = Ring::new();
    for _ in 0..SPANS + 1234 {
        ring.put(1, 2, 4);
    }
    let mut taken = 0;
    ring.take(|_, _, _| taken += 1);
    assert_eq!((taken, ring.lost(), ring.lost()), (SPANS, 1234, 0));
}

#[test]
fn kept_and_lost_spans_add_up() {
    const MADE: u64 = 1_000_000;
    let recorded = recorded(|| (0..MADE).for_each(|_| drop(enter(&OUTER))));
    let times = &recorded.times;
    assert_eq!((times.events + times.events_lost, times.events_counted), (MADE, MADE), "{times:?}");
    let says = |what: &str| times.doubts.iter().any(|doubt| doubt.contains(what));
    assert_eq!((says("were lost"), says("picture is full")), (times.events_lost > 0, true), "{times:?}");
    let kept: usize = recorded.threads.iter().map(|thread| thread.spans.len()).sum();
    assert_eq!(kept, 1000, "no more than were asked for");
}

#[test]
fn recorders_record_only_their_own_threads() {
    let recorders = [Recorder::start(10), Recorder::start(10)];
    let threads = recorders.iter().zip(1..).map(|(recorder, spans)| {
        let handle = recorder.handle();
        let work = move || {
            drop(enter(&OUTER));
            let _joined = handle.join();
            (0..spans).for_each(|_| time(&OUTER, || {}));
        };
        std::thread::Builder::new().name(format!("worker {spans}")).spawn(work).unwrap()
    });
    threads.for_each(|thread| thread.join().unwrap());
    for (spans, recorder) in (1..).zip(recorders) {
        drop(enter(&OUTER));
        let recorded = recorder.finish("worker");
        assert_eq!((recorded.times.events, recorded.times.threads), (spans, 1));
        assert_eq!(recorded.threads[0].name, format!("worker {spans}"));
        let cost = recorded.times.cost.expect("it is measured while it starts");
        assert!(cost.traced_ns > 0.0 && cost.batches > 1, "{cost:?}");
    }
}

#[test]
fn nested_recording_returns_to_the_outer_recorder() {
    let (first, second) = (Recorder::start(0), Recorder::start(0));
    let outer = first.handle().join();
    let inner = second.handle().join();
    time(&INNER, || {});
    drop(inner);
    time(&OUTER, || {});
    drop(outer);
    time(&OUTER, || {});
    let (first, second) = (first.finish("first"), second.finish("second"));
    assert_eq!((first.times.events, second.times.events), (1, 1));
    assert_eq!(second.times.calls[0].name, "inner");
}

#[test]
fn sleeping_spans_are_blocked_and_busy_ones_ready() {
    let recorded = recorded(|| {
        for _ in 0..50 {
            time(&OUTER, || {
                time(&INNER, || {});
                std::thread::sleep(Duration::from_micros(50));
                time(&INNER, || {});
            });
        }
    });
    if !off_cpu::is_supported() {
        assert_eq!(count(&recorded, "outer", CallState::Unknown), 50);
        return;
    }
    assert_eq!(count(&recorded, "outer", CallState::Blocked), 50, "{:#?}", recorded.times);
    // Other programs rarely take the CPU during an empty span.
    assert!(count(&recorded, "inner", CallState::Ready) >= 90, "{:#?}", recorded.times);
}

#[test]
fn discarded_span_is_not_recorded() {
    let recorded = recorded(|| {
        enter(&OUTER).discard();
        drop(enter(&INNER));
    });
    assert_eq!((recorded.times.events_counted, recorded.times.calls[0].name.as_str()), (1, "inner"));
}

#[test]
fn span_report_round_trips() {
    let recorded = recorded(|| time(&OUTER, || {}));
    let report = serde_json::to_value(&recorded.times).unwrap();
    assert_eq!(serde_json::from_value::<base::timeline::CallTimes>(report).unwrap(), recorded.times);
}

#[test]
fn span_record_fits_a_word() {
    for state in [CallState::Ready, CallState::Blocked, CallState::Unknown] {
        let what = What { number: u32::MAX >> 2, state };
        assert_eq!(What::unpacked(what.packed()), what);
    }
}
