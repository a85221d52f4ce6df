//! Measures what tracing adds to a call: a call that does nothing is timed without and with the tracer.

use std::time::Duration;

use base::statistics::median;
use base::timeline::TraceCost;
use sys::clock::Deadline;
use sys::trace::{Backend, Setting, Target, TraceError};

const CALLS_PER_BATCH: u32 = 200;
/// A batch of calls fits into the buffer: an event that finds no room costs less.
const RING_BYTES_LEAST: usize = 64 << 10;

/// Measures it with a tracer of its own, which is closed when this returns. `within` is the total time of the
/// calls, half of them traced, without opening the tracer.
///
/// CPU time of this thread, not elapsed time: it includes the tracer's work in the kernel, and no work of
/// others. Half of the untraced calls come before the traced ones and half after, so that a CPU that becomes
/// faster or slower meanwhile is not taken for the tracer.
pub fn measure(backend: Backend, setting: &Setting, within: Duration) -> Result<TraceCost, TraceError> {
    let quarter = within / 4;
    let ring_bytes = setting.ring_bytes.max(RING_BYTES_LEAST);
    let mut setting = Setting { softirqs: false, ring_bytes, ..setting.clone() };
    let number = sys::trace::NOTHING_CALL;
    if !setting.calls.contains(&number) {
        setting.calls.push(number);
    }
    let mut untraced = batches(quarter, || {});
    let mut tracer = sys::trace::open(backend, &setting)?;
    tracer.start()?;
    tracer.follow(Target::Thread(sys::thread::thread_id()))?;
    let mut events = Vec::new();
    let traced = batches(2 * quarter, || {
        tracer.drain(&mut events);
        events.clear();
    });
    drop(tracer);
    untraced.extend(batches(quarter, || {}));
    let of = untraced.len().min(traced.len());
    let middle = |values: &[f64]| median(values).unwrap_or(0.0);
    Ok(TraceCost { untraced_ns: middle(&untraced), traced_ns: middle(&traced), batches: of })
}

fn batches(within: Duration, mut between: impl FnMut()) -> Vec<f64> {
    let deadline = Deadline::after(within);
    let mut all = Vec::new();
    while !deadline.passed() || all.is_empty() {
        let before_ns = sys::thread::thread_cpu_ns();
        for _ in 0..CALLS_PER_BATCH {
            sys::trace::call_nothing();
        }
        let took_ns = sys::thread::thread_cpu_ns() - before_ns;
        all.push(took_ns as f64 / f64::from(CALLS_PER_BATCH));
        between();
    }
    all
}
