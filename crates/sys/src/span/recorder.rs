//! Summarises the spans of threads while they record.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::timeline::{CallRow, CallState, CallTimes, IN_PROCESS, Times, TraceCost};

use super::clock::{self, Anchor};
use super::ring::{Ring, SPANS};
use super::{Joined, Span, SpanName, ThreadSpans, What, names, off_cpu};
use crate::clock::monotonic_ns;
use crate::thread::thread_cpu_ns;

/// How often rings are emptied: a thread would need to make a span every 150 ns to fill its own.
const EVERY: Duration = Duration::from_millis(10);

/// Records the threads that [join](Handle::join) it, and sums their spans up on a thread of its own.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    summing: Option<JoinHandle<Sum>>,
    began_ns: u64,
}

/// Threads join a [`Recorder`] with it.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Shared>);

#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub times: CallTimes,
    /// When the last span of it ended, monotonic ns; 0 where there is none.
    pub last_ns: u64,
    /// The first spans, up to the requested number.
    pub threads: Vec<ThreadSpans>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rings: Vec<Arc<Ring>>,
    threads: u64,
    is_over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Records this thread from now on, until what is returned is dropped. Takes 2 MiB of memory.
    pub fn join(&self) -> Joined {
        let ring = Arc::new(Ring::new());
        let mut state = self.0.state();
        state.threads += 1;
        state.rings.push(Arc::clone(&ring));
        drop(state);
        Joined::with(ring)
    }
}

impl Recorder {
    /// Starts recording. The first `spans_max` spans are kept beside the table.
    pub fn start(spans_max: usize) -> Self {
        clock::choose();
        off_cpu::is_supported();
        let shared = Arc::new(Shared::default());
        let summed = Arc::clone(&shared);
        let began_ns = monotonic_ns();
        let sum = Sum::new(spans_max);
        let summing = std::thread::Builder::new().name("spans".into()).spawn(move || sum.whole(&summed));
        Self { shared, summing: summing.ok(), began_ns }
    }

    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Stops recording and summarises. `target` names the owner of the spans. Spans that have not ended are
    /// left out.
    pub fn finish(mut self, target: &str) -> Recorded {
        let ended_ns = monotonic_ns();
        let sum = self.end();
        let was_summed = sum.is_some();
        let threads = self.shared.state().threads;
        let wall_ns = ended_ns.saturating_sub(self.began_ns);
        let mut recorded = sum.unwrap_or_else(|| Sum::new(0)).recorded(target, wall_ns, threads);
        if !was_summed {
            recorded
                .times
                .doubts
                .push("cannot start a thread to summarise the spans, so none is shown".to_owned());
        }
        recorded
    }

    fn end(&mut self) -> Option<Sum> {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        self.summing.take()?.join().ok()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug)]
struct Sum {
    began: Anchor,
    times: BTreeMap<(u32, CallState), Times>,
    last_ns: u64,
    threads: Vec<ThreadSpans>,
    room: usize,
    left_out: u64,
    lost: u64,
    cost: TraceCost,
}

impl Sum {
    fn new(spans_max: usize) -> Self {
        Self {
            began: Anchor::now(),
            times: BTreeMap::new(),
            last_ns: 0,
            threads: Vec::new(),
            room: spans_max,
            left_out: 0,
            lost: 0,
            cost: TraceCost { untraced_ns: 0.0, traced_ns: 0.0, batches: 0 },
        }
    }

    /// Collects spans until the recording stops.
    fn whole(mut self, shared: &Shared) -> Self {
        self.cost = cost_of_a_span();
        loop {
            let state = shared.state();
            let waited = shared.changed.wait_timeout_while(state, EVERY, |state| !state.is_over);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let (rings, is_over) = (state.rings.clone(), state.is_over);
            drop(state);
            self.take(&rings);
            drop(rings);
            if is_over {
                return self;
            }
            // A ring that only this list still holds belongs to a thread that has left. It may have written
            // since.
            let mut state = shared.state();
            let left: Vec<_> = state.rings.extract_if(.., |ring| Arc::strong_count(ring) == 1).collect();
            drop(state);
            self.take(&left);
        }
    }

