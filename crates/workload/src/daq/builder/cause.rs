//! Why an event took long.

use crate::daq::report::{Cause, SlowEvent, Stall};

/// Over the median by more than this is slow.
const SLOW_NS: u64 = 20_000_000;
/// Linux waits for at least so long before it sends what nobody acknowledged again.
const RTO_MIN_NS: u64 = 200_000_000;
/// A fragment that was under way for so long beyond what is usual stalled: it was lost.
pub const STALL_NS: u64 = 150_000_000;
/// From here on a tail-loss probe alone does not explain it: it was lost as well.
const TWICE_NS: u64 = 350_000_000;
/// Timeouts double: a connection may wait for as many windows of events.
const EVENTS_BEHIND: u64 = 4;
/// Within so much after a repeated order, or twice of what is usual, a source sent because of it.
const PROMPT_NS: u64 = 5_000_000;

/// Whether an event took long: over 4 times the median, over 20 ms more than it, or with a stall.
pub const fn is_slow(took_ns: u64, median_ns: u64, gap_ns: u64) -> bool {
    took_ns > median_ns.saturating_mul(4) || took_ns > median_ns.saturating_add(SLOW_NS) || gap_ns >= STALL_NS
}

/// What is known of a slow event: its worst fragments, and what is usual.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether all fragments came.
    pub complete: bool,
    /// Whether the connection of a source that is missing ended.
    pub gone: bool,
    /// The longest time from an order to its fragment's sending.
    pub host_ns: u64,
    /// What that is usually.
    pub host_usual_ns: u64,
    /// How long before that fragment's sending its order was repeated, where it was.
    pub since_repeat_ns: Option<u64>,
    /// The longest time from a fragment's sending to its arrival.
    pub way_ns: u64,
    /// What that is usually.
    pub way_usual_ns: u64,
    /// The longest time in which nothing of the event arrived.
    pub gap_ns: u64,
    /// For how long a full queue holds a fragment up, where buffer and rate are known.
    pub queue_full_ns: Option<u64>,
    /// How late the builder was to read.
    pub read_late_ns: u64,
    /// What that is usually.
    pub read_late_usual_ns: u64,
    /// How late the builder was to send the trigger, or one just before it that kept the sources busy.
    pub triggers_late_ns: u64,
    /// Packets of a fragment.
    pub packets: u64,
    /// Whether fragments are datagrams.
    pub datagrams: bool,
}

/// As far as the builder can tell.
pub fn cause(facts: &Facts) -> Cause {
    if !facts.complete {
        return if facts.gone { Cause::Gone } else { lost(facts, u64::MAX) };
    }
    let read_late_ns = facts.read_late_ns.saturating_sub(facts.read_late_usual_ns);
    // What lay unread was under way as well.
    let way_ns = facts.way_ns.saturating_sub(facts.read_late_ns);
    let way_over_ns = way_ns.saturating_sub(facts.way_usual_ns);
    let host_over_ns = facts.host_ns.saturating_sub(facts.host_usual_ns);
    if read_late_ns.max(facts.triggers_late_ns) > way_over_ns.max(host_over_ns) {
        return Cause::Builder;
    }
    if host_over_ns > way_over_ns {
        let prompt_ns = (2 * facts.host_usual_ns).max(PROMPT_NS);
        let by_repeat = facts.since_repeat_ns.is_some_and(|since_ns| since_ns <= prompt_ns);
        return if by_repeat { Cause::Order } else { Cause::Host };
    }
    let queue_ns = facts.queue_full_ns.unwrap_or(0).saturating_mul(2);
    let stalled =
        facts.gap_ns >= (way_ns / 2).max(1) || facts.queue_full_ns.is_some_and(|_| way_ns >= RTO_MIN_NS);
    if stalled && way_ns > queue_ns { lost(facts, way_ns) } else { Cause::Queueing }
}

/// How a lost fragment was brought, by the time that it took.
fn lost(facts: &Facts, way_ns: u64) -> Cause {
    // With several packets under way a probe comes after twice the round trip; what waits longer waits for the timeout.
    let timeout_from_ns = if facts.packets > 1 { STALL_NS } else { TWICE_NS };
    if facts.datagrams || way_ns < STALL_NS {
        Cause::Loss
    } else if way_ns < timeout_from_ns {
        Cause::TailLossProbe
    } else {
        Cause::RetransmissionTimeout
    }
}

