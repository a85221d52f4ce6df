//! A bottleneck with a FIFO queue, and TCP senders in front of it: packets, ACKs, losses, congestion windows
//! (Reno with slow start), pacing. Simulated time advances in steps of a quarter of a millisecond.

use std::collections::VecDeque;

use qos::law::{ClassSettings, Control, Law, Rank, Settings, SocketSample};

use crate::coordination::Coordination;
use crate::flow::{Flow, MSS, Receiver, Schedule};

const STEP_US: u64 = 250;
const TICK_US: u64 = 50_000;
const WATCH_US: u64 = (qos::law::WATCH_S * 1e6) as u64;
const BULK_CLASS: usize = 0;
const URGENT_CLASS: usize = 1;

/// A packet in the queue; `flow` is `None` for unmanaged datagrams.
struct Packet {
    flow: Option<usize>,
    sent_us: u64,
    /// Bytes of unmanaged data before it, for the flow's own count.
    bytes: u32,
}

/// One host: a law and the flows that it manages.
pub struct Host {
    pub law: Law,
    pub flows: std::ops::Range<usize>,
    /// Flows of the urgent classes that were seen to send.
    sending: Vec<(u64, bool)>,
}

impl Host {
    fn new(settings: Settings, flows: std::ops::Range<usize>) -> Self {
        Self { law: Law::new(settings), flows, sending: Vec::new() }
    }
}

/// One tick of one host.
#[derive(Debug, Clone)]
pub struct Record {
    pub at_s: f64,
    pub host: usize,
    pub control: Control,
    /// Bulk bytes of this host that arrived so far.
    pub bulk_bytes: f64,
}

pub struct Simulator {
    now_us: u64,
    pub capacity_bit_per_s: f64,
    pub buffer_bytes: u32,
    pub receiver: Receiver,
    /// Segments that a bulk flow sends at once: two with segmentation offload.
    pub at_once: u32,
    pub base_rtt_us: u64,
    pub udp_bit_per_s: f64,
    udp_credit: f64,
    link_credit: f64,
    queue: VecDeque<Packet>,
    queue_bytes: u32,
    pub flows: Vec<Flow>,
    pub hosts: Vec<Host>,
    /// Grants the hosts their rates; `None`: each is on its own.
    pub coordination: Option<Coordination>,
    pub records: Vec<Record>,
    /// Urgent messages: when sent, in seconds, and how long they took.
    pub responses: Vec<(f64, f64)>,
    /// Classes of the flows of these.
    pub response_classes: Vec<usize>,
    /// Messages since the last tick: flow, bytes, seconds.
    arrived: Vec<(usize, f64, f64)>,
    pub message_bytes: f64,
    pub message_every_us: u64,
    pub has_bulk: bool,
    /// Whether urgent sockets are looked at between ticks.
    pub is_watched: bool,
    /// Bulk flows that have nothing to send.
    pub silent: std::ops::Range<usize>,
    /// Until then no tick is made.
    pub stalled_until_us: u64,
    random: fastrand::Rng,
}

impl Simulator {
    /// One host with `bulk` greedy flows, and urgent flows of these classes.
    pub fn of_classes(
        settings: Settings,
        bulk: usize,
        urgent: &[(usize, Schedule)],
        buffer_bytes: u32,
    ) -> Self {
        let mut this = Self::new(1, bulk, 1.0, 0.0, buffer_bytes);
        this.flows.truncate(bulk);
        this.flows.extend(
            urgent
                .iter()
                .map(|(class, schedule)| Flow { schedule: Some(*schedule), ..Flow::new(*class, true) }),
        );
        this.hosts = vec![Host::new(settings, 0..this.flows.len())];
        this
    }

