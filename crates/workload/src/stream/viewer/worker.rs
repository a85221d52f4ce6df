//! One thread of a group: a wheel of 8 slots of 5 ms, each with its share of the streams.
//!
//! Every stream is read once a turn (40 ms, 25 times a second). Reading when a timer says so instead of when data
//! arrives makes a few large reads out of many small ones, and gives a measure of the generator's own health: how
//! late a slot's turn comes. `epoll` serves connections only until their first head has been read, so that start-up
//! times are not rounded up to a turn.

use std::sync::Arc;

use base::histogram::Histogram;
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::net::{Epoll, Events, Interest};
use sys::span::{Handle, time};
use sys::thread::{pin_to_cpu, set_timer_slack_ns, thread_cpu_ns};

use super::calls::{EPOLL_WAIT, SLEEP};
use super::group::Shared;
use super::player::State;
use super::report::{Sample, SlackSum, Together};
use super::viewer::Viewer;

/// Slots of the wheel.
pub const SLOTS: u64 = 8;
/// A slot's length.
pub const SLOT_NS: u64 = 5_000_000;
/// Slots from sample to sample: 100 ms.
pub const SAMPLE_SLOTS: u64 = 20;
/// At a full buffer's read of 40 ms of 25 Mbit/s (125 kB) this is one call; it stays within the L2 cache.
const BUFFER_BYTES: usize = 256 * 1024;
/// Events that are collected at once.
const EVENTS: usize = 256;

/// What a thread leaves behind.
#[derive(Debug)]
pub struct ThreadRecord {
    /// Its streams.
    pub viewers: Vec<Viewer>,
    /// One sample each 100 ms from the group's start.
    pub samples: Vec<Sample>,
    /// Per second of the hold.
    pub seconds: Vec<SlackSum>,
    /// How late the slots came during the hold.
    pub late: Histogram,
    /// The latest of them.
    pub late_ns_max: u64,
    /// The latest slot before the hold.
    pub late_before_ns_max: u64,
    /// CPU time in the busiest second before the hold, in % of that second.
    pub cpu_before_percent_max: Option<f64>,
    /// CPU time used in the hold.
    pub cpu_ns: u64,
    /// How long that was.
    pub wall_ns: u64,
    /// The thread's kernel id.
    pub thread_id: i32,
}

/// How many whole turns lie between a slot's time and now.
fn missed_turns(now_ns: u64, due_ns: u64) -> u64 {
    now_ns.saturating_sub(due_ns) / (SLOTS * SLOT_NS)
}

/// A thread at work.
pub struct Worker {
    shared: Arc<Shared>,
    record: ThreadRecord,
    buffer: Vec<u8>,
    epoll: Epoll,
    /// Taken out while its events are served.
    events: Option<Events>,
    /// Connections that epoll watches.
    watched: u64,
    /// Streams in the order of their start that have not begun to connect.
    next_start: usize,
    /// CPU time at the hold's beginning.
    cpu_from: Option<(u64, u64)>,
    /// CPU time at the beginning of a second before the hold.
    second_from: Option<(u64, u64)>,
}

