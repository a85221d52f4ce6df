//! What tracing adds to a call: a call that does nothing is timed without and with the tracer.

use base::timeline::TraceCost;
use sys::trace::{Backend, Setting, Target, TraceError};

/// How long the calls are made altogether: half of it traced.
const FOR_NS: u64 = 200_000_000;
/// Few enough that the smallest ring holds a batch.
const CALLS_PER_BATCH: u32 = 200;

/// Measures it with a tracer of its own, which is closed when this returns. Takes [`FOR_NS`] and the time to open the
/// tracer twice.
///
/// The CPU time of this thread is taken, not the wall's: it includes the tracer's work in the kernel, and nothing that
/// others do meanwhile. Half of the untraced calls come before the traced ones and half after, so that a CPU that becomes
/// faster or slower meanwhile is not taken for the tracer.
///
/// # Errors
/// The tracer cannot be opened.
pub fn measure(backend: Backend, setting: &Setting) -> Result<TraceCost, TraceError> {
    let mut setting = Setting { softirqs: false, ..setting.clone() };
    let number = sys::trace::NOTHING_CALL;
    if !setting.calls.contains(&number) {
        setting.calls.push(number);
    }
    let mut untraced = batches(FOR_NS / 4, || {});
    let mut tracer = sys::trace::open(backend, &setting)?;
    tracer.start()?;
    tracer.follow(Target::Thread(sys::thread::thread_id()))?;
    let mut events = Vec::new();
    let mut traced = batches(FOR_NS / 2, || {
        tracer.drain(&mut events);
        events.clear();
    });
    drop(tracer);
    untraced.extend(batches(FOR_NS / 4, || {}));
    let of = untraced.len().min(traced.len());
    Ok(TraceCost { untraced_ns: median(&mut untraced), traced_ns: median(&mut traced), batches: of })
}

/// CPU time per call, ns, of batch after batch.
fn batches(for_ns: u64, mut between: impl FnMut()) -> Vec<f64> {
    let until_ns = sys::clock::monotonic_ns() + for_ns;
    let mut all = Vec::new();
    while sys::clock::monotonic_ns() < until_ns || all.is_empty() {
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

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
