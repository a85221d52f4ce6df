//! The clocks' bound between network namespaces, whose true difference is 0.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fleet::clock::{Batch, BatchRequest, BatchResult, DatagramAddress, Key, Prober, Responder};

use super::fixture::{Fixture, Lab};
use super::{Found, Settings};
use crate::noise::Meter;
use crate::record::Row;

/// Every probe is asked, whatever the bound.
const ALL: BatchRequest = BatchRequest { count: 64, good_ns: 0, within: Duration::from_secs(20) };
/// Threads that ask at the same time, in the case of many probes.
const PROBERS: u32 = 8;
const LEFT: &str = "left";
const RIGHT: &str = "right";

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let text = format!(
        "agents = false\n[host.{LEFT}]\n[host.{RIGHT}]\n[[link]]\nbetween = [\"{LEFT}\", \"{RIGHT}\"]\n"
    );
    let lab = fixture.lab("bench-clock", &text)?;
    let key = Key::random();
    let udp = DatagramAddress::Udp(format!("{}:0", lab.address(LEFT)?).parse()?);
    let unix = DatagramAddress::Unix(lab.state.folder.join("clock.sock"));
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let (mut probes, mut wrong) = (0, 0);
    for (address, way) in [(udp, "UDP over a virtual link"), (unix, "UNIX socket")] {
        let responder = lab.within(LEFT, || Responder::start(&address, key.clone()))??;
        for (load, is_loaded) in [("idle", false), ("both cores busy", true)] {
            settings.pace.await_quiet()?;
            let mut row = Row::new(format!("bound, {way}, {load}"), "us");
            let meter = Meter::start(0)?;
            let target = responder.address();
            let batches = settings.pace.full_or(settings.repeat * 10, 5);
            let ask = || lab.within(RIGHT, || probe(target, &key, BatchRequest::default(), batches));
            let probed = if is_loaded { on_a_busy_machine(ask) } else { ask() }??;
            row.noise.push(meter.finish(0)?);
            let found: Vec<Batch> = probed.iter().filter_map(|probed| probed.batch).collect();
            row.ours = found.iter().map(|batch| batch.bound_ns() as f64 / 1e3).collect();
            rows.push(row.goal_each("<= 20 us, each"));
            let many = settings.pace.full_or(400, 2);
            let crowd = || many_probes(&lab, target, &key, many);
            let more = if is_loaded { on_a_busy_machine(crowd) } else { crowd() }?;
            let lost: u32 = more.iter().map(|probed| probed.lost).sum();
            let all = [probed, more].concat();
            let asked: u32 = all.iter().map(|probed| probed.sent).sum();
            let violated = violations(&all);
            notes.push(format!(
                "{way}, {load}: {asked} probes, {lost} lost, {violated} batches contradict the truth"
            ));
            (probes, wrong) = (probes + asked, wrong + violated);
        }
    }
    let truth = Row::single(format!("edges beyond the truth, {probes} probes"), "", wrong as f64);
    rows.push(truth.goal_each("0"));
    Ok(Found::about(
        "A prober in one network namespace asks a responder in another; both read the one clock of \
                   one kernel, so that the true difference is 0 and a violated bound shows. A batch ends at \
                   64 probes or at a bound of 5 us, as in a run. Busy is a thread for each core that never \
                   rests.",
    )
    .with_rows(rows)
    .with_notes(notes))
}

fn probe(
    target: &DatagramAddress,
    key: &Key,
    ask: BatchRequest,
    batches: u32,
) -> anyhow::Result<Vec<BatchResult>> {
    let mut prober = Prober::open(target, key.clone())?;
    (0..batches).map(|_| Ok(prober.batch(ask)?)).collect()
}

/// Batches of many probers at the same time.
fn many_probes(
    lab: &Lab,
    target: &DatagramAddress,
    key: &Key,
    batches: u32,
) -> anyhow::Result<Vec<BatchResult>> {
    let one = || lab.within(RIGHT, || probe(target, key, ALL, batches / PROBERS.min(batches)))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PROBERS).map(|_| scope.spawn(one)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

/// Of a batch's edges the innermost are kept, so that each stands for all of its probes.
fn violations(probed: &[BatchResult]) -> usize {
    let batches = probed.iter().filter_map(|probed| probed.batch);
    batches.filter(|batch| batch.lower.offset_ns > 0 || batch.upper.offset_ns < 0).count()
}

/// Does `work` while every CPU is busy.
fn on_a_busy_machine<T>(work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}