impl Worker {
    /// A thread that will carry `viewers`, sorted by their start.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(shared: Arc<Shared>, viewers: Vec<Viewer>) -> Result<Self, sys::net::NetError> {
        let samples_max = (shared.latest_end_ns().saturating_sub(shared.start_ns)) / (SLOT_NS * SAMPLE_SLOTS);
        let hold_s = shared.plan.hold.ns().div_ceil(1_000_000_000);
        let record = ThreadRecord {
            viewers,
            // Room for all, so that the loop never allocates; a hold of days takes what it needs as it goes.
            samples: Vec::with_capacity(samples_max.min(1 << 20) as usize + 2),
            seconds: Vec::with_capacity(hold_s as usize + 1),
            late: Histogram::default(),
            late_ns_max: 0,
            late_before_ns_max: 0,
            cpu_before_percent_max: None,
            cpu_ns: 0,
            wall_ns: 0,
            thread_id: 0,
        };
        Ok(Self {
            shared,
            record,
            buffer: vec![0; BUFFER_BYTES],
            epoll: Epoll::new()?,
            events: Some(Events::with_capacity(EVENTS)),
            watched: 0,
            next_start: 0,
            cpu_from: None,
            second_from: None,
        })
    }

    /// Carry the streams to the hold's end, or until told to stop; `recorder` times its calls.
    pub fn run(mut self, cpu: Option<usize>, recorder: Option<&Handle>) -> ThreadRecord {
        let _recorded = recorder.map(Handle::join);
        // Neither is vital: without them slots come a little later, which is measured.
        let _ = set_timer_slack_ns(1);
        if let Some(cpu) = cpu {
            let _ = pin_to_cpu(cpu);
        }
        self.record.thread_id = sys::thread::thread_id();
        let mut slot = 0;
        loop {
            let due_ns = self.shared.start_ns + slot * SLOT_NS;
            self.wait_until(due_ns);
            let now_ns = monotonic_ns();
            let hold = self.shared.hold();
            self.note_time(now_ns, due_ns);
            if due_ns >= hold.to_ns || self.shared.is_over(due_ns) {
                break;
            }
            self.start_streams(now_ns);
            self.turn(slot);
            while self.record.samples.len() as u64 * SAMPLE_SLOTS <= slot {
                self.sample();
            }
            // A read takes all that is wanted, so a turn that was missed altogether is not made up for: running
            // after it would only cut the same bytes into smaller reads, and never catch up.
            slot += 1 + missed_turns(now_ns, due_ns) * SLOTS;
        }
        self.finish()
    }

    /// Serve connections that are being made until the slot is due.
    fn wait_until(&mut self, due_ns: u64) {
        // Beyond its time a slot comes first: its turn serves these connections too.
        while self.watched > 0 && monotonic_ns() < due_ns {
            // It is there: it is put back below.
            let Some(mut events) = self.events.take() else { return };
            let waited = time(&EPOLL_WAIT, || self.epoll.wait_until(&mut events, due_ns));
            for event in events.iter() {
                self.serve(event.token as usize);
            }
            self.events = Some(events);
            if waited.is_err() {
                break;
            }
        }
        time(&SLEEP, || sleep_until_ns(due_ns));
    }

    /// Let one stream go on.
    #[inline]
    fn serve(&mut self, at: usize) {
        let Some(viewer) = self.record.viewers.get_mut(at) else { return };
        let (now_ns, hold) = (monotonic_ns(), self.shared.hold());
        if viewer.tick(&self.shared.source, &self.shared.film, &mut self.buffer, hold, now_ns) {
            self.shared.one_more_plays(now_ns);
        }
        if viewer.watched && (viewer.link.is_open() || viewer.error.is_some()) {
            viewer.watched = false;
            self.watched -= 1;
            if let Some(socket) = viewer.link.socket() {
                // A socket that cannot be taken out only brings events that nobody waits for.
                let _ = self.epoll.delete(socket);
            }
        }
    }

    fn start_streams(&mut self, now_ns: u64) {
        while let Some(viewer) = self.record.viewers.get_mut(self.next_start) {
            if viewer.role.connect_ns > now_ns {
                return;
            }
            let both = Interest::READ | Interest::WRITE | Interest::EDGE;
            let begun = viewer.link.connect(&self.shared.source);
            match begun {
                Ok(()) => {
                    let socket = viewer.link.socket();
                    let added = socket.map(|s| self.epoll.add(s, self.next_start as u64, both));
                    // Unwatched, the stream is served by its slot alone.
                    viewer.watched = matches!(added, Some(Ok(())));
                    self.watched += u64::from(viewer.watched);
                }
                Err(error) => viewer.fail(now_ns, error),
            }
            self.next_start += 1;
        }
    }

    /// One slot's streams.
    fn turn(&mut self, slot: u64) {
        let mut disturbed = false;
        for at in ((slot % SLOTS) as usize..self.record.viewers.len()).step_by(SLOTS as usize) {
            self.serve(at);
            disturbed |= self.record.viewers[at].is_disturbed();
        }
        if disturbed && self.shared.plan.abort_early && !self.is_at_fault() {
            self.shared.abort();
        }
    }

    /// Whether a disturbance may be this thread's own doing.
    fn is_at_fault(&self) -> bool {
        let late_ns = self.record.late_ns_max.max(self.record.late_before_ns_max);
        let busy = self.cpu_from.is_some_and(|(cpu_ns, wall_ns)| {
            let wall_ns = monotonic_ns().saturating_sub(wall_ns);
            wall_ns > 0 && (thread_cpu_ns() - cpu_ns) as f64 > 0.9 * wall_ns as f64
        });
        busy || late_ns > self.shared.plan.cap.ns() / 4
    }

    fn note_time(&mut self, now_ns: u64, due_ns: u64) {
        let hold = self.shared.hold();
        let late_ns = now_ns.saturating_sub(due_ns);
        if due_ns < hold.from_ns {
            self.record.late_before_ns_max = self.record.late_before_ns_max.max(late_ns);
            self.note_second_before(now_ns);
            return;
        }
        if due_ns <= hold.to_ns {
            self.record.late.record_ns(late_ns);
            self.record.late_ns_max = self.record.late_ns_max.max(late_ns);
        }
        let (cpu_from, wall_from) = *self.cpu_from.get_or_insert_with(|| (thread_cpu_ns(), now_ns));
        if due_ns <= hold.to_ns {
            (self.record.cpu_ns, self.record.wall_ns) = (thread_cpu_ns() - cpu_from, now_ns - wall_from);
        }
        let over = |seconds: u64| hold.from_ns.saturating_add(seconds * 1_000_000_000);
        while due_ns >= over(self.record.seconds.len() as u64 + 1)
            && over(self.record.seconds.len() as u64 + 1) <= hold.to_ns
        {
            self.close_second();
        }
    }

    /// When a second before the hold is over: how busy it was.
    fn note_second_before(&mut self, now_ns: u64) {
        let (cpu_from, wall_from) = *self.second_from.get_or_insert_with(|| (thread_cpu_ns(), now_ns));
        let wall_ns = now_ns.saturating_sub(wall_from);
        if wall_ns >= 1_000_000_000 {
            let cpu_ns = thread_cpu_ns();
            let percent = (cpu_ns - cpu_from) as f64 * 100.0 / wall_ns as f64;
            let most = self.record.cpu_before_percent_max.unwrap_or(0.0);
            self.record.cpu_before_percent_max = Some(percent.max(most));
            self.second_from = Some((cpu_ns, now_ns));
        }
    }

    /// A second of the hold is over: the streams' least slacks in it.
    fn close_second(&mut self) {
        let slacks = self.record.viewers.iter_mut().filter_map(|viewer| viewer.second_min_ns.take());
        let of_one = |slack_ns| SlackSum { slack_ns, streams: 1 };
        self.record.seconds.push(slacks.map(of_one).fold(SlackSum::default(), SlackSum::and));
    }

    fn sample(&mut self) {
        let mut sample = Sample::default();
        for viewer in &self.record.viewers {
            sample.received_bytes += viewer.player.received_bytes();
            let state = viewer.player.state();
            if matches!(state, State::Playing | State::Stalled) {
                sample.begun += 1;
                sample.playing += u32::from(state == State::Playing);
                sample.buffered_ns += viewer.player.buffered_ns();
                let slack = viewer.slack_ns.unwrap_or(0);
                sample.slack_min_ns = Some(sample.slack_min_ns.map_or(slack, |least| least.min(slack)));
            }
        }
        self.record.samples.push(sample);
    }

    fn finish(mut self) -> ThreadRecord {
        // A last read, so that every stream sees the hold's end and writes its figures down.
        for at in 0..self.record.viewers.len() {
            self.serve(at);
        }
        let now_ns = monotonic_ns();
        for viewer in &mut self.record.viewers {
            viewer.cut(now_ns);
        }
        if let Some((cpu_from, wall_from)) = self.cpu_from.filter(|_| self.record.wall_ns == 0) {
            (self.record.cpu_ns, self.record.wall_ns) = (thread_cpu_ns() - cpu_from, now_ns - wall_from);
        }
        self.record
    }
}
