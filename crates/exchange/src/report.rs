//! What the parts of a trial report: plain data for the judge.

use std::collections::BTreeMap;

use base::histogram::Histogram;
use serde::{Deserialize, Serialize};
use sys::net::TcpInfo;

use crate::server::BackgroundCount;

/// The report of the clients of one host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientsReport {
    pub classes: Vec<ClassReport>,
    /// The hold, in seconds after the start.
    pub hold_s: (f64, f64),
    /// Length of a slot, s.
    pub slot_s: f64,
    /// Share of a CPU that the busiest thread used in its busiest second.
    pub busiest: Option<f64>,
    /// Whether it was ended before its time.
    pub stopped: bool,
    /// Why it broke off, if it did.
    pub broke_off: Option<String>,
    /// The protocol used with the server of a URL, such as `HTTP/2 over TLS`.
    pub protocol_used: Option<String>,
    /// The address of the server.
    pub server: String,
}

/// What the messages of one class came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassReport {
    pub name: String,
    pub clients: u64,
    pub answered: u64,
    /// Answered messages within the target; all of a class without one.
    pub in_time: u64,
    pub errors: u64,
    /// Errors by their kind.
    pub faults: BTreeMap<String, u64>,
    /// Some errors word by word.
    pub messages: Vec<String>,
    /// Payload of answered messages, without their replies.
    pub bytes: u64,
    /// Messages that the generator sent late.
    pub late: u64,
    pub late_ns_max: u64,
    /// From the intended moment to the last byte of the reply.
    pub response: Histogram,
    /// Until the kernel had accepted the last byte.
    pub write: Histogram,
    /// From there to the last byte of the reply, without the server's time where that is known.
    pub network: Histogram,
    /// As the server reports it.
    pub server: Option<Histogram>,
    /// Sums over all answered messages, ns: due and not yet begun, connecting, and the three above.
    pub wait_ns: u64,
    pub connect_ns: u64,
    pub write_ns: u64,
    pub network_ns: u64,
    pub server_ns: u64,
    /// First intended moment and last reply, ns of the clients' host.
    pub span_ns: Option<(u64, u64)>,
    /// By the time of the reply.
    pub slots: Vec<Slot>,
    /// Memory of the sockets over time.
    pub memory: Vec<MemorySample>,
    /// The same of each client, if they are few.
    pub clients_memory: Vec<ClientMemory>,
    pub waits: Waits,
    /// Connections that `waits` sums up.
    pub connections: u64,
    /// Most streams of HTTP/2 in use at a time on a connection.
    pub streams: Option<u64>,
    /// The least number of streams at a time that the server allowed on a connection, if it limits them.
    pub streams_allowed: Option<u64>,
}

/// Messages whose end fell into one slot of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    pub answered: u64,
    /// Within the target; without one, all.
    #[serde(default)]
    pub in_time: u64,
    pub errors: u64,
    pub response_ns_sum: u64,
    pub response_ns_max: u64,
}

/// Memory of the sockets of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySample {
    pub at_s: f64,
    pub total_bytes: u64,
    pub max_bytes: u64,
}

/// Memory of the socket of one client over time: seconds and bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientMemory {
    pub client: u32,
    pub samples: Vec<(f64, u64)>,
}

/// What connections waited for, summed up (`TCP_INFO`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    pub retransmits: u64,
    /// The least round-trip time of all connections; 0: not known.
    pub rtt_min_us: u64,
}

impl Waits {
    /// Counters that the kernel does not have are 0 of a busy time of 0.
    pub fn of(info: &TcpInfo) -> Self {
        Self {
            busy_us: info.busy_us.unwrap_or(0),
            rwnd_limited_us: info.rwnd_limited_us.unwrap_or(0),
            sndbuf_limited_us: info.sndbuf_limited_us.unwrap_or(0),
            retransmits: info.retransmits_total.unwrap_or(0).into(),
            rtt_min_us: info.min_rtt_us.unwrap_or(0).into(),
        }
    }

    #[must_use]
    pub fn since(&self, base: &Self) -> Self {
        Self {
            busy_us: self.busy_us.saturating_sub(base.busy_us),
            rwnd_limited_us: self.rwnd_limited_us.saturating_sub(base.rwnd_limited_us),
            sndbuf_limited_us: self.sndbuf_limited_us.saturating_sub(base.sndbuf_limited_us),
            retransmits: self.retransmits.saturating_sub(base.retransmits),
            rtt_min_us: self.rtt_min_us,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.busy_us += other.busy_us;
        self.rwnd_limited_us += other.rwnd_limited_us;
        self.sndbuf_limited_us += other.sndbuf_limited_us;
        self.retransmits += other.retransmits;
        self.rtt_min_us = match (self.rtt_min_us, other.rtt_min_us) {
            (0, known) | (known, 0) => known,
            (one, another) => one.min(another),
        };
    }
}

/// The report of the background's sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackgroundReport {
    pub sent_bytes: u64,
    /// While it sent, s.
    pub elapsed_s: f64,
    /// What arrived; absent if the server did not say.
    pub delivered: Option<BackgroundCount>,
    pub broke_off: Option<String>,
}