    /// Hosts with `bulk` greedy flows each; the first has two urgent flows as well.
    pub fn new(hosts: usize, bulk: usize, target_s: f64, message_bytes: f64, buffer_bytes: u32) -> Self {
        let mut flows = Vec::new();
        let mut all = Vec::new();
        for host in 0..hosts {
            let first = flows.len();
            flows.extend((0..bulk).map(|_| Flow::new(BULK_CLASS, true)));
            flows.extend((0..if host == 0 { 2 } else { 0 }).map(|_| Flow::new(URGENT_CLASS, true)));
            let settings = Settings {
                period_s: Settings::PERIOD_S,
                delay_s: 0.0,
                start_bit_per_s: qos::law::START_BIT_PER_S,
                given_bit_per_s: None,
                classes: vec![
                    ClassSettings::Bulk { weight: 1.0, floor: 0.0, ceiling: f64::INFINITY },
                    ClassSettings::Urgent { target_s, message_bytes, rank: Rank::default() },
                ],
            };
            all.push(Host::new(settings, first..flows.len()));
        }
        Self {
            now_us: 0,
            capacity_bit_per_s: 50e6,
            receiver: Receiver::AcknowledgesEverySecond,
            at_once: 1,
            buffer_bytes,
            base_rtt_us: 500,
            udp_bit_per_s: 0.0,
            udp_credit: 0.0,
            link_credit: 0.0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            flows,
            hosts: all,
            coordination: None,
            records: Vec::new(),
            responses: Vec::new(),
            response_classes: Vec::new(),
            arrived: Vec::new(),
            message_bytes,
            message_every_us: 50_000,
            has_bulk: true,
            is_watched: true,
            silent: 0..0,
            stalled_until_us: 0,
            random: fastrand::Rng::with_seed(7),
        }
    }

    /// Adds an unmanaged greedy flow.
    pub fn add_unmanaged(&mut self) {
        self.flows.push(Flow::new(BULK_CLASS, false));
    }

    pub fn now_s(&self) -> f64 {
        self.now_us as f64 * 1e-6
    }

    /// Runs until this second, with the rates of the fields.
    pub fn run_until(&mut self, end_s: f64) {
        while self.now_s() < end_s {
            self.now_us += STEP_US;
            self.offer();
            self.send();
            self.forward();
            self.receive();
            if let Some(coordination) = &mut self.coordination {
                coordination.step(self.now_us);
            }
            if self.now_us < self.stalled_until_us {
                continue;
            }
            if self.now_us.is_multiple_of(TICK_US) {
                self.tick();
            } else if self.is_watched && self.now_us.is_multiple_of(WATCH_US) {
                self.watch();
            }
        }
    }

    fn offer(&mut self) {
        for (at, flow) in self.flows.iter_mut().enumerate() {
            if flow.class == BULK_CLASS {
                let is_sending = self.has_bulk && !self.silent.contains(&at);
                flow.backlog_bytes = if is_sending || !flow.is_managed { f64::INFINITY } else { 0.0 };
                continue;
            }
            let Schedule { bytes, every_us, offset_us } = flow.schedule.unwrap_or(Schedule {
                bytes: self.message_bytes,
                every_us: self.message_every_us,
                offset_us: 23_750 * at as u64,
            });
            if (self.now_us + offset_us).is_multiple_of(every_us) {
                let segments = (bytes / f64::from(MSS)).ceil();
                flow.backlog_bytes += segments * f64::from(MSS);
                flow.segments_queued += segments as u64;
                flow.messages.push_back((self.now_us, flow.segments_queued));
            }
        }
    }

    fn send(&mut self) {
        self.udp_credit += self.udp_bit_per_s * STEP_US as f64 / 8e6;
        while self.udp_credit >= 1250.0 {
            self.udp_credit -= 1250.0;
            self.enqueue(None, 1250);
        }
        // No flow is always first.
        let first = self.random.usize(..self.flows.len());
        for offset in 0..self.flows.len() {
            let at = (first + offset) % self.flows.len();
            // An unpaced sender is limited by its interface.
            for _ in 0..64 {
                let flow = &mut self.flows[at];
                let segments = if flow.class == BULK_CLASS { self.at_once } else { 1 };
                let bytes = f64::from(segments * MSS);
                let may_send = flow.may_send_us <= self.now_us as f64;
                let is_full = f64::from(flow.inflight + segments) > flow.window;
                if flow.backlog_bytes < bytes || !may_send || is_full {
                    break;
                }
                // A pause is not made up for.
                let since_us = flow.may_send_us.max((self.now_us - STEP_US) as f64);
                flow.may_send_us = since_us + bytes * 8e6 / flow.pacing_bit_per_s;
                flow.backlog_bytes -= bytes;
                flow.inflight += segments;
                (0..segments).for_each(|_| self.enqueue(Some(at), MSS + 66));
            }
        }
    }

