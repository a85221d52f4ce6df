//! A builder: one thread, one epoll(7) instance.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sys::clock::monotonic_ns;
use sys::net::{Epoll, Events, Interest, Listener, Moved, MulticastSender, NetError, UdpPort};

use super::assembly::Assembly;
use super::clocks::Clocks;
use super::collect::{Collect, CollectPlan, Measured};
use super::connection::Connection;
use super::datagrams::udp_port;
use super::doors::doors;
use super::grants::{Grants, Reach};
use super::groups::Group;
use super::ladder::Ladder;
use super::ledger::name_of;
use super::ordered::Ordered;
use super::shared::Shared;
use super::steer::Tally;
use super::told::Told;
use super::turns::Turns;
use super::udp::Gathering;
use crate::daq::report::OrderCounts;
use crate::daq::settings::{Carrier, Pattern, Triggers};
use crate::daq::task::{boot_of_host, configuration_of};
use crate::daq::theory::{fragment_wire_bytes, queue_full_ns};

pub(super) const WAKER: u64 = u64::MAX;
pub(super) const LISTENER: u64 = u64::MAX - 1;
const UDP: u64 = u64::MAX - 2;
const READY_MAX: usize = 512;
const SCRATCH_BYTES: usize = 256 << 10;
/// From so much payload on it is received to where it belongs, without a detour.
const DIRECT_BYTES: usize = 64 << 10;
/// Reads of one connection before others have their turn.
const READS_AT_ONCE: usize = 16;
/// So long clock questions wait until no event is under way; then they are asked nevertheless.
const BUSY_NS: u64 = 100_000_000;
/// No wait is longer.
const WAIT_NS: u64 = 100_000_000;
/// Nor this while events are under way: from a wait that ends late it is seen that the thread had no CPU.
const LOOK_NS: u64 = 5_000_000;

/// Everything that a builder's thread works with.
pub(super) struct Worker {
    pub(super) told: Told,
    pub(super) shared: Arc<Shared>,
    pub(super) turns: Arc<Turns>,
    /// Its place among the builders of this process.
    pub(super) seat: usize,
    pub(super) epoll: Epoll,
    ready: Events,
    /// Several, each with a queue of those that wait at the door: one queue holds 4096 (`net.core.somaxconn`), and who finds
    /// it full comes again only after a second.
    pub(super) listeners: Vec<Listener>,
    /// When accepting goes on, after there were no descriptors or too many strangers.
    pub(super) accept_again_ns: Option<u64>,
    pub(super) udp: UdpPort,
    pub(super) multicast: Option<MulticastSender>,
    /// Why there is no multicast, where there is none.
    pub(super) multicast_fails: Option<String>,
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) free: Vec<usize>,
    /// Connections that have not said hello.
    pub(super) strangers: usize,
    /// When it is looked next who of them has been silent for too long.
    pub(super) look_for_silent_ns: u64,
    /// What a source of this kernel says of its boot.
    pub(super) boot: [u8; 16],
    /// What a source that was told the same says of that.
    pub(super) configuration: u64,
    /// Each source's connection.
    pub(super) of_source: Vec<Option<u32>>,
    /// Each source's group, also of one that is gone.
    pub(super) group_of: Vec<u32>,
    /// Sources that were connected at some time.
    pub(super) were_here: u32,
    /// Sources that are connected.
    pub(super) here: u32,
    pub(super) groups: Vec<Group>,
    pub(super) assembly: Assembly,
    pub(super) grants: Option<Grants>,
    pub(super) ladder: Ladder,
    pub(super) clocks: Clocks,
    pub(super) collect: Collect,
    pub(super) ordered: Vec<Ordered>,
    pub(super) orders: OrderCounts,
    pub(super) gathering: Gathering,
    /// Sources of finished fragments, to be looked at; kept so that nothing allocates.
    pub(super) missing: Vec<u32>,
    /// A round of the search for the credit.
    pub(super) tally: Option<Tally>,
    /// How far apart the fragments of the last event came, ns.
    pub(super) pace_ns: u64,
    /// Whether all send at the trigger.
    pub(super) is_push: bool,
    /// Whether it is settled which groups hear multicast.
    pub(super) is_gathered: bool,
    /// Whether the run is over, so that nobody who goes is missed.
    pub(super) is_over: bool,
    /// Of each source, whether it was there at the end, and its congestion control.
    pub(super) at_end: Vec<(bool, Option<String>)>,
    scratch: Vec<u8>,
    /// Connections that have more to read, and whether to their end.
    unread: Vec<(u32, bool)>,
    pub(super) link_bit_per_s: Option<f64>,
}

