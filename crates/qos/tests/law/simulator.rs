//! A bottleneck with a FIFO queue, and TCP senders in front of it: packets, ACKs, losses, congestion windows
//! (Reno with slow start), pacing. Simulated time advances in steps of a quarter of a millisecond.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use qos::law::{ClassSettings, Control, Law, Rank, Settings, SocketSample};

use crate::coordination::Coordination;

const STEP_US: u64 = 250;
const MSS: u32 = 1448;
const TICK_US: u64 = 50_000;
const WINDOW_FIRST: f64 = 10.0;
const BULK_CLASS: usize = 0;
const URGENT_CLASS: usize = 1;

/// A packet in the queue; `flow` is `None` for unmanaged datagrams.
struct Packet {
    flow: Option<usize>,
    sent_us: u64,
    /// Bytes of unmanaged data before it, for the flow's own count.
    bytes: u32,
}

/// Messages of one urgent flow.
#[derive(Clone, Copy)]
pub struct Schedule {
    pub bytes: f64,
    pub every_us: u64,
    pub offset_us: u64,
}

pub struct Flow {
    pub class: usize,
    /// `None`: as the simulator's fields say, each flow at another time.
    schedule: Option<Schedule>,
    pub is_managed: bool,
    pacing_bit_per_s: f64,
    /// The pacing timer: a change of the rate does not move it.
    may_send_us: f64,
    window: f64,
    threshold: f64,
    inflight: u32,
    /// Bytes that wait to be sent; infinite for bulk.
    pub backlog_bytes: f64,
    acks: VecDeque<(u64, u64)>,
    losses: VecDeque<u64>,
    recovery_until_us: u64,
    acks_pending: u32,
    srtt_us: f64,
    min_rtt_us: u32,
    segs_in: u32,
    pub delivered: u32,
    total_retrans: u32,
    /// Messages: when sent, and the number of segments after which each is complete.
    messages: VecDeque<(u64, u64)>,
    segments_queued: u64,
    segments_done: u64,
}

impl Flow {
    fn new(class: usize, is_managed: bool) -> Self {
        Self {
            class,
            schedule: None,
            is_managed,
            pacing_bit_per_s: f64::INFINITY,
            may_send_us: 0.0,
            window: WINDOW_FIRST,
            threshold: f64::INFINITY,
            inflight: 0,
            backlog_bytes: 0.0,
            acks: VecDeque::new(),
            losses: VecDeque::new(),
            recovery_until_us: 0,
            acks_pending: 0,
            srtt_us: 0.0,
            min_rtt_us: 0,
            segs_in: 0,
            delivered: 0,
            total_retrans: 0,
            messages: VecDeque::new(),
            segments_queued: 0,
            segments_done: 0,
        }
    }

    fn acknowledge(&mut self, now_us: u64, rtt_us: u64) -> Option<u64> {
        self.inflight = self.inflight.saturating_sub(1);
        self.delivered = self.delivered.wrapping_add(1);
        self.segments_done += 1;
        self.acks_pending += 1;
        // Every second segment is acknowledged, and the last one.
        if self.acks_pending == 2 || self.inflight == 0 {
            self.acks_pending = 0;
            self.segs_in = self.segs_in.wrapping_add(1);
            let rtt = rtt_us as f64;
            self.srtt_us = if self.srtt_us == 0.0 { rtt } else { self.srtt_us * 7.0 / 8.0 + rtt / 8.0 };
            self.min_rtt_us = match self.min_rtt_us {
                0 => rtt_us as u32,
                least => least.min(rtt_us as u32),
            };
        }
        let used = f64::from(self.inflight) + 1.0;
        if self.window < self.threshold && 2.0 * used >= self.window {
            self.window += 1.0;
        } else if used >= self.window - 1.0 {
            self.window += 1.0 / self.window;
        }
        let (sent_us, last) = *self.messages.front()?;
        (self.segments_done >= last).then(|| {
            self.messages.pop_front();
            now_us - sent_us
        })
    }

    fn lose(&mut self, now_us: u64) {
        self.inflight = self.inflight.saturating_sub(1);
        self.total_retrans = self.total_retrans.wrapping_add(1);
        self.backlog_bytes += f64::from(MSS);
        if now_us >= self.recovery_until_us {
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = self.threshold;
            self.recovery_until_us = now_us + self.srtt_us as u64;
        }
    }

    fn sample(&self, id: usize, now_us: u64) -> SocketSample {
        SocketSample {
            id: id as u64,
            peer: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            class: self.class,
            time_ns: now_us * 1000,
            srtt_us: self.srtt_us as u32,
            min_rtt_us: self.min_rtt_us,
            segs_in: self.segs_in,
            delivered: self.delivered,
            mss: MSS,
            unacked: self.inflight,
            sacked: 0,
            lost: 0,
            retrans: 0,
            total_retrans: self.total_retrans,
            notsent_bytes: self.backlog_bytes.min(1e6) as u32,
        }
    }
}

/// One host: a law and the flows that it manages.
pub struct Host {
    pub law: Law,
    pub flows: std::ops::Range<usize>,
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
    pub message_bytes: f64,
    pub message_every_us: u64,
    pub has_bulk: bool,
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
        this.hosts = vec![Host { law: Law::new(settings), flows: 0..this.flows.len() }];
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
            all.push(Host { law: Law::new(settings), flows: first..flows.len() });
        }
        Self {
            now_us: 0,
            capacity_bit_per_s: 50e6,
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
            message_bytes,
            message_every_us: 50_000,
            has_bulk: true,
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
            if self.now_us.is_multiple_of(TICK_US) && self.now_us >= self.stalled_until_us {
                self.tick();
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
                let has_data = flow.backlog_bytes >= f64::from(MSS);
                let may_send = flow.may_send_us <= self.now_us as f64;
                if !has_data || !may_send || f64::from(flow.inflight) + 1.0 > flow.window {
                    break;
                }
                // A pause is not made up for.
                let since_us = flow.may_send_us.max((self.now_us - STEP_US) as f64);
                flow.may_send_us = since_us + f64::from(MSS) * 8e6 / flow.pacing_bit_per_s;
                flow.backlog_bytes -= f64::from(MSS);
                flow.inflight += 1;
                self.enqueue(Some(at), MSS + 66);
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
        for flow in &mut self.flows {
            while flow.losses.front().is_some_and(|at| *at <= self.now_us) {
                flow.losses.pop_front();
                flow.lose(self.now_us);
            }
            while flow.acks.front().is_some_and(|(at, _)| *at <= self.now_us) {
                let Some((_, rtt_us)) = flow.acks.pop_front() else { break };
                if let Some(took_us) = flow.acknowledge(self.now_us, rtt_us) {
                    let sent_s = (self.now_us - took_us) as f64 * 1e-6;
                    self.responses.push((sent_s, took_us as f64 * 1e-6));
                    self.response_classes.push(flow.class);
                }
            }
        }
    }

    fn tick(&mut self) {
        for at in 0..self.hosts.len() {
            let range = self.hosts[at].flows.clone();
            let samples: Vec<SocketSample> =
                range.clone().map(|flow| self.flows[flow].sample(flow, self.now_us)).collect();
            let law = &mut self.hosts[at].law;
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
    }
}
