//! One thread of a group: a timer wheel of 8 slots of 5 ms, each with its share of the streams.
//!
//! Every stream is read once per revolution (40 ms). Reading by timer instead of on arrival makes a few large
//! reads out of many small ones, and the lateness of slots measures the generator's own health. The event
//! loop watches a connection only until its first head has been read, so that start-up times are not rounded
//! up to a revolution.

use std::sync::Arc;
use std::time::Duration;

use base::histogram::Histogram;
use base::limit_rules::THREAD;
use reactor::{Backoff, ConnectSettings, Connector, EventLoop, Reactor, StateMachine, StopHandle, Token};
use sys::clock::monotonic_ns;
use sys::net::{Event, Interest, NetError, SocketOptions};
use sys::span::{Handle, SpanName, time};
use sys::thread::thread_cpu_ns;

use super::player::State;
use super::shared::{SLOT_NS, SLOTS, Shared};
use super::stream::ViewerStream;
use crate::report::{Combine, SAMPLE_NS, Sample, SlackSum};

static EPOLL_WAIT: SpanName = SpanName::new("epoll_pwait2");
static CONNECT: SpanName = SpanName::new("connect");

const SAMPLE_SLOTS: u64 = SAMPLE_NS / SLOT_NS;
/// One call reads 40 ms of 25 Mbit/s (125 kB); fits the L2 cache.
const BUFFER_BYTES: usize = 256 * 1024;
const EVENTS_MAX: usize = 256;

/// Tokens of open connections; their index is that of the stream.
const STREAM_CLASS: u8 = 0;
const CONNECTOR_CLASS: u8 = 1;

#[derive(Debug)]
pub struct ThreadRecord {
    pub streams: Vec<ViewerStream>,
    /// Every 100 ms from the group's start.
    pub samples: Vec<Sample>,
    /// Per second of the hold.
    pub seconds: Vec<SlackSum>,
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

pub struct Worker {
    shared: Arc<Shared>,
    record: ThreadRecord,
    buffer: Vec<u8>,
    connector: Connector,
    slot: u64,
    /// The first stream that has not begun to connect.
    next_start: usize,
    /// CPU and wall time at the beginning of the hold.
    cpu_from: Option<(u64, u64)>,
    /// The same at the beginning of a second before the hold.
    second_from: Option<(u64, u64)>,
}

impl Worker {
    /// A worker for `streams`, sorted by their start.
    pub fn new(shared: Arc<Shared>, streams: Vec<ViewerStream>) -> Self {
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
        let options = SocketOptions {
            // A fixed buffer holds a fraction of a second; with auto-tuning it would hide 10 s of content.
            receive_buffer_bytes: Some(shared.source.receive_buffer_bytes),
            nodelay: Some(true),
            ..SocketOptions::default()
        };
        // Viewers connect when they like and wait as long as their kernel does: the start window paces them.
        let (handshakes_max, timeout) = (usize::MAX, Duration::MAX);
        let settings =
            ConnectSettings { local: None, options, handshakes_max, timeout, backoff: Backoff::NONE };
        Self {
            shared,
            record,
            buffer: vec![0; BUFFER_BYTES],
            connector: Connector::new(CONNECTOR_CLASS, settings),
            slot: 0,
            next_start: 0,
            cpu_from: None,
            second_from: None,
        }
    }

    pub fn event_loop(stop: Arc<StopHandle>) -> Result<EventLoop, NetError> {
        Ok(EventLoop::new(stop, EVENTS_MAX)?.with_wait_span(&EPOLL_WAIT))
    }

    /// Run until the hold ends or the group is stopped; `recorder` times the calls.
    pub fn run(
        mut self,
        events: &mut EventLoop,
        recorder: Option<&Handle>,
    ) -> Result<ThreadRecord, NetError> {
        let _recorded = recorder.map(Handle::join);
        self.record.thread_id = sys::thread::thread_id();
        events.run(&mut self)?;
        Ok(self.finish(events.reactor()))
    }

    fn slot_due_ns(&self) -> u64 {
        self.shared.start_ns + self.slot * SLOT_NS
    }

