//! The numbers of a transfer's trial.

mod responses;

use base::metric::Better::{Higher, Lower, Neither};
use base::metric::{MetricSpec, Metrics, metric};

use super::flow::{Direction, FlowCount, FlowReport};
use super::report::{Counted, DirectionReport, EndReport, TransferReport, Waits};

/// Every number of a trial: the transfer's own, and what the samplers add.
pub const METRICS: &[MetricSpec] = &[
    metric("goodput_bit_per_s", "bit/s", Higher, "received payload, both directions together"),
    metric("goodput_up_bit_per_s", "bit/s", Higher, "payload received by the server"),
    metric("goodput_down_bit_per_s", "bit/s", Higher, "payload received by the client"),
    metric("theoretical_bit_per_s", "bit/s", Neither, "the most payload that link rate and headers allow"),
    metric("asked_bytes", "B", Neither, "requested payload"),
    metric("sent_bytes", "B", Neither, "payload passed to the senders' kernels (QUIC: to their streams)"),
    metric("received_bytes", "B", Neither, "received payload"),
    metric(
        "elapsed_s",
        "s",
        Lower,
        "time between the first and the last received byte, of the slower direction",
    ),
    metric("flow_least_bit_per_s", "bit/s", Higher, "goodput of the slowest flow"),
    metric("flow_most_bit_per_s", "bit/s", Neither, "goodput of the fastest flow"),
    metric("cpu_s_per_gb", "s", Lower, "CPU time of both ends per 10^9 received bytes"),
    metric("sender_cpu_percent", "%", Lower, "the sender's busiest thread, in % of its core"),
    metric("receiver_cpu_percent", "%", Lower, "the receiver's busiest thread, in % of its core"),
    metric("loss_ratio", "", Lower, "lost datagrams divided by sent ones"),
    metric("datagrams_sent", "", Neither, "datagrams passed to the senders' kernels"),
    metric("datagrams_received", "", Neither, "received datagrams"),
    metric("datagrams_lost", "", Lower, "datagrams sent but not received"),
    metric("datagrams_lost_at_receiver", "", Lower, "of these, dropped at the receiver's full socket"),
    metric("datagrams_lost_on_path", "", Lower, "of these, lost on the path"),
    metric("sends_refused", "", Lower, "send calls that the kernel refused for lack of buffer space"),
    metric("datagrams_reordered", "", Lower, "datagrams received after a later one"),
    metric("datagrams_duplicated", "", Lower, "datagrams received twice"),
    metric("delay_min_us", "us", Lower, "shortest one-way transit time of a datagram"),
    metric("delay_mean_us", "us", Lower, "mean of these times"),
    metric("delay_max_us", "us", Lower, "the longest of these times"),
    metric("delay_bound_us", "us", Lower, "error bound of these times: the ends' clocks, compared twice"),
    metric("jitter_us", "us", Lower, "smoothed variation of transit times (RFC 1889), mean of the flows"),
    metric("retransmits", "", Lower, "segments that TCP retransmitted, packets that QUIC declared lost"),
    metric("rtt_min_us", "us", Lower, "lowest round-trip time of all connections"),
    metric("rtt_us", "us", Lower, "smoothed round-trip time at the end, mean of the connections"),
    metric("transactions_per_s", "1/s", Higher, "requests answered per second, all flows together"),
    metric("responses_missing", "", Lower, "due requests without a response"),
    metric("response_mean_us", "us", Lower, "mean time from intended send time to the end of the response"),
    metric("response_p50_us", "us", Lower, "median of these times"),
    metric("response_p99_us", "us", Lower, "99th percentile of these times"),
    metric("response_p999_us", "us", Lower, "99.9th percentile of these times"),
    metric("response_max_us", "us", Lower, "the longest of these times"),
    metric(
        "round_trips_per_min",
        "1/min",
        Higher,
        "responsiveness: 60 s divided by the mean of the fastest 95 % of these times",
    ),
    metric("idle_response_p50_us", "us", Lower, "median on the idle path, before the load (--under-load)"),
    metric("idle_response_p99_us", "us", Lower, "99th percentile on the idle path"),
    metric("idle_round_trips_per_min", "1/min", Higher, "responsiveness of the idle path"),
    metric(
        "start_skew_us",
        "us",
        Lower,
        "between the first bytes of all clients' flows, each client by its own clock (error: clock_bound_us)",
    ),
    metric("server_cpu_percent", "%", Lower, "CPU of the server's processes, in % of one core"),
    metric("server_memory_bytes", "B", Lower, "resident memory of the server's processes, added up"),
    metric("disk_bit_per_s", "bit/s", Neither, "read from the server's disk"),
    metric("network_bit_per_s", "bit/s", Neither, "carried by the link between server and client"),
];

