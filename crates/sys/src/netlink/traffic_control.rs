//! Queueing disciplines and their classes: rtnetlink(7), tc(8), tc-htb(8), `linux/pkt_sched.h`.

use std::io;

use nix::sys::socket::SockProtocol;

use super::queue::{MESSAGE_BYTES, ROOT};
use super::{Netlink, attributes, u32_at, u64_at};

/// Attributes within `TCA_OPTIONS` of an HTB.
const PARAMETERS: u16 = 1;
const INIT: u16 = 2;
const RATE64: u16 = 6;
const CEIL64: u16 = 7;
/// Attributes within `TCA_OPTIONS` of a TBF, beside its parameters.
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;
/// Attributes within `TCA_STATS2` (`linux/gen_stats.h`).
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;
/// `struct tc_htb_opt`: rate, ceil (12 bytes each), buffer, cbuffer, quantum, level, prio.
const RATE_AT: usize = 8;
const CEIL_AT: usize = 12 + 8;
const PRIORITY_AT: usize = 40;
/// The version of `struct tc_htb_glob` that the kernel checks.
const HTB_VERSION: u32 = 3;
/// Ethernet (`TC_LINKLAYER_ETHERNET`): the kernel then needs no table of sizes.
const LINK_LAYER: u8 = 1;
/// The kernel's unit of time in requests: 64 ns (`PSCHED_SHIFT`).
const TICK_NS: u64 = 64;
/// What a class may send at once: what it saves in 1 ms, and one packet.
const BURST_PER_S: u64 = 1000;
const PACKET_BYTES: u64 = 1600;
/// Bytes that a class sends before another of its priority gets its turn (tc-htb(8), "quantum").
const QUANTUM_BYTES: (u64, u64) = (PACKET_BYTES, 60_000);

/// The root queueing discipline of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) kind: String,
    /// Upper half; 0 is the kernel's own choice, which any other may replace.
    pub(crate) handle: u32,
}

/// Rates of an HTB class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassRates {
    pub(crate) bytes_per_s: u64,
    pub(crate) ceil_bytes_per_s: u64,
    pub(crate) priority: u32,
}

/// Parameters of a token bucket: tc-tbf(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketRate {
    pub bytes_per_s: u64,
    /// What it may send at once.
    pub burst_bytes: u32,
    /// What may wait for the rate; more is dropped.
    pub limit_bytes: u32,
}

/// An HTB class as the kernel reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassReading {
    /// Its number: the handle of the discipline in the upper half, its own (minor) in the lower.
    pub class: u32,
    /// The rate it has before others may borrow, bytes per second.
    pub bytes_per_s: u64,
    /// The most that it may send, bytes per second.
    pub ceil_bytes_per_s: u64,
    /// 0 is served first.
    pub priority: u32,
    /// Sent, with the headers of the link.
    pub bytes: u64,
    /// Wraps at 2^32.
    pub packets: u32,
    /// Wraps at 2^32.
    pub drops: u32,
    pub backlog_bytes: u32,
}

/// Changes queueing disciplines in the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct TrafficControl {
    netlink: Netlink,
}

