//! Rates of UDP sockets: an HTB in front of the bottleneck's interface, with a class for each class of the
//! policy. UDP sockets get the number of their class as priority. Packets of all other sockets have no class
//! and pass without limit: TCP is paced at its sockets.

use std::collections::VecDeque;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::journal::Journal;
use sys::shaping::{ClassReading, Htb, HtbClass};

use super::discovery::Found;
use super::messages::Messages;
use crate::SOCKET_RATE_MIN;
use crate::allocate::USABLE;
use crate::datagram_share::{BulkUse, datagram_ceilings};
use crate::law::{CHANGE_MIN, Control, PAYLOAD_SHARE, START_BIT_PER_S, State};
use crate::policy::{Capacity, Policy};

/// Class above all others, and the class of the first class of the policy.
const ROOT: u16 = 1;
const FIRST: u16 = 2;
/// The rate of the class above all others if the capacity is not given: more than any interface has.
const UNLIMITED: u64 = 1_000_000_000_000;
/// Bulk waits behind all urgent classes.
const BULK_PRIORITY: u8 = 7;
/// How long after a failure it is tried again, and how long the discipline stays without UDP sockets.
const RETRY_AFTER: Duration = Duration::from_secs(10);
const KEEP_FOR: Duration = Duration::from_secs(10);
/// Readings that are kept, one per tick, and those that the rate that the law counts with is taken from.
const READINGS: usize = 20;
const READINGS_SHORT: usize = 4;

/// Counters of one class of the policy.
#[derive(Debug, Clone, Default)]
pub struct DatagramClass {
    /// Time on the monotonic clock, and bytes sent.
    readings: VecDeque<(u64, u64)>,
    /// Sent and dropped by disciplines that have been removed, bytes and packets.
    before_bytes: u64,
    before_drops: u32,
    last: Option<ClassReading>,
    /// What it may send at most, bit/s of the link: as the law asks, and as it was set last.
    asked: Option<f64>,
    set: Option<f64>,
    /// `acked_bytes` of its TCP sockets at the last tick.
    tcp_bytes: u64,
}

impl DatagramClass {
    /// What it sent over the last readings, bit/s of the link.
    fn rate(&self, readings: usize) -> Option<f64> {
        let (end, bytes_end) = *self.readings.back()?;
        let (begin, bytes) = *self.readings.iter().rev().nth(readings).or(self.readings.front())?;
        let s = end.saturating_sub(begin) as f64 * 1e-9;
        (s > 0.0).then(|| 8.0 * bytes_end.saturating_sub(bytes) as f64 / s)
    }

    pub fn sent_bytes(&self) -> u64 {
        self.before_bytes + self.last.map_or(0, |reading| reading.bytes)
    }

    /// Packets that the queue of the class had no room for.
    pub fn drops(&self) -> u32 {
        self.before_drops.saturating_add(self.last.map_or(0, |reading| reading.drops))
    }

    pub fn sent_bit_per_s(&self) -> Option<f64> {
        self.rate(READINGS)
    }

    pub fn asked_bit_per_s(&self) -> Option<f64> {
        self.asked
    }

    pub fn enforced_bit_per_s(&self) -> Option<f64> {
        self.set
    }

    /// As the kernel reports the class.
    pub fn reading(&self) -> Option<&ClassReading> {
        self.last.as_ref()
    }

    fn is_active(&self) -> bool {
        let waits = self.last.is_some_and(|reading| reading.backlog_bytes > 0);
        waits || self.rate(READINGS_SHORT).is_some_and(|rate| rate > 0.0)
    }

    /// The discipline is gone.
    fn removed(&mut self) {
        (self.before_bytes, self.before_drops) = (self.sent_bytes(), self.drops());
        (self.last, self.asked, self.set) = (None, None, None);
        self.readings.clear();
    }
}

#[derive(Debug)]
pub struct Datagrams {
    journal: Journal,
    interface: String,
    htb: Option<Htb>,
    classes: Vec<DatagramClass>,
    retry: Deadline,
    /// Until when the discipline stays without UDP sockets.
    keep: Deadline,
    /// Payload that the link carries, as a queue has shown, bit/s.
    link: Option<f64>,
    /// When `tcp_bytes` of the classes were read; monotonic clock.
    tcp_read_ns: Option<u64>,
}

impl Datagrams {
    pub fn new(policy: &Policy, journal: &Journal) -> Self {
        Self {
            journal: journal.clone(),
            interface: policy.bottleneck.interface.clone(),
            htb: None,
            classes: vec![DatagramClass::default(); policy.classes.len()],
            retry: Deadline::after(Duration::ZERO),
            keep: Deadline::after(Duration::ZERO),
            link: None,
            tcp_read_ns: None,
        }
    }

    /// The priority that UDP sockets of a class are to have; `None`: they are not limited.
    pub fn priority(&self, class: usize) -> Option<u32> {
        self.htb.as_ref().map(|htb| htb.socket_priority(minor(class)))
    }

