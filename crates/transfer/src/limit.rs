//! What limited a transfer. Pure: from the reports of both ends to the limit, its certainty and its evidence.

use base::format::quantity;
use base::limit_rules::{
    CPU_WAIT, CPU_WAIT_SIGN, DRAINED_BUFFER, LOSS, SENDER_BUSY, THREAD, THREAD_SIGN, WAITING, WAITING_SIGN,
};
use base::outcome::{Certainty, Resource};

use super::flow::ThreadReport;
use super::report::{DatagramLoss, DirectionReport, EndReport, Waits};

/// Samples of the send buffer that are needed at least.
const LOOKS_MIN: u32 = 3;

/// What limited a group of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    SenderCpu,
    ReceiverCpu,
    /// The receiver's window: its buffer was too small, or the receiver read too slowly.
    Window,
    /// The sender's buffer holds less than the path could.
    SendBuffer,
    /// The path: its rate, or its losses.
    Path,
    /// Nothing: the requested rate was reached, or there was nothing more to send.
    Offered,
}

impl Held {
    /// As it stands in JSON and on the screen.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SenderCpu => "sender CPU",
            Self::ReceiverCpu => "receiver CPU",
            Self::Window => "window",
            Self::SendBuffer => "send buffer",
            Self::Path => "path",
            Self::Offered => "none",
        }
    }
}

/// The limit of flows: confirmed if a counter shows it most of the time, predicted if it is only the nearest.
pub type Cause = (Held, Certainty);

/// The requested rate of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// No rate: as fast as possible.
    FlatOut,
    /// A rate, which was reached.
    Met,
    /// A rate that was not reached.
    Unmet,
    /// A rate that was not fully offered: the sender was woken too late.
    Overslept,
}

/// The limit of one direction, if it is known, and the evidence as sentences. `link_share`: goodput as a
/// share of what the link can carry, if that is known.
pub fn of(way: &DirectionReport, asked: Asked, link_share: Option<f64>) -> (Option<Cause>, Vec<String>) {
    let (sender, receiver) = (way.sender.as_ref(), way.receiver.as_ref());
    let signs = Signs {
        asked,
        link_is_full: link_share.is_some_and(is_full),
        sender: sender.and_then(Load::of),
        receiver: receiver.and_then(Load::of),
        lost: Lost::of(way),
        waits: sender.and_then(|sender| Waiting::of(&sender.waits, sender.elapsed_s()?)),
    };
    let evidence = [
        link_share.and_then(link_sentence),
        sender.and_then(|end| cpu_sentence(end, "sending")),
        receiver.and_then(|end| cpu_sentence(end, "receiving")),
        signs.waits.as_ref().map(Waiting::sentence),
        signs.lost.sentence(),
    ];
    (signs.held(), evidence.into_iter().flatten().collect())
}

/// The limit of each flow of a direction, from its own connection, and from its own threads if it has some.
pub fn of_each(way: &DirectionReport, asked: Asked, link_share: Option<f64>) -> Vec<Option<Cause>> {
    let flows = way.nearest_to_arrival().map_or(0, |end| end.flows.len());
    let lost = Lost::of(way);
    let one = |index: usize| {
        let load = |end: &Option<EndReport>| {
            let end = end.as_ref()?;
            let own = end.threads.get(index..=index).filter(|_| end.threads.len() == end.flows.len());
            own.map_or_else(|| Load::of(end), Load::of_threads)
        };
        let waits = way.sender.as_ref().and_then(|sender| {
            let (first_ns, last_ns) = sender.flows.get(index)?.moved_ns?;
            let own = sender.waits.get(index..=index).filter(|_| sender.waits.len() == sender.flows.len())?;
            Waiting::of(own, last_ns.saturating_sub(first_ns) as f64 / 1e9)
        });
        let (sender, receiver) = (load(&way.sender), load(&way.receiver));
        Signs { asked, link_is_full: link_share.is_some_and(is_full), sender, receiver, lost, waits }.held()
    };
    (0..flows).map(one).collect()
}

/// Whether a link is full at this share of its maximum.
pub(super) fn is_full(link_share: f64) -> bool {
    Resource::Network.rule().is_used_up(link_share)
}

/// Whether more arrived than the nominal rate allows.
pub(super) fn is_refuted(link_share: f64) -> bool {
    Resource::Network.rule().is_refuted(link_share)
}

/// A share as printed in evidence.
pub(super) fn percent(share: f64) -> String {
    quantity(Some(100.0 * share), "%")
}

fn link_sentence(share: f64) -> Option<String> {
    let percent = percent(share);
    match share {
        share if is_full(share) => Some(format!("the goodput was {percent} of the link's maximum")),
        share if is_refuted(share) => Some(format!(
            "the goodput was {percent} of the link's nominal maximum, so the nominal rate is wrong"
        )),
        _ => None,
    }
}

/// The counters that a cause is derived from.
struct Signs {
    asked: Asked,
    link_is_full: bool,
    sender: Option<Load>,
    receiver: Option<Load>,
    lost: Lost,
    waits: Option<Waiting>,
}

