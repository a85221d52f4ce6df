use Certainty::{Confirmed, Predicted};

use super::super::flow::{Direction, FlowCount, FlowReport, ThreadReport};
use super::super::report::Waits;
use super::*;

fn end(cpu_share: f64, waits: Option<(u64, u64, u64)>) -> EndReport {
    let flow = FlowReport::in_a_second(FlowCount { bytes: 1000, ..FlowCount::default() });
    let waits = waits.map(|(busy, rwnd, sndbuf)| Waits {
        busy_us: Some(busy),
        rwnd_limited_us: Some(rwnd),
        sndbuf_limited_us: Some(sndbuf),
        ..Waits::default()
    });
    let thread = ThreadReport { cpu_ns: (cpu_share * 1e9) as u64, ready_ns: Some(0), wall_ns: 1_000_000_000 };
    let (flows, waits) = (vec![flow], waits.into_iter().collect());
    EndReport { flows, waits, threads: vec![thread], ..EndReport::default() }
}

fn up(sender: EndReport, receiver: impl Into<Option<EndReport>>) -> DirectionReport {
    DirectionReport { direction: Direction::Up, sender: Some(sender), receiver: receiver.into() }
}

fn held(way: &DirectionReport, asked: Asked, link_share: Option<f64>) -> Option<Cause> {
    of(way, asked, link_share).0
}

#[test]
fn each_cause_follows_from_its_counters() {
    use Asked::{FlatOut, Met, Unmet};
    let all = 1_000_000;
    for (sender, receiver, waits, asked, expected) in [
        (0.98, 0.5, Some((all, 0, 0)), FlatOut, Some((Held::SenderCpu, Confirmed))),
        (0.5, 0.97, Some((all, 900_000, 0)), FlatOut, Some((Held::ReceiverCpu, Confirmed))),
        (0.97, 0.97, Some((all, 900_000, 0)), FlatOut, Some((Held::ReceiverCpu, Confirmed))),
        (0.2, 0.2, Some((all, 900_000, 0)), FlatOut, Some((Held::Window, Confirmed))),
        (0.2, 0.2, Some((all, 330_000, 0)), FlatOut, Some((Held::Window, Predicted))),
        (0.2, 0.2, Some((all, 0, 800_000)), FlatOut, Some((Held::SendBuffer, Confirmed))),
        (0.2, 0.2, Some((all, 0, 300_000)), FlatOut, Some((Held::SendBuffer, Predicted))),
        (0.2, 0.2, Some((all, 100_000, 0)), FlatOut, Some((Held::Path, Confirmed))),
        (0.2, 0.2, Some((300_000, 0, 0)), FlatOut, Some((Held::Offered, Confirmed))),
        // A rate that was asked for and arrived was held back by nothing, whatever else is short.
        (0.98, 0.2, Some((all, 900_000, 0)), Met, Some((Held::Offered, Confirmed))),
        (0.98, 0.2, Some((all, 0, 0)), Unmet, Some((Held::SenderCpu, Confirmed))),
        (0.2, 0.2, Some((300_000, 0, 0)), Unmet, Some((Held::Path, Predicted))),
        // Datagrams: only CPU is known.
        (0.98, 0.2, None, FlatOut, Some((Held::SenderCpu, Confirmed))),
        (0.2, 0.2, None, Unmet, Some((Held::Path, Predicted))),
        (0.2, 0.2, None, FlatOut, None),
    ] {
        let way = up(end(sender, waits), end(receiver, None));
        assert_eq!(held(&way, asked, None), expected, "{sender} {receiver} {waits:?} {asked:?}");
    }
}

#[test]
fn cpu_waits_below_the_limit_are_only_predicted() {
    let mut sender = end(0.5, Some((1_000_000, 0, 0)));
    sender.threads[0].ready_ns = Some(310_000_000);
    (sender.waits[0].looks, sender.waits[0].drained) = (50, 40);
    let mut receiver = end(0.45, None);
    receiver.threads[0].ready_ns = Some(230_000_000);
    let way = up(sender, receiver);
    assert_eq!(held(&way, Asked::FlatOut, None), Some((Held::SenderCpu, Predicted)));
}

