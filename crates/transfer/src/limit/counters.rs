//! The counters that a limit is derived from, and their sentences.

use base::format::quantity;
use base::limit_rules::{CPU_WAIT, CPU_WAIT_SIGN, LOSS, LimitRule, THREAD, THREAD_SIGN, WAITING_SIGN};

use crate::flow::ThreadReport;
use crate::report::{DatagramLoss, DirectionReport, EndReport, Waits};

/// Samples of the send buffer that are needed at least.
const LOOKS_MIN: u32 = 3;

/// A share as printed in evidence.
pub(in super::super) fn percent(share: f64) -> String {
    quantity(Some(100.0 * share), "%")
}

/// Load of the least busy thread of an end, as shares of its time: one slow flow of many limits only itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Running, or waiting for a CPU.
    pub(super) taken: f64,
    /// Waiting for a CPU; absent where that is not counted.
    pub(super) ready: Option<f64>,
}

impl Load {
    pub(super) fn of(end: &EndReport) -> Option<Self> {
        if !end.threads.is_empty() {
            return Self::of_threads(&end.threads);
        }
        // A peer that reports only its CPU time: one flow has one thread.
        let cpu_s = end.cpu_s.filter(|cpu_s| *cpu_s > 0.0 && end.flows.len() == 1)?;
        Some(Self { taken: cpu_s / end.elapsed_s()?, ready: None })
    }

    pub(super) fn of_threads(threads: &[ThreadReport]) -> Option<Self> {
        // A thread that waits for a CPU has no idle time either.
        let taken = |thread: &ThreadReport| {
            thread.cpu_ns as f64 / thread.wall_ns.max(1) as f64 + ready_share(thread).unwrap_or(0.0)
        };
        let waited: Option<Vec<f64>> = threads.iter().map(ready_share).collect();
        let ready = waited.and_then(|all| all.into_iter().min_by(f64::total_cmp));
        Some(Self { taken: threads.iter().map(taken).min_by(f64::total_cmp)?, ready })
    }

    pub(super) fn is_full(&self) -> bool {
        THREAD.is_used_up(self.taken) || self.waited(CPU_WAIT).is_some()
    }

    pub(super) fn is_near(&self) -> bool {
        THREAD_SIGN.is_used_up(self.taken) && self.waited(CPU_WAIT_SIGN).is_some()
    }

    /// Its time waiting for a CPU, if that is known, and as much as a rule says.
    pub(super) fn waited(&self, rule: LimitRule) -> Option<f64> {
        self.ready.filter(|share| rule.is_used_up(*share))
    }
}

/// Shares of the time of an end's least busy thread.
pub(in super::super) enum CpuShare {
    /// It waited for a CPU most of the time.
    Waited(f64),
    /// It ran or waited for a CPU.
    Taken(f64),
}

/// How the least busy thread of an end spent its time, if its CPU is or may be the limit.
pub(in super::super) fn cpu_share(end: &EndReport) -> Option<CpuShare> {
    let load = Load::of(end).filter(|load| load.is_full() || load.is_near())?;
    Some(match load.waited(CPU_WAIT) {
        Some(ready) => CpuShare::Waited(ready.min(1.0)),
        None => CpuShare::Taken(load.taken.min(1.0)),
    })
}

/// Whether the threads of an end had no time to spare.
pub(in super::super) fn is_out_of_cpu(end: &EndReport) -> bool {
    Load::of(end).is_some_and(|load| load.is_full())
}

/// The share of its time that a thread waited for a CPU; absent where the kernel does not count it.
fn ready_share(thread: &ThreadReport) -> Option<f64> {
    Some(thread.ready_ns? as f64 / thread.wall_ns.max(1) as f64)
}

