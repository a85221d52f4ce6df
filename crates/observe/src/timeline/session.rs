//! One trace: chooses the backend, measures its cost, follows the target, and sums up.

use std::collections::BTreeMap;
use std::time::Duration;

use base::timeline::{CallTimes, LITTLE, Picture, TraceCost};
use sys::clock::Deadline;
use sys::trace::{Backend, Counts, EVENTS_AT_ONCE, Event, Setting, Target, TraceError, Tracer};

use super::assemble::Assembler;
use super::calls::{self, Call};
use super::overhead;
use super::sockets::SocketWatch;

/// Longest time of one drain of the events. If they arrive faster, other work comes first, and the kernel's
/// buffer overflows, which is reported.
const PUMP_FOR: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct Wish {
    pub calls: Vec<Call>,
    /// How many spans the picture may hold; `None` for no picture.
    pub spans_max: Option<usize>,
    pub softirqs: bool,
    /// Room for events in the kernel, bytes.
    pub ring_bytes: usize,
    /// Only this backend; otherwise the first that works.
    pub backend: Option<Backend>,
    /// Time for measuring its cost before; 0.2 s is enough. Zero: not measured, if the backend is given.
    pub cost_within: Duration,
}

impl Wish {
    fn setting(&self) -> Setting {
        Setting {
            calls: self.calls.iter().map(|call| call.number).collect(),
            picture: self.spans_max.is_some(),
            softirqs: self.softirqs,
            ring_bytes: self.ring_bytes,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("calls cannot be traced here: {bpf}; and {perf}")]
    NoBackend { bpf: TraceError, perf: TraceError },
    /// No permission with any backend.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

pub struct Session {
    tracer: Box<dyn Tracer>,
    wish: Wish,
    assembler: Assembler,
    events: Vec<Event>,
    cost: Option<TraceCost>,
    because: Option<String>,
    /// Only with a picture.
    sockets: Option<SocketWatch>,
    from_ns: u64,
    targets: Vec<Target>,
}

#[derive(Debug)]
pub struct Watched {
    pub times: CallTimes,
    pub picture: Option<Picture>,
}

impl Session {
    /// Chooses the backend by trying: the first whose cost can be measured. Then arms it.
    pub fn open(wish: Wish) -> Result<Self, SessionError> {
        let setting = wish.setting();
        let (backend, cost, because) = match wish.backend {
            Some(backend) if wish.cost_within.is_zero() => (backend, None, None),
            Some(backend) => (backend, Some(overhead::measure(backend, &setting, wish.cost_within)?), None),
            None => {
                let (backend, cost, because) = choose(&setting, wish.cost_within)?;
                (backend, Some(cost), because)
            }
        };
        let mut tracer = sys::trace::open(backend, &setting)?;
        tracer.start()?;
        let assembler = Assembler::new(&wish.calls, wish.spans_max);
        let from_ns = sys::clock::monotonic_ns();
        Ok(Self {
            tracer,
            wish,
            assembler,
            events: Vec::new(),
            cost,
            because,
            sockets: None,
            from_ns,
            targets: Vec::new(),
        })
    }

    pub fn backend(&self) -> Backend {
        self.tracer.backend()
    }

    /// Follows one more target. The time watched begins now, or when a held target executes its program.
    pub fn follow(&mut self, target: Target) -> Result<(), TraceError> {
        let (pid, threads) = match target {
            Target::Process(pid) => (pid, sys::trace::threads_of(pid)?),
            Target::Thread(pid) | Target::Suspended(pid) => (pid, vec![pid]),
        };
        for thread in threads {
            self.assembler.know(thread.cast_unsigned(), pid.cast_unsigned());
        }
        self.targets.push(target);
        if let (Some(spans_max), None) = (self.wish.spans_max, &self.sockets) {
            self.sockets = SocketWatch::open(elsewhere(pid), spans_max);
        }
        self.from_ns = sys::clock::monotonic_ns();
        self.tracer.follow(target)
    }

    /// Follows a process unless it is followed already; returns whether it is new.
    pub fn follow_unless_known(&mut self, pid: i32) -> bool {
        !self.assembler.has_seen(pid.cast_unsigned()) && self.follow(Target::Process(pid)).is_ok()
    }

    /// Takes the events that have arrived. Call it a hundred times a second, so that the kernel's buffer does
    /// not overflow.
    pub fn pump(&mut self) {
        let deadline = Deadline::after(PUMP_FOR);
        while self.fetch() >= EVENTS_AT_ONCE && !deadline.passed() {}
        if let Some(sockets) = &mut self.sockets {
            sockets.look(|| self.assembler.processes_alive());
        }
    }

    /// Takes some of the events that have arrived; returns how many.
    fn fetch(&mut self) -> usize {
        self.tracer.drain(&mut self.events);
        let fetched = self.events.len();
        for event in self.events.drain(..) {
            self.assembler.take(event);
        }
        fetched
    }

    /// Ends the trace; the target goes on.
    pub fn finish(mut self, target: &str, ended: Option<String>) -> Result<Watched, TraceError> {
        let stopped_ns = sys::clock::monotonic_ns();
        self.tracer.stop()?;
        let open_calls = self.tracer.open_calls();
        while self.fetch() > 0 {}
        let alive = self.assembler.alive();
        for (thread, process) in &alive {
            if let Some(name) = sys::trace::name_of_thread(*thread) {
                self.assembler.name(*thread, *process, &name);
            }
        }
        let unseen = self.unseen(&alive);
        // If the end of a thread was lost, the last reported end is not the last one.
        let last_ns = self.assembler.last_ended_ns.filter(|_| alive.is_empty());
        let to_ns = last_ns.unwrap_or(stopped_ns).max(self.from_ns);
        self.assembler.finish(to_ns, &open_calls);
        for tally in self.tracer.tallies()? {
            self.assembler.table.tally(&tally);
        }
        let counts = self.tracer.counts()?;
        let mut watched = self.sum_up(counts, to_ns, target, ended);
        watched.times.doubts.extend(nothing_or_little_seen(&watched.times, unseen));
        Ok(watched)
    }

    /// Where the threads that are `alive` are at the end, if not in a watched call; and which call would have
    /// to be watched.
    fn unseen(&self, alive: &[(u32, u32)]) -> Vec<String> {
        let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
        for number in alive.iter().filter_map(|(thread, _)| sys::trace::waits_in(thread.cast_signed())) {
            if let Some(call) =
                calls::all().find(|call| call.number == number && !self.wish.calls.contains(call))
            {
                *waiting.entry(call.name).or_default() += 1;
            }
        }
        let most = waiting.into_iter().max_by_key(|(_, count)| *count).map(|(name, count)| {
            let threads = alive.len();
            format!(
                "at the end {count} of {threads} threads waited in {name}: '--trace +{name}' watches it too"
            )
        });
        let running = self.targets.iter().flat_map(|target| match target {
            Target::Process(pid) => sys::trace::children_of(*pid),
            _ => Vec::new(),
        });
        let mut apart = running.filter(|pid| !self.assembler.has_seen(pid.cast_unsigned()));
        let apart = apart.next().map(|pid| {
            let more = Some(apart.count()).filter(|count| *count > 0);
            let more = more.map_or_else(String::new, |count| format!(" and {count} more"));
            format!("process {pid}{more}, started by it before, went unwatched: '-p {pid}' watches it")
        });
        most.into_iter().chain(apart).collect()
    }

    fn sum_up(mut self, counts: Counts, to_ns: u64, target: &str, ended: Option<String>) -> Watched {
        // A program executed by a child of a running target does not start the trace.
        let is_held = matches!(self.targets[..], [Target::Suspended(_)]);
        let executed_ns = self.assembler.first_executed_ns.filter(|at| is_held && *at >= self.from_ns);
        let from_ns = executed_ns.unwrap_or(self.from_ns);
        let wall_ns = to_ns.saturating_sub(from_ns);
        let lanes = self.assembler.lanes.take();
        let names = self.wish.calls.iter().map(|call| call.name.to_owned()).collect();
        let mut picture = lanes.map(|lanes| lanes.finish(names, from_ns, to_ns));
        if let (Some(picture), Some(sockets)) = (&mut picture, &self.sockets) {
            picture.counters = sockets.counters(from_ns, to_ns);
        }
        let table = &self.assembler.table;
        let calls = table.call_rows(&self.wish.calls, wall_ns);
        let calls_reported = table.calls() + self.assembler.begun_before;
        let mut times = CallTimes {
            target: target.to_owned(),
            ended,
            wall_s: wall_ns as f64 / 1e9,
            processes: self.assembler.processes_seen(),
            threads: self.assembler.threads_seen,
            softirqs: table.softirq_rows(wall_ns),
            unfinished: table.unfinished_rows(&self.wish.calls, wall_ns),
            calls,
            backend: self.tracer.backend().name().to_owned(),
            backend_because: self.because.take(),
            events_counted: counts.events,
            events: counts.events_delivered,
            events_lost: counts.events_lost,
            calls_lost: counts.calls.saturating_sub(calls_reported),
            cost_ns_per_call: self.cost.map(|cost| cost.traced_ns - cost.untraced_ns).filter(|ns| *ns > 0.0),
            cost: self.cost,
            doubts: Vec::new(),
        };
        times.doubts = doubts(&times, counts, picture.as_ref());
        Watched { times, picture }
    }
}

/// The process whose network namespace is sampled, if it is not our own.
fn elsewhere(pid: i32) -> Option<i32> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    (namespace(&pid.to_string()) != namespace("self")).then_some(pid)
}

/// The better backend if it works, else the other and why.
fn choose(
    setting: &Setting,
    cost_within: Duration,
) -> Result<(Backend, TraceCost, Option<String>), SessionError> {
    let bpf = match overhead::measure(Backend::Bpf, setting, cost_within) {
        Ok(cost) => return Ok((Backend::Bpf, cost, None)),
        Err(error) => error,
    };
    match (overhead::measure(Backend::Perf, setting, cost_within), bpf) {
        (Ok(cost), bpf) => Ok((Backend::Perf, cost, Some(bpf.to_string()))),
        // Reported once: the advice is the same.
        (Err(TraceError::NotPermitted { .. }), bpf @ TraceError::NotPermitted { .. }) => Err(bpf.into()),
        // What is not permitted is there: with the rights, the first one is used.
        (Err(_), bpf @ TraceError::NotPermitted { .. }) => Err(bpf.into()),
        (Err(perf), bpf) => Err(SessionError::NoBackend { bpf, perf }),
    }
}

/// The doubts about the table.
fn doubts(times: &CallTimes, counts: Counts, picture: Option<&Picture>) -> Vec<String> {
    let mut doubts = Vec::new();
    let lost = times.events_lost as f64 / (times.events_counted.max(1)) as f64;
    if lost > 0.0 {
        doubts.push(format!(
            "{} of {} events ({:.2} %) found no room and were lost, {} calls with them: the table is of the \
             rest; a larger --ring or fewer calls in --trace lose less",
            times.events_lost,
            times.events_counted,
            lost * 100.0,
            times.calls_lost
        ));
    }
    let untold = times.events_counted.saturating_sub(times.events + times.events_lost);
    if untold > 0 {
        doubts.push(format!(
            "{untold} of {} events were neither received nor counted as lost; please report this",
            times.events_counted
        ));
    }
    if counts.threads_missed > 0 {
        doubts.push(format!("{} threads were too many to follow", counts.threads_missed));
    }
    if let Some((count, at_ns)) = picture.and_then(|picture| picture.left_out) {
        doubts.push(format!(
            "the picture is full: {count} spans after {:.1} s are not in it; the table has them",
            at_ns as f64 / 1e9
        ));
    }
    let shortest_us = times.calls.iter().map(|row| row.p50_us).fold(f64::INFINITY, f64::min);
    if let Some(cost_ns) = times.cost_ns_per_call.filter(|cost_ns| *cost_ns > shortest_us * 1e3) {
        doubts.push(format!(
            "tracing adds about {cost_ns:.0} ns to each call, more than a short call takes: a program that \
             makes many short calls runs slower while it is traced"
        ));
    }
    doubts
}

/// Advice if the watched calls explain little of the elapsed time.
fn nothing_or_little_seen(times: &CallTimes, unseen: Vec<String>) -> Option<String> {
    if times.wall_share() >= LITTLE || !times.unfinished.is_empty() {
        return None;
    }
    let nothing = times.calls.is_empty().then(|| "none of the watched calls was made".to_owned());
    let others = (nothing.is_some() && unseen.is_empty()).then(|| "'--trace' names others".to_owned());
    let said: Vec<String> = nothing.into_iter().chain(unseen).chain(others).collect();
    (!said.is_empty()).then(|| said.join("; "))
}
