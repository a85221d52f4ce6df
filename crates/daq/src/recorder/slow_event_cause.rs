//! Why an event was slow.

use crate::report::{Cause, SlowEvent, Stall};

/// Slow: this much above the median.
const SLOW_NS: u64 = 20_000_000;
/// Linux's minimum retransmission timeout.
const RTO_MIN_NS: u64 = 200_000_000;
/// A gap or a transit of at least this long indicates loss.
pub(crate) const STALL_NS: u64 = 150_000_000;
/// A lone packet's transit of at least this long means that the tail-loss probe was lost too.
const TWICE_NS: u64 = 350_000_000;
/// A connection in timeout may be this many windows of events behind, because timeouts double.
const EVENTS_BEHIND: u64 = 4;
/// A source that sends within this time after a repeated order (or twice the usual time) answers it.
const PROMPT_NS: u64 = 5_000_000;

/// Slow: over 4 times the median, 20 ms above it, or with a stall.
pub(crate) const fn is_slow(took_ns: u64, median_ns: u64, gap_ns: u64) -> bool {
    took_ns > median_ns.saturating_mul(4) || took_ns > median_ns.saturating_add(SLOW_NS) || gap_ns >= STALL_NS
}

/// What the builder knows of a slow event: its worst fragments, and the usual values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SlowEventFacts {
    pub complete: bool,
    /// Whether a missing source is disconnected.
    pub gone: bool,
    /// The longest time from an order to the fragment's sending.
    pub host_ns: u64,
    pub host_usual_ns: u64,
    /// Time between the repetition of that fragment's order and its sending, if repeated.
    pub since_repeat_ns: Option<u64>,
    /// The longest time from sending to arrival.
    pub transit_ns: u64,
    pub transit_usual_ns: u64,
    /// The longest time without an arrival.
    pub gap_ns: u64,
    /// How long a full queue delays a fragment, if buffer and rate are known.
    pub queue_full_ns: Option<u64>,
    /// The delay of reading.
    pub read_late_ns: u64,
    pub read_late_usual_ns: u64,
    /// Delay of the trigger, or of one just before it that kept the sources busy.
    pub triggers_late_ns: u64,
    pub packets: u64,
    pub datagrams: bool,
    /// Whether the source at fault is a front end: the counters of its TCP are unknown.
    pub is_front_end: bool,
    /// Whether bytes of the event were requested again (UDP).
    pub was_requested: bool,
    /// Whether the send time of the last fragment is unknown.
    pub sent_unknown: bool,
}

/// The cause, as far as the builder knows it.
pub(crate) fn cause(facts: &SlowEventFacts) -> Cause {
    if !facts.complete {
        return match () {
            () if facts.gone => Cause::Gone,
            () if facts.is_front_end => Cause::Silent,
            () => lost(facts, u64::MAX),
        };
    }
    let read_late_ns = facts.read_late_ns.saturating_sub(facts.read_late_usual_ns);
    // Transit excludes the time spent waiting to be read.
    let transit_ns = facts.transit_ns.saturating_sub(facts.read_late_ns);
    let transit_over_ns = transit_ns.saturating_sub(facts.transit_usual_ns);
    let host_over_ns = facts.host_ns.saturating_sub(facts.host_usual_ns);
    if facts.sent_unknown {
        let is_late = read_late_ns.max(facts.triggers_late_ns) > facts.gap_ns / 2;
        return if is_late { Cause::Builder } else { Cause::Unknown };
    }
    if read_late_ns.max(facts.triggers_late_ns) > transit_over_ns.max(host_over_ns) {
        return Cause::Builder;
    }
    if host_over_ns > transit_over_ns {
        let prompt_ns = (2 * facts.host_usual_ns).max(PROMPT_NS);
        let by_repeat = facts.since_repeat_ns.is_some_and(|since_ns| since_ns <= prompt_ns);
        return if by_repeat && !facts.is_front_end { Cause::Order } else { Cause::Host };
    }
    let queue_ns = facts.queue_full_ns.unwrap_or(0).saturating_mul(2);
    let stalled = facts.gap_ns >= (transit_ns / 2).max(1)
        || facts.queue_full_ns.is_some_and(|_| transit_ns >= RTO_MIN_NS);
    let is_lost = stalled && transit_ns > queue_ns;
    match () {
        () if facts.is_front_end && !(is_lost && facts.was_requested) => Cause::Unknown,
        () if is_lost => lost(facts, transit_ns),
        () => Cause::Queueing,
    }
}