fn plan(told: &Told) -> CollectPlan {
    let settings = &told.settings;
    CollectPlan {
        sources: told.sources(),
        carrier: settings.protocol,
        fragment_bytes: told.sizes.mean_bytes().round() as u32,
        queue_full_ns: settings
            .buffer
            .zip(settings.link)
            .and_then(|(buffer, link)| queue_full_ns(buffer.bytes(), link.bit_per_s() as f64)),
        start_ns: monotonic_ns(),
        window: matches!(settings.triggers, Triggers::Max).then(|| told.window()),
    }
}

impl Worker {
    /// Listens, and is ready for sources.
    ///
    /// # Errors
    /// The port is taken, no descriptors.
    pub(super) fn new(
        told: Told,
        shared: Arc<Shared>,
        turns: Arc<Turns>,
        seat: usize,
    ) -> Result<Self, NetError> {
        let sources = told.sources();
        let (listeners, udp) = (doors(&told)?, udp_port(&told)?);
        let (multicast, multicast_fails) = super::groups::multicast(&told);
        let epoll = Epoll::new()?;
        epoll.add(&shared.waker, WAKER, Interest::READ)?;
        listeners.iter().try_for_each(|listener| epoll.add(listener, LISTENER, Interest::READ))?;
        epoll.add(&udp, UDP, Interest::READ)?;
        let settings = &told.settings;
        let is_push = settings.pattern == Pattern::Push;
        let reach = if settings.pattern == Pattern::Pull { Reach::One } else { Reach::Many };
        let grants = (!is_push).then(|| Grants::new(sources, settings.credit.unwrap_or(sources), reach));
        Ok(Self {
            shared,
            turns,
            seat,
            epoll,
            ready: Events::with_capacity(READY_MAX),
            listeners,
            accept_again_ns: None,
            udp,
            multicast,
            multicast_fails,
            connections: Vec::new(),
            free: Vec::new(),
            strangers: 0,
            look_for_silent_ns: 0,
            boot: boot_of_host(),
            configuration: configuration_of(&told.settings),
            of_source: vec![None; sources as usize],
            group_of: vec![u32::MAX; sources as usize],
            were_here: 0,
            here: 0,
            groups: Vec::new(),
            assembly: Assembly::new(&told),
            grants,
            ladder: Ladder::new(sources),
            clocks: Clocks::new(sources),
            collect: Collect::new(plan(&told)),
            ordered: Vec::new(),
            orders: OrderCounts::default(),
            gathering: Gathering::default(),
            missing: Vec::new(),
            tally: None,
            pace_ns: 0,
            is_push,
            is_gathered: false,
            is_over: false,
            at_end: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            unread: Vec::new(),
            link_bit_per_s: None,
            told,
        })
    }

    /// Events under way.
    pub(super) fn outstanding(&self) -> u32 {
        self.assembly.table.under_way().len() as u32
    }

