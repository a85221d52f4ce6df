//! A worker: one thread, one epoll, its connections.
//!
//! Sockets are watched edge-triggered and registered once, so an established stream costs one `sendfile` for each
//! time its socket has room, and the share of one `epoll_pwait2` that serves all streams that had room at the same
//! time. Streams that could go on take turns, one slice each.

mod accept;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sys::clock::{monotonic_ns, realtime_ns};
use sys::net::{Epoll, Event, Events, Interest, Listener, NetError};

use super::config::Limits;
use super::connection::{Bench, Connection, Next};
use super::cost::{self, Cost};
use super::date;
use super::deadlines::{Deadlines, Kind};
use super::log::LogSender;
use super::site::Site;
use super::stats::{Desk, Shared, add};

const TOKEN_LISTENER: u64 = u64::MAX;
const TOKEN_WAKER: u64 = u64::MAX - 1;

/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 512;
/// Content sent to one connection in a turn.
const SLICE_BYTES: usize = 1 << 20;
/// Receive buffer of a worker.
const SCRATCH_BYTES: usize = 256 << 10;
/// How long a closing connection may take to notice.
const LINGER_NS: u64 = 2_000_000_000;
/// Parts of the stall deadline after which a stalled connection is looked at.
const STALL_CHECKS: u64 = 4;

/// A slot of the connection table. The generation tells an event for an earlier connection of the same slot.
#[derive(Debug, Default)]
struct Slot {
    connection: Option<Box<Connection>>,
    generation: u32,
    queued: bool,
}

/// One worker's state.
pub struct Worker {
    index: usize,
    shared: Arc<Shared>,
    site: Arc<Site>,
    limits: Limits,
    log: LogSender,
    epoll: Epoll,
    /// The first worker listens and hands connections to the one that has fewest.
    listener: Option<Arc<Listener>>,
    accept_paused_until_ns: Option<u64>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    deadlines: Deadlines,
    ready: VecDeque<u32>,
    cost: Cost,
    slice_bytes: usize,
    scratch: Vec<u8>,
    now_ns: u64,
    date: String,
    date_s: i64,
    connections_max: usize,
}

/// What a worker is made from.
pub struct Parts {
    pub index: usize,
    pub shared: Arc<Shared>,
    pub site: Arc<Site>,
    pub limits: Limits,
    pub log: LogSender,
    pub listener: Option<Arc<Listener>>,
    pub cost_ns_per_byte: f64,
}

