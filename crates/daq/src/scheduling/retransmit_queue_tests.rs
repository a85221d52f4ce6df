use super::*;

const MS: u64 = 1_000_000;

fn multicast(event: u64, first_source: u32, sources: u32) -> Option<RetransmitAction> {
    Some(RetransmitAction::Multicast { event, first_source, sources })
}

/// Two groups of ten sources with a usual delay of a millisecond.
fn queue_with_known_delays() -> RetransmitQueue {
    let mut queue = RetransmitQueue::new(20);
    for source in 0..20 {
        queue.join(source, source / 10);
    }
    for event in 0..200 {
        queue.begin_event(event, u64::MAX - 1);
        queue.add_order(event, 0, 20, event);
        for source in [3, 13] {
            assert_eq!(queue.fragment_arrived(event, source, None, event + MS), 0);
        }
        queue.end_event(event);
    }
    queue
}

#[test]
fn silent_group_is_retried_then_given_up() {
    let mut queue = queue_with_known_delays();
    queue.begin_event(500, 1000 * MS);
    queue.add_order(500, 0, 20, 0);
    queue.fragment_arrived(500, 0, None, MS);
    let unicast = RetransmitAction::Unicast { event: 500, first_source: 0, sources: 20, group: 1 };
    let mut actions = Vec::new();
    for _ in 0..10 {
        let Some(now_ns) = queue.next_due_ns() else { break };
        while let Some(step) = queue.next_action(now_ns) {
            actions.push((now_ns / MS, step));
            if matches!(step, RetransmitAction::GiveUp { .. }) {
                queue.end_event(500);
            }
        }
    }
    assert_eq!(
        actions,
        [(5, multicast(500, 0, 20).unwrap()), (10, unicast), (1000, RetransmitAction::GiveUp { event: 500 })]
    );
    assert_eq!(queue.next_due_ns(), None);
}

#[test]
fn one_multicast_serves_two_silent_groups() {
    let mut queue = queue_with_known_delays();
    queue.begin_event(500, 1000 * MS);
    queue.add_order(500, 5, 10, 0);
    assert_eq!(queue.next_action(4 * MS), None);
    assert_eq!(queue.next_action(5 * MS), multicast(500, 5, 10));
    assert_eq!(queue.next_action(5 * MS), None);
    assert_eq!(queue.fragment_arrived(500, 7, Some(6 * MS), 7 * MS), 1);
    assert_eq!(queue.fragment_arrived(500, 8, Some(6 * MS), 7 * MS), 1, "the whole group was deaf");
    assert_eq!(queue.fragment_arrived(500, 11, Some(4 * MS), 7 * MS), 0, "it had only been slow");
    assert_eq!(queue.next_action(20 * MS), None);
}

#[test]
fn overtaken_order_is_retransmitted_early() {
    let mut queue = queue_with_known_delays();
    for event in [500, 501] {
        queue.begin_event(event, u64::MAX - 1);
    }
    queue.add_order(500, 0, 5, 0);
    queue.add_order(500, 5, 5, MS);
    queue.add_order(500, 10, 10, MS);
    queue.add_order(501, 0, 20, 2 * MS);
    queue.fragment_arrived(501, 12, None, 2 * MS);
    assert_eq!(queue.next_action(2 * MS), None, "it may be read a little later");
    let due_ns = 2 * MS + REORDER_NS;
    assert_eq!(
        [queue.next_action(due_ns), queue.next_action(due_ns)],
        [multicast(500, 10, 10), None],
        "that group alone was deaf"
    );
    queue.fragment_arrived(500, 7, None, 3 * MS);
    assert_eq!([queue.next_action(4 * MS), queue.next_action(4 * MS)], [multicast(500, 0, 5), None]);
    queue.fragment_arrived(501, 2, None, 4 * MS);
    assert_eq!(queue.next_action(5 * MS), None, "what was repeated has time again");
}

#[test]
fn overtaken_order_waits_for_the_usual_delay() {
    let mut queue = RetransmitQueue::new(10);
    (0..10).for_each(|source| queue.join(source, 0));
    for event in [1, 2] {
        queue.begin_event(event, u64::MAX - 1);
    }
    queue.add_order(1, 0, 5, 0);
    queue.add_order(2, 0, 10, MS);
    queue.fragment_arrived(2, 0, None, 2 * MS);
    assert_eq!(queue.next_action(19 * MS), None, "the time of a fragment is unknown yet");
    assert_eq!(queue.next_action(20 * MS), multicast(1, 0, 5));
}

#[test]
fn slow_group_gets_a_longer_delay() {
    let mut queue = queue_with_known_delays();
    for event in 1000..1300 {
        let at_ns = event * 1000 * MS;
        queue.begin_event(event, at_ns + 900 * MS);
        queue.add_order(event, 0, 10, at_ns);
        while queue.next_action(at_ns + 30 * MS).is_some() {}
        queue.fragment_arrived(event, 3, Some(at_ns + MS), at_ns + 30 * MS);
        queue.end_event(event);
    }
    queue.begin_event(2000, u64::MAX - 1);
    queue.add_order(2000, 0, 20, 0);
    assert_eq!(queue.next_action(6 * MS), multicast(2000, 0, 20));
    let unicast = RetransmitAction::Unicast { event: 2000, first_source: 0, sources: 20, group: 1 };
    assert_eq!(
        [queue.next_action(59 * MS), queue.next_action(59 * MS)],
        [Some(unicast), None],
        "the slow group has time until 60"
    );
    assert_eq!(queue.next_action(60 * MS), multicast(2000, 0, 20));
}

#[test]
fn disconnected_and_unknown_sources_are_ignored() {
    let mut queue = queue_with_known_delays();
    (10..20).for_each(|source| queue.leave(source));
    queue.begin_event(500, 1000 * MS);
    queue.add_order(500, 0, 20, 0);
    queue.fragment_arrived(500, 1, None, MS);
    assert_eq!(queue.next_action(900 * MS), None);
    queue.leave(99);
    queue.join(99, u32::MAX);
    queue.add_order(501, 0, 20, 0);
    queue.add_order(500, 90, u32::MAX, 0);
    assert_eq!(queue.fragment_arrived(500, 99, None, 0), 0);
    assert_eq!(queue.fragment_arrived(501, 1, None, 0), 0);
}
