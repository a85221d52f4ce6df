use super::*;
use crate::settings::Triggers;

const PLAN: SchedulerPlan = SchedulerPlan {
    choice: BuilderChoice::Modulo,
    builder_first: 0,
    builders: 2,
    builders_all: 2,
    window: 2,
    events: None,
};

fn timetable(plan: SchedulerPlan, triggers: &str) -> TriggerScheduler {
    let scheduler = TriggerScheduler::new(plan, triggers.parse::<Triggers>().unwrap().due(1, Vec::new()));
    scheduler.begin_at(0);
    scheduler
}

/// All assignments of a builder at a time, with growing outstanding events.
fn all(scheduler: &TriggerScheduler, builder: usize, now_ns: u64, mut outstanding: u32) -> (Vec<u64>, u64) {
    let (mut events, mut vetoed) = (Vec::new(), 0);
    loop {
        match scheduler.next(builder, now_ns, outstanding) {
            Assignment::Due { .. } => {
                events.push(scheduler.next_event_number(builder));
                outstanding += 1;
            }
            Assignment::Vetoed { times, .. } => vetoed += times,
            Assignment::Wait { .. } | Assignment::Over => return (events, vetoed),
        }
    }
}

#[test]
fn untimed_triggers_fill_the_window() {
    let scheduler = TriggerScheduler::new(SchedulerPlan { events: Some(5), ..PLAN }, None);
    assert_eq!(scheduler.next(0, 7, 0), Assignment::Wait { until_ns: None });
    scheduler.begin_at(8);
    assert_eq!(scheduler.next(0, 7, 0), Assignment::Wait { until_ns: Some(8) });
    assert_eq!(scheduler.next(0, 9, 0), Assignment::Due { due_ns: 9 });
    assert_eq!(scheduler.next_event_number(0), 0);
    assert_eq!(all(&scheduler, 0, 9, 1), (vec![2], 0));
    assert_eq!(all(&scheduler, 1, 9, 0), (vec![1, 3], 0));
    assert_eq!(scheduler.next(1, 9, 2), Assignment::Wait { until_ns: None });
    assert_eq!(scheduler.next(0, 10, 1), Assignment::Due { due_ns: 10 });
    assert_eq!([scheduler.next(0, 10, 1), scheduler.next(1, 10, 0)], [Assignment::Over, Assignment::Over]);
    assert_eq!(scheduler.next_overdue(1, u64::MAX, 0), None);
}

#[test]
fn barrier_opens_for_all_when_the_last_arrives() {
    let scheduler = TriggerScheduler::new(SchedulerPlan { builders: 3, builders_all: 3, ..PLAN }, None);
    assert_eq!([scheduler.arrive(0, Barrier::Hold, 1), scheduler.arrive(0, Barrier::Hold, 2)], [None, None]);
    assert_eq!(scheduler.arrive(2, Barrier::Hold, 3), None);
    let open_ns = Some(5 + NOTICE_NS);
    assert_eq!(scheduler.arrive(1, Barrier::Hold, 5), open_ns);
    assert_eq!([0, 1, 2].map(|builder| scheduler.arrive(builder, Barrier::Hold, 99)), [open_ns; 3]);
    // Barriers are independent; a builder that left is not waited for.
    assert_eq!(scheduler.arrive(0, Barrier::Compare, 100), None);
    scheduler.leave(1);
    assert_eq!(scheduler.arrive(0, Barrier::Compare, 101), None);
    scheduler.leave(2);
    scheduler.leave(2);
    assert_eq!(scheduler.arrive(0, Barrier::Compare, 102), Some(102), "no other builder has to arrive");
    assert_eq!(scheduler.arrive(0, Barrier::Hold, 103), open_ns);
}

#[test]
fn assignments_of_a_leaving_builder_are_reassigned() {
    for choice in [BuilderChoice::RoundRobin, BuilderChoice::LeastOutstanding] {
        let scheduler = timetable(SchedulerPlan { choice, window: 10, events: Some(6), ..PLAN }, "1000/s");
        // Four triggers: two each.
        assert_eq!(scheduler.next(1, 3_000_000, 0), Assignment::Due { due_ns: 1_000_000 });
        assert_eq!(scheduler.next_event_number(1), 1);
        scheduler.leave(0);
        assert_eq!(all(&scheduler, 1, 3_000_000, 1), (vec![3, 5, 7], 0), "{choice:?}");
        assert_eq!(all(&scheduler, 1, 5_000_000, 4), (vec![9, 11], 0), "{choice:?}");
        assert_eq!(scheduler.next(1, 5_000_000, 6), Assignment::Over);
    }
}

