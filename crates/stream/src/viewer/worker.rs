//! One thread of a group: a timer wheel of 8 slots of 5 ms, each with its share of the streams.
//!
//! Every stream is read once per revolution (40 ms). Reading by timer instead of on arrival makes a few large
//! reads out of many small ones, and the lateness of slots measures the generator's own health. `epoll`
//! serves connections only until their first head has been read, so that start-up times are not rounded up to
//! a revolution.

use std::sync::Arc;

use base::histogram::Histogram;
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::net::{Epoll, Events, Interest};
use sys::span::{Handle, SpanName, time};
use sys::thread::{pin_to_cpu, set_timer_slack_ns, thread_cpu_ns};

use super::group::Shared;
use super::player::State;
use super::report::{Combine, Sample, SlackSum};
use super::stream::ViewerStream;

static EPOLL_WAIT: SpanName = SpanName::new("epoll_pwait2");
static SLEEP: SpanName = SpanName::new("clock_nanosleep");

/// Slots of the wheel.
pub const SLOTS: u64 = 8;
pub const SLOT_NS: u64 = 5_000_000;
/// Slots from sample to sample: 100 ms.
pub const SAMPLE_SLOTS: u64 = 20;
/// One call reads 40 ms of 25 Mbit/s (125 kB); fits the L2 cache.
const BUFFER_BYTES: usize = 256 * 1024;
const EVENTS: usize = 256;

/// What a thread measured.
#[derive(Debug)]
pub struct ThreadRecord {
    pub streams: Vec<ViewerStream>,
    /// Every 100 ms from the group's start.
    pub samples: Vec<Sample>,
    /// Per second of the hold.
    pub seconds: Vec<SlackSum>,
    /// Lateness of the slots in the hold.
    pub late: Histogram,
    pub late_ns_max: u64,
    /// Lateness before the hold.
    pub late_before_ns_max: u64,
    /// CPU time in the busiest second before the hold, in % of that second.
    pub cpu_before_percent_max: Option<f64>,
    /// CPU time used in `wall_ns` of the hold.
    pub cpu_ns: u64,
    pub wall_ns: u64,
    pub thread_id: i32,
}

/// Whole revolutions between a slot's due time and now.
fn missed_revolutions(now_ns: u64, due_ns: u64) -> u64 {
    now_ns.saturating_sub(due_ns) / (SLOTS * SLOT_NS)
}

/// A running thread.
pub struct Worker {
    shared: Arc<Shared>,
    record: ThreadRecord,
    buffer: Vec<u8>,
    epoll: Epoll,
    /// `None` while its events are served.
    events: Option<Events>,
    /// Connections that epoll watches.
    watched: u64,
    /// The first stream that has not begun to connect.
    next_start: usize,
    /// CPU and wall time at the beginning of the hold.
    cpu_from: Option<(u64, u64)>,
    /// The same at the beginning of a second before the hold.
    second_from: Option<(u64, u64)>,
}

impl Worker {
    /// A thread for `streams`, sorted by their start.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(shared: Arc<Shared>, streams: Vec<ViewerStream>) -> Result<Self, sys::net::NetError> {
        let samples_max = (shared.latest_end_ns().saturating_sub(shared.start_ns)) / (SLOT_NS * SAMPLE_SLOTS);
        let hold_s = shared.plan.hold.ns().div_ceil(1_000_000_000);
        let record = ThreadRecord {
            streams,
            // Preallocated, so that the loop does not allocate; holds of days grow it.
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

    /// Run until the hold ends or the group is stopped; `recorder` times the calls.
    pub fn run(mut self, cpu: Option<usize>, recorder: Option<&Handle>) -> ThreadRecord {
        let _recorded = recorder.map(Handle::join);
        // If either fails, slots come a little later, which is measured.
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
            self.record_lateness(now_ns, due_ns);
            if due_ns >= hold.to_ns || self.shared.should_stop(due_ns) {
                break;
            }
            self.start_streams(now_ns);
            self.serve_slot(slot);
            while self.record.samples.len() as u64 * SAMPLE_SLOTS <= slot {
                self.sample();
            }
            // A read takes all that is wanted, so missed revolutions are skipped: making up for them would
            // only split the same bytes into smaller reads.
            slot += 1 + missed_revolutions(now_ns, due_ns) * SLOTS;
        }
        self.finish()
    }

