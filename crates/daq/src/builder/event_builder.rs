//! The events under way: orders their fragments, assembles them, and records how they ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reactor::Token;
use sys::clock::monotonic_ns;

use super::clocks::{Clocks, SendTime};
use super::config::{BuilderConfig, BuilderProgress};
use super::order_scheduler::{OrderContext, OrderScheduler};
use super::order_sender::MULTICAST_PROBE;
use super::sockets::{Identity, Sockets};
use super::source_registry::SourceRegistry;
use crate::assembly::{Assembler, DatagramReassembler, Fragment};
use crate::part_settings::boot_of_host;
use crate::recorder::{ArrivedFragment, EndedEvent, EventTimes, RecorderPlan, TrialRecorder};
use crate::report::BuilderReport;
use crate::scheduling::RoundStats;
use crate::settings::{Carrier, Pattern, Triggers};
use crate::theory::queue_full_ns;
use crate::wire::{CommonHeader, FragmentHeader, Hello, Kind, WireError};

/// The next source is pulled when at most so much of a large fragment is missing: at 1 Gbit/s that takes as
/// long as the pull.
const PULL_EARLY_BYTES: u32 = 16 << 10;
/// Clock probes wait so long for a moment without events.
const PROBE_DELAY_NS: u64 = 100_000_000;

pub(super) struct EventBuilder {
    config: Arc<BuilderConfig>,
    progress: Arc<BuilderProgress>,
    boot: [u8; 16],
    pub(super) sources: SourceRegistry,
    pub(super) orders: OrderScheduler,
    pub(super) assembler: Assembler,
    pub(super) datagrams: DatagramReassembler,
    pub(super) clocks: Clocks,
    pub(super) recorder: TrialRecorder,
    pub(super) round: Option<RoundStats>,
    /// Mean time between two fragments of the last event.
    fragment_gap_ns: u64,
    is_stopping: bool,
    /// Missing sources of the event that ends; kept to save allocations.
    missing: Vec<u32>,
}

fn recorder_plan(config: &BuilderConfig) -> RecorderPlan {
    let settings = &config.settings;
    RecorderPlan {
        sources: config.sources(),
        front_ends: settings.front_ends as u32,
        is_push: settings.pattern == Pattern::Push,
        carrier: settings.protocol,
        fragment_bytes: config.mean_fragment_bytes(),
        queue_full_ns: settings
            .buffer
            .zip(settings.link)
            .and_then(|(buffer, link)| queue_full_ns(buffer.bytes(), link.bit_per_s() as f64)),
        start_ns: monotonic_ns(),
        window: matches!(settings.triggers, Triggers::Max).then(|| config.window()),
    }
}

impl EventBuilder {
    pub(super) fn new(config: Arc<BuilderConfig>, progress: Arc<BuilderProgress>) -> Self {
        let sources = config.sources();
        Self {
            progress,
            boot: boot_of_host(),
            sources: SourceRegistry::new(sources),
            orders: OrderScheduler::new(config.clone()),
            assembler: Assembler::new(config.assembler()),
            datagrams: DatagramReassembler::default(),
            clocks: Clocks::new(sources),
            recorder: TrialRecorder::new(recorder_plan(&config)),
            round: None,
            fragment_gap_ns: 0,
            is_stopping: false,
            missing: Vec::new(),
            config,
        }
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.assembler.events.under_way().len() as u32
    }

    /// Fragments that must arrive before there is anything to do, and the mean time between two.
    pub(super) fn expected(&self) -> (u64, u64) {
        let missing = || self.assembler.events.missing();
        let fragments = self.orders.fragments_until_grant().unwrap_or_else(missing);
        (fragments, self.fragment_gap_ns)
    }