/// The headline metrics of moving bytes, the main number first.
pub const OF_BYTES: &[&str] =
    &["goodput_bit_per_s", "loss_ratio", "sender_cpu_percent", "receiver_cpu_percent"];

pub const OF_REQUESTS: &[&str] = &[
    "transactions_per_s",
    "response_p50_us",
    "response_p99_us",
    "sender_cpu_percent",
    "receiver_cpu_percent",
];

/// The same of requests beside a load.
pub const UNDER_LOAD: &[&str] = &[
    "round_trips_per_min",
    "response_p50_us",
    "response_p99_us",
    "goodput_bit_per_s",
    "idle_response_p50_us",
    "idle_round_trips_per_min",
];

#[must_use]
pub fn of(report: &TransferReport) -> Metrics {
    let mut metrics = Metrics::new();
    let mut set = |name: &str, value: Option<f64>| metrics.insert(name.to_owned(), value);
    let ways = &report.directions;
    let goodput = |way: Direction| -> Option<f64> {
        let all: Option<Vec<f64>> =
            ways.iter().filter(|found| found.direction == way).map(goodput_bit_per_s).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.iter().sum())
    };
    let each: Vec<f64> = ways.iter().filter_map(goodput_bit_per_s).collect();
    let received = whole(ways.iter().map(|way| Some(arrived(way)?.bytes())));
    // CPU time was spent on the omitted beginning too.
    let with_omitted = |end: &EndReport| end.bytes().saturating_add(end.omitted.bytes);
    let worked_on = whole(ways.iter().map(|way| arrived(way).map(with_omitted)));
    set("goodput_bit_per_s", (each.len() == ways.len() && !each.is_empty()).then(|| each.iter().sum()));
    set("goodput_up_bit_per_s", goodput(Direction::Up));
    set("goodput_down_bit_per_s", goodput(Direction::Down));
    set("theoretical_bit_per_s", report.theoretical_bit_per_s);
    set("asked_bytes", report.asked_bytes.map(|bytes| bytes as f64));
    set("sent_bytes", whole(ways.iter().map(|way| way.sender.as_ref().map(EndReport::bytes))));
    set("received_bytes", received);
    let elapsed = ways.iter().filter_map(|way| arrived(way)?.elapsed_s());
    set("elapsed_s", elapsed.max_by(f64::total_cmp));
    let flows = || ways.iter().filter_map(arrived).flat_map(|end| &end.flows);
    // A flow that moved nothing has the rate 0, one that moved something only once has no known rate.
    let rate = |flow: &FlowReport| if flow.count.bytes == 0 { Some(0.0) } else { flow_rate(flow) };
    let rates: Option<Vec<f64>> = flows().map(rate).collect();
    let rates = || rates.iter().flatten().copied();
    set("flow_least_bit_per_s", rates().min_by(f64::total_cmp));
    set("flow_most_bit_per_s", rates().max_by(f64::total_cmp));
    let ends = || ways.iter().flat_map(|way| [&way.sender, &way.receiver]);
    let cpu_s: Option<f64> = ends().map(|end| end.as_ref()?.cpu_s).sum();
    let per_gb =
        cpu_s.zip(worked_on).filter(|(_, bytes)| *bytes > 0.0).map(|(cpu_s, bytes)| cpu_s / (bytes / 1e9));
    set("cpu_s_per_gb", per_gb.filter(|_| !ways.is_empty()));
    let busiest = |end: fn(&DirectionReport) -> Option<&EndReport>| {
        ways.iter().filter_map(|way| end(way)?.busiest_percent()).max_by(f64::total_cmp)
    };
    set("sender_cpu_percent", busiest(|way| way.sender.as_ref()));
    set("receiver_cpu_percent", busiest(|way| way.receiver.as_ref()));
    metrics.insert("start_skew_us".to_owned(), start_skew_us(ways));
    metrics.extend(datagrams(ways));
    metrics.extend(delays(report));
    metrics.extend(connections(ways));
    metrics.extend(report.responses.as_ref().map(responses::of).unwrap_or_default());
    metrics.extend(report.idle_responses.as_ref().map(responses::of_idle).unwrap_or_default());
    metrics
}

