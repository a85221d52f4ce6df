//! From the kernel's events to calls: pairs entries and ends, and leaves out calls that a loss made
//! incomplete.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base::timeline::{CallSpan, CallState, Loss};
use sys::trace::{Away, Event, OpenCall};

use super::calls::Call;
use super::lanes::Lanes;
use super::table::Table;

#[derive(Debug, Clone, Copy)]
struct Open {
    number: u16,
    from_ns: u64,
    away: Away,
    /// Events were lost since: the next end may belong to another call.
    torn: bool,
    /// It began before the trace, so that its time is unknown.
    before: bool,
}

impl Open {
    fn since(from_ns: u64, number: u16) -> Self {
        Self { number, from_ns, away: Away::default(), torn: false, before: false }
    }
}

#[derive(Debug, Default)]
struct Thread {
    process: u32,
    open: Option<Open>,
    /// Since when it is on a CPU, and on which.
    runs: Option<(u64, u32)>,
    /// Whether a call of the thread was seen: an end before belongs to a call that began before the trace.
    seen: bool,
}

/// Takes events in the order of each thread's time, and fills the table and the picture.
#[derive(Debug)]
pub struct Assembler {
    pub table: Table,
    /// The picture, if requested.
    pub lanes: Option<Lanes>,
    place_of: HashMap<u16, u16>,
    threads: HashMap<u32, Thread>,
    softirqs: BTreeMap<(u32, u32), u64>,
    processes: BTreeSet<u32>,
    pub threads_seen: u64,
    /// Calls that began before the trace, and have no time.
    pub begun_before: u64,
    /// Events lost, as far as the tracer reported them.
    pub lost: u64,
    /// When a followed process executed a program for the first time.
    pub first_executed_ns: Option<u64>,
    pub last_ended_ns: Option<u64>,
}

impl Assembler {
    /// For these calls; `spans_max`: limit of the picture's spans, `None` without a picture.
    pub fn new(calls: &[Call], spans_max: Option<usize>) -> Self {
        Self {
            table: Table::default(),
            lanes: spans_max.map(Lanes::new),
            place_of: calls.iter().zip(0..).map(|(call, place)| (call.number, place)).collect(),
            threads: HashMap::new(),
            softirqs: BTreeMap::new(),
            processes: BTreeSet::new(),
            threads_seen: 0,
            begun_before: 0,
            lost: 0,
            first_executed_ns: None,
            last_ended_ns: None,
        }
    }

    pub fn has_seen(&self, process: u32) -> bool {
        self.processes.contains(&process)
    }

    pub fn processes_seen(&self) -> u64 {
        self.processes.len() as u64
    }

    pub fn processes_alive(&self) -> BTreeSet<u32> {
        self.threads.values().map(|state| state.process).collect()
    }

    /// The threads that have not ended, with their processes.
    pub fn alive(&self) -> Vec<(u32, u32)> {
        self.threads.iter().map(|(thread, state)| (*thread, state.process)).collect()
    }

    /// A thread that is known to be followed.
    pub fn know(&mut self, thread: u32, process: u32) {
        self.thread(thread, process);
    }

    pub fn name(&mut self, thread: u32, process: u32, name: &str) {
        if let Some(lanes) = &mut self.lanes {
            lanes.name(thread, process, name);
        }
    }

    fn thread(&mut self, thread: u32, process: u32) -> &mut Thread {
        self.threads.entry(thread).or_insert_with(|| {
            self.threads_seen += 1;
            self.processes.insert(process);
            if let Some(lanes) = &mut self.lanes {
                lanes.thread(thread, process);
            }
            Thread { process, ..Thread::default() }
        })
    }

    pub fn take(&mut self, event: Event) {
        match event {
            Event::Entered { at_ns, thread, process, number } => {
                let state = self.thread(thread, process);
                state.seen = true;
                state.open = Some(Open::since(at_ns, number));
            }
            Event::Within { at_ns, thread, process, number } => {
                let state = self.thread(thread, process);
                state.open = Some(Open { before: true, ..Open::since(at_ns, number) });
            }
            Event::Left { at_ns, thread, process, number, returned } => {
                self.left(at_ns, thread, process, number, returned);
            }
            Event::Called { from_ns, to_ns, thread, process, number, away, returned } => {
                self.thread(thread, process).seen = true;
                self.called(thread, process, number, away, [from_ns, to_ns], returned);
            }
            Event::SwitchedOut { at_ns, thread, process, preempted, .. } => {
                let state = self.thread(thread, process);
                if let Some(open) = &mut state.open {
                    open.away.waited |= !preempted;
                    open.away.preempted |= preempted;
                }
                if let Some((from_ns, cpu)) = state.runs.take() {
                    self.ran(thread, process, cpu, [from_ns, at_ns]);
                }
            }
            Event::SwitchedIn { at_ns, thread, process, cpu } => {
                self.thread(thread, process).runs = Some((at_ns, cpu));
            }
            Event::Ran { from_ns, to_ns, thread, process, cpu } => {
                self.thread(thread, process);
                self.ran(thread, process, cpu, [from_ns, to_ns]);
            }
            Event::SoftirqBegan { at_ns, cpu, vector } => {
                self.softirqs.insert((cpu, vector), at_ns);
            }
            Event::SoftirqEnded { at_ns, cpu, vector } => {
                if let Some(from_ns) = self.softirqs.remove(&(cpu, vector)) {
                    self.softirq(cpu, vector, from_ns, at_ns);
                }
            }
            Event::Softirq { from_ns, to_ns, cpu, vector } => self.softirq(cpu, vector, from_ns, to_ns),
            Event::Started { .. } | Event::Named { .. } | Event::Ended { .. } => self.threads_change(event),
            Event::Lost { from_ns, to_ns, cpu, events } => self.losing(from_ns, to_ns, cpu, events),
        }
    }

