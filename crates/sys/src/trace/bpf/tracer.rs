//! Loading, feeding and reading the BPF program.

use std::collections::BTreeMap;
use std::io;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::RawTracePoint;
use aya::{Ebpf, EbpfLoader, Pod};

use super::records::{CpuState, Row, Thread, event_of, middle_of_bucket};
use super::unsupported;
use crate::trace::target::{for_each_thread, process_of, waits_in};
use crate::trace::{
    Backend, CALLS_MAX, Counts, EVENTS_AT_ONCE, Event, OpenCall, Setting, Tallied, Tally, Target, TraceError,
    Tracer, wait_for_all_cpus,
};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));

/// Programs and their tracepoints. Those that follow threads are first: what a followed thread starts is
/// followed at once, even if the search of /proc finds it later.
const FOLLOWING: [(&str, &str); 3] = [
    ("on_fork", "sched_process_fork"),
    ("on_exec", "sched_process_exec"),
    ("on_exit_of_thread", "sched_process_exit"),
];
const TELLING: [(&str, &str); 3] =
    [("on_switch", "sched_switch"), ("on_enter", "sys_enter"), ("on_exit_of_call", "sys_exit")];
const SOFTIRQS: [(&str, &str); 2] = [("on_softirq", "softirq_entry"), ("on_exit_of_softirq", "softirq_exit")];

// SAFETY: integers and arrays of integers, in the layout of C, without padding (a test checks the sizes).
unsafe impl Pod for Thread {}
// SAFETY: as above.
unsafe impl Pod for Row {}
// SAFETY: as above.
unsafe impl Pod for CpuState {}

pub(super) struct BpfTracer {
    program: Ebpf,
    ring: RingBuf<MapData>,
    threads: HashMap<MapData, u32, Thread>,
    over: Array<MapData, u32>,
    /// By place, the numbers of the wanted calls.
    calls: Vec<u16>,
    softirqs: bool,
    picture: bool,
    /// Records that were handed out.
    delivered: u64,
    stopped: bool,
    losses_reported: bool,
}

impl BpfTracer {
    /// Loads it; nothing is attached.
    pub(super) fn open(setting: &Setting) -> Result<Self, TraceError> {
        let calls: Vec<u16> = setting.calls.iter().copied().filter(|n| usize::from(*n) < CALLS_MAX).collect();
        let mut places = [0u8; CALLS_MAX];
        for (place, number) in calls.iter().take(127).enumerate() {
            places[usize::from(*number)] = place as u8 + 1;
        }
        let ring_bytes = setting.ring_bytes.clamp(4096, 1 << 30).next_power_of_two() as u32;
        let mut loader = EbpfLoader::new();
        loader.override_global("place_of", &places[..], true);
        let picture = u8::from(setting.picture);
        loader.override_global("picture", &picture, true);
        loader.map_max_entries("ring", ring_bytes).map_max_entries("rows", 2 * calls.len().max(1) as u32);
        let mut program = loader.load(OBJECT).map_err(|error| failed("load the program", &error))?;
        let ring = taken(&mut program, "ring", RingBuf::try_from)?;
        let threads = taken(&mut program, "threads", HashMap::try_from)?;
        let over = taken(&mut program, "over", Array::try_from)?;
        for (name, _) in FOLLOWING.into_iter().chain(TELLING).chain(SOFTIRQS) {
            loaded(&mut program, name)?.load().map_err(|error| failed("load the program", &error))?;
        }
        Ok(Self {
            program,
            ring,
            threads,
            over,
            calls,
            softirqs: setting.softirqs,
            picture: setting.picture,
            delivered: 0,
            stopped: false,
            losses_reported: false,
        })
    }

    fn attach(&mut self, programs: &[(&str, &str)]) -> Result<(), TraceError> {
        for (name, tracepoint) in programs {
            let attached = loaded(&mut self.program, name)?.attach(tracepoint);
            attached.map_err(|error| failed(&format!("attach to {tracepoint}"), &error))?;
        }
        Ok(())
    }