#[test]
fn fixed_assignments_of_a_leaving_builder_are_vetoed() {
    let scheduler = timetable(SchedulerPlan { window: 10, events: Some(4), ..PLAN }, "1000/s");
    assert_eq!(scheduler.next(1, 3_000_000, 0), Assignment::Due { due_ns: 1_000_000 });
    assert_eq!(scheduler.next_event_number(1), 1);
    scheduler.leave(0);
    assert_eq!(all(&scheduler, 1, 3_000_000, 1), (vec![3], 2), "triggers 0 and 2 had been dealt");
    assert_eq!(all(&scheduler, 1, 7_000_000, 2), (vec![5, 7], 2), "triggers 4 and 6 are due now");
    assert_eq!(scheduler.next(1, 8_000_000, 4), Assignment::Over);
    scheduler.leave(1);
    assert_eq!(
        (scheduler.next(0, 9_000_000, 0), scheduler.next_overdue(0, 9_000_000, 0)),
        (Assignment::Over, None)
    );
}

#[test]
fn overdue_triggers_are_not_lost() {
    let scheduler = timetable(SchedulerPlan { window: 3, ..PLAN }, "1000/s");
    assert_eq!(all(&scheduler, 0, 4_500_000, 0), (vec![0, 2, 4], 0));
    // Ten triggers before the end; builder 1 fetched none.
    let mut rest = [Vec::new(), Vec::new()];
    for (builder, outstanding) in [(0, 3), (1, 0)] {
        while let Some(assignment) =
            scheduler.next_overdue(builder, 10_000_000, outstanding + rest[builder].len() as u32)
        {
            rest[builder].push(assignment);
        }
    }
    assert_eq!(rest[0], [Assignment::Vetoed { due_ns: 6_000_000, times: 2 }]);
    let due = [1, 3].map(|ms| Assignment::Due { due_ns: ms * 1_000_000 });
    assert_eq!(rest[1][..2], due);
    assert!(
        matches!(rest[1][..], [_, _, Assignment::Due { .. }, Assignment::Vetoed { times: 2, .. }]),
        "{:?}",
        rest[1]
    );
    assert_eq!(scheduler.next_overdue(1, 10_000_000, 0), None);
}

#[test]
fn event_numbers_have_no_gaps() {
    let scheduler = timetable(PLAN, "1000/s");
    assert_eq!(scheduler.next(1, 0, 0), Assignment::Wait { until_ns: Some(1_000_000) });
    // Ten triggers are due, five each; each builder has room for two.
    assert_eq!(all(&scheduler, 0, 9_000_000, 0), (vec![0, 2], 3));
    assert_eq!(all(&scheduler, 1, 9_000_000, 0), (vec![1, 3], 3));
    assert_eq!(all(&scheduler, 1, 20_000_000, 1), (vec![5], 4));
}

#[test]
fn round_robin_skips_full_builders() {
    let scheduler = timetable(SchedulerPlan { choice: BuilderChoice::RoundRobin, ..PLAN }, "1000/s");
    assert_eq!(scheduler.next(1, 0, 2), Assignment::Wait { until_ns: Some(1_000_000) });
    assert_eq!(all(&scheduler, 0, 1_000_000, 0), (vec![0, 2], 0));
    assert_eq!(all(&scheduler, 0, 3_000_000, 2), (vec![], 1), "its turn, and no builder has room");
    assert_eq!(all(&scheduler, 1, 3_000_000, 2), (vec![], 1));
    let scheduler =
        timetable(SchedulerPlan { choice: BuilderChoice::LeastOutstanding, window: 10, ..PLAN }, "1000/s");
    scheduler.next(1, 0, 4);
    assert_eq!(all(&scheduler, 0, 4_000_000, 0), (vec![0, 2, 4, 6], 0));
}

#[test]
fn hosts_share_the_timetable() {
    for choice in [BuilderChoice::Modulo, BuilderChoice::RoundRobin, BuilderChoice::LeastOutstanding] {
        let mut events: Vec<u64> = Vec::new();
        for builder_first in [0, 2] {
            let plan = SchedulerPlan {
                choice,
                builder_first,
                builders_all: 4,
                window: 100,
                events: Some(40),
                ..PLAN
            };
            let scheduler = timetable(plan, "poisson 1000/s");
            for builder in [0, 1] {
                events.extend(all(&scheduler, builder, 1_000_000_000, 0).0);
            }
            assert_eq!(scheduler.next(0, 2_000_000_000, 0), Assignment::Over);
        }
        events.sort_unstable();
        assert!(
            events.len() == 40 && events.windows(2).all(|pair| pair[0] < pair[1]),
            "{choice:?} {events:?}"
        );
    }
}

#[test]
fn vetoes_of_a_stalled_builder_are_merged() {
    let scheduler = timetable(PLAN, "1000000/s");
    all(&scheduler, 1, 1_000_000_000, 0);
    let state = scheduler.state();
    assert!(state.slots[0].assignments.len() < 200, "{}", state.slots[0].assignments.len());
}

#[test]
fn assignments_at_once_are_bounded() {
    let scheduler = timetable(SchedulerPlan { builders: 1, builders_all: 1, ..PLAN }, "1000000/s");
    for calls in 1..4 {
        scheduler.next(0, 1_000_000_000, 2);
        assert_eq!(scheduler.state().assigned, calls * ASSIGN_MAX as u64);
    }
}
