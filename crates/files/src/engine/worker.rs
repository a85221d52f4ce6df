//! One thread of a program: its rounds of flowops, their times, and what ends them.

mod failures;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::pace::OpenLoop;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use reactor::ThreadControl;
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::thread::{thread_id, thread_ready_ns};
use wml::Kind;

use super::compile::{Planned, Scope, ThreadPlan, Work};
use super::flowops::fault::Fault;
use super::flowops::file_ops::FileOps;
use super::flowops::shared::{RunTimes, Shared};
use super::priorities;
use super::recorder::RowCounts;
use super::report::{CpuReport, Ended};

/// A sleep looks at least so often whether the run is over.
const LOOK_NS: u64 = 200_000_000;
/// Passes of `hog` between two looks at the clock.
const HOG_BATCH: u64 = 1 << 16;

/// The thread has ended.
struct Stop;

/// What a thread counted.
pub(super) struct ThreadReport {
    pub rows: Vec<RowCounts>,
    pub cpu: CpuReport,
    pub intervals: Vec<u64>,
    pub rounds: u64,
    pub late_rounds: u64,
    /// When it ended.
    pub end_ns: u64,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    plan: ThreadPlan,
    /// Among all threads.
    number: usize,
    files: FileOps,
    rows: Vec<RowCounts>,
    from_ns: u64,
    to_ns: u64,
    interval_ns: u64,
    intervals: Vec<u64>,
    /// The end of the current interval.
    interval_end_ns: u64,
    /// How late the current round began, of an open loop.
    late_ns: u64,
    /// End of the last flowop.
    last_ns: u64,
    operations: u64,
    ios: u64,
    bytes: u64,
    /// By limit: what it has seen of the thread's operations.
    marks: Vec<u64>,
    cpu_from: Option<(Usage, Option<u64>)>,
}

impl Worker {
    /// # Errors
    /// As [`FileOps::new`].
    pub(super) fn new(
        shared: Arc<Shared>,
        plan: ThreadPlan,
        number: usize,
        interval_ns: u64,
    ) -> std::io::Result<Self> {
        let seed = shared.settings.seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut files = FileOps::new(shared.clone(), seed, plan.slots, plan.memory_bytes)?;
        // Not by the thread, which may be late for the start then.
        files.touch_memory();
        Ok(Self {
            files,
            rows: vec![RowCounts::default(); shared.compiled.rows.len()],
            from_ns: 0,
            to_ns: 0,
            interval_ns,
            intervals: vec![0],
            interval_end_ns: 0,
            late_ns: 0,
            last_ns: 0,
            operations: 0,
            ios: 0,
            bytes: 0,
            marks: vec![0; plan.limits],
            cpu_from: None,
            shared,
            plan,
            number,
        })
    }

    pub(super) fn run(mut self, control: &ThreadControl) -> ThreadReport {
        self.shared.ids[self.number].store(thread_id(), Ordering::Relaxed);
        if let Err(why) = priorities::set(&self.plan) {
            self.shared.end(Ended::Failed(why));
        }
        if self.shared.settings.omit_ns == 0 {
            // Before the start: of more threads than the CPUs can serve, many are ready for long before they
            // run for the first time.
            self.mark_cpu();
        }
        let is_started = control.sleep_until_start().unwrap_or(false);
        let shared = self.shared.clone();
        let times = shared.times(control.start_ns());
        (self.from_ns, self.to_ns, self.files.to_ns) = (times.from_ns, times.to_ns, times.to_ns);
        self.interval_end_ns = self.from_ns + self.interval_ns;
        let (mut rounds, mut late_rounds) = (0, 0);
        let pacer =
            shared.settings.rate_per_s.zip(shared.compiled.counted_per_round()).map(|(rate, counted)| {
                OpenLoop::new(rate / counted.max(1.0), times.start_ns, self.number, shared.live.len())
            });
        let work = self.plan.work.clone();
        while is_started && !self.is_over() {
            if let Some(pacer) = &pacer {
                if !self.wait_for_round(pacer, rounds) {
                    break;
                }
                late_rounds += u64::from(self.late_ns > pacer.late_ns());
            }
            rounds += 1;
            if work.iter().any(|planned| self.run_planned(planned, times).is_err()) {
                break;
            }
        }
        self.finish_writes();
        self.report(rounds, late_rounds)
    }