    pub fn of_class(&self, class: usize) -> &DatagramClass {
        &self.classes[class]
    }

    /// Reads what the classes have sent. Returns a problem.
    pub fn read(&mut self) -> Option<String> {
        let htb = self.htb.as_mut()?;
        let read = match htb.read() {
            Ok(read) if !read.is_empty() => read,
            Ok(_) => return Some(self.lost("another program has removed it")),
            Err(error) => return Some(self.lost(&error.to_string())),
        };
        let now = monotonic_ns();
        for (at, class) in self.classes.iter_mut().enumerate() {
            let Some(reading) = read.get(&minor(at)) else { continue };
            class.last = Some(*reading);
            if class.readings.len() > READINGS {
                class.readings.pop_front();
            }
            class.readings.push_back((now, reading.bytes));
        }
        None
    }

    /// What UDP sockets send, by class: bit/s of payload, as far as TCP's headers are as long.
    pub fn sent(&self) -> Vec<f64> {
        let rate = |class: &DatagramClass| class.rate(READINGS_SHORT).unwrap_or(0.0) * PAYLOAD_SHARE;
        self.classes.iter().map(rate).collect()
    }

    /// What UDP sockets of bulk classes send, in bit/s as [`Self::sent`].
    pub fn sent_by_bulk(&self, policy: &Policy) -> f64 {
        let classes = policy.classes.iter().zip(self.sent());
        classes.filter(|(class, _)| !class.is_urgent()).map(|(_, rate)| rate).sum()
    }

    /// Sets the rates of the classes; makes the discipline if there is a UDP socket to limit. Returns a
    /// problem.
    pub fn enforce(
        &mut self,
        policy: &Policy,
        found: &[Found],
        control: &Control,
        messages: &Messages,
    ) -> Option<String> {
        let is_limited = |found: &Found| {
            let class = &policy.classes[found.class];
            found.flow.tcp.is_none() && (!class.is_urgent() || class.ceiling.is_some())
        };
        if found.iter().any(is_limited) {
            self.keep = Deadline::after(KEEP_FOR);
        } else if self.keep.passed() {
            self.remove();
        }
        let asked = self.ceilings(policy, found, control, messages);
        if self.keep.passed() || (self.htb.is_none() && !self.retry.passed()) {
            return None;
        }
        let is_new = self.htb.is_none();
        let set = self.create(policy).and_then(|()| self.set(policy, &asked));
        let error = set.err()?;
        match is_new {
            true => {
                self.remove();
                self.retry = Deadline::after(RETRY_AFTER);
                Some(format!("UDP of no class is limited: {error}"))
            }
            false => Some(self.lost(&error.to_string())),
        }
    }

    /// Bulk has this multiple of what it had at the last step. Returns a problem.
    pub fn follow(&mut self, policy: &Policy, bulk_factor: f64) -> Option<String> {
        let asked = |(at, class): (usize, &DatagramClass)| {
            let asked = class.asked.unwrap_or(most(policy, at));
            let factor = if policy.classes[at].is_urgent() { 1.0 } else { bulk_factor };
            (factor * asked).min(most(policy, at))
        };
        let asked: Vec<f64> = self.classes.iter().enumerate().map(asked).collect();
        self.set(policy, &asked).err().map(|error| self.lost(&error.to_string()))
    }

    fn create(&mut self, policy: &Policy) -> sys::Result<()> {
        if self.htb.is_some() {
            return Ok(());
        }
        let mut htb = Htb::create(&self.journal, &self.interface, 0)?;
        let rate = match policy.bottleneck.capacity {
            Capacity::Given(capacity) => (USABLE * capacity.bit_per_s() as f64) as u64,
            Capacity::Estimate => UNLIMITED,
        };
        htb.add_class(ROOT, None, HtbClass { rate_bit_per_s: rate, ceil_bit_per_s: rate, priority: 0 })?;
        for at in 0..policy.classes.len() {
            htb.add_class(minor(at), Some(ROOT), htb_class(policy, at, SOCKET_RATE_MIN))?;
        }
        self.htb = Some(htb);
        Ok(())
    }

    fn set(&mut self, policy: &Policy, asked: &[f64]) -> sys::Result<()> {
        let Some(htb) = &mut self.htb else { return Ok(()) };
        for (at, (class, asked)) in self.classes.iter_mut().zip(asked).enumerate() {
            class.asked = Some(*asked);
            // A ceiling of the policy is set exactly.
            let change_min = if *asked == most(policy, at) { 1e-4 } else { CHANGE_MIN };
            let is_same = |set: f64| (asked / set - 1.0).abs() < change_min;
            let in_kernel = class.last.map(|reading| 8.0 * reading.ceil_bytes_per_s as f64);
            if class.set.is_some_and(is_same) && in_kernel.is_none_or(is_same) {
                continue;
            }
            let wanted = htb_class(policy, at, *asked);
            htb.set_class(minor(at), wanted)?;
            class.set = Some(wanted.ceil_bit_per_s as f64);
        }
        Ok(())
    }