    fn threads_change(&mut self, event: Event) {
        match event {
            Event::Started { thread, process, .. } => {
                self.threads.remove(&thread);
                self.thread(thread, process);
            }
            Event::Named { at_ns, thread, process, name, executed } => {
                self.thread(thread, process);
                self.name(thread, process, &name);
                if executed {
                    self.first_executed_ns.get_or_insert(at_ns);
                    self.alone_from_now_on(thread, process);
                }
            }
            Event::Ended { at_ns, thread, process, name } => {
                let state = self.threads.remove(&thread);
                if let Some(name) = name {
                    self.name(thread, process, &name);
                }
                if let Some(state) = state {
                    if let Some(open) = state.open {
                        self.not_ended(thread, process, open, at_ns);
                    }
                    if let Some((from_ns, cpu)) = state.runs {
                        self.ran(thread, process, cpu, [from_ns, at_ns]);
                    }
                }
                if let Some(lanes) = &mut self.lanes {
                    lanes.end(thread);
                }
                self.last_ended_ns = self.last_ended_ns.max(Some(at_ns));
            }
            _ => {}
        }
    }

    /// A thread that executes a program is the only thread of its process from then on, and has the process's
    /// number. The kernel reports the ends of the other threads, but not the end of its old number.
    fn alone_from_now_on(&mut self, thread: u32, process: u32) {
        let others = self.threads.extract_if(|other, state| *other != thread && state.process == process);
        for (other, _) in others {
            if let Some(lanes) = &mut self.lanes {
                lanes.end(other);
            }
        }
    }

    fn left(&mut self, at_ns: u64, thread: u32, process: u32, number: u16, returned: i64) {
        let is_whole = self.lost == 0;
        let state = self.thread(thread, process);
        let first = !std::mem::replace(&mut state.seen, true);
        match state.open.take() {
            // The call that it was found in may have ended, and another one begun, before its events were
            // delivered.
            Some(open) if open.before && !open.torn => self.begun_before += 1,
            Some(open) if open.number == number && !open.torn => {
                self.called(thread, process, number, open.away, [open.from_ns, at_ns], returned);
            }
            None if first && is_whole => self.begun_before += 1,
            _ => {}
        }
    }

    fn called(&mut self, thread: u32, process: u32, number: u16, away: Away, ns: [u64; 2], returned: i64) {
        let [from_ns, to_ns] = ns;
        if away.ended {
            let open = Open { before: away.began_before, ..Open::since(from_ns, number) };
            return self.not_ended(thread, process, open, to_ns);
        }
        let blocked = away.waited || away.preempted;
        let state = if blocked { CallState::Blocked } else { CallState::Ready };
        let length_ns = to_ns.saturating_sub(from_ns);
        self.table.called(number, state, length_ns, away.preempted && !away.waited, returned);
        let span = CallSpan { from_ns, to_ns, name: 0, state, unfinished: false, returned };
        self.draw(thread, process, number, span);
    }

    /// A call that had not ended at `at_ns`, unless a loss has torn it.
    fn not_ended(&mut self, thread: u32, process: u32, open: Open, at_ns: u64) {
        let Open { number, from_ns, torn, before, .. } = open;
        if torn {
            return;
        }
        self.table.unfinished(number, at_ns.saturating_sub(from_ns), before);
        // A call that never ended waited until the end.
        let state = CallState::Blocked;
        let span = CallSpan { from_ns, to_ns: at_ns, name: 0, state, unfinished: true, returned: 0 };
        self.draw(thread, process, number, span);
    }

    /// Puts a call into the picture, where there is one.
    fn draw(&mut self, thread: u32, process: u32, number: u16, span: CallSpan) {
        if let (Some(lanes), Some(name)) = (&mut self.lanes, self.place_of.get(&number)) {
            lanes.call(thread, process, CallSpan { name: *name, ..span });
        }
    }

    fn ran(&mut self, thread: u32, process: u32, cpu: u32, [from_ns, to_ns]: [u64; 2]) {
        if let Some(lanes) = &mut self.lanes {
            lanes.run(thread, process, cpu, from_ns, to_ns);
        }
    }

    fn softirq(&mut self, cpu: u32, vector: u32, from_ns: u64, to_ns: u64) {
        self.table.softirq(cpu, vector, from_ns, to_ns);
        if let Some(lanes) = &mut self.lanes {
            lanes.softirq(cpu, vector, from_ns, to_ns);
        }
    }

    fn losing(&mut self, from_ns: Option<u64>, to_ns: u64, cpu: u32, events: u64) {
        self.lost += events;
        for state in self.threads.values_mut() {
            if let Some(open) = &mut state.open {
                open.torn = true;
            }
            state.runs = None;
        }
        self.softirqs.retain(|(its, _), _| *its != cpu);
        self.table.softirqs_lost(cpu);
        if let Some(lanes) = &mut self.lanes {
            lanes.loss(Loss { from_ns: from_ns.unwrap_or(to_ns), to_ns, cpu, events });
        }
    }

    /// The trace ends at `at_ns`: open calls are unfinished. `known` are the open calls that the tracer
    /// itself knows.
    pub fn finish(&mut self, at_ns: u64, known: &[OpenCall]) {
        for call in known {
            let open = Open { before: call.began_before, ..Open::since(call.from_ns, call.number) };
            self.not_ended(call.thread, call.process, open, at_ns);
        }
        for (thread, state) in std::mem::take(&mut self.threads) {
            if let Some(open) = state.open {
                self.not_ended(thread, state.process, open, at_ns);
            }
            if let Some((from_ns, cpu)) = state.runs {
                self.ran(thread, state.process, cpu, [from_ns, at_ns]);
            }
        }
    }
}