    #[inline]
    fn serve(&mut self, reactor: &mut Reactor, at: usize) {
        let Some(stream) = self.record.streams.get_mut(at) else { return };
        let (now_ns, hold) = (monotonic_ns(), self.shared.hold());
        if stream.tick(&self.shared.source, &self.shared.content, &mut self.buffer, hold, now_ns) {
            self.shared.record_playback_start(now_ns);
        }
        if stream.is_watched && (stream.connection.is_open() || stream.error.is_some()) {
            stream.is_watched = false;
            if let Some(socket) = stream.connection.socket() {
                // If this fails, further events are ignored.
                let _ = reactor.unwatch(socket);
            }
        }
        if stream.connection.needs_connection() && stream.error.is_none() {
            self.connect(reactor, at);
        }
    }

    fn connect(&mut self, reactor: &mut Reactor, at: usize) {
        let address = self.shared.source.address;
        self.record.streams[at].connection.connecting();
        time(&CONNECT, || self.connector.connect(reactor, at as u64, address));
        self.take_connections(reactor);
    }

    /// Hand connections over to their streams.
    fn take_connections(&mut self, reactor: &mut Reactor) {
        while let Some(outcome) = self.connector.next_outcome() {
            let at = outcome.key as usize;
            let stream = &mut self.record.streams[at];
            match outcome.result {
                Ok(socket) => {
                    let token = Token::fixed(STREAM_CLASS, at as u32);
                    // Not watched: served by its slot alone.
                    stream.is_watched =
                        reactor.watch(&socket, token, Interest::READ | Interest::EDGE).is_ok();
                    stream.connection.connected(&self.shared.source, socket);
                    self.serve(reactor, at);
                }
                Err(error) => {
                    let hold = self.shared.hold();
                    stream.fail(&self.shared.content, hold, monotonic_ns(), error.into());
                }
            }
        }
    }

    fn start_streams(&mut self, reactor: &mut Reactor, now_ns: u64) {
        while let Some(stream) = self.record.streams.get(self.next_start)
            && stream.spec.connect_ns <= now_ns
        {
            self.connect(reactor, self.next_start);
            self.next_start += 1;
        }
    }

    fn serve_slot(&mut self, reactor: &mut Reactor) {
        let mut disturbed = false;
        for at in ((self.slot % SLOTS) as usize..self.record.streams.len()).step_by(SLOTS as usize) {
            self.serve(reactor, at);
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
            wall_ns > 0 && THREAD.is_used_up((thread_cpu_ns() - cpu_ns) as f64 / wall_ns as f64)
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

    fn finish(mut self, reactor: &mut Reactor) -> ThreadRecord {
        // A last read, so that every stream takes its snapshot of the hold's end.
        for at in 0..self.record.streams.len() {
            self.serve(reactor, at);
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

impl StateMachine for Worker {
    /// A handshake has ended, or a response has begun.
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
        if token.class() == CONNECTOR_CLASS {
            self.connector.on_ready(reactor, token);
            self.take_connections(reactor);
        } else {
            self.serve(reactor, token.index());
        }
    }

    fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        self.connector.on_timer(reactor, token);
        self.take_connections(reactor);
    }

    fn on_stop(&mut self, _: &mut Reactor) {}

    /// Serves the slot that is due, before the connections that become ready meanwhile.
    fn before_events(&mut self, reactor: &mut Reactor) {
        let due_ns = self.slot_due_ns();
        let now_ns = monotonic_ns();
        if now_ns < due_ns {
            return;
        }
        self.record_lateness(now_ns, due_ns);
        if self.shared.is_over(due_ns) {
            reactor.finish();
            return;
        }
        self.start_streams(reactor, now_ns);
        self.serve_slot(reactor);
        while self.record.samples.len() as u64 * SAMPLE_SLOTS <= self.slot {
            self.sample();
        }
        // A read takes all that is wanted, so missed revolutions are skipped: making up for them would
        // only split the same bytes into smaller reads.
        self.slot += 1 + missed_revolutions(now_ns, due_ns) * SLOTS;
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        Some(self.slot_due_ns())
    }
}
