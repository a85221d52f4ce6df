use super::*;

const MS: u64 = 1_000_000;

/// Two groups of ten sources each that are known to answer within a millisecond.
fn acquainted() -> Ladder {
    let mut ladder = Ladder::new(20);
    for source in 0..20 {
        ladder.join(source, source / 10);
    }
    for event in 0..200 {
        ladder.begin(event, u64::MAX - 1);
        ladder.ordered(event, 0, 20, event);
        for source in [3, 13] {
            assert_eq!(ladder.arrived(event, source, None, event + MS).repeats, 0);
        }
        ladder.end(event);
    }
    ladder
}

#[test]
fn a_silent_group_is_told_again_by_all_means_and_then_given_up() {
    let mut ladder = acquainted();
    ladder.begin(500, 1000 * MS);
    ladder.ordered(500, 0, 20, 0);
    ladder.arrived(500, 0, None, MS);
    let again = Step::Again { event: 500, first_source: 0, sources: 20 };
    let unicast = Step::Unicast { event: 500, first_source: 0, sources: 20, group: 1 };
    let mut told = Vec::new();
    for _ in 0..10 {
        let Some(now_ns) = ladder.next_due_ns() else { break };
        while let Some(step) = ladder.due(now_ns) {
            told.push((now_ns / MS, step));
            if matches!(step, Step::GiveUp { .. }) {
                ladder.end(500);
            }
        }
    }
    assert_eq!(told, [(5, again), (10, unicast), (1000, Step::GiveUp { event: 500 })]);
    assert_eq!(ladder.next_due_ns(), None);
}

#[test]
fn two_silent_groups_are_told_by_one_datagram_and_single_sources_by_their_own() {
    let mut ladder = acquainted();
    ladder.begin(500, 1000 * MS);
    ladder.ordered(500, 5, 10, 0);
    assert_eq!(ladder.due(4 * MS), None);
    assert_eq!(ladder.due(5 * MS), Some(Step::Again { event: 500, first_source: 5, sources: 10 }));
    assert_eq!(ladder.due(5 * MS), None);
    assert_eq!(ladder.arrived(500, 7, Some(6 * MS), 7 * MS), Heard { repeats: 1 });
    assert_eq!(
        ladder.arrived(500, 8, Some(6 * MS), 7 * MS),
        Heard { repeats: 1 },
        "the whole group was deaf"
    );
    assert_eq!(ladder.arrived(500, 11, Some(4 * MS), 7 * MS), Heard { repeats: 0 }, "it had only been slow");
    assert_eq!(ladder.due(20 * MS), None);
}

#[test]
fn an_order_that_a_later_one_overtook_is_not_waited_for_as_long() {
    let mut ladder = acquainted();
    for event in [500, 501] {
        ladder.begin(event, u64::MAX - 1);
    }
    ladder.ordered(500, 0, 5, 0);
    ladder.ordered(500, 5, 5, MS);
    ladder.ordered(500, 10, 10, MS);
    ladder.ordered(501, 0, 20, 2 * MS);
    let again = |first_source, sources| Some(Step::Again { event: 500, first_source, sources });
    ladder.arrived(501, 12, None, 2 * MS);
    assert_eq!(ladder.due(2 * MS), None, "it may be read a little later");
    let due_ns = 2 * MS + REORDER_NS;
    assert_eq!([ladder.due(due_ns), ladder.due(due_ns)], [again(10, 10), None], "that group alone was deaf");
    ladder.arrived(500, 7, None, 3 * MS);
    assert_eq!([ladder.due(4 * MS), ladder.due(4 * MS)], [again(0, 5), None]);
    ladder.arrived(501, 2, None, 4 * MS);
    assert_eq!(ladder.due(5 * MS), None, "what was repeated has time again");
}

#[test]
fn a_later_order_is_no_news_before_the_usual_time() {
    let mut ladder = Ladder::new(10);
    (0..10).for_each(|source| ladder.join(source, 0));
    for event in [1, 2] {
        ladder.begin(event, u64::MAX - 1);
    }
    ladder.ordered(1, 0, 5, 0);
    ladder.ordered(2, 0, 10, MS);
    ladder.arrived(2, 0, None, 2 * MS);
    assert_eq!(ladder.due(19 * MS), None, "nobody knows yet how long a fragment takes");
    assert_eq!(ladder.due(20 * MS), Some(Step::Again { event: 1, first_source: 0, sources: 5 }));
}

#[test]
fn a_slow_group_is_waited_for() {
    let mut ladder = acquainted();
    for event in 1000..1300 {
        let at_ns = event * 1000 * MS;
        ladder.begin(event, at_ns + 900 * MS);
        ladder.ordered(event, 0, 10, at_ns);
        while ladder.due(at_ns + 30 * MS).is_some() {}
        ladder.arrived(event, 3, Some(at_ns + MS), at_ns + 30 * MS);
        ladder.end(event);
    }
    ladder.begin(2000, u64::MAX - 1);
    ladder.ordered(2000, 0, 20, 0);
    assert_eq!(ladder.due(6 * MS), Some(Step::Again { event: 2000, first_source: 0, sources: 20 }));
    let unicast = Step::Unicast { event: 2000, first_source: 0, sources: 20, group: 1 };
    assert_eq!(
        [ladder.due(59 * MS), ladder.due(59 * MS)],
        [Some(unicast), None],
        "the slow group has time until 60"
    );
    assert_eq!(ladder.due(60 * MS), Some(Step::Again { event: 2000, first_source: 0, sources: 20 }));
}

#[test]
fn who_left_is_not_waited_for_and_strangers_do_no_harm() {
    let mut ladder = acquainted();
    (10..20).for_each(|source| ladder.leave(source));
    ladder.begin(500, 1000 * MS);
    ladder.ordered(500, 0, 20, 0);
    ladder.arrived(500, 1, None, MS);
    assert_eq!(ladder.due(900 * MS), None);
    ladder.leave(99);
    ladder.join(99, u32::MAX);
    ladder.ordered(501, 0, 20, 0);
    ladder.ordered(500, 90, u32::MAX, 0);
    assert_eq!(ladder.arrived(500, 99, None, 0), Heard::default());
    assert_eq!(ladder.arrived(501, 1, None, 0), Heard::default());
}