    fn is_over(&mut self) -> bool {
        self.last_ns = monotonic_ns();
        self.shared.is_over() || self.last_ns >= self.to_ns
    }

    /// Waits until the round is due; `false`: that is after the end.
    fn wait_for_round(&mut self, pacer: &OpenLoop, round: u64) -> bool {
        let intended_ns = pacer.moment_ns(round);
        if intended_ns >= self.to_ns {
            // The run lasts as long as it was to, however few rounds its rate has.
            if self.sleep_until(self.to_ns) {
                self.last_ns = self.to_ns;
            }
            return false;
        }
        if !self.sleep_until(intended_ns) {
            return false;
        }
        self.late_ns = monotonic_ns().saturating_sub(intended_ns);
        true
    }

    /// `false`: the run ended before.
    fn sleep_until(&self, at_ns: u64) -> bool {
        let until_ns = at_ns.min(self.to_ns);
        loop {
            let now_ns = monotonic_ns();
            if self.shared.is_over() {
                return false;
            }
            if now_ns >= until_ns {
                return at_ns <= self.to_ns;
            }
            sleep_until_ns(until_ns.min(now_ns + LOOK_NS));
        }
    }

    fn run_planned(&mut self, planned: &Planned, times: &RunTimes) -> Result<(), Stop> {
        for _ in 0..planned.iterations.draw(&mut self.files.rng) {
            match &planned.work {
                Work::Kind(kind) => self.run_kind(planned, *kind, times)?,
                Work::Composite(below) => {
                    below.iter().try_for_each(|planned| self.run_planned(planned, times))?
                }
            }
            if self.shared.is_over() || self.last_ns >= self.to_ns {
                return Err(Stop);
            }
        }
        Ok(())
    }

    #[inline]
    fn run_kind(&mut self, planned: &Planned, kind: Kind, times: &RunTimes) -> Result<(), Stop> {
        let outcome = if kind.is_counted() {
            self.files.perform(planned, kind)
        } else {
            self.files.begin_ns = monotonic_ns();
            self.coordinate(planned, kind, times)
        };
        match outcome {
            Ok(bytes) => {
                self.count(planned.row, kind, bytes);
                Ok(())
            }
            Err(fault) => self.fail(planned, fault),
        }
    }

    #[inline]
    fn count(&mut self, row: usize, kind: Kind, bytes: u64) {
        let end_ns = monotonic_ns();
        self.last_ns = end_ns;
        let counts = &mut self.rows[row];
        counts.all_count += 1;
        counts.all_bytes += bytes;
        counts.failures = 0;
        let is_counted = kind.is_counted();
        if is_counted {
            self.operations += 1;
            self.ios += u64::from(kind.reads() || kind.writes());
            self.bytes += bytes;
            // This thread alone writes it.
            self.shared.live[self.number].0.store(self.operations, Ordering::Relaxed);
        }
        if let Some(tallies) = self.plan.tallies.get(row) {
            tallies.iter().for_each(|tally| tally.add(bytes));
        }
        if end_ns < self.from_ns || end_ns > self.to_ns {
            return;
        }
        counts.count(end_ns.saturating_sub(self.files.begin_ns) + self.late_ns, bytes);
        if self.cpu_from.is_none() {
            self.mark_cpu();
        }
        if is_counted {
            while end_ns >= self.interval_end_ns {
                self.interval_end_ns += self.interval_ns;
                self.intervals.push(0);
            }
            if let Some(last) = self.intervals.last_mut() {
                *last += 1;
            }
        }
    }

    fn mark_cpu(&mut self) {
        self.cpu_from = getrusage(UsageWho::RUSAGE_THREAD).ok().map(|usage| (usage, thread_ready_ns()));
    }