impl TrafficControl {
    /// In the network namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open(SockProtocol::NetlinkRoute)? })
    }

    /// `None`: there is no such interface, or it has no queue that could be seen.
    pub(crate) fn root_of(&mut self, device: u32) -> io::Result<Option<Root>> {
        let mut root = None;
        let kinds = (libc::RTM_GETQDISC, libc::RTM_NEWQDISC);
        self.netlink.dump(kinds, &[0; MESSAGE_BYTES], &mut |payload| {
            root = root.take().or_else(|| parse_root(payload, device));
        })?;
        Ok(root)
    }

    /// Makes an HTB the root of `device`. Packets without a class go to the class `default_minor`.
    /// Errors: `EEXIST` if the root is another than the kernel's own choice. The kernel checks that.
    pub(crate) fn add_htb(&mut self, device: u32, handle: u32, default_minor: u16) -> io::Result<()> {
        let init = [HTB_VERSION, 10, default_minor.into(), 0, 0];
        let init: Vec<u8> = init.into_iter().flat_map(u32::to_ne_bytes).collect();
        let mut request = header(device, handle, ROOT);
        push(&mut request, libc::TCA_KIND, b"htb\0");
        push_nested(&mut request, libc::TCA_OPTIONS, &[(INIT, &init)]);
        self.netlink.change(libc::RTM_NEWQDISC, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &request)
    }

    /// Deletes the root of `device` if its handle is `handle`. The kernel checks that, and then takes its own
    /// choice again.
    pub(crate) fn delete_root(&mut self, device: u32, handle: u32) -> io::Result<()> {
        self.netlink.change(libc::RTM_DELQDISC, 0, &header(device, handle, ROOT))
    }

    /// Changes the token bucket that is the root of `device` with the handle `handle`. What waits stays.
    pub(crate) fn change_bucket(&mut self, device: u32, handle: u32, rate: BucketRate) -> io::Result<()> {
        let mut request = header(device, handle, ROOT);
        push(&mut request, libc::TCA_KIND, b"tbf\0");
        let (wide, burst) = (rate.bytes_per_s.to_ne_bytes(), rate.burst_bytes.to_ne_bytes());
        let parameters = bucket_parameters(rate);
        let options = [(PARAMETERS, &parameters[..]), (TBF_RATE64, &wide), (TBF_BURST, &burst)];
        push_nested(&mut request, libc::TCA_OPTIONS, &options);
        self.netlink.change(libc::RTM_NEWQDISC, 0, &request)
    }

    /// Adds class `class` below `parent` (a class or the discipline's handle), or changes it unless it
    /// `is_new`.
    pub(crate) fn set_class(
        &mut self,
        device: u32,
        (class, parent): (u32, u32),
        rates: ClassRates,
        is_new: bool,
    ) -> io::Result<()> {
        let flags = if is_new { libc::NLM_F_CREATE | libc::NLM_F_EXCL } else { 0 };
        let mut request = header(device, class, parent);
        push(&mut request, libc::TCA_KIND, b"htb\0");
        let parameters = parameters(rates);
        let (rate, ceil) = (rates.bytes_per_s.to_ne_bytes(), rates.ceil_bytes_per_s.to_ne_bytes());
        let options = [(PARAMETERS, &parameters[..]), (RATE64, &rate), (CEIL64, &ceil)];
        push_nested(&mut request, libc::TCA_OPTIONS, &options);
        self.netlink.change(libc::RTM_NEWTCLASS, flags, &request)
    }

    pub(crate) fn delete_class(&mut self, device: u32, class: u32) -> io::Result<()> {
        self.netlink.change(libc::RTM_DELTCLASS, 0, &header(device, class, 0))
    }

    /// The HTB classes of `device`.
    pub(crate) fn classes(&mut self, device: u32) -> io::Result<Vec<ClassReading>> {
        let mut classes = Vec::new();
        let request = header(device, 0, 0);
        self.netlink.dump((libc::RTM_GETTCLASS, libc::RTM_NEWTCLASS), &request, &mut |payload| {
            classes.extend(parse_class(payload, device));
        })?;
        Ok(classes)
    }
}