impl Worker {
    /// Prepares a worker; [`Worker::run`] is its thread.
    pub fn new(parts: Parts) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        epoll.add(&parts.shared.desks[parts.index].waker, TOKEN_WAKER, Interest::READ)?;
        if let Some(listener) = &parts.listener {
            epoll.add(&**listener, TOKEN_LISTENER, Interest::READ)?;
        }
        let limits = parts.limits;
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let stall_ns = ns(limits.send_stall_deadline) / STALL_CHECKS;
        let deadlines =
            Deadlines::new([ns(limits.header_deadline), ns(limits.idle_deadline), stall_ns, LINGER_NS]);
        let cost = Cost::new(parts.cost_ns_per_byte);
        Ok(Self {
            index: parts.index,
            connections_max: limits.connections_max.div_ceil(parts.shared.desks.len()).max(1),
            shared: parts.shared,
            site: parts.site,
            log: parts.log,
            epoll,
            listener: parts.listener,
            accept_paused_until_ns: None,
            slots: Vec::new(),
            free: Vec::new(),
            deadlines,
            ready: VecDeque::new(),
            slice_bytes: if cost.is_free() { SLICE_BYTES } else { cost::SLICE_BYTES },
            cost,
            scratch: vec![0; SCRATCH_BYTES.max(limits.header_bytes_max)],
            limits,
            now_ns: monotonic_ns(),
            date: String::new(),
            date_s: i64::MIN,
        })
    }

    fn desk(&self) -> &Desk {
        &self.shared.desks[self.index]
    }

    /// Serves until the server stops.
    ///
    /// # Errors
    /// When the kernel refuses to wait for events, which nothing can be done about.
    pub fn run(mut self) -> Result<(), NetError> {
        self.desk().thread_id.store(sys::thread::thread_id(), Ordering::Relaxed);
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut outcome = Ok(());
        while !self.shared.stopping.load(Ordering::Acquire) {
            if let Err(e) = self.epoll.wait(&mut events, self.patience()) {
                outcome = Err(e);
                break;
            }
            self.now_ns = monotonic_ns();
            self.renew_date();
            for event in events.iter() {
                self.on_event(event);
            }
            self.take_turns();
            self.keep_deadlines();
        }
        for slot in 0..self.slots.len() as u32 {
            self.close(slot, Some((503, "server stopped")));
        }
        outcome
    }

    /// How long nothing needs to be done without an event.
    fn patience(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.deadlines.next_ns().into_iter().chain(self.accept_paused_until_ns).min()?;
        Some(Duration::from_nanos(next.saturating_sub(monotonic_ns())))
    }

    fn renew_date(&mut self) {
        let second = (realtime_ns() / 1_000_000_000).cast_signed();
        if second != self.date_s {
            self.date_s = second;
            self.date = date::format(second);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event.token {
            TOKEN_LISTENER => self.accept(),
            TOKEN_WAKER => {
                self.desk().waker.clear();
                for (socket, peer) in self.desk().take_inbox() {
                    self.adopt(socket, peer);
                }
            }
            token => {
                let (index, generation) = (token as u32, (token >> 32) as u32);
                let Some(slot) = self.slots.get_mut(index as usize) else { return };
                if slot.generation != generation {
                    return;
                }
                let Some(connection) = slot.connection.as_mut() else { return };
                if event.is_readable() {
                    connection.set_readable(event.is_peer_done());
                }
                self.enqueue(index);
            }
        }
    }

    fn enqueue(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.queued {
            slot.queued = true;
            self.ready.push_back(index);
        }
    }

    /// One turn for each connection that was ready when the round began.
    fn take_turns(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { return };
            self.slots[index as usize].queued = false;
            self.turn(index, |connection, bench| connection.step(bench));
        }
    }

    /// Lets `act` move a connection, then does what it needs.
    fn turn(&mut self, index: u32, act: impl FnOnce(&mut Connection, &mut Bench<'_>) -> Next) {
        let Some(mut connection) = self.slots[index as usize].connection.take() else { return };
        let next = act(&mut connection, &mut self.bench());
        let kind = connection.deadline_kind();
        if connection.take_deadline_stale() || self.deadlines.kind(index) != Some(kind) {
            self.deadlines.set(index, kind, self.now_ns);
        }
        self.slots[index as usize].connection = Some(connection);
        match next {
            Next::Wait => {}
            Next::Again => self.enqueue(index),
            Next::Close => self.close(index, None),
        }
    }

    fn bench(&mut self) -> Bench<'_> {
        Bench {
            site: &self.site,
            counters: &self.shared.desks[self.index].counters,
            log: &self.log,
            cost: &mut self.cost,
            scratch: &mut self.scratch,
            now_ns: self.now_ns,
            date: &self.date,
            header_bytes_max: self.limits.header_bytes_max,
            headers_max: self.limits.headers_max,
            upload_bytes_max: self.limits.upload_bytes_max,
            slice_bytes: self.slice_bytes,
        }
    }

    fn keep_deadlines(&mut self) {
        if self.accept_paused_until_ns.is_some_and(|until| until <= self.now_ns) {
            self.resume_accepting();
        }
        while let Some((index, kind)) = self.deadlines.due(self.now_ns) {
            match kind {
                Kind::Head => self.time_out_head(index),
                Kind::Idle => {
                    self.note_unfinished(index, "idle for too long");
                    self.close(index, None);
                }
                Kind::Stall => self.check_stall(index),
                Kind::Linger => self.close(index, None),
            }
        }
    }

    fn time_out_head(&mut self, index: u32) {
        const REASON: &str = "no complete request before the deadline";
        add(&self.desk().counters.timed_out, 1);
        // Where the answer cannot be sent at once, the stall and linger deadlines take over.
        self.deadlines.clear(index);
        self.turn(index, |connection, bench| connection.refuse_late(bench, REASON));
    }

    fn note_unfinished(&mut self, index: u32, reason: &'static str) {
        add(&self.desk().counters.timed_out, 1);
        self.turn(index, |connection, bench| {
            connection.log_unfinished(bench, 408, reason);
            Next::Wait
        });
    }

    fn check_stall(&mut self, index: u32) {
        let limit_ns = u64::try_from(self.limits.send_stall_deadline.as_nanos()).unwrap_or(u64::MAX);
        let Some(connection) = &self.slots[index as usize].connection else {
            self.deadlines.clear(index);
            return;
        };
        if self.now_ns.saturating_sub(connection.progress_ns()) < limit_ns {
            self.deadlines.set(index, Kind::Stall, self.now_ns);
            // Costs one call in seconds, and no stream depends on every edge having been reported.
            self.enqueue(index);
            return;
        }
        add(&self.desk().counters.timed_out, 1);
        // What is queued will not be read: free it now.
        let _ = connection.socket().reset_on_close();
        self.close(index, Some((408, "no progress before the deadline")));
    }

    fn close(&mut self, index: u32, why: Option<(u16, &'static str)>) {
        let Some(mut connection) = self.slots[index as usize].connection.take() else { return };
        connection.on_close(&mut self.bench(), why);
        self.deadlines.clear(index);
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        self.forget(connection.peer());
    }
}