    /// Flowops that wait, burn time or end the thread.
    fn coordinate(&mut self, planned: &Planned, kind: Kind, times: &RunTimes) -> Result<u64, Fault> {
        let files = &self.files;
        let gate = || planned.gate.as_ref().ok_or_else(|| Fault::Program("it has no target".to_owned()));
        let in_time = |is_in_time: bool| if is_in_time { Ok(0) } else { Err(Fault::Over) };
        match kind {
            Kind::Block => in_time(gate()?.block(|| files.left())),
            Kind::SemBlock => in_time(gate()?.take(planned.value, || files.left())),
            Kind::SemPost => in_time(gate()?.post(planned.value, planned.is_blocking, || files.left())),
            Kind::Wakeup => {
                gate()?.wake();
                Ok(0)
            }
            Kind::Delay => {
                let ns = planned.value.saturating_mul(1_000_000_000);
                in_time(self.sleep_until(monotonic_ns().saturating_add(ns)))
            }
            Kind::Hog => self.hog(planned.value),
            Kind::EventLimit | Kind::IopsLimit | Kind::OpsLimit | Kind::BandwidthLimit => {
                in_time(self.limit(planned, kind, times))
            }
            Kind::FinishOnCount | Kind::FinishOnBytes => {
                let tally = planned.ends_by.as_ref();
                let done = tally.map_or(0, |tally| match kind {
                    Kind::FinishOnCount => tally.operations(),
                    _ => tally.bytes(),
                });
                if done >= planned.value { Err(Fault::Finished) } else { Ok(0) }
            }
            _ => Ok(0),
        }
    }

    fn hog(&self, passes: u64) -> Result<u64, Fault> {
        let mut left = passes;
        while left > 0 {
            let batch = left.min(HOG_BATCH);
            for pass in 0..batch {
                std::hint::black_box(pass);
            }
            left -= batch;
            if left > 0 && self.files.is_past_end() {
                return Err(Fault::Over);
            }
        }
        Ok(0)
    }

    /// Waits for the events of what was done since the last call.
    fn limit(&mut self, planned: &Planned, kind: Kind, times: &RunTimes) -> bool {
        let Some(events) = &times.events else { return true };
        let now = match (kind, &planned.scope) {
            (Kind::BandwidthLimit, Scope::Row(row)) => self.rows[*row].all_bytes,
            (Kind::BandwidthLimit, Scope::All) => self.bytes,
            (_, Scope::Row(row)) => self.rows[*row].all_count,
            (Kind::IopsLimit, Scope::All) => self.ios,
            (_, Scope::All) => self.operations,
        };
        let mark = &mut self.marks[planned.limit];
        let wanted = match kind {
            Kind::EventLimit => 1,
            Kind::BandwidthLimit => {
                let mib = (now - *mark) >> 20;
                *mark += mib << 20;
                mib
            }
            _ => now - std::mem::replace(mark, now),
        };
        wanted == 0 || self.sleep_until(events.take(wanted, monotonic_ns()))
    }

    fn report(self, rounds: u64, late_rounds: u64) -> ThreadReport {
        // A number of the kernel's may be another thread's afterwards.
        self.shared.ids[self.number].store(0, Ordering::Relaxed);
        let end = getrusage(UsageWho::RUSAGE_THREAD).ok();
        let cpu = self.cpu_from.zip(end).map(|((from, ready_from), end)| {
            let s =
                |time: TimeVal| Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()) as u64);
            let since = |of: fn(&Usage) -> TimeVal| s(of(&end)).saturating_sub(s(of(&from))).as_secs_f64();
            let more = |of: fn(&Usage) -> i64| of(&end).saturating_sub(of(&from)).max(0) as u64;
            let ready_ns = ready_from.zip(thread_ready_ns()).map(|(from, to)| to.saturating_sub(from));
            CpuReport {
                user_s: since(Usage::user_time),
                system_s: since(Usage::system_time),
                ready_s: ready_ns.map(|ns| ns as f64 / 1e9),
                waits: more(Usage::voluntary_context_switches),
                preemptions: more(Usage::involuntary_context_switches),
            }
        });
        ThreadReport {
            rows: self.rows,
            // A thread that counted nothing worked before the judged time alone.
            cpu: cpu.unwrap_or_default(),
            intervals: self.intervals,
            rounds,
            late_rounds,
            end_ns: self.last_ns,
        }
    }
}