    /// Puts a thread into the table of those that are followed; one that followed itself there meanwhile
    /// stays.
    fn insert(&mut self, thread: i32, until_exec: bool) -> Result<(), TraceError> {
        /// Only if it is not there (`BPF_NOEXIST`, bpf-helpers(7)).
        const IF_NEW: u64 = 1;
        let process = process_of(thread).cast_unsigned();
        let mut entry = Thread { process, until_exec: until_exec.into(), ..Thread::default() };
        // The call in which it is now: if it ends before this is in the table, the next one replaces it.
        let waits_in = if until_exec { None } else { waits_in(thread) };
        if let Some((number, place)) = waits_in.and_then(|number| Some((number, self.place_of(number)?))) {
            entry = Thread {
                number,
                place,
                began_before: 1,
                call_from_ns: crate::clock::monotonic_ns(),
                ..entry
            };
        }
        match self.threads.insert(thread.cast_unsigned(), entry, IF_NEW) {
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::EEXIST) => {
                Ok(())
            }
            other => other.map_err(|error| failed("follow a thread", &error)),
        }
    }

    /// The place of a call among the wanted ones, as the program counts them: from 1 on.
    fn place_of(&self, number: u16) -> Option<u16> {
        let place = self.calls.iter().position(|wanted| *wanted == number)?;
        u16::try_from(place + 1).ok()
    }

    fn per_cpu<V: Pod>(&self, name: &str) -> Result<PerCpuArray<&MapData, V>, TraceError> {
        let map = self.program.map(name).ok_or_else(|| unsupported(format!("its map {name} is missing")))?;
        PerCpuArray::try_from(map).map_err(|error| failed("read its counts", &error))
    }

    fn states(&self) -> Result<Vec<CpuState>, TraceError> {
        let states = self.per_cpu::<CpuState>("cpu_states")?;
        let states = states.get(&0, 0).map_err(|error| failed("read its counts", &error))?;
        Ok(states.to_vec())
    }

    /// Losses after the last record, which no later record reports.
    fn last_losses(&mut self) -> Vec<Event> {
        let states = match std::mem::replace(&mut self.losses_reported, true) {
            true => Vec::new(),
            false => self.states().unwrap_or_default(),
        };
        let to_ns = crate::clock::monotonic_ns();
        let losing = (0..).zip(&states).filter(|(_, state)| state.lost_now > 0);
        let loss = |(cpu, state): (u32, &CpuState)| {
            let (from_ns, events) = (Some(state.lost_from_ns), state.lost_now);
            Event::Lost { from_ns, to_ns, cpu, events }
        };
        losing.map(loss).collect()
    }

    fn rows(&self, name: &str) -> Result<Vec<Vec<Row>>, TraceError> {
        let rows = self.per_cpu::<Row>(name)?;
        let read = rows.iter().map(|of_cpus| of_cpus.map(|of_cpus| of_cpus.to_vec()));
        read.collect::<Result<_, _>>().map_err(|error| failed("read its counts", &error))
    }
}

impl Tracer for BpfTracer {
    fn backend(&self) -> Backend {
        Backend::Bpf
    }

    fn follow(&mut self, target: Target) -> Result<(), TraceError> {
        match target {
            Target::Thread(thread) => self.insert(thread, false),
            Target::Suspended(pid) => self.insert(pid, true),
            Target::Process(pid) => for_each_thread(pid, |thread| self.insert(thread, false)),
        }
    }

    fn start(&mut self) -> Result<(), TraceError> {
        self.attach(&FOLLOWING)?;
        if self.softirqs {
            self.attach(&SOFTIRQS)?;
        }
        self.attach(&TELLING)
    }

    fn drain(&mut self, into: &mut Vec<Event>) {
        for _ in 0..EVENTS_AT_ONCE {
            let Some(record) = self.ring.next() else { break };
            let event = event_of(&record);
            self.delivered += u64::from(!matches!(event, None | Some(Event::Lost { .. })));
            into.extend(event);
        }
        if self.stopped && into.is_empty() {
            into.extend(self.last_losses());
        }
    }

