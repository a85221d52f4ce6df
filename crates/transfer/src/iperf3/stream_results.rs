//! From orders to flows and from flows to accounts: pure.

use std::time::Duration;

use super::{Length, Parameters, Results, StreamReport, StreamResult};
use crate::flow::{End, FlowCount, FlowReport, Side, Stamp, ThreadReport};
use ::iperf3::{Direction, Protocol};

/// Merges the items of two groups in the order in which the streams were opened.
pub(super) fn in_order<T>(sides: &[Side], senders: Vec<T>, receivers: Vec<T>) -> Vec<T> {
    let (mut senders, mut receivers) = (senders.into_iter(), receivers.into_iter());
    let next = |side: &Side| match side {
        Side::Sender => senders.next(),
        Side::Receiver => receivers.next(),
    };
    sides.iter().filter_map(next).collect()
}

/// What each stream does at this end, in the order in which the streams were opened.
pub(super) fn sides(parameters: &Parameters, is_client: bool) -> Vec<Side> {
    let (client, server) = (Side::Sender, Side::Receiver);
    let (up, down) = if is_client { (client, server) } else { (server, client) };
    let each = parameters.streams as usize;
    match parameters.direction {
        Direction::Forward => vec![up; each],
        Direction::Reverse => vec![down; each],
        Direction::Bidirectional => [vec![up; each], vec![down; each]].concat(),
    }
}

/// The longest time without progress: a slow rate has long pauses between blocks.
pub(super) fn patience(parameters: &Parameters, stall: Duration) -> Duration {
    let bits = f64::from(parameters.block_bytes) * 8.0;
    let pause_s = parameters.rate_bit_per_s.map_or(0.0, |rate| bits / rate as f64);
    stall.saturating_add(Duration::try_from_secs_f64(pause_s * 2.0).unwrap_or_default())
}

/// The header of each datagram.
pub(super) fn stamp(parameters: &Parameters) -> Stamp {
    match (parameters.protocol, parameters.wide_counts) {
        (Protocol::Tcp, _) => Stamp::None,
        (Protocol::Udp, true) => Stamp::Counted64,
        (Protocol::Udp, false) => Stamp::Counted32,
    }
}

/// The end of the flow that is the `index`th sender of its end, or a receiver.
///
/// The client announces the end of a test, so a server sends until then. A client that sends a number of
/// bytes gives each stream its share, of UDP in whole datagrams.
pub(super) fn end(parameters: &Parameters, side: Side, is_client: bool, index: u32, started_ns: u64) -> End {
    if side == Side::Receiver || !is_client {
        return End::Peer;
    }
    match (parameters.length, parameters.bytes_asked()) {
        (Length::Seconds(seconds), _) => {
            let all_s = u64::from(seconds) + u64::from(parameters.omit_s);
            End::AtNs(started_ns.saturating_add(all_s * 1_000_000_000))
        }
        // The omitted bytes are unknown beforehand: the watcher of the counts ends the flow.
        (_, Some(_)) if parameters.omit_s > 0 => End::Peer,
        (_, Some(bytes)) => {
            let datagram_bytes = (parameters.protocol == Protocol::Udp).then_some(parameters.block_bytes);
            End::after_share(bytes, parameters.streams, index, datagram_bytes)
        }
        (_, None) => End::Peer,
    }
}

/// This end's results of a stream that counted for `seconds` after the omitted time.
pub(super) fn account(
    id: u32,
    side: Side,
    flow: &FlowReport,
    omitted: &FlowCount,
    seconds: f64,
) -> StreamResult {
    let count = &flow.count;
    // A receiver reports the highest count that it saw: received and lost datagrams.
    let packets = |count: &FlowCount| match side {
        Side::Sender => count.datagrams,
        Side::Receiver => count.datagrams.saturating_sub(count.duplicated).saturating_add(count.lost),
    };
    let sent_again = flow.tcp.as_ref().and_then(|tcp| tcp.retransmits_total);
    StreamResult {
        id,
        bytes: Some(count.bytes.saturating_sub(omitted.bytes)),
        retransmits: sent_again.filter(|_| side == Side::Sender).map(u64::from),
        jitter_s: Some(count.jitter_ns as f64 / 1e9),
        errors: Some(count.lost),
        errors_omitted: Some(omitted.lost),
        packets: Some(packets(count)),
        packets_omitted: Some(packets(omitted)),
        seconds: Some(seconds),
    }
}