    /// Serve connecting streams until the slot is due.
    fn wait_until(&mut self, due_ns: u64) {
        // A slot that is due comes first; it serves these connections too.
        while self.watched > 0 && monotonic_ns() < due_ns {
            // Always there: it is put back below.
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

    #[inline]
    fn serve(&mut self, at: usize) {
        let Some(stream) = self.record.streams.get_mut(at) else { return };
        let (now_ns, hold) = (monotonic_ns(), self.shared.hold());
        if stream.tick(&self.shared.source, &self.shared.content, &mut self.buffer, hold, now_ns) {
            self.shared.record_playback_start(now_ns);
        }
        if stream.is_watched && (stream.connection.is_open() || stream.error.is_some()) {
            stream.is_watched = false;
            self.watched -= 1;
            if let Some(socket) = stream.connection.socket() {
                // If this fails, further events are ignored.
                let _ = self.epoll.delete(socket);
            }
        }
    }

    fn start_streams(&mut self, now_ns: u64) {
        while let Some(stream) = self.record.streams.get_mut(self.next_start) {
            if stream.spec.connect_ns > now_ns {
                return;
            }
            let both = Interest::READ | Interest::WRITE | Interest::EDGE;
            match stream.connection.connect(&self.shared.source) {
                Ok(()) => {
                    let socket = stream.connection.socket();
                    let added = socket.map(|s| self.epoll.add(s, self.next_start as u64, both));
                    // Not watched: served by its slot alone.
                    stream.is_watched = matches!(added, Some(Ok(())));
                    self.watched += u64::from(stream.is_watched);
                }
                Err(error) => stream.fail(now_ns, error),
            }
            self.next_start += 1;
        }
    }

    fn serve_slot(&mut self, slot: u64) {
        let mut disturbed = false;
        for at in ((slot % SLOTS) as usize..self.record.streams.len()).step_by(SLOTS as usize) {
            self.serve(at);
            disturbed |= self.record.streams[at].is_disturbed();
        }
        if disturbed && self.shared.plan.abort_early && !self.may_be_at_fault() {
            self.shared.abort();
        }
    }

    /// Whether this thread may have caused a disturbance itself.
    fn may_be_at_fault(&self) -> bool {
        let late_ns = self.record.late_ns_max.max(self.record.late_before_ns_max);
        let busy = self.cpu_from.is_some_and(|(cpu_ns, wall_ns)| {
            let wall_ns = monotonic_ns().saturating_sub(wall_ns);
            wall_ns > 0 && (thread_cpu_ns() - cpu_ns) as f64 > 0.9 * wall_ns as f64
        });
        busy || late_ns > self.shared.plan.cap.ns() / 4
    }

    fn record_lateness(&mut self, now_ns: u64, due_ns: u64) {
        let hold = self.shared.hold();
        let late_ns = now_ns.saturating_sub(due_ns);
        if due_ns < hold.from_ns {
            self.record.late_before_ns_max = self.record.late_before_ns_max.max(late_ns);
            self.record_second_before(now_ns);
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

    /// At the end of a second before the hold: record its CPU use.
    fn record_second_before(&mut self, now_ns: u64) {
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

    /// At the end of a second of the hold: add up the streams' least slacks in it.
    fn close_second(&mut self) {
        let slacks = self.record.streams.iter_mut().filter_map(|stream| stream.second_min_ns.take());
        let single = |slack_ns| SlackSum { slack_ns, streams: 1 };
        self.record.seconds.push(slacks.map(single).fold(SlackSum::default(), SlackSum::combine));
    }

    fn sample(&mut self) {
        let mut sample = Sample::default();
        for stream in &self.record.streams {
            sample.received_bytes += stream.player.received_bytes();
            let state = stream.player.state();
            if matches!(state, State::Playing | State::Stalled) {
                sample.begun += 1;
                sample.playing += u32::from(state == State::Playing);
                sample.buffered_ns += stream.player.buffered_ns();
                let slack = stream.slack_ns.unwrap_or(0);
                sample.slack_min_ns = Some(sample.slack_min_ns.map_or(slack, |least| least.min(slack)));
            }
        }
        self.record.samples.push(sample);
    }

    fn finish(mut self) -> ThreadRecord {
        // A last read, so that every stream takes its snapshot of the hold's end.
        for at in 0..self.record.streams.len() {
            self.serve(at);
        }
        let now_ns = monotonic_ns();
        for stream in &mut self.record.streams {
            stream.end_hold(now_ns);
        }
        if let Some((cpu_from, wall_from)) = self.cpu_from.filter(|_| self.record.wall_ns == 0) {
            (self.record.cpu_ns, self.record.wall_ns) = (thread_cpu_ns() - cpu_from, now_ns - wall_from);
        }
        self.record
    }
}