    fn take(&mut self, rings: &[Arc<Ring>]) {
        let line = self.began.line_to(&Anchor::now());
        let names = names().clone();
        for ring in rings {
            let mut kept = Vec::new();
            ring.take(|from, to, what| {
                let What { number, state } = What::unpacked(what);
                let (from_ns, to_ns) = (line.ns_of(from), line.ns_of(to));
                self.last_ns = self.last_ns.max(to_ns);
                self.times.entry((number, state)).or_default().add(to_ns.saturating_sub(from_ns));
                if self.room > 0 {
                    self.room -= 1;
                    kept.push(Span { name: name_of(&names, number), from_ns, to_ns, state });
                } else {
                    self.left_out += 1;
                }
            });
            let lost = ring.lost();
            self.lost += lost;
            if !kept.is_empty() || lost > 0 {
                let of_thread = self.of_thread(ring);
                of_thread.spans.append(&mut kept);
                of_thread.lost += lost;
            }
        }
    }

    fn of_thread(&mut self, ring: &Ring) -> &mut ThreadSpans {
        let known = self.threads.iter().position(|of| of.thread == ring.thread && of.name == ring.name);
        let place = known.unwrap_or_else(|| {
            let (thread, name) = (ring.thread, ring.name.clone());
            self.threads.push(ThreadSpans { thread, name, ..ThreadSpans::default() });
            self.threads.len() - 1
        });
        &mut self.threads[place]
    }

    fn recorded(self, target: &str, wall_ns: u64, threads: u64) -> Recorded {
        let names = names().clone();
        let row = |(&(number, state), times): (&(u32, CallState), &Times)| {
            times.row(name_of(&names, number).to_owned(), state, wall_ns)
        };
        let mut calls: Vec<CallRow> = self.times.iter().map(row).collect();
        calls.sort_by(|a, b| b.wall_share.total_cmp(&a.wall_share));
        let counted: u64 = self.times.values().map(Times::count).sum();
        let mut doubts = Vec::new();
        if self.lost > 0 {
            doubts.push(format!(
                "{} of {} spans came faster than they could be taken and were lost: the table is of the rest",
                self.lost,
                counted + self.lost
            ));
        }
        if self.left_out > 0 && !self.threads.is_empty() {
            doubts.push(format!(
                "the picture is full: {} spans are not in it; the table has them",
                self.left_out
            ));
        }
        let cost_ns = self.cost.traced_ns - self.cost.untraced_ns;
        let times = CallTimes {
            target: target.to_owned(),
            ended: None,
            wall_s: wall_ns as f64 / 1e9,
            processes: 1,
            threads,
            calls,
            softirqs: Vec::new(),
            unfinished: Vec::new(),
            backend: IN_PROCESS.to_owned(),
            backend_because: None,
            events_counted: counted + self.lost,
            events: counted,
            events_lost: self.lost,
            calls_lost: self.lost,
            cost_ns_per_call: Some(cost_ns).filter(|ns| *ns > 0.0),
            cost: Some(self.cost).filter(|cost| cost.batches > 0),
            doubts,
        };
        Recorded { times, last_ns: self.last_ns, threads: self.threads }
    }
}

fn name_of(names: &[&'static str], number: u32) -> &'static str {
    names.get((number as usize).wrapping_sub(1)).copied().unwrap_or("")
}

/// The CPU time of an empty span on this machine, while recording and while not.
fn cost_of_a_span() -> TraceCost {
    const BATCHES: usize = 50;
    const SPANS_OF_BATCH: u32 = 500;
    static NOTHING: SpanName = SpanName::new("nothing");
    let batch = |name: Option<&SpanName>| {
        let before_ns = thread_cpu_ns();
        for _ in 0..SPANS_OF_BATCH {
            match name {
                Some(name) => super::time(name, || std::hint::black_box(())),
                None => std::hint::black_box(()),
            }
        }
        (thread_cpu_ns() - before_ns) as f64 / f64::from(SPANS_OF_BATCH)
    };
    const { assert!(BATCHES * (SPANS_OF_BATCH as usize) < SPANS, "the ring holds them all") }
    let joined = Joined::with(Arc::new(Ring::new()));
    let (untraced, traced): (Vec<f64>, Vec<f64>) =
        (0..BATCHES).map(|_| (batch(None), batch(Some(&NOTHING)))).unzip();
    drop(joined);
    let median = |values: &[f64]| base::statistics::median(values).unwrap_or(0.0);
    TraceCost { untraced_ns: median(&untraced), traced_ns: median(&traced), batches: BATCHES }
}