#[test]
fn datagram_losses_name_the_limit() {
    let count = |datagrams| FlowCount { datagrams, bytes: datagrams * 1472, ..FlowCount::default() };
    let (mut sender, mut receiver) = (end(0.3, None), end(0.3, None));
    sender.flows[0].count = count(1000);
    receiver.flows[0].count = FlowCount { overflowed: Some(10), ..count(800) };
    let mut way = up(sender, receiver);
    let (cause, evidence) = of(&way, Asked::Unmet, None);
    assert_eq!(cause, Some((Held::Path, Confirmed)));
    assert!(evidence.iter().any(|line| line.contains("19 % of the datagrams were lost on the path")));
    way.receiver.as_mut().unwrap().flows[0].count.overflowed = Some(200);
    assert_eq!(held(&way, Asked::Unmet, None), Some((Held::ReceiverCpu, Confirmed)));
}

#[test]
fn losses_without_a_counter_of_the_socket_have_no_place() {
    let count = |datagrams| FlowCount { datagrams, bytes: datagrams * 1472, ..FlowCount::default() };
    let (mut sender, mut receiver) = (end(0.3, None), end(0.3, None));
    sender.flows[0].count = count(1000);
    receiver.flows[0].count = FlowCount { overflowed: None, ..count(800) };
    let way = up(sender, receiver);
    let (cause, evidence) = of(&way, Asked::Unmet, None);
    assert_eq!(cause, None, "neither the path nor the receiver is known to have lost them");
    assert!(evidence.iter().any(|line| line.contains("20 % of the datagrams were lost; where is unknown")));
    assert!(evidence.iter().all(|line| !line.contains(" 0 %")), "{evidence:?}");
}

#[test]
fn more_than_the_link_carries_confirms_nothing() {
    let all = 1_000_000;
    for (share, expected) in
        [(0.987, Confirmed), (1.004, Confirmed), (1.0195, Predicted), (1.07, Predicted), (40.0, Predicted)]
    {
        let way = up(end(0.2, Some((all, 0, 0))), end(0.2, None));
        let (cause, evidence) = of(&way, Asked::FlatOut, Some(share));
        assert_eq!(cause, Some((Held::Path, expected)), "{share}");
        assert_eq!(
            evidence[0].contains("the time was too short beside a burst"),
            share > 1.01 && share < 1.08
        );
    }
}

#[test]
fn stolen_and_waited_for_cpu_weigh_against_other_causes() {
    let all = 1_000_000;
    for (waits, link_share, steal, ready_s, expected) in [
        // 721 of 956 Mbit/s while the hypervisor took half a core.
        ((all, 0, 0), Some(0.754), 0.51, 0.0, None),
        ((all, 0, 0), Some(0.754), 0.02, 0.0, Some((Held::Path, Confirmed))),
        ((all, 0, 0), Some(0.754), 0.0, 0.2, None),
        ((all, 900_000, 0), None, 0.51, 0.0, Some((Held::Window, Predicted))),
        ((all, 0, 800_000), None, 0.51, 0.0, Some((Held::SendBuffer, Predicted))),
        ((all, 900_000, 0), None, 0.0, 0.2, Some((Held::Window, Predicted))),
        // A full link is full, whoever took the CPU.
        ((all, 0, 0), Some(0.98), 0.51, 0.0, Some((Held::Path, Confirmed))),
    ] {
        let mut receiver = end(0.2, None);
        receiver.steal = Some(steal);
        receiver.threads[0].ready_ns = Some((ready_s * 1e9) as u64);
        let (cause, evidence) = of(&up(end(0.2, Some(waits)), receiver), Asked::FlatOut, link_share);
        assert_eq!(cause, expected, "{waits:?} {link_share:?} {steal} {ready_s}");
        assert_eq!(evidence[0] == "the hypervisor took 51 % of a core", steal > 0.5, "{evidence:?}");
    }
}