    /// What the UDP sockets of each class may send, bit/s of the link.
    fn ceilings(
        &mut self,
        policy: &Policy,
        found: &[Found],
        control: &Control,
        messages: &Messages,
    ) -> Vec<f64> {
        let now_ns = monotonic_ns();
        let before_ns = self.tcp_read_ns.replace(now_ns);
        // A step may come late.
        let since_s = before_ns.map(|before_ns| now_ns.saturating_sub(before_ns) as f64 * 1e-9);
        let sent = self.sent();
        let bulk: Vec<usize> =
            (0..policy.classes.len()).filter(|at| !policy.classes[*at].is_urgent()).collect();
        let of_bulk: f64 = bulk.iter().map(|at| sent[*at]).sum();
        if control.state == State::Draining && control.is_known {
            self.link = Some(control.capacity_bit_per_s + sent.iter().sum::<f64>());
        }
        let is_given = matches!(policy.bottleneck.capacity, Capacity::Given(_));
        let total = match (control.state, self.link) {
            (State::Given, _) => control.bulk_bit_per_s,
            // UDP of this host is in its share.
            (State::Leased, _) if is_given => control.bulk_bit_per_s,
            (State::Idle | State::Blind, link) => link.map_or(START_BIT_PER_S, |link| USABLE * link),
            (_, link) => (control.bulk_bit_per_s + of_bulk).min(link.unwrap_or(f64::INFINITY)),
        };
        let mut uses = Vec::with_capacity(bulk.len());
        for &at in &bulk {
            let acked = messages.of_class(at).acked_bytes;
            let before = std::mem::replace(&mut self.classes[at].tcp_bytes, acked);
            let waits = |found: &Found| {
                let info = found.flow.tcp.as_ref();
                found.class == at && info.is_some_and(|info| info.notsent_bytes > Some(0))
            };
            let class = &policy.classes[at];
            uses.push(BulkUse {
                weight: class.weight,
                floor: class.floor.bit_per_s() as f64,
                ceiling: class.ceiling.map_or(f64::INFINITY, |rate| rate.bit_per_s() as f64),
                tcp_bit_per_s: since_s
                    .filter(|s| *s > 0.0)
                    .map_or(0.0, |s| 8.0 * acked.saturating_sub(before) as f64 / s),
                is_tcp_backlogged: found.iter().any(waits),
                is_udp_active: self.classes[at].is_active(),
            });
        }
        let mut ceilings: Vec<f64> = (0..policy.classes.len()).map(|at| most(policy, at)).collect();
        for (at, ceiling) in bulk.into_iter().zip(datagram_ceilings(total, &uses)) {
            ceilings[at] = (ceiling / PAYLOAD_SHARE).min(most(policy, at));
        }
        ceilings
    }

    fn remove(&mut self) {
        if self.htb.take().is_some() {
            self.classes.iter_mut().for_each(DatagramClass::removed);
        }
    }

    fn lost(&mut self, why: &str) -> String {
        self.remove();
        self.retry = Deadline::after(RETRY_AFTER);
        format!("UDP of no class is limited for the moment: the discipline of {}: {why}", self.interface)
    }
}

fn minor(class: usize) -> u16 {
    FIRST + class as u16
}

/// The most that UDP of a class may send, bit/s of the link.
fn most(policy: &Policy, class: usize) -> f64 {
    let limit = policy.classes[class].ceiling.map_or(UNLIMITED, base::units::BitRate::bit_per_s);
    match policy.bottleneck.capacity {
        Capacity::Given(capacity) => limit.min(capacity.bit_per_s()) as f64,
        Capacity::Estimate => limit as f64,
    }
}

fn htb_class(policy: &Policy, at: usize, ceil: f64) -> HtbClass {
    let class = &policy.classes[at];
    let ceil_bit_per_s = (ceil as u64).clamp(SOCKET_RATE_MIN as u64, UNLIMITED);
    // More urgent classes that the policy has: the kernel knows eight priorities.
    let above = |other: &&crate::policy::Class| other.is_urgent() && other.priority < class.priority;
    let rank = policy.classes.iter().filter(above).count().min(usize::from(BULK_PRIORITY) - 1);
    HtbClass {
        rate_bit_per_s: class.floor.bit_per_s().clamp(SOCKET_RATE_MIN as u64, ceil_bit_per_s),
        ceil_bit_per_s,
        priority: if class.is_urgent() { rank as u8 } else { BULK_PRIORITY },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_outlast_their_discipline() {
        let reading = ClassReading { bytes: 500, drops: 3, ..ClassReading::default() };
        let mut class = DatagramClass { last: Some(reading), ..DatagramClass::default() };
        class.removed();
        assert_eq!((class.sent_bytes(), class.drops()), (500, 3));
        class.last = Some(reading);
        assert_eq!((class.sent_bytes(), class.drops()), (1000, 6));
    }
}