pub(super) fn cpu_sentence(end: &EndReport, word: &str) -> Option<String> {
    let Some(most) = end.busiest_percent() else {
        let load = Load::of(end)?;
        return Some(format!("the {word} end used {} of a core", percent(load.taken)));
    };
    let waited = end.threads.iter().filter_map(ready_share).fold(0.0, f64::max);
    let used = percent(most / 100.0);
    Some(match waited {
        // The larger one first.
        waited if waited > most / 100.0 => {
            let waited = percent(waited);
            format!(
                "a {word} thread waited for a CPU {waited} of the time; the busiest used {used} of a core"
            )
        }
        0.01.. => {
            let waited = percent(waited);
            format!(
                "the busiest {word} thread used {used} of a core and waited for a CPU {waited} of the time"
            )
        }
        _ => format!("the busiest {word} thread used {used} of a core"),
    })
}

/// Lost datagrams by place, as shares of those sent, and lost packets of QUIC.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    all: f64,
    /// Unknown like the next one, unless a counter of the receiver's socket is known.
    pub(super) at_socket: Option<f64>,
    pub(super) on_way: Option<f64>,
    /// Packets that QUIC declared lost.
    packets: u64,
}

impl Lost {
    pub(super) fn of(way: &DirectionReport) -> Self {
        let waits = way.sender.iter().flat_map(|end| &end.waits).filter(|waits| waits.is_quic);
        let packets = waits.filter_map(|waits| waits.retransmits).fold(0, u64::saturating_add);
        let Some(DatagramLoss { sent, lost: Some(lost), lost_at_socket }) = way.datagrams() else {
            return Self { all: 0.0, at_socket: None, on_way: None, packets };
        };
        let share = |number: u64| number as f64 / sent as f64;
        let on_way = lost_at_socket.map(|at_socket| share(lost - at_socket));
        Self { all: share(lost), at_socket: lost_at_socket.map(share), on_way, packets }
    }

    /// Whether so many datagrams were lost that it matters where, and no counter says where.
    pub(super) fn is_unplaced(&self) -> bool {
        LOSS.is_used_up(self.all) && self.at_socket.is_none()
    }

    pub(super) fn any(&self) -> bool {
        self.on_way.is_some_and(|share| LOSS.is_used_up(share)) || self.packets > 0
    }

    pub(super) fn sentence(&self) -> Option<String> {
        match (self.at_socket, self.on_way) {
            _ if self.packets > 0 => Some(format!("QUIC declared {} packets lost", self.packets)),
            _ if self.all == 0.0 => None,
            (Some(at_socket), Some(on_way)) => Some(format!(
                "{} of the datagrams were lost on the path and {} at the receiver's full socket",
                percent(on_way),
                percent(at_socket)
            )),
            _ => Some(format!(
                "{} of the datagrams were lost; where is unknown: the receiver reports no drops at its \
                 socket",
                percent(self.all)
            )),
        }
    }
}

/// What the senders' connections waited for, as shares of their busy time (`busy`: of the wall time).
pub(super) struct Waiting {
    pub(super) busy: f64,
    pub(super) rwnd: f64,
    pub(super) sndbuf: f64,
    /// Share of samples in which the whole send buffer was in flight.
    pub(super) drained: Option<f64>,
    retransmits: Option<u64>,
}

impl Waiting {
    /// Of connections that moved bytes for `elapsed_s`.
    pub(super) fn of(waits: &[Waits], elapsed_s: f64) -> Option<Self> {
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
            retransmits: sum(|waits| waits.retransmits),
        })
    }

    fn drained(waits: &[Waits]) -> Option<f64> {
        let (all, drained) = waits.iter().fold((0u32, 0u32), |(all, drained), waits| {
            (all.saturating_add(waits.looks), drained.saturating_add(waits.drained))
        });
        (all >= LOOKS_MIN).then(|| f64::from(drained) / f64::from(all))
    }

    pub(super) fn sentence(&self) -> String {
        let drained =
            self.drained.filter(|share| WAITING_SIGN.is_used_up(*share)).map_or(String::new(), |share| {
                format!("; in {} of samples the send buffer held no unsent data", percent(share))
            });
        let again = self.retransmits.map(|number| format!("; {number} segments were retransmitted"));
        format!(
            "connections were busy {} of the time; the receive window limited {} of this, the send buffer \
             {}{}{drained}",
            percent(self.busy),
            percent(self.rwnd),
            percent(self.sndbuf),
            again.unwrap_or_default()
        )
    }
}