/// The end that counts what arrived: the receiver; of TCP, the sender if the receiver does not report.
fn arrived(way: &DirectionReport) -> Option<&EndReport> {
    let sender = way.sender.as_ref().filter(|end| end.flows.iter().all(|flow| flow.count.datagrams == 0));
    way.receiver.as_ref().or(sender)
}

fn goodput_bit_per_s(way: &DirectionReport) -> Option<f64> {
    arrived(way)?.goodput_bit_per_s()
}

/// The goodput of a flow, bit/s.
pub(super) fn flow_rate(flow: &FlowReport) -> Option<f64> {
    let (first, last) = flow.moved_ns?;
    let bytes = flow.count.bytes.saturating_sub(flow.first_bytes) as f64;
    (last > first).then(|| bytes * 8e9 / (last - first) as f64)
}

/// How far apart the clients' flows began, against one intended start; `None` with a single flow, and without
/// flows from clients.
fn start_skew_us(ways: &[DirectionReport]) -> Option<f64> {
    let up = || ways.iter().filter(|way| way.direction == Direction::Up);
    let flows = up().flat_map(|way| &way.sender).map(|sender| sender.flows.len()).sum::<usize>();
    let began: Option<Vec<(u64, u64)>> = up().map(|way| way.sender.as_ref()?.began_ns).collect();
    let began = began.filter(|_| flows > 1)?;
    let (first, last) =
        (began.iter().map(|(first, _)| *first).min()?, began.iter().map(|(_, last)| *last).max()?);
    Some(last.saturating_sub(first) as f64 / 1e3)
}

/// The sum, when every part of it is known.
fn whole(parts: impl Iterator<Item = Option<u64>>) -> Option<f64> {
    parts.map(|part| part.map(|part| part as f64)).sum()
}

/// The share of the datagrams that did not come; unknown for TCP.
pub(super) fn loss_ratio(ways: &[DirectionReport]) -> Option<f64> {
    datagrams(ways).get("loss_ratio").copied().flatten()
}