impl Signs {
    fn held(&self) -> Option<Cause> {
        if self.asked == Asked::Met {
            return Some((Held::Offered, Certainty::Confirmed));
        }
        let proven = self.proven().map(|held| (held, Certainty::Confirmed));
        let overslept = (self.asked == Asked::Overslept).then_some((Held::SenderCpu, Certainty::Predicted));
        proven
            .or(overslept)
            .or_else(|| self.nearest().map(|held| (held, Certainty::Predicted)))
            .or_else(|| self.left_over())
    }

    /// What counters show clearly. A receiver without CPU closes its window: its CPU is the cause, the window
    /// only the sign. A sender without CPU waits for nothing else.
    fn proven(&self) -> Option<Held> {
        let is_full = |load: Option<Load>| load.is_some_and(|load| load.is_full());
        let (sender_is_full, receiver_is_full) = (is_full(self.sender), is_full(self.receiver));
        let rwnd = self.waits.as_ref().map_or(0.0, |waits| waits.rwnd);
        if self.link_is_full || (self.asked == Asked::Unmet && LOSS.is_used_up(self.lost.on_way)) {
            return Some(Held::Path);
        }
        if receiver_is_full && (!sender_is_full || WAITING_SIGN.is_used_up(rwnd)) {
            return Some(Held::ReceiverCpu);
        }
        if sender_is_full {
            return Some(Held::SenderCpu);
        }
        if LOSS.is_used_up(self.lost.at_socket) {
            return Some(Held::ReceiverCpu);
        }
        let waits = self.waits.as_ref()?;
        let drained = waits.drained.is_some_and(|share| DRAINED_BUFFER.is_used_up(share));
        match () {
            () if WAITING.is_used_up(waits.rwnd) && waits.rwnd >= waits.sndbuf => Some(Held::Window),
            () if WAITING.is_used_up(waits.sndbuf) => Some(Held::SendBuffer),
            // A sender that gets no CPU leaves its buffer empty, however large it is.
            () if drained && self.nearest_cpu().is_none() => Some(Held::SendBuffer),
            () => None,
        }
    }

    /// The nearest cause, if none is clear.
    fn nearest(&self) -> Option<Held> {
        if let Some(cpu) = self.nearest_cpu() {
            return Some(cpu);
        }
        let waits = self.waits.as_ref()?;
        match () {
            () if WAITING_SIGN.is_used_up(waits.rwnd) && waits.rwnd >= waits.sndbuf => Some(Held::Window),
            () if WAITING_SIGN.is_used_up(waits.sndbuf) => Some(Held::SendBuffer),
            () if waits.drained.is_some_and(|share| WAITING_SIGN.is_used_up(share)) => Some(Held::SendBuffer),
            () => None,
        }
    }

    /// The end with less idle time, if its threads waited for a CPU.
    fn nearest_cpu(&self) -> Option<Held> {
        let ends = [(self.sender, Held::SenderCpu), (self.receiver, Held::ReceiverCpu)];
        let near =
            ends.into_iter().filter_map(|(load, held)| Some((load.filter(Load::is_near)?.taken, held)));
        near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, held)| held)
    }

    /// The cause by exclusion.
    fn left_over(&self) -> Option<Cause> {
        match &self.waits {
            // By TCP's own counters, it waited for neither end.
            Some(waits) if SENDER_BUSY.is_used_up(waits.busy) => Some((Held::Path, Certainty::Confirmed)),
            Some(_) if self.asked == Asked::FlatOut => Some((Held::Offered, Certainty::Confirmed)),
            _ if self.asked == Asked::Unmet || self.lost.any() => Some((Held::Path, Certainty::Predicted)),
            _ => None,
        }
    }
}

/// Load of the least busy thread of an end, as shares of its time: one slow flow of many limits only itself.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Running, or waiting for a CPU.
    taken: f64,
    /// Waiting for a CPU.
    ready: f64,
}

impl Load {
    fn of(end: &EndReport) -> Option<Self> {
        if !end.threads.is_empty() {
            return Self::of_threads(&end.threads);
        }
        // A peer that reports only its CPU time: one flow has one thread.
        let cpu_s = end.cpu_s.filter(|cpu_s| *cpu_s > 0.0 && end.flows.len() == 1)?;
        Some(Self { taken: cpu_s / end.elapsed_s()?, ready: 0.0 })
    }

    fn of_threads(threads: &[ThreadReport]) -> Option<Self> {
        // A thread that waits for a CPU has no idle time either.
        let taken =
            |thread: &ThreadReport| thread.cpu_ns as f64 / thread.wall_ns.max(1) as f64 + ready_share(thread);
        let least = |of: &dyn Fn(&ThreadReport) -> f64| threads.iter().map(of).min_by(f64::total_cmp);
        Some(Self { taken: least(&taken)?, ready: least(&ready_share)? })
    }

    fn is_full(&self) -> bool {
        THREAD.is_used_up(self.taken) || CPU_WAIT.is_used_up(self.ready)
    }

