//! What limited a transfer. Pure: from the reports of both ends to the limit, its certainty and its evidence.

mod counters;

use base::limit_rules::{CPU_WAIT_SIGN, DRAINED_BUFFER, LOSS, LimitRule, SENDER_BUSY, WAITING, WAITING_SIGN};
use base::outcome::{Certainty, Resource};

use self::counters::{Load, Lost, Waiting, cpu_sentence};
use super::report::{DirectionReport, EndReport};

pub(super) use self::counters::{CpuShare, cpu_share, is_out_of_cpu, percent};

/// Share of a link's maximum above which more arrived than the link carries in the long run.
const ABOVE_LINK: f64 = 1.01;
/// CPU time of one core that the hypervisor took: from this share on it may be why a transfer was slow.
const STEAL: LimitRule = CPU_WAIT_SIGN;

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
        link_share,
        steal: way.steal(),
        sender: sender.and_then(Load::of),
        receiver: receiver.and_then(Load::of),
        lost: Lost::of(way),
        waits: sender.and_then(|sender| Waiting::of(&sender.waits, sender.elapsed_s()?)),
    };
    let evidence = [
        steal_sentence(way),
        link_share.and_then(link_sentence),
        sender.and_then(|end| cpu_sentence(end, "sending")),
        receiver.and_then(|end| cpu_sentence(end, "receiving")),
        signs.waits.as_ref().map(Waiting::sentence),
        signs.lost.sentence(),
        signs.unknown_waits_sentence(),
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
        Signs { asked, link_share, steal: way.steal(), sender, receiver, lost, waits }.held()
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

/// Whether more arrived than the link carries in the long run: a burst passed, or its nominal rate is wrong.
pub(super) fn is_above(link_share: f64) -> bool {
    link_share > ABOVE_LINK
}

/// Whether datagrams were lost of which no counter says where.
pub(super) fn lost_somewhere(way: &DirectionReport) -> bool {
    Lost::of(way).is_unplaced()
}

/// That the hypervisor took so much CPU time that it explains why `missing` was missing of what could have
/// arrived.
pub(super) fn steal_explains(way: &DirectionReport, missing: f64) -> Option<f64> {
    way.steal().filter(|steal| STEAL.is_used_up(*steal) && *steal >= missing)
}

/// Whether no counter of either end shows a cause, or only that it waited for a CPU.
pub(super) fn is_open(way: &DirectionReport, cause: Option<Cause>) -> bool {
    let waited = |end: &EndReport| matches!(cpu_share(end), Some(CpuShare::Waited(_)));
    match cause {
        Some((Held::SenderCpu | Held::ReceiverCpu, Certainty::Confirmed)) => way.ends().any(waited),
        Some((_, certainty)) => certainty != Certainty::Confirmed,
        None => true,
    }
}

/// That the hypervisor took so much CPU time that no limit but a full link is certain.
pub(super) fn steal_sentence(way: &DirectionReport) -> Option<String> {
    let steal = way.steal().filter(|steal| STEAL.is_used_up(*steal))?;
    Some(format!("the hypervisor took {} of a core", percent(steal)))
}

fn link_sentence(share: f64) -> Option<String> {
    let percent = percent(share);
    match share {
        share if is_full(share) && is_above(share) => Some(format!(
            "the goodput was {percent} of the link's maximum: the time was too short beside a burst that the \
             link or its shaper let through"
        )),
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
    link_share: Option<f64>,
    steal: Option<f64>,
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
        let link_is_full = self.link_share.is_some_and(is_full);
        let proven = self.proven().map(|held| match held {
            Held::Path if self.is_above_link() => (held, Certainty::Predicted),
            Held::Path if link_is_full => (held, Certainty::Confirmed),
            // Without its CPU an end fills and empties its buffers late.
            _ if self.is_robbed() => (held, Certainty::Predicted),
            Held::Window | Held::SendBuffer if self.waited_for_cpu() => (held, Certainty::Predicted),
            _ => (held, Certainty::Confirmed),
        });
        let overslept = (self.asked == Asked::Overslept).then_some((Held::SenderCpu, Certainty::Predicted));
        proven
            .or(overslept)
            .or_else(|| self.nearest().map(|held| (held, Certainty::Predicted)))
            .or_else(|| self.left_over())
    }

    /// What counters show clearly. A receiver without CPU closes its window: its CPU is the cause, the window
    /// only the sign. A sender without CPU waits for nothing else.
    fn proven(&self) -> Option<Held> {
        let is_out = |load: Option<Load>| load.is_some_and(|load| load.is_full());
        let (sender_is_full, receiver_is_full) = (is_out(self.sender), is_out(self.receiver));
        let rwnd = self.waits.as_ref().map_or(0.0, |waits| waits.rwnd);
        let is_lossy = |share: Option<f64>| share.is_some_and(|share| LOSS.is_used_up(share));
        let link_is_full = self.link_share.is_some_and(is_full);
        if link_is_full || (self.asked == Asked::Unmet && is_lossy(self.lost.on_way)) {
            return Some(Held::Path);
        }
        if receiver_is_full && (!sender_is_full || WAITING_SIGN.is_used_up(rwnd)) {
            return Some(Held::ReceiverCpu);
        }
        if sender_is_full {
            return Some(Held::SenderCpu);
        }
        if is_lossy(self.lost.at_socket) {
            return Some(Held::ReceiverCpu);
        }
        let waits = self.waits.as_ref()?;
        let drained = waits.drained.is_some_and(|share| DRAINED_BUFFER.is_used_up(share));
        match () {
            () if WAITING.is_used_up(waits.rwnd) && waits.rwnd >= waits.sndbuf => Some(Held::Window),
            () if WAITING.is_used_up(waits.sndbuf) => Some(Held::SendBuffer),
            // A sender that gets no CPU leaves its buffer empty, however large it is.
            () if drained && self.cpu_waits_are_known() && self.nearest_cpu().is_none() => {
                Some(Held::SendBuffer)
            }
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

    fn is_above_link(&self) -> bool {
        self.link_share.is_some_and(is_above)
    }

    /// Whether the hypervisor took an end's CPU.
    fn is_robbed(&self) -> bool {
        self.steal.is_some_and(|steal| STEAL.is_used_up(steal))
    }

    /// Whether an end had to wait for a CPU, for whatever else ran on its host.
    fn waited_for_cpu(&self) -> bool {
        let waited = |load: Option<Load>| load.is_some_and(|load| load.waited(CPU_WAIT_SIGN).is_some());
        waited(self.sender) || waited(self.receiver)
    }

    /// Whether it is known of both ends how long they waited for a CPU.
    fn cpu_waits_are_known(&self) -> bool {
        [self.sender, self.receiver].iter().all(|load| load.is_some_and(|load| load.ready.is_some()))
    }

    /// That an exclusion is not certain.
    fn unknown_waits_sentence(&self) -> Option<String> {
        let is_excluded = matches!(
            self.held(),
            Some((Held::Path | Held::SendBuffer | Held::Offered, Certainty::Predicted))
        );
        let end = match (self.sender, self.receiver) {
            (Some(Load { ready: Some(_), .. }), _) => "receiving",
            (_, Some(Load { ready: Some(_), .. })) => "sending",
            _ => "sending or the receiving",
        };
        (is_excluded && !self.is_above_link() && self.waits.is_some() && !self.cpu_waits_are_known())
            .then(|| format!("how long the {end} end waited for a CPU is unknown"))
    }

    /// The cause by exclusion.
    fn left_over(&self) -> Option<Cause> {
        match &self.waits {
            // An end without its CPU acknowledges and sends late, which looks like a slow path.
            _ if self.is_robbed() || self.waited_for_cpu() || self.lost.is_unplaced() => None,
            Some(waits) if SENDER_BUSY.is_used_up(waits.busy) => {
                // By TCP's own counters, it waited for neither end.
                let is_sure = self.cpu_waits_are_known() && !self.is_above_link();
                Some((Held::Path, if is_sure { Certainty::Confirmed } else { Certainty::Predicted }))
            }
            // A sender without its CPU leaves its connection idle, too.
            Some(_) if self.asked == Asked::FlatOut => {
                let is_sure = self.cpu_waits_are_known();
                Some((Held::Offered, if is_sure { Certainty::Confirmed } else { Certainty::Predicted }))
            }
            _ if self.asked == Asked::Unmet || self.lost.any() => Some((Held::Path, Certainty::Predicted)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