#[test]
fn unknown_waits_for_a_cpu_are_not_none() {
    let sender = end(0.2, Some((1_000_000, 0, 0)));
    let mut uncounted = end(0.2, None);
    uncounted.threads[0].ready_ns = None;
    let mut other_program = end(0.2, None);
    other_program.threads.clear();
    other_program.cpu_s = Some(0.2);
    let said = "how long the receiving end waited for a CPU is unknown".to_owned();
    for receiver in [Some(uncounted), Some(other_program), None] {
        let (cause, evidence) = of(&up(sender.clone(), receiver), Asked::FlatOut, None);
        assert_eq!(cause, Some((Held::Path, Predicted)));
        assert!(evidence.contains(&said), "{evidence:?}");
    }
    let (cause, evidence) = of(&up(sender, end(0.2, None)), Asked::FlatOut, None);
    assert_eq!(cause, Some((Held::Path, Confirmed)));
    assert!(!evidence.contains(&said), "{evidence:?}");
}

#[test]
fn nothing_is_excluded_by_unknown_waits_for_a_cpu() {
    let all = 1_000_000;
    for (busy_us, looks, drained, held, certain) in [
        (all, 0, 0, Held::Path, Confirmed),
        (all, 10, 9, Held::SendBuffer, Confirmed),
        (300_000, 0, 0, Held::Offered, Confirmed),
    ] {
        let mut sender = end(0.2, Some((busy_us, 0, 0)));
        (sender.waits[0].looks, sender.waits[0].drained) = (looks, drained);
        let mut way = up(sender, end(0.2, None));
        let found = |way: &DirectionReport| of(way, Asked::FlatOut, None);
        assert_eq!(found(&way).0, Some((held, certain)));
        // A kernel without schedstats.
        way.sender.as_mut().unwrap().threads[0].ready_ns = None;
        let (cause, evidence) = found(&way);
        assert_eq!(cause, Some((held, Predicted)));
        let said = "how long the sending end waited for a CPU is unknown";
        assert!(evidence.iter().any(|line| line == said), "{evidence:?}");
    }
}

#[test]
fn larger_share_of_a_thread_stands_first() {
    let mut receiver = end(0.15, None);
    receiver.threads[0].ready_ns = Some(640_000_000);
    let (_, evidence) = of(&up(end(0.2, Some((1_000_000, 0, 0))), receiver), Asked::FlatOut, None);
    let said = "a receiving thread waited for a CPU 64 % of the time; the busiest used 15 % of a core";
    assert!(evidence.iter().any(|line| line == said), "{evidence:?}");
}

#[test]
fn retransmits_of_another_programs_tcp_are_not_of_quic() {
    let mut sender = end(0.2, None);
    sender.waits = vec![Waits { retransmits: Some(7), ..Waits::default() }];
    let said =
        |sender: &EndReport| of(&up(sender.clone(), end(0.2, None)), Asked::FlatOut, None).1.join("\n");
    assert!(!said(&sender).contains("QUIC"), "{}", said(&sender));
    sender.waits[0].is_quic = true;
    assert!(said(&sender).contains("QUIC declared 7 packets lost"), "{}", said(&sender));
}

#[test]
fn cpu_time_alone_shows_a_full_peer() {
    let mut receiver = end(0.0, None);
    receiver.threads.clear();
    receiver.cpu_s = Some(0.98);
    let mut way = up(end(0.5, Some((1_000_000, 330_000, 0))), receiver);
    assert_eq!(held(&way, Asked::FlatOut, None), Some((Held::ReceiverCpu, Confirmed)));
    way.receiver.as_mut().unwrap().cpu_s = Some(0.4);
    assert_eq!(held(&way, Asked::FlatOut, None), Some((Held::Window, Predicted)));
}