    /// When [`Self::handle_timers`] has something to do.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let dues = [self.orders.next_due_ns(), self.datagrams.next_due_ns(), self.probes_due_ns()];
        dues.into_iter().flatten().min()
    }

    /// Clock probes are most accurate while no event is under way.
    fn probes_due_ns(&self) -> Option<u64> {
        let delay_ns = if self.outstanding() > 0 { PROBE_DELAY_NS } else { 0 };
        self.clocks.next_due_ns().map(|due_ns| due_ns.saturating_add(delay_ns))
    }

    pub(super) fn handle_timers(&mut self, now_ns: u64, sockets: &mut Sockets) {
        while let Some(event) =
            self.with_context(sockets, |orders, context| orders.run_retransmits(now_ns, context))
        {
            match self.assembler.events.slot_of(event) {
                Some(slot) => self.end_event(slot),
                None => self.orders.end_event(event),
            }
            self.send_grants(sockets);
        }
        self.with_context(sockets, |orders, context| orders.request_lost_bytes(now_ns, context));
        if self.probes_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            while let Some(probe) = self.clocks.next_probe(monotonic_ns()) {
                self.orders.sender.send_clock_probe(probe, &self.sources, sockets);
            }
        }
    }

    /// A source sent a valid hello over the connection `at`.
    pub(super) fn source_connected(&mut self, source: u32, hello: Hello, at: Token, sockets: &mut Sockets) {
        let Some(peer) = sockets.connection(at).map(|connection| connection.peer) else { return };
        let is_same_kernel = self.boot != [0; 16] && hello.boot == self.boot;
        let (group, is_new) = self.clocks.join(hello.group, source, is_same_kernel, monotonic_ns());
        let congestion_control = Some(hello.congestion_control).filter(|name| !name.is_empty());
        sockets.identify(at, Identity { source, group, congestion_control });
        let udp = (hello.udp_port > 0).then(|| SocketAddr::new(peer.ip(), hello.udp_port));
        let was_connected = self.sources.connect(source, at, group);
        self.assembler.source_connected(source);
        self.assembler.ledger.reconnected += u64::from(was_connected);
        self.orders.sender.join(group, source, (peer.ip(), udp), is_new, &self.sources);
        self.with_context(sockets, |orders, context| {
            orders.source_connected(source, group, was_connected, context);
        });
        self.publish_connected();
    }

    /// Closes a connection; `reason`: why what it sent is refused.
    pub(super) fn close(&mut self, at: Token, reason: Option<&'static str>, sockets: &mut Sockets) {
        let Some(connection) = sockets.remove(at) else { return };
        let ledger = &mut self.assembler.ledger;
        let Some(Identity { source, group, .. }) = connection.identity else {
            let no_hello =
                if connection.parser.is_between_messages() { "no_hello" } else { "incomplete_hello" };
            let reason = reason.or_else(|| (!self.is_stopping).then_some(no_hello));
            return reason.into_iter().for_each(|reason| ledger.count_turned_away(reason));
        };
        reason.into_iter().for_each(|reason| ledger.count_refused(reason));
        if self.sources.disconnect(source, at) {
            self.assembler.source_disconnected(source);
            self.orders.source_disconnected(source);
            self.clocks.leave(group);
        }
        if !self.is_stopping {
            self.assembler.ledger.broken_connections += 1;
            self.publish_connected();
        }
    }

    fn publish_connected(&self) {
        self.progress.connected.store(self.sources.connected, Ordering::Relaxed);
    }

    /// Handles a datagram at the builder's UDP port: a clock answer, or with UDP (a part of) a fragment.
    /// `arrived_ns` is when it arrived; only clock answers need it.
    pub(super) fn handle_datagram(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        arrived_ns: impl FnOnce() -> u64,
    ) {
        let is_udp = self.config.settings.protocol == Carrier::Udp;
        let handled = match CommonHeader::read(datagram).map(|header| header.kind) {
            Ok(Kind::Sync) => FragmentHeader::decode(datagram)
                .map(|(answer, _)| self.handle_clock_answer(&answer, arrived_ns())),
            Ok(Kind::Fragment) if is_udp => {
                let (sender, sources) = (&self.orders.sender, &self.sources);
                let is_from = |source| sender.is_address_of(sources.group(source), from);
                self.datagrams.receive(datagram, is_from, &mut self.assembler)
            }
            Ok(_) => Err(WireError::Side),
            Err(error) => Err(error),
        };
        if let Err(error) = handled {
            self.assembler.ledger.count_turned_away(error.reason());
        }
    }

    pub(super) fn handle_clock_answer(&mut self, answer: &FragmentHeader, now_ns: u64) {
        if answer.run != self.config.run {
            self.assembler.ledger.count_turned_away("wrong_run");
        } else if answer.event == MULTICAST_PROBE {
            self.orders.sender.multicast_answered(self.sources.group(answer.source));
        } else {
            self.clocks.handle_answer(answer.event, answer.order_received_ns, answer.sent_ns, now_ns);
        }
    }

    /// Handles the fragments that were just accepted: returns their credit, ends complete events, sends the
    /// next grants.
    pub(super) fn process_fragments(&mut self, sockets: &mut Sockets) {
        let is_udp = self.config.settings.protocol == Carrier::Udp;
        let number = self.assembler.new_fragments.len();
        for at in 0..number {
            let fragment = self.assembler.new_fragments[at];
            let group = self.sources.group(fragment.source);
            let triggered_ns = self.assembler.events.event(fragment.slot).triggered_ns;
            let sent = self.clocks.send_time(group, fragment.sent_ns, triggered_ns, fragment.arrived_ns);
            if sent == SendTime::Implausible {
                self.recorder.implausible_time(fragment.source);
            }
            if self.orders.fragment_arrived(&fragment, sent.known()) {
                self.assembler.mark_recovered(&fragment);
            }
            if is_udp {
                self.datagrams.bytes_arrived(fragment.event, fragment.arrived_ns);
            }
        }
        self.assembler.new_fragments.clear();
        while let Some(slot) = self.assembler.complete.pop() {
            self.end_event(slot);
        }
        if number > 0 {
            self.send_grants(sockets);
        }
    }

    /// Begins an event whose trigger was due at `due_ns`.
    pub(super) fn begin_event(&mut self, event: u64, due_ns: u64, sockets: &mut Sockets) {
        let now_ns = monotonic_ns();
        let slot = self.assembler.events.begin(event, due_ns, now_ns);
        self.recorder.triggered(due_ns);
        self.with_context(sockets, |orders, context| orders.begin_event(event, slot, now_ns, context));
    }

    /// Orders the next source if the large fragment that arrives over this connection is nearly complete.
    pub(super) fn pull_next_early(&mut self, at: Token, sockets: &mut Sockets) {
        if !self.orders.pulls_early() {
            return;
        }
        let fragment =
            sockets.connection(at).and_then(|one| one.parser.nearly_complete(PULL_EARLY_BYTES)).copied();
        if let Some(FragmentHeader { event, source, payload_bytes, .. }) = fragment {
            self.with_context(sockets, |orders, context| {
                orders.fragment_arriving((event, source), payload_bytes, context);
            });
        }
    }

    fn with_context<T>(
        &mut self,
        sockets: &mut Sockets,
        run: impl FnOnce(&mut OrderScheduler, &mut OrderContext<'_>) -> T,
    ) -> T {
        let Self { orders, assembler, sources, datagrams, .. } = self;
        run(orders, &mut OrderContext { events: &assembler.events, sources, datagrams, sockets })
    }

    fn send_grants(&mut self, sockets: &mut Sockets) {
        self.with_context(sockets, |orders, context| orders.send_grants(None, context));
    }

    /// Ends an event that is complete, or whose time is over.
    fn end_event(&mut self, slot: u32) {
        let ended_ns = monotonic_ns();
        let Self { assembler, recorder, clocks, sources, orders, missing, datagrams, .. } = self;
        let event = assembler.events.event(slot);
        let sent_ns = |fragment: &Fragment| {
            let group = sources.group(fragment.source);
            clocks.send_time(group, fragment.sent_ns, event.triggered_ns, fragment.arrived_ns).known()
        };
        missing.clear();
        if event.fragments.len() < sources.sources() as usize {
            missing.extend(event.present.missing(sources.sources()));
        }
        let ended = EndedEvent {
            event: event.event,
            due_ns: event.due_ns,
            triggers_late_ns: event.triggers_late_ns,
            ended_ns,
            order_times: orders.times(slot),
            missing,
            gone: missing.iter().any(|&source| !sources.is_connected(source)),
            read_late_ns: event.read_late_ns,
            was_requested: datagrams.was_requested(event.event),
        };
        let fragments = event.fragments.iter().map(|fragment| ArrivedFragment {
            source: fragment.source,
            payload_bytes: fragment.payload_bytes,
            sent_ns: sent_ns(fragment),
            arrived_ns: fragment.arrived_ns,
            recovered: fragment.recovered,
        });
        let number = event.fragments.len().max(1) as u64;
        let times = recorder.ended(&ended, fragments);
        let is_complete = missing.is_empty();
        self.fragment_gap_ns = times.spread_ns / number;
        let counter = if is_complete { &self.progress.complete } else { &self.progress.incomplete };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(round) = &mut self.round {
            let EventTimes { took_ns, transit_ns, spread_ns, wire_bytes } = times;
            round.add_event(took_ns, transit_ns, is_complete, (wire_bytes, spread_ns), ended_ns);
        }
        self.forget_event(slot);
    }

    fn forget_event(&mut self, slot: u32) {
        let event = self.assembler.events.event(slot).event;
        self.orders.end_event(event);
        self.datagrams.end_event(event);
        self.assembler.end_event(slot);
    }

    /// The trial ends: cuts off the events under way. Returns of each source whether it is connected, and its
    /// congestion control.
    pub(super) fn stop(&mut self, sockets: &mut Sockets) -> Vec<(bool, Option<String>)> {
        while let Some(&(_, slot)) = self.assembler.events.under_way().first() {
            self.recorder.unfinished(self.assembler.events.event(slot).due_ns);
            self.forget_event(slot);
        }
        self.is_stopping = true;
        let state = |source: u32| {
            let identity =
                self.sources.connection(source).and_then(|at| sockets.connection(at)?.identity.as_ref());
            (identity.is_some(), identity.and_then(|identity| identity.congestion_control.clone()))
        };
        let states = (0..self.sources.sources()).map(state).collect();
        self.orders.sender.send_stop(sockets);
        states
    }

    pub(super) fn report(mut self) -> BuilderReport {
        let hold_ns = self.recorder.hold_ns();
        let report = &mut self.recorder.report;
        report.clocks = self.clocks.report(hold_ns);
        report.orders = self.orders.counts;
        report.outstanding_max = self.assembler.events.under_way_max as u32;
        report.memory_bytes_max = self.assembler.memory.held_bytes_max;
        report.ledger = std::mem::take(&mut self.assembler.ledger);
        self.recorder.report()
    }
}