/// The same, with what the TCP of a source that sends its fragments over connections counted (of datagrams it says
/// nothing): `stalls` are those of this builder; `window` is how many numbers
/// further the source may have been when it noticed; `whole`: the list is not cut off.
pub fn refined(slow: &SlowEvent, stalls: &[Stall], window: u64, whole: bool) -> Cause {
    let lossy = matches!(slow.cause, Cause::TailLossProbe | Cause::RetransmissionTimeout | Cause::Loss);
    if !lossy && slow.cause != Cause::Queueing {
        return slow.cause;
    }
    // What is missing may still wait behind what was lost of an event before.
    let behind = if slow.complete { 0 } else { EVENTS_BEHIND * window.max(1) };
    let about = |stall: &&Stall| {
        stall.source == slow.source
            && stall.since_event <= slow.event.saturating_add(window)
            && slow.event <= stall.event.saturating_add(behind)
    };
    let (mut noticed, mut timeouts, mut again, mut needless) = (false, 0, 0, 0);
    for stall in stalls.iter().filter(about) {
        noticed = true;
        timeouts += stall.timeouts;
        again += stall.retransmits;
        needless += stall.dsacks;
    }
    let way_ns = match (slow.arrived_after_ns, slow.sent_after_ns) {
        (Some(arrived_ns), Some(sent_ns)) => (arrived_ns as i64).saturating_sub(sent_ns).max(0) as u64,
        _ => slow.took_ns,
    };
    match (noticed, timeouts) {
        // Nothing was sent again: it had not been sent, or it waited.
        (false, _) if whole && lossy => {
            if slow.complete {
                Cause::Queueing
            } else {
                Cause::Host
            }
        }
        (false, _) => slow.cause,
        (true, 1..) => Cause::RetransmissionTimeout,
        // All that was sent again had arrived already.
        (true, 0) if again <= needless => {
            if lossy {
                Cause::Queueing
            } else {
                slow.cause
            }
        }
        (true, 0) if way_ns >= STALL_NS => Cause::TailLossProbe,
        (true, 0) => {
            if lossy {
                Cause::Loss
            } else {
                slow.cause
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn slow_is_what_takes_much_longer_than_others() {
        for (took_ms, median_ms, gap_ms, slow) in [
            (4, 1, 1, false),
            (5, 1, 1, true),
            (110, 100, 5, false),
            (121, 100, 5, true),
            (210, 205, 190, true),
            (0, 0, 0, false),
        ] {
            assert_eq!(is_slow(took_ms * MS, median_ms * MS, gap_ms * MS), slow, "{took_ms} of {median_ms}");
        }
    }

    #[test]
    fn each_fault_is_known_by_its_traces() {
        let usual = Facts {
            complete: true,
            host_ns: 2 * MS,
            host_usual_ns: 2 * MS,
            way_ns: MS,
            way_usual_ns: MS,
            gap_ns: MS,
            packets: 1,
            ..Facts::default()
        };
        let lost = |way_ms: u64| Facts { way_ns: way_ms * MS, gap_ns: way_ms * MS * 9 / 10, ..usual };
        for (why, facts, expected) in [
            ("a stopped host", Facts { host_ns: 100 * MS, gap_ns: 95 * MS, ..usual }, Cause::Host),
            (
                "a stopped host, told again in vain",
                Facts { host_ns: 100 * MS, since_repeat_ns: Some(90 * MS), ..usual },
                Cause::Host,
            ),
            (
                "a lost order",
                Facts { host_ns: 8 * MS, since_repeat_ns: Some(2 * MS), gap_ns: 7 * MS, ..usual },
                Cause::Order,
            ),
            ("a lone fragment lost", lost(204), Cause::TailLossProbe),
            ("a lone fragment lost twice", lost(610), Cause::RetransmissionTimeout),
            ("many packets lost", Facts { packets: 23, ..lost(210) }, Cause::RetransmissionTimeout),
            ("a packet among many", Facts { packets: 23, ..lost(30) }, Cause::Loss),
            ("a datagram lost", Facts { datagrams: true, ..lost(204) }, Cause::Loss),
            ("a long queue", Facts { way_ns: 80 * MS, gap_ns: 3 * MS, ..usual }, Cause::Queueing),
            (
                "a queue as long as the buffer",
                Facts { way_ns: 30 * MS, gap_ns: 29 * MS, queue_full_ns: Some(20 * MS), ..usual },
                Cause::Queueing,
            ),
            (
                "many stalls, one after the other",
                Facts { way_ns: 230 * MS, gap_ns: 20 * MS, queue_full_ns: Some(3 * MS), ..usual },
                Cause::TailLossProbe,
            ),
            (
                "a builder that sent the trigger late",
                Facts { triggers_late_ns: 60 * MS, host_ns: 8 * MS, gap_ns: 62 * MS, ..usual },
                Cause::Builder,
            ),
            (
                "a builder that slept",
                Facts { way_ns: 60 * MS, gap_ns: 59 * MS, read_late_ns: 58 * MS, ..usual },
                Cause::Builder,
            ),
            ("a source that left", Facts { complete: false, gone: true, ..usual }, Cause::Gone),
            ("collapse", Facts { complete: false, ..usual }, Cause::RetransmissionTimeout),
            ("UDP given up", Facts { complete: false, datagrams: true, ..usual }, Cause::Loss),
        ] {
            assert_eq!(cause(&facts), expected, "{why}");
        }
    }

    #[test]
    fn the_sources_know_better() {
        let slow = |cause: Cause, complete: bool| SlowEvent {
            event: 40,
            took_ns: 230 * MS,
            complete,
            source: 3,
            sent_after_ns: complete.then_some(5 * MS as i64),
            arrived_after_ns: complete.then_some(230 * MS),
            repeats: 0,
            cause,
        };
        let stall = Stall { source: 3, event: 45, since_event: 41, retransmits: 1, ..Stall::default() };
        let spurious = Stall { dsacks: 1, ..stall };
        let timeout = Stall { timeouts: 1, ..stall };
        let others = [
            Stall { source: 4, ..timeout },
            Stall { event: 39, ..timeout },
            Stall { since_event: 43, ..timeout },
        ];
        use Cause::{Host, Loss, Queueing, RetransmissionTimeout, TailLossProbe};
        for (before, complete, stalls, after) in [
            (Queueing, true, vec![stall], TailLossProbe),
            (TailLossProbe, true, vec![spurious], Queueing),
            (TailLossProbe, true, vec![timeout], RetransmissionTimeout),
            (RetransmissionTimeout, true, vec![stall], TailLossProbe),
            (TailLossProbe, true, others.to_vec(), Queueing),
            (RetransmissionTimeout, false, Vec::new(), Host),
            (Host, true, vec![stall], Host),
            (Queueing, true, Vec::new(), Queueing),
            (Loss, true, vec![stall], TailLossProbe),
        ] {
            assert_eq!(refined(&slow(before, complete), &stalls, 2, true), after, "{before:?} {stalls:?}");
        }
        assert_eq!(refined(&slow(TailLossProbe, true), &[], 2, false), TailLossProbe, "the list was cut off");
    }
}