#[test]
fn idle_thread_rules_out_a_cpu_limit() {
    let mut sender = end(0.98, Some((1_000_000, 0, 0)));
    sender.threads.push(ThreadReport { cpu_ns: 10, ready_ns: Some(0), wall_ns: 1_000_000_000 });
    let receiver = Some(end(0.2, None));
    let way = DirectionReport { direction: Direction::Down, sender: Some(sender), receiver };
    assert_eq!(held(&way, Asked::FlatOut, Some(0.5)), Some((Held::Path, Confirmed)));
}

#[test]
fn each_flow_has_its_cause() {
    let all = 1_000_000;
    let mut sender = end(0.2, Some((all, 900_000, 0)));
    let other = end(0.97, Some((all, 0, 0)));
    sender.flows.extend(other.flows.clone());
    sender.waits.extend(other.waits.clone());
    let mut way = up(sender, None);
    let each = |way: &DirectionReport, link_share| -> Vec<Option<Held>> {
        of_each(way, Asked::FlatOut, link_share).iter().map(|cause| Some(cause.as_ref()?.0)).collect()
    };
    assert_eq!(each(&way, None), [Some(Held::Window), Some(Held::Path)], "one thread has both");
    way.sender.as_mut().unwrap().threads.extend(other.threads);
    assert_eq!(each(&way, None), [Some(Held::Window), Some(Held::SenderCpu)]);
    assert_eq!(each(&way, Some(0.99)), [Some(Held::Path); 2]);
    way.sender.as_mut().unwrap().waits.truncate(1);
    assert_eq!(each(&way, None), [None, Some(Held::SenderCpu)], "whose waits they are is not known");
}

#[test]
fn full_link_is_the_limit_before_cpus() {
    let way = up(end(0.98, Some((1_000_000, 0, 0))), end(0.98, None));
    let of_share = |asked, share| held(&way, asked, Some(share)).map(|(held, _)| held);
    assert_eq!(of_share(Asked::FlatOut, 0.985), Some(Held::Path));
    assert_eq!(of_share(Asked::Unmet, 0.995), Some(Held::Path));
    assert_eq!(of_share(Asked::Met, 0.985), Some(Held::Offered));
    // More than a link can carry: its rate is another.
    assert_eq!(of_share(Asked::FlatOut, 1.424), Some(Held::SenderCpu));
    assert!(of(&way, Asked::FlatOut, Some(1.424)).1[0].contains("nominal rate is wrong"));
}

#[test]
fn drained_send_buffer_is_the_limit() {
    let mut sender = end(0.1, Some((1_000_000, 0, 0)));
    (sender.waits[0].looks, sender.waits[0].drained) = (10, 9);
    let mut way = up(sender, end(0.1, None));
    let (cause, evidence) = of(&way, Asked::FlatOut, None);
    assert_eq!(cause, Some((Held::SendBuffer, Confirmed)));
    assert!(evidence.iter().any(|line| line.contains("90 %")), "{evidence:?}");
    // Two looks say nothing.
    way.sender.as_mut().unwrap().waits[0].looks = 2;
    assert_eq!(held(&way, Asked::FlatOut, None), Some((Held::Path, Confirmed)));
    (way.sender.as_mut().unwrap().waits[0].looks, way.sender.as_mut().unwrap().waits[0].drained) = (50, 17);
    assert_eq!(held(&way, Asked::FlatOut, None), Some((Held::SendBuffer, Predicted)), "a third of the looks");
}

#[test]
fn thread_that_waits_for_a_cpu_is_full() {
    let mut receiver = end(0.08, None);
    receiver.threads[0].ready_ns = Some(600_000_000);
    let way = up(end(0.2, Some((1_000_000, 0, 0))), receiver);
    assert_eq!(held(&way, Asked::FlatOut, None), Some((Held::ReceiverCpu, Confirmed)));
}