    fn enqueue(&mut self, flow: Option<usize>, bytes: u32) {
        if self.queue_bytes + bytes <= self.buffer_bytes {
            self.queue_bytes += bytes;
            self.queue.push_back(Packet { flow, sent_us: self.now_us, bytes });
        } else if let Some(at) = flow {
            // Seen when later packets are acknowledged.
            let queue_us = (f64::from(self.queue_bytes) * 8e6 / self.capacity_bit_per_s) as u64;
            self.flows[at].losses.push_back(self.now_us + queue_us + self.base_rtt_us);
        }
    }

    fn forward(&mut self) {
        let step_bytes = self.capacity_bit_per_s * STEP_US as f64 / 8e6;
        self.link_credit = (self.link_credit + step_bytes).min(step_bytes + 1514.0);
        while let Some(packet) = self.queue.front() {
            if self.link_credit < f64::from(packet.bytes) {
                break;
            }
            self.link_credit -= f64::from(packet.bytes);
            self.queue_bytes -= packet.bytes;
            let Some(packet) = self.queue.pop_front() else { break };
            if let Some(at) = packet.flow {
                let arrives_us = self.now_us + self.base_rtt_us;
                self.flows[at].acks.push_back((arrives_us, arrives_us - packet.sent_us));
            }
        }
    }

    fn receive(&mut self) {
        for (at, flow) in self.flows.iter_mut().enumerate() {
            while flow.losses.front().is_some_and(|at| *at <= self.now_us) {
                flow.losses.pop_front();
                flow.lose(self.now_us);
            }
            while flow.acks.front().is_some_and(|(at, _)| *at <= self.now_us) {
                let Some((_, rtt_us)) = flow.acks.pop_front() else { break };
                if let Some(took_us) = flow.arrive(self.now_us, rtt_us, self.receiver) {
                    let bytes = flow.schedule.map_or(self.message_bytes, |schedule| schedule.bytes);
                    self.arrived.push((at, bytes, took_us as f64 * 1e-6));
                    let sent_s = (self.now_us - took_us) as f64 * 1e-6;
                    self.responses.push((sent_s, took_us as f64 * 1e-6));
                    self.response_classes.push(flow.class);
                }
            }
            flow.wait_for_second(self.now_us);
        }
    }

    fn watch(&mut self) {
        for host in &mut self.hosts {
            let mut changed = Vec::new();
            for (id, was_sending) in &mut host.sending {
                let flow = &self.flows[*id as usize];
                let is_sending = flow.inflight > 0 || flow.backlog_bytes > 0.0;
                if std::mem::replace(was_sending, is_sending) != is_sending {
                    changed.push((*id, is_sending));
                }
            }
            if changed.is_empty() {
                continue;
            }
            let reaction = host.law.follow_messages(self.now_us * 1000, &changed);
            for rate in reaction.into_iter().flat_map(|reaction| reaction.rates) {
                self.flows[rate.id as usize].pacing_bit_per_s = rate.bit_per_s;
            }
        }
    }

    fn tick(&mut self) {
        for at in 0..self.hosts.len() {
            let range = self.hosts[at].flows.clone();
            let samples: Vec<SocketSample> =
                range.clone().map(|flow| self.flows[flow].sample(flow, self.now_us)).collect();
            let urgent = samples.iter().filter(|sample| sample.class != BULK_CLASS);
            self.hosts[at].sending = urgent.map(|sample| (sample.id, sample.is_active())).collect();
            let law = &mut self.hosts[at].law;
            for (_, bytes, took_s) in self.arrived.iter().filter(|(flow, ..)| range.contains(flow)) {
                law.message_arrived(*bytes, *took_s);
            }
            if self.is_watched {
                law.set_watched(vec![true; law.settings().classes.len()]);
            }
            let control = match &mut self.coordination {
                Some(coordination) => coordination.tick(at, law, self.now_us, &samples),
                None => law.tick(self.now_us * 1000, &samples),
            };
            for rate in &control.rates {
                self.flows[rate.id as usize].pacing_bit_per_s = rate.bit_per_s;
            }
            let bulk = self.flows[range].iter().filter(|flow| flow.class == BULK_CLASS);
            let bulk_bytes = bulk.map(|flow| f64::from(flow.delivered) * f64::from(MSS)).sum();
            self.records.push(Record { at_s: self.now_s(), host: at, control, bulk_bytes });
        }
        self.arrived.clear();
    }
}
