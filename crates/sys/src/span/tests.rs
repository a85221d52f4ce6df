use std::sync::{Mutex, PoisonError};

use super::ring::SPANS;
use super::*;
use crate::clock::monotonic_ns;

/// There is one recording in a process.
static ALONE: Mutex<()> = Mutex::new(());

static OUTER: SpanName = SpanName::new("outer");
static INNER: SpanName = SpanName::new("inner");

fn of_thread(threads: Vec<ThreadSpans>, thread: i32) -> ThreadSpans {
    let found = threads.into_iter().find(|spans| spans.thread == thread.cast_unsigned());
    found.expect("the thread made spans")
}

#[test]
fn spans_have_the_monotonic_clocks_times() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let recording = record();
    let before_ns = monotonic_ns();
    {
        let _outer = enter(&OUTER);
        let _inner = enter(&INNER);
        crate::clock::sleep_until_ns(monotonic_ns() + 20_000_000);
    }
    let after_ns = monotonic_ns();
    let own = of_thread(recording.drain(), crate::thread::thread_id());
    assert_eq!(own.spans.iter().map(|span| span.name).collect::<Vec<_>>(), ["inner", "outer"]);
    let [inner, outer] = own.spans[..] else { panic!("{own:?}") };
    assert!(outer.from_ns <= inner.from_ns && inner.to_ns <= outer.to_ns, "{own:?}");
    // The two clocks are compared at both ends, so that they can differ by no more than it takes to read them.
    assert!(outer.from_ns + 20_000 >= before_ns && outer.to_ns <= after_ns + 20_000, "{own:?}");
    assert!(outer.to_ns - outer.from_ns >= 19_900_000, "{own:?}");
}

#[test]
fn a_full_ring_counts_what_it_loses() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let recording = record();
    let thread = std::thread::Builder::new().name("busy".into()).spawn(|| {
        for _ in 0..SPANS + 1234 {
            drop(enter(&OUTER));
        }
        crate::thread::thread_id()
    });
    let thread = thread.unwrap().join().unwrap();
    let busy = of_thread(recording.drain(), thread);
    assert_eq!((busy.spans.len(), busy.lost, busy.name.as_str()), (SPANS, 1234, "busy"));
    assert!(recording.drain().iter().all(|spans| spans.thread != thread.cast_unsigned()), "told once");
}

#[test]
fn nothing_is_kept_while_nobody_records() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    drop(record());
    drop(enter(&OUTER));
    let own = crate::thread::thread_id().cast_unsigned();
    assert!(record().drain().iter().all(|spans| spans.thread != own));
}