    /// Waits until something happens, at most until `until_ns`, and does what is to be done about it.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(super) fn turn(&mut self, until_ns: u64) -> Result<(), NetError> {
        let now_ns = monotonic_ns();
        let dues = [
            self.ladder.next_due_ns(),
            self.questions_due_ns(),
            self.gathering.next_due_ns(),
            self.accept_again_ns,
        ];
        let wait_ns = match self.outstanding() {
            _ if !self.unread.is_empty() => 0,
            0 => WAIT_NS,
            _ => LOOK_NS,
        };
        let until_ns = dues.into_iter().flatten().fold(until_ns.min(now_ns + wait_ns), u64::min);
        let mut ready = std::mem::replace(&mut self.ready, Events::with_capacity(1));
        let waited = self.wait(&mut ready, now_ns, until_ns);
        // Who had to wait for the CPU has been late since then.
        let woke_ns = monotonic_ns().min(until_ns.max(now_ns));
        let unread = std::mem::take(&mut self.unread);
        // Questions first: nothing else may stand between an answer and the clock.
        if waited.is_ok() {
            if ready.iter().any(|event| event.token == UDP) {
                self.read_datagrams(woke_ns);
            }
            for event in ready.iter().filter(|event| event.token != UDP) {
                match event.token {
                    WAKER => drop(self.shared.waker.clear()),
                    LISTENER => self.accept(woke_ns),
                    token => {
                        let at = token as usize;
                        if event.is_readable() {
                            self.read(at, woke_ns, event.is_peer_done());
                        }
                        self.flush(at);
                    }
                }
            }
        }
        self.ready = ready;
        for (at, to_its_end) in unread {
            self.read(at as usize, woke_ns, to_its_end);
        }
        waited?;
        self.housekeep();
        Ok(())
    }

    /// When clock questions are asked: best while no event is under way and nobody has anything else to do.
    fn questions_due_ns(&self) -> Option<u64> {
        let later_ns = if self.outstanding() > 0 { BUSY_NS } else { 0 };
        self.clocks.next_due_ns().map(|due_ns| due_ns.saturating_add(later_ns))
    }

    /// What is due by the clock.
    fn housekeep(&mut self) {
        let now_ns = monotonic_ns();
        if self.accept_again_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            self.accept_again_ns = None;
            self.open_the_doors();
        }
        if self.strangers > 0 && self.look_for_silent_ns <= now_ns {
            self.look_for_silent_ns = now_ns + WAIT_NS;
            self.turn_away_the_silent(now_ns);
        }
        self.climb(now_ns);
        self.ask_again_for_bytes(now_ns);
        if self.questions_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            while let Some(question) = self.clocks.due(monotonic_ns()) {
                self.ask(question);
            }
        }
    }

    /// Reads what a connection brought; `to_its_end`: it will bring no more.
    pub(super) fn read(&mut self, at: usize, woke_ns: u64, to_its_end: bool) {
        for _ in 0..READS_AT_ONCE {
            let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) else { return };
            let assembly = &mut self.assembly;
            assembly.speaker = connection.source;
            let is_direct = connection.stream.left() as usize >= DIRECT_BYTES;
            let room = if is_direct { connection.stream.room(assembly) } else { &mut [] };
            let (moved, asked, to_place) = if room.is_empty() {
                (connection.socket.recv(&mut self.scratch), self.scratch.len(), false)
            } else {
                (connection.socket.recv(room), room.len(), true)
            };
            let now_ns = monotonic_ns();
            connection.delay_acknowledgements(now_ns);
            (assembly.now_ns, assembly.read_late_ns) = (now_ns, now_ns.saturating_sub(woke_ns));
            let fed = match moved {
                Ok(Moved::Bytes(bytes)) if to_place => {
                    connection.stream.received(bytes, assembly);
                    Ok(bytes)
                }
                Ok(Moved::Bytes(bytes)) => {
                    connection.stream.feed(&self.scratch[..bytes], assembly).map(|()| bytes)
                }
                Ok(Moved::WouldBlock) => return,
                Ok(Moved::End) | Err(_) => return self.close(at, None),
            };
            self.hear(at);
            self.settle();
            self.ask_early(at);
            match fed {
                Ok(bytes) if bytes < asked && !to_its_end => return,
                Ok(_) => {}
                Err(error) => return self.close(at, Some(name_of(error))),
            }
        }
        // Nobody tells of the rest again.
        self.unread.push((at as u32, to_its_end));
    }

    /// Says what waits for room in a connection, and waits for more room if there is need.
    pub(super) fn flush(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) else { return };
        if connection.is_waiting() {
            connection.flush();
        }
        let wants = connection.is_waiting();
        if wants != connection.is_watched_for_room {
            let interest = if wants { Interest::READ | Interest::WRITE } else { Interest::READ };
            if self.epoll.modify(&connection.socket, at as u64, interest | Interest::EDGE).is_ok() {
                connection.is_watched_for_room = wants;
            }
        }
    }

    /// Does what fragments that came just now ask for: credit is free, events are complete.
    pub(super) fn settle(&mut self) {
        let datagrams = self.told.settings.protocol == Carrier::Udp;
        for at in 0..self.assembly.fresh.len() {
            let fresh = self.assembly.fresh[at];
            let group = self.group_of.get(fresh.source as usize).copied().unwrap_or(u32::MAX);
            let sent_ns = self.clocks.to_builder_ns(group, fresh.sent_ns);
            let heard = self.ladder.arrived(fresh.event, fresh.source, sent_ns, fresh.arrived_ns);
            if heard.repeats > 0 {
                let slot = self.assembly.table.slot(fresh.slot);
                if let Some(came) = slot.came.get_mut(fresh.at as usize) {
                    came.caught_up = true;
                }
            }
            if let Some(grants) = &mut self.grants {
                let wire_bytes = fragment_wire_bytes(fresh.payload_bytes, self.told.settings.protocol);
                grants.arrived(fresh.event, fresh.source, wire_bytes);
            }
            if datagrams {
                self.gathering.came(fresh.event, fresh.arrived_ns);
            }
        }
        let is_any = !self.assembly.fresh.is_empty();
        self.assembly.fresh.clear();
        while let Some(slot) = self.assembly.complete.pop() {
            self.end_event(slot);
        }
        if is_any {
            self.hand_out();
        }
    }

    /// Counts the connected, for whoever watches.
    pub(super) fn note_connected(&self) {
        self.shared.connected.store(self.here, Ordering::Relaxed);
    }

    /// Notes an event of a round of the search for the credit.
    pub(super) fn tally(&mut self, measured: Measured, complete: bool, now_ns: u64) {
        if let Some(tally) = &mut self.tally {
            let Measured { took_ns, way_ns, spread_ns, wire_bytes } = measured;
            tally.event(took_ns, way_ns, complete, (wire_bytes, spread_ns), now_ns);
        }
    }
}