/// This end's results of a test of `seconds`, the omitted time included.
///
/// The division of CPU time between program and kernel is unknown for ended threads, and left out.
pub(super) fn results(streams: &[StreamReport], threads: &[ThreadReport], seconds: f64) -> Results {
    let cpu_ns: u64 = threads.iter().map(|thread| thread.cpu_ns).sum();
    Results {
        cpu_total_percent: (seconds > 0.0).then(|| cpu_ns as f64 / 1e7 / seconds),
        counts_retransmits: streams.iter().any(|stream| stream.own.retransmits.is_some()),
        congestion: streams.iter().find_map(|stream| stream.flow.congestion.clone()),
        streams: streams.iter().map(|stream| stream.own.clone()).collect(),
        ..Results::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::EndReason;
    use proptest::prelude::*;

    #[test]
    fn only_client_senders_end_by_themselves() {
        let timed = Parameters { length: Length::Seconds(2), omit_s: 1, ..Parameters::default() };
        assert_eq!(end(&timed, Side::Sender, true, 0, 5), End::AtNs(3_000_000_005));
        assert_eq!(end(&timed, Side::Sender, false, 0, 5), End::Peer);
        assert_eq!(end(&timed, Side::Receiver, true, 0, 5), End::Peer);
        let counted = Parameters { length: Length::Bytes(10), ..timed.clone() };
        assert_eq!(end(&counted, Side::Sender, true, 0, 5), End::Peer, "with an omitted time");
        let blocks = Parameters { length: Length::Blocks(3), omit_s: 0, block_bytes: 100, ..timed };
        assert_eq!(end(&blocks, Side::Sender, true, 0, 5), End::Bytes(300));
    }

    #[test]
    fn results_exclude_the_omitted_time() {
        let count = FlowCount {
            bytes: 900,
            datagrams: 8,
            lost: 3,
            duplicated: 1,
            jitter_ns: 2000,
            ..FlowCount::default()
        };
        let flow = FlowReport { count, ..FlowReport::new(EndReason::Done) };
        let omitted = FlowCount { bytes: 100, datagrams: 1, lost: 2, ..FlowCount::default() };
        let expected = StreamResult {
            id: 3,
            bytes: Some(800),
            retransmits: None,
            jitter_s: Some(2e-6),
            errors: Some(3),
            errors_omitted: Some(2),
            packets: Some(10),
            packets_omitted: Some(3),
            seconds: Some(1.5),
        };
        assert_eq!(account(3, Side::Receiver, &flow, &omitted, 1.5), expected);
        assert_eq!(account(3, Side::Sender, &flow, &omitted, 1.5).packets, Some(8));
    }

    proptest! {
        #[test]
        fn shares_add_up(bytes in 1..=1_000_000_u64, streams in 1..=50_u32) {
            let parameters = Parameters { length: Length::Bytes(bytes), streams, ..Parameters::default() };
            let share = |index| match end(&parameters, Side::Sender, true, index, 0) {
                End::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            };
            prop_assert_eq!((0..streams).map(share).sum::<u64>(), bytes);
        }

        #[test]
        fn order_is_kept(sides in prop::collection::vec(any::<bool>(), 0..20)) {
            let side = |&is_sender: &bool| if is_sender { Side::Sender } else { Side::Receiver };
            let sides: Vec<Side> = sides.iter().map(side).collect();
            let of = |side| (0..sides.len()).filter(|&i| sides[i] == side).collect();
            let all: Vec<usize> = in_order(&sides, of(Side::Sender), of(Side::Receiver));
            prop_assert_eq!(all, (0..sides.len()).collect::<Vec<_>>());
        }
    }
}