/// What datagrams came to; unknown for TCP.
fn datagrams(ways: &[DirectionReport]) -> Metrics {
    let counts = |end: fn(&DirectionReport) -> Option<&EndReport>| -> Option<Vec<FlowCount>> {
        let all: Option<Vec<_>> = ways.iter().map(end).collect();
        let all: Vec<_> = all?.iter().flat_map(|end| end.flows.iter().map(|flow| flow.count)).collect();
        all.iter().any(|count| count.datagrams > 0).then_some(all)
    };
    let (sent, came) = (counts(|way| way.sender.as_ref()), counts(|way| way.receiver.as_ref()));
    let sum = |counts: &Option<Vec<FlowCount>>, of: fn(&FlowCount) -> u64| {
        counts.as_ref().map(|counts| counts.iter().map(|count| of(count) as f64).sum::<f64>())
    };
    // Counts that every end of its kind has; those of another program may be unknown.
    let counted = |end: fn(&DirectionReport) -> Option<&EndReport>, at_most: Counted| {
        ways.iter().filter_map(end).all(|end| end.counted <= at_most)
    };
    let sender_counts = |at_most| counted(|way| way.sender.as_ref(), at_most);
    let receiver_counts = |at_most| counted(|way| way.receiver.as_ref(), at_most);
    let dropped: Option<f64> =
        came.as_ref().and_then(|came| came.iter().map(|count| Some(count.overflowed? as f64)).sum());
    let (sent_count, came_count) = (sum(&sent, |count| count.datagrams), sum(&came, |count| count.datagrams));
    // Datagrams that were lost at the very end leave no gap: sent minus received shows them.
    let duplicated = sum(&came, |count| count.duplicated).unwrap_or(0.0);
    // The two ends leave out their beginnings at moments of their own, so that all is compared and the losses
    // of the beginning deducted.
    let before = |end: fn(&DirectionReport) -> Option<&EndReport>| {
        ways.iter().filter_map(end).fold(FlowCount::default(), |sum, end| sum.with(&end.omitted))
    };
    let sent_before = before(|way| way.sender.as_ref()).datagrams as f64;
    let came_before = before(|way| way.receiver.as_ref());
    let came_once_before =
        came_before.datagrams.saturating_sub(came_before.duplicated).saturating_add(came_before.lost) as f64;
    let lost = match (sent_count, came_count) {
        (Some(sent), Some(came)) => {
            Some((sent + sent_before - (came - duplicated) - came_once_before).max(0.0))
        }
        _ => sum(&came, |count| count.lost).filter(|_| receiver_counts(Counted::Losses)),
    };
    let of_all = sent_count.or(came_count.zip(lost).map(|(came, lost)| came + lost));
    let ratio = lost.zip(of_all).filter(|(_, all)| *all > 0.0).map(|(lost, all)| lost / all);
    let on_path = lost.zip(dropped).map(|(lost, dropped)| (lost - dropped).max(0.0));
    let jitter = came.as_ref().filter(|_| receiver_counts(Counted::LossesAndJitter)).map(|came| {
        came.iter().map(|count| count.jitter_ns as f64).sum::<f64>() / came.len().max(1) as f64 / 1e3
    });
    let named = [
        ("loss_ratio", ratio),
        ("datagrams_sent", sent_count),
        ("datagrams_received", came_count),
        ("datagrams_lost", lost),
        ("datagrams_lost_at_receiver", dropped),
        ("datagrams_lost_on_path", on_path),
        ("sends_refused", sum(&sent, |count| count.refused).filter(|_| sender_counts(Counted::All))),
        (
            "datagrams_reordered",
            sum(&came, |count| count.reordered).filter(|_| receiver_counts(Counted::All)),
        ),
        (
            "datagrams_duplicated",
            sum(&came, |count| count.duplicated).filter(|_| receiver_counts(Counted::All)),
        ),
        ("jitter_us", jitter),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

/// How long datagrams were on their way, the clocks' offset taken out; unknown where that is.
fn delays(report: &TransferReport) -> Metrics {
    let mut all: Vec<(f64, f64, f64)> = Vec::new();
    if let Some(clock) = &report.clock {
        for way in &report.directions {
            // The receiver's clock less the sender's: the server's is ahead by the offset.
            let ahead = if way.direction == Direction::Up {
                clock.offset_ns
            } else {
                clock.offset_ns.saturating_neg()
            };
            let flows = way.receiver.iter().flat_map(|end| &end.flows).filter_map(|flow| flow.transit);
            let us = |ns: i64| ns.saturating_sub(ahead) as f64 / 1e3;
            all.extend(flows.map(|transit| (us(transit.min_ns), us(transit.mean_ns), us(transit.max_ns))));
        }
    }
    let known = !all.is_empty();
    let mean = all.iter().map(|(_, mean, _)| mean).sum::<f64>() / all.len().max(1) as f64;
    let named = [
        ("delay_min_us", all.iter().map(|(min, _, _)| *min).min_by(f64::total_cmp)),
        ("delay_mean_us", known.then_some(mean)),
        ("delay_max_us", all.iter().map(|(_, _, max)| *max).max_by(f64::total_cmp)),
        ("delay_bound_us", report.clock.filter(|_| known).map(|clock| clock.bound_ns as f64 / 1e3)),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Metrics from TCP's or QUIC's own counters.
fn connections(ways: &[DirectionReport]) -> Metrics {
    let waits: Vec<&Waits> =
        ways.iter().filter_map(|way| way.sender.as_ref()).flat_map(|end| &end.waits).collect();
    let known = |of: fn(&Waits) -> Option<u64>| -> Vec<f64> {
        waits.iter().filter_map(|waits| of(waits)).map(|value| value as f64).collect()
    };
    let (again, least, rtt) =
        (known(|waits| waits.retransmits), known(|waits| waits.min_rtt_us), known(|waits| waits.rtt_us));
    let mean = (!rtt.is_empty()).then(|| rtt.iter().sum::<f64>() / rtt.len() as f64);
    let named = [
        ("retransmits", (!again.is_empty()).then(|| again.iter().sum())),
        ("rtt_min_us", least.into_iter().min_by(f64::total_cmp)),
        ("rtt_us", mean),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    use super::super::flow::EndReason;
    use super::*;

    fn end(counts: &[FlowCount], last_ns: u64) -> EndReport {
        let flow = |count: &FlowCount| FlowReport {
            count: *count,
            moved_ns: Some((1_000, 1_000 + last_ns)),
            ..FlowReport::new(EndReason::Done)
        };
        EndReport { flows: counts.iter().map(flow).collect(), cpu_s: Some(0.5), ..EndReport::default() }
    }

    fn way(sent: &[FlowCount], came: &[FlowCount]) -> TransferReport {
        let sender = Some(end(sent, 1_000_000_000));
        let receiver = Some(end(came, 2_000_000_000));
        TransferReport {
            directions: vec![DirectionReport { direction: Direction::Up, sender, receiver }],
            ..TransferReport::default()
        }
    }

    #[test]
    fn goodput_is_what_arrived_over_the_time_in_which_it_did() {
        let count = FlowCount { bytes: 500_000_000, ..FlowCount::default() };
        let metrics = of(&way(&[count; 2], &[count; 2]));
        assert_eq!(metrics["goodput_bit_per_s"], Some(4e9));
        assert_eq!(metrics["goodput_up_bit_per_s"], Some(4e9));
        assert_eq!(metrics["goodput_down_bit_per_s"], None);
        assert_eq!(metrics["cpu_s_per_gb"], Some(1.0), "half a second at each end for 10^9 bytes");
        assert_eq!(metrics["flow_least_bit_per_s"], Some(2e9));
        assert_eq!(metrics["loss_ratio"], None, "TCP loses nothing that can be counted");
    }

    #[test]
    fn loss_is_split_by_place_and_counts_the_tail() {
        let sent = FlowCount { bytes: 147_000, datagrams: 100, ..FlowCount::default() };
        // 90 came, one of them twice; 8 gaps were seen, so the last 2 were lost too; 5 at the socket.
        let came = FlowCount {
            bytes: 133_770,
            datagrams: 91,
            duplicated: 1,
            lost: 8,
            overflowed: Some(5),
            ..FlowCount::default()
        };
        let metrics = of(&way(&[sent], &[came]));
        assert_eq!(metrics["datagrams_lost"], Some(10.0));
        assert_eq!(metrics["loss_ratio"], Some(0.1));
        assert_eq!(metrics["datagrams_lost_at_receiver"], Some(5.0));
        assert_eq!(metrics["datagrams_lost_on_path"], Some(5.0));
    }

    #[test]
    fn skew_is_between_the_first_bytes_of_all_clients() {
        let mut report = way(&[FlowCount::default()], &[]);
        let skew = |report: &TransferReport| of(report)["start_skew_us"];
        report.directions[0].sender.as_mut().unwrap().began_ns = Some((5_000, 5_000));
        assert_eq!(skew(&report), None, "one flow");
        let mut other = report.directions[0].clone();
        other.sender.as_mut().unwrap().began_ns = Some((2_000, 42_000));
        report.directions.push(other);
        assert_eq!(skew(&report), Some(40.0));
        report.directions[1].sender.as_mut().unwrap().began_ns = None;
        assert_eq!(skew(&report), None, "one client's is unknown");
    }

    #[test]
    fn unreported_numbers_are_unknown() {
        let count = FlowCount { bytes: 147_000, datagrams: 100, ..FlowCount::default() };
        let mut report = way(&[count], &[count]);
        report.directions[0].receiver = None;
        let metrics = of(&report);
        for name in ["goodput_bit_per_s", "received_bytes", "loss_ratio", "cpu_s_per_gb"] {
            assert_eq!(metrics[name], None, "{name}: datagrams that were sent need not have come");
        }
        let every = METRICS.iter().map(|metric| metric.name);
        assert!(metrics.keys().all(|name| every.clone().any(|known| known == name)), "{metrics:?}");
    }
}