    fn is_near(&self) -> bool {
        THREAD_SIGN.is_used_up(self.taken) && CPU_WAIT_SIGN.is_used_up(self.ready)
    }
}

/// Share of the time that the least busy thread of an end ran or waited for a CPU, if its CPU is the limit.
pub fn full_cpu_share(end: &EndReport) -> Option<f64> {
    Load::of(end).filter(Load::is_full).map(|load| load.taken.min(1.0))
}

/// Whether the threads of an end had no time to spare.
pub fn is_out_of_cpu(end: &EndReport) -> bool {
    full_cpu_share(end).is_some()
}

/// The share of its time that a thread waited for a CPU.
fn ready_share(thread: &ThreadReport) -> f64 {
    thread.ready_ns.unwrap_or(0) as f64 / thread.wall_ns.max(1) as f64
}

fn cpu_sentence(end: &EndReport, word: &str) -> Option<String> {
    let Some(most) = end.busiest_percent() else {
        let load = Load::of(end)?;
        return Some(format!("the {word} end used {} of a core", percent(load.taken)));
    };
    let waited = end.threads.iter().map(ready_share).fold(0.0, f64::max);
    let waited = match waited >= 0.01 {
        true => format!(" and waited for a CPU {} of the time", percent(waited)),
        false => String::new(),
    };
    Some(format!("the busiest {word} thread used {} of a core{waited}", percent(most / 100.0)))
}

/// Lost datagrams by place, as shares of those sent, and lost packets of QUIC.
#[derive(Debug, Clone, Copy)]
struct Lost {
    at_socket: f64,
    on_way: f64,
    /// Packets that QUIC declared lost.
    packets: u64,
}

impl Lost {
    fn of(way: &DirectionReport) -> Self {
        let waits = way.sender.iter().flat_map(|end| &end.waits).filter(|waits| waits.busy_us.is_none());
        let packets = waits.filter_map(|waits| waits.retransmits).fold(0, u64::saturating_add);
        let Some(DatagramLoss { sent, lost: Some(lost), lost_at_socket }) = way.datagrams() else {
            return Self { at_socket: 0.0, on_way: 0.0, packets };
        };
        let share = |number: u64| number as f64 / sent as f64;
        Self { at_socket: share(lost_at_socket), on_way: share(lost - lost_at_socket), packets }
    }

    fn any(&self) -> bool {
        LOSS.is_used_up(self.on_way) || self.packets > 0
    }

    fn sentence(&self) -> Option<String> {
        match self {
            Self { packets: 1.., .. } => Some(format!("QUIC declared {} packets lost", self.packets)),
            _ if self.at_socket + self.on_way == 0.0 => None,
            _ => Some(format!(
                "{} of the datagrams were lost on the path and {} at the receiver's full socket",
                percent(self.on_way),
                percent(self.at_socket)
            )),
        }
    }
}

/// What the senders' connections waited for, as shares of their busy time (`busy`: of the wall time).
struct Waiting {
    busy: f64,
    rwnd: f64,
    sndbuf: f64,
    /// Share of samples in which the whole send buffer was in flight.
    drained: Option<f64>,
    retransmits: u64,
}

impl Waiting {
    /// Of connections that moved bytes for `elapsed_s`.
    fn of(waits: &[Waits], elapsed_s: f64) -> Option<Self> {
        let sum = |of: fn(&Waits) -> Option<u64>| -> Option<u64> {
            let known: Vec<u64> = waits.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| known.iter().copied().fold(0, u64::saturating_add))
        };
        let busy_us = sum(|waits| waits.busy_us)? as f64;
        let wall_us = elapsed_s * 1e6 * waits.len() as f64;
        let share = |us: Option<u64>| us.unwrap_or(0) as f64 / busy_us.max(1.0);
        Some(Self {
            busy: (busy_us / wall_us.max(1.0)).min(1.0),
            rwnd: share(sum(|waits| waits.rwnd_limited_us)),
            sndbuf: share(sum(|waits| waits.sndbuf_limited_us)),
            drained: Self::drained(waits),
            retransmits: sum(|waits| waits.retransmits).unwrap_or(0),
        })
    }

    fn drained(waits: &[Waits]) -> Option<f64> {
        let (all, drained) = waits.iter().fold((0u32, 0u32), |(all, drained), waits| {
            (all.saturating_add(waits.looks), drained.saturating_add(waits.drained))
        });
        (all >= LOOKS_MIN).then(|| f64::from(drained) / f64::from(all))
    }

    fn sentence(&self) -> String {
        let drained =
            self.drained.filter(|share| WAITING_SIGN.is_used_up(*share)).map_or(String::new(), |share| {
                format!("; in {} of samples the send buffer held no unsent data", percent(share))
            });
        format!(
            "connections were busy {} of the time; the receive window limited {} of this, the send buffer \
             {}; {} segments were retransmitted{drained}",
            percent(self.busy),
            percent(self.rwnd),
            percent(self.sndbuf),
            self.retransmits
        )
    }
}

#[cfg(test)]
mod tests;