/// `struct tcmsg`: family, interface, handle, parent, info.
fn header(device: u32, handle: u32, parent: u32) -> Vec<u8> {
    [0, device, handle, parent, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn push(request: &mut Vec<u8>, kind: u16, content: &[u8]) {
    request.extend(((4 + content.len()) as u16).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(content);
    request.resize(request.len().next_multiple_of(4), 0);
}

fn push_nested(request: &mut Vec<u8>, kind: u16, attributes: &[(u16, &[u8])]) {
    let mut inside = Vec::new();
    for (kind, content) in attributes {
        push(&mut inside, *kind, content);
    }
    push(request, kind, &inside);
}

/// `struct tc_htb_opt`.
fn parameters(rates: ClassRates) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(44);
    let both = [rates.bytes_per_s, rates.ceil_bytes_per_s];
    for rate in both {
        // `struct tc_ratespec`.
        bytes.extend([0, LINK_LAYER, 0, 0, 0, 0, 0, 0]);
        bytes.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    }
    for rate in both {
        bytes.extend(burst_ticks(rate).to_ne_bytes());
    }
    let quantum = (rates.bytes_per_s / BURST_PER_S).clamp(QUANTUM_BYTES.0, QUANTUM_BYTES.1);
    for number in [quantum as u32, 0, rates.priority] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes
}

/// `struct tc_tbf_qopt`: rate and peak rate (12 bytes each, no peak), limit, buffer, mtu.
fn bucket_parameters(rate: BucketRate) -> Vec<u8> {
    let mut bytes = vec![0, LINK_LAYER, 0, 0, 0, 0, 0, 0];
    bytes.extend(u32::try_from(rate.bytes_per_s).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.resize(24, 0);
    let burst = ticks(rate.burst_bytes.into(), rate.bytes_per_s.max(1));
    for number in [rate.limit_bytes, burst, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes
}

/// How long a class of `rate` bytes per second takes for its burst, in ticks.
fn burst_ticks(rate: u64) -> u32 {
    let rate = rate.max(1);
    ticks(rate / BURST_PER_S + PACKET_BYTES, rate)
}

/// How long `burst` bytes take at `rate` bytes per second, in ticks.
fn ticks(burst: u64, rate: u64) -> u32 {
    let ns = u128::from(burst) * 1_000_000_000 / u128::from(rate);
    u32::try_from(ns / u128::from(TICK_NS)).unwrap_or(u32::MAX)
}

/// The text of an attribute that ends with a zero byte.
fn text(content: &[u8]) -> String {
    String::from_utf8_lossy(content.strip_suffix(b"\0").unwrap_or(content)).into_owned()
}

pub(super) fn parse_root(payload: &[u8], device: u32) -> Option<Root> {
    let inside = payload.get(MESSAGE_BYTES..)?;
    if u32_at(payload, 4)? != device || u32_at(payload, 12)? != ROOT {
        return None;
    }
    let (_, kind) = attributes(inside).find(|(kind, _)| *kind == libc::TCA_KIND)?;
    Some(Root { kind: text(kind), handle: u32_at(payload, 8)? })
}

pub(super) fn parse_class(payload: &[u8], device: u32) -> Option<ClassReading> {
    let inside = payload.get(MESSAGE_BYTES..)?;
    if u32_at(payload, 4)? != device {
        return None;
    }
    let of = |kind: u16| attributes(inside).find(|(found, _)| *found == kind).map(|(_, content)| content);
    if of(libc::TCA_KIND)? != b"htb\0" {
        return None;
    }
    let options = of(libc::TCA_OPTIONS)?;
    let option =
        |kind: u16| attributes(options).find(|(found, _)| *found == kind).map(|(_, content)| content);
    let parameters = option(PARAMETERS)?;
    // A rate beyond 32 bits stands in an attribute of its own.
    let rate = |at: usize, wide: u16| {
        let wide = option(wide).and_then(|content| u64_at(content, 0));
        wide.or_else(|| u32_at(parameters, at).map(u64::from))
    };
    let mut reading = ClassReading {
        class: u32_at(payload, 8)?,
        bytes_per_s: rate(RATE_AT, RATE64)?,
        ceil_bytes_per_s: rate(CEIL_AT, CEIL64)?,
        priority: u32_at(parameters, PRIORITY_AT)?,
        bytes: 0,
        packets: 0,
        drops: 0,
        backlog_bytes: 0,
    };
    for (kind, content) in attributes(of(libc::TCA_STATS2)?) {
        let number = |place: usize| u32_at(content, 4 * place);
        match kind {
            STATS_BASIC => (reading.bytes, reading.packets) = (u64_at(content, 0)?, number(2)?),
            // qlen, backlog, drops, requeues, overlimits
            STATS_QUEUE => (reading.backlog_bytes, reading.drops) = (number(1)?, number(2)?),
            _ => {}
        }
    }
    Some(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_a_millisecond_and_a_packet() {
        // 1 Mbit/s: 125 + 1600 bytes.
        assert_eq!(burst_ticks(125_000), 13_800_000 / 64);
        assert_eq!(burst_ticks(0), u32::MAX);
        assert!(burst_ticks(u64::MAX) <= 15_626);
        let rates = ClassRates { bytes_per_s: 1 << 33, ceil_bytes_per_s: 7, priority: 3 };
        let bytes = parameters(rates);
        assert_eq!(bytes.len(), 44);
        assert_eq!(u32_at(&bytes, RATE_AT), Some(u32::MAX));
        assert_eq!((u32_at(&bytes, CEIL_AT), u32_at(&bytes, PRIORITY_AT)), (Some(7), Some(3)));
    }
}