    fn stop(&mut self) -> Result<(), TraceError> {
        self.over.set(0, 1, 0).map_err(|error| failed("end the program", &error))?;
        // What had begun by then ends.
        wait_for_all_cpus();
        self.stopped = true;
        for (name, _) in FOLLOWING.into_iter().chain(TELLING).chain(SOFTIRQS) {
            let unloaded = loaded(&mut self.program, name)?.unload();
            unloaded.map_err(|error| failed("detach the program", &error))?;
        }
        Ok(())
    }

    fn counts(&self) -> Result<Counts, TraceError> {
        let states = self.states()?;
        let sum = |of: fn(&CpuState) -> u64| states.iter().map(of).sum::<u64>();
        let calls = sum(|state| state.calls);
        // Without a picture, calls are counted in the kernel and give no records; starts and ends of threads
        // do.
        let tallied = if self.picture { 0 } else { calls };
        Ok(Counts {
            events: sum(|state| state.records) + tallied,
            events_lost: sum(|state| state.records_lost),
            events_delivered: self.delivered + tallied,
            calls,
            threads_missed: sum(|state| state.not_followed),
        })
    }

    fn tallies(&self) -> Result<Vec<Tally>, TraceError> {
        if self.picture {
            return Ok(Vec::new());
        }
        let mut tallies = Vec::new();
        for (index, of_cpus) in self.rows("rows")?.iter().enumerate() {
            let Some(number) = self.calls.get(index / 2) else { break };
            tallies.push(tally(Tallied::Call { number: *number, away: index % 2 == 1 }, of_cpus));
        }
        for (index, of_cpus) in self.rows("softirq_rows")?.iter().enumerate() {
            let vector = 2 + index as u32 / 2;
            for (cpu, row) in (0..).zip(of_cpus) {
                let of = match index % 2 {
                    0 => Tallied::SoftirqRun { cpu, vector },
                    _ => Tallied::SoftirqPeriod { cpu, vector },
                };
                tallies.push(tally(of, std::slice::from_ref(row)));
            }
        }
        tallies.retain(|tally| tally.count > 0);
        Ok(tallies)
    }

    fn open_calls(&self) -> Vec<OpenCall> {
        let threads = self.threads.iter().flatten();
        let open = threads.filter(|(_, state)| state.place > 0 && state.call_from_ns > 0);
        open.map(|(thread, state)| OpenCall {
            thread,
            process: state.process,
            number: state.number,
            from_ns: state.call_from_ns,
            began_before: state.began_before != 0,
        })
        .collect()
    }
}

fn tally(of: Tallied, of_cpus: &[Row]) -> Tally {
    let mut durations = BTreeMap::new();
    for row in of_cpus {
        for (index, count) in row.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            *durations.entry(middle_of_bucket(index)).or_insert(0u64) += u64::from(*count);
        }
    }
    let sum = |what: fn(&Row) -> u64| of_cpus.iter().map(what).sum::<u64>();
    Tally {
        of,
        count: sum(|row| row.count),
        preempted: sum(|row| row.preempted),
        total_ns: sum(|row| row.total_ns),
        max_ns: of_cpus.iter().map(|row| row.max_ns).max().unwrap_or(0),
        returned: sum(|row| row.returned),
        durations: durations.into_iter().collect(),
    }
}

fn taken<M>(
    program: &mut Ebpf,
    name: &str,
    as_kind: impl FnOnce(aya::maps::Map) -> Result<M, MapError>,
) -> Result<M, TraceError> {
    let map = program.take_map(name).ok_or_else(|| unsupported(format!("its map {name} is missing")))?;
    as_kind(map).map_err(|error| failed("open its maps", &error))
}

fn loaded<'a>(program: &'a mut Ebpf, name: &str) -> Result<&'a mut RawTracePoint, TraceError> {
    let found = program.program_mut(name).and_then(|program| program.try_into().ok());
    found.ok_or_else(|| unsupported(format!("its program {name} is missing")))
}

/// The kernel's answer is at the bottom of the library's error.
fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> TraceError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return TraceError::of_call(Backend::Bpf, what, io::Error::from_raw_os_error(code));
        }
        cause = error.source();
    }
    unsupported(format!("cannot {what}: {error}"))
}