/// How a lost fragment was recovered, by the time that it took.
fn lost(facts: &SlowEventFacts, transit_ns: u64) -> Cause {
    // With several packets under way the probe comes after two round trips; longer waits are timeouts.
    let timeout_from_ns = if facts.packets > 1 { STALL_NS } else { TWICE_NS };
    if facts.datagrams || transit_ns < STALL_NS {
        Cause::Loss
    } else if transit_ns < timeout_from_ns {
        Cause::TailLossProbe
    } else {
        Cause::RetransmissionTimeout
    }
}

/// Refines a cause by the TCP counters of sources (not with datagrams): `stalls` of this builder; `window`:
/// how many event numbers the source may have advanced before it noticed; `whole`: the list is complete.
pub(crate) fn refine_cause(slow: &SlowEvent, stalls: &[Stall], window: u64, whole: bool) -> Cause {
    let lossy = matches!(slow.cause, Cause::TailLossProbe | Cause::RetransmissionTimeout | Cause::Loss);
    if !lossy && !matches!(slow.cause, Cause::Queueing | Cause::Unknown) {
        return slow.cause;
    }
    // A missing fragment may wait behind one that an earlier event lost.
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
    let transit_ns = match (slow.arrived_after_ns, slow.sent_after_ns) {
        (Some(arrived_ns), Some(sent_ns)) => (arrived_ns as i64).saturating_sub(sent_ns).max(0) as u64,
        _ => slow.took_ns,
    };
    match (noticed, timeouts) {
        // No retransmission: it was not sent, or it queued.
        (false, _) if whole && lossy && slow.complete => Cause::Queueing,
        (false, _) if whole && lossy => Cause::Host,
        (false, _) => slow.cause,
        (true, 1..) => Cause::RetransmissionTimeout,
        // Every retransmission was needless.
        (true, 0) if again <= needless && lossy => Cause::Queueing,
        (true, 0) if again <= needless => slow.cause,
        (true, 0) if transit_ns >= STALL_NS => Cause::TailLossProbe,
        (true, 0) if lossy => Cause::Loss,
        (true, 0) => slow.cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn is_slow_thresholds() {
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
    fn cause_is_found_for_each_fault() {
        let usual = SlowEventFacts {
            complete: true,
            host_ns: 2 * MS,
            host_usual_ns: 2 * MS,
            transit_ns: MS,
            transit_usual_ns: MS,
            gap_ns: MS,
            packets: 1,
            ..SlowEventFacts::default()
        };
        let lost =
            |way_ms: u64| SlowEventFacts { transit_ns: way_ms * MS, gap_ns: way_ms * MS * 9 / 10, ..usual };
        let queue = |transit_ms: u64, gap_ms: u64, queue_full_ns| SlowEventFacts {
            transit_ns: transit_ms * MS,
            gap_ns: gap_ms * MS,
            queue_full_ns,
            ..usual
        };
        for (why, facts, expected) in [
            ("a stopped host", SlowEventFacts { host_ns: 100 * MS, gap_ns: 95 * MS, ..usual }, Cause::Host),
            (
                "a stopped host whose order was repeated",
                SlowEventFacts { host_ns: 100 * MS, since_repeat_ns: Some(90 * MS), ..usual },
                Cause::Host,
            ),
            (
                "a lost order",
                SlowEventFacts { host_ns: 8 * MS, since_repeat_ns: Some(2 * MS), gap_ns: 7 * MS, ..usual },
                Cause::Order,
            ),
            ("a lone fragment lost", lost(204), Cause::TailLossProbe),
            ("a lone fragment lost twice", lost(610), Cause::RetransmissionTimeout),
            ("many packets lost", SlowEventFacts { packets: 23, ..lost(210) }, Cause::RetransmissionTimeout),
            ("a packet among many", SlowEventFacts { packets: 23, ..lost(30) }, Cause::Loss),
            ("a datagram lost", SlowEventFacts { datagrams: true, ..lost(204) }, Cause::Loss),
            ("a long queue", queue(80, 3, None), Cause::Queueing),
            ("a queue as long as the buffer", queue(30, 29, Some(20 * MS)), Cause::Queueing),
            ("many stalls, one after the other", queue(230, 20, Some(3 * MS)), Cause::TailLossProbe),
            (
                "a builder that sent the trigger late",
                SlowEventFacts { triggers_late_ns: 60 * MS, host_ns: 8 * MS, gap_ns: 62 * MS, ..usual },
                Cause::Builder,
            ),
            (
                "a builder that slept",
                SlowEventFacts { transit_ns: 60 * MS, gap_ns: 59 * MS, read_late_ns: 58 * MS, ..usual },
                Cause::Builder,
            ),
            ("a source that left", SlowEventFacts { complete: false, gone: true, ..usual }, Cause::Gone),
            (
                "a fragment over TCP that never came",
                SlowEventFacts { complete: false, ..usual },
                Cause::RetransmissionTimeout,
            ),
            ("UDP given up", SlowEventFacts { complete: false, datagrams: true, ..usual }, Cause::Loss),
        ] {
            assert_eq!(cause(&facts), expected, "{why}");
        }
    }

    #[test]
    fn fault_without_a_witness_is_unknown_or_silent() {
        let usual = SlowEventFacts { complete: true, host_ns: MS, transit_ns: MS, ..Default::default() };
        let usual = SlowEventFacts { host_usual_ns: MS, transit_usual_ns: MS, packets: 1, ..usual };
        let front_end = |facts| SlowEventFacts { is_front_end: true, ..facts };
        let lost = |ms: u64| SlowEventFacts { transit_ns: ms * MS, gap_ns: ms * MS * 9 / 10, ..usual };
        let queue = SlowEventFacts { transit_ns: 30 * MS, gap_ns: 3 * MS, ..usual };
        for (why, facts, expected) in [
            (
                "a front end that sent nothing",
                SlowEventFacts { complete: false, is_front_end: true, ..usual },
                Cause::Silent,
            ),
            ("a front end's fragment 204 ms on the way", front_end(lost(204)), Cause::Unknown),
            ("a front end's fragment 30 ms on the way", front_end(queue), Cause::Unknown),
            (
                "a front end that sent late",
                front_end(SlowEventFacts { host_ns: 9 * MS, ..usual }),
                Cause::Host,
            ),
            (
                "a front end's datagram that was requested",
                SlowEventFacts { datagrams: true, was_requested: true, ..front_end(lost(30)) },
                Cause::Loss,
            ),
            ("no send time", SlowEventFacts { sent_unknown: true, gap_ns: 90 * MS, ..usual }, Cause::Unknown),
        ] {
            assert_eq!(cause(&facts), expected, "{why}");
        }
    }

    #[test]
    fn refine_cause_uses_source_counters() {
        let slow = |cause: Cause, complete: bool| SlowEvent {
            event: 40,
            took_ns: 230 * MS,
            complete,
            source: 3,
            sent_after_ns: complete.then_some(5 * MS as i64),
            arrived_after_ns: complete.then_some(230 * MS),
            cause,
            ..SlowEvent::default()
        };
        let stall = Stall { source: 3, event: 45, since_event: 41, retransmits: 1, ..Stall::default() };
        let spurious = Stall { dsacks: 1, ..stall };
        let timeout = Stall { timeouts: 1, ..stall };
        let others = [
            Stall { source: 4, ..timeout },
            Stall { event: 39, ..timeout },
            Stall { since_event: 43, ..timeout },
        ];
        use Cause::{Host, Loss, Queueing, RetransmissionTimeout, TailLossProbe, Unknown};
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
            (Unknown, true, vec![timeout], RetransmissionTimeout),
            (Unknown, true, Vec::new(), Unknown),
        ] {
            assert_eq!(
                refine_cause(&slow(before, complete), &stalls, 2, true),
                after,
                "{before:?} {stalls:?}"
            );
        }
        assert_eq!(
            refine_cause(&slow(TailLossProbe, true), &[], 2, false),
            TailLossProbe,
            "the list was cut off"
        );
    }
}