impl ClientsReport {
    /// The reports of several threads or hosts as one; `None` without any.
    pub fn of_all(reports: impl IntoIterator<Item = Self>) -> Option<Self> {
        reports.into_iter().reduce(|mut all, mut other| {
            // Those that ran longer have longer slots.
            let slot_s = all.slot_s.max(other.slot_s);
            all.lengthen_slots(slot_s);
            other.lengthen_slots(slot_s);
            for class in other.classes {
                match all.classes.iter_mut().find(|one| one.name == class.name) {
                    Some(one) => one.add(class),
                    None => all.classes.push(class),
                }
            }
            all.hold_s = (all.hold_s.0.min(other.hold_s.0), all.hold_s.1.max(other.hold_s.1));
            all.busiest = all.busiest.into_iter().chain(other.busiest).reduce(f64::max);
            all.stopped |= other.stopped;
            all.protocol_used = all.protocol_used.or(other.protocol_used);
            all.broke_off = all.broke_off.or(other.broke_off);
            all
        })
    }

    /// Slots are as long as their first length times a power of two.
    fn lengthen_slots(&mut self, slot_s: f64) {
        while self.slot_s > 0.0 && self.slot_s < slot_s {
            self.slot_s *= 2.0;
            self.classes.iter_mut().for_each(ClassReport::halve_resolution);
        }
    }
}

impl Slot {
    fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.in_time += other.in_time;
        self.errors += other.errors;
        self.response_ns_sum += other.response_ns_sum;
        self.response_ns_max = self.response_ns_max.max(other.response_ns_max);
    }
}

impl ClassReport {
    /// Adds the report of other clients of the class.
    pub fn add(&mut self, other: Self) {
        self.clients += other.clients;
        self.answered += other.answered;
        self.in_time += other.in_time;
        self.errors += other.errors;
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self.messages.extend(other.messages);
        self.bytes += other.bytes;
        self.late += other.late;
        self.late_ns_max = self.late_ns_max.max(other.late_ns_max);
        self.response.merge(&other.response);
        self.write.merge(&other.write);
        self.network.merge(&other.network);
        if let Some(server) = &other.server {
            self.server.get_or_insert_with(Histogram::default).merge(server);
        }
        self.wait_ns += other.wait_ns;
        self.connect_ns += other.connect_ns;
        self.write_ns += other.write_ns;
        self.network_ns += other.network_ns;
        self.server_ns += other.server_ns;
        self.span_ns = match (self.span_ns, other.span_ns) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, another) => one.or(another),
        };
        if self.slots.len() < other.slots.len() {
            self.slots.resize(other.slots.len(), Slot::default());
        }
        for (own, other) in self.slots.iter_mut().zip(&other.slots) {
            own.add(other);
        }
        self.add_memory(&other.memory);
        self.clients_memory.extend(other.clients_memory);
        self.waits.add(&other.waits);
        self.connections += other.connections;
        self.streams = self.streams.max(other.streams);
        self.streams_allowed = self.streams_allowed.into_iter().chain(other.streams_allowed).min();
    }

    /// Makes one slot of each two, and keeps every second sample of the memory.
    pub(crate) fn halve_resolution(&mut self) {
        let pair = |pair: &[Slot]| {
            let mut sum = Slot::default();
            pair.iter().for_each(|slot| sum.add(slot));
            sum
        };
        self.slots = self.slots.chunks(2).map(pair).collect();
        self.memory = self.memory.iter().step_by(2).copied().collect();
        for client in &mut self.clients_memory {
            client.samples = client.samples.iter().step_by(2).copied().collect();
        }
    }

    /// Threads and hosts sample at nearly the same moments.
    fn add_memory(&mut self, other: &[MemorySample]) {
        for (at, sample) in other.iter().enumerate() {
            match self.memory.get_mut(at) {
                Some(own) => {
                    own.total_bytes += sample.total_bytes;
                    own.max_bytes = own.max_bytes.max(sample.max_bytes);
                }
                None => self.memory.push(*sample),
            }
        }
    }

    /// Messages that were due.
    pub fn due(&self) -> u64 {
        self.answered + self.errors
    }

    /// Share of the messages that were due whose reply came within the target.
    pub fn in_time_ratio(&self) -> Option<f64> {
        (self.due() > 0).then(|| self.in_time as f64 / self.due() as f64)
    }

    /// A sum over all answered messages as their mean, ms.
    pub fn mean_ms(&self, sum_ns: u64) -> Option<f64> {
        (self.answered > 0).then(|| sum_ns as f64 / self.answered as f64 / 1e6)
    }

    /// The mean response time, ms: exact, unlike the histogram's.
    pub fn response_mean_ms(&self) -> Option<f64> {
        self.mean_ms(self.wait_ns + self.connect_ns + self.write_ns + self.network_ns + self.server_ns)
    }
}
