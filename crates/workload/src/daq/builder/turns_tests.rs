use super::*;
use crate::daq::settings::Triggers;

const PLAN: TurnsPlan = TurnsPlan {
    choice: BuilderChoice::Modulo,
    builder_first: 0,
    builders: 2,
    builders_all: 2,
    window: 2,
    events: None,
};

fn timetable(plan: TurnsPlan, triggers: &str) -> Turns {
    let turns = Turns::new(plan, triggers.parse::<Triggers>().unwrap().due(1, Vec::new()));
    turns.begin_at(0);
    turns
}

/// All turns of a builder at a moment, while its outstanding events grow.
fn all(turns: &Turns, builder: usize, now_ns: u64, mut outstanding: u32) -> (Vec<u64>, u64) {
    let (mut events, mut vetoed) = (Vec::new(), 0);
    loop {
        match turns.next(builder, now_ns, outstanding) {
            Turn::Due { .. } => {
                events.push(turns.begin(builder));
                outstanding += 1;
            }
            Turn::Vetoed { times, .. } => vetoed += times,
            Turn::Wait { .. } | Turn::Over => return (events, vetoed),
        }
    }
}

#[test]
fn free_builders_take_what_the_window_allows() {
    let turns = Turns::new(TurnsPlan { events: Some(5), ..PLAN }, None);
    assert_eq!(turns.next(0, 7, 0), Turn::Wait { until_ns: None });
    turns.begin_at(8);
    assert_eq!(turns.next(0, 7, 0), Turn::Wait { until_ns: Some(8) });
    assert_eq!(turns.next(0, 9, 0), Turn::Due { due_ns: 9 });
    assert_eq!(turns.begin(0), 0);
    assert_eq!(all(&turns, 0, 9, 1), (vec![2], 0));
    assert_eq!(all(&turns, 1, 9, 0), (vec![1, 3], 0));
    assert_eq!(turns.next(1, 9, 2), Turn::Wait { until_ns: None });
    assert_eq!(turns.next(0, 10, 1), Turn::Due { due_ns: 10 });
    assert_eq!([turns.next(0, 10, 1), turns.next(1, 10, 0)], [Turn::Over, Turn::Over]);
    assert_eq!(turns.rest(1, u64::MAX, 0), None);
}

#[test]
fn gates_open_for_all_at_once_when_the_last_has_come() {
    let turns = Turns::new(TurnsPlan { builders: 3, builders_all: 3, ..PLAN }, None);
    assert_eq!([turns.meet(0, Gate::Hold, 1), turns.meet(0, Gate::Hold, 2)], [None, None]);
    assert_eq!(turns.meet(2, Gate::Hold, 3), None);
    let open_ns = Some(5 + NOTICE_NS);
    assert_eq!(turns.meet(1, Gate::Hold, 5), open_ns);
    assert_eq!([0, 1, 2].map(|builder| turns.meet(builder, Gate::Hold, 99)), [open_ns; 3]);
    // The other gate is another one; who left is not waited for, even if it left while somebody waited.
    assert_eq!(turns.meet(0, Gate::Compare, 100), None);
    turns.leave(1);
    assert_eq!(turns.meet(0, Gate::Compare, 101), None);
    turns.leave(2);
    turns.leave(2);
    assert_eq!(turns.meet(0, Gate::Compare, 102), Some(102), "nobody else has to notice");
    assert_eq!(turns.meet(0, Gate::Hold, 103), open_ns);
}

#[test]
fn what_one_who_left_did_not_fetch_goes_to_the_others() {
    for (choice, events) in
        [(BuilderChoice::RoundRobin, [1, 3, 5, 7]), (BuilderChoice::LeastOutstanding, [1, 3, 5, 7])]
    {
        let turns = timetable(TurnsPlan { choice, window: 10, events: Some(6), ..PLAN }, "1000/s");
        // Four triggers: two each.
        assert_eq!(turns.next(1, 3_000_000, 0), Turn::Due { due_ns: 1_000_000 });
        assert_eq!(turns.begin(1), 1);
        turns.leave(0);
        assert_eq!(all(&turns, 1, 3_000_000, 1), (events[1..].to_vec(), 0), "{choice:?}");
        assert_eq!(all(&turns, 1, 5_000_000, 4), (vec![9, 11], 0), "{choice:?}");
        assert_eq!(turns.next(1, 5_000_000, 6), Turn::Over);
    }
}

#[test]
fn what_only_one_who_left_could_build_is_vetoed_and_nobody_hangs() {
    let turns = timetable(TurnsPlan { window: 10, events: Some(4), ..PLAN }, "1000/s");
    assert_eq!(turns.next(1, 3_000_000, 0), Turn::Due { due_ns: 1_000_000 });
    assert_eq!(turns.begin(1), 1);
    turns.leave(0);
    assert_eq!(all(&turns, 1, 3_000_000, 1), (vec![3], 2), "triggers 0 and 2 had been dealt");
    assert_eq!(all(&turns, 1, 7_000_000, 2), (vec![5, 7], 2), "triggers 4 and 6 are due now");
    assert_eq!(turns.next(1, 8_000_000, 4), Turn::Over);
    turns.leave(1);
    assert_eq!((turns.next(0, 9_000_000, 0), turns.rest(0, 9_000_000, 0)), (Turn::Over, None));
}

#[test]
fn what_was_due_in_time_and_fetched_late_is_not_lost() {
    let turns = timetable(TurnsPlan { window: 3, ..PLAN }, "1000/s");
    assert_eq!(all(&turns, 0, 4_500_000, 0), (vec![0, 2, 4], 0));
    // Ten before the end; builder 1 slept through it.
    let mut rest = [Vec::new(), Vec::new()];
    for (builder, outstanding) in [(0, 3), (1, 0)] {
        while let Some(turn) = turns.rest(builder, 10_000_000, outstanding + rest[builder].len() as u32) {
            rest[builder].push(turn);
        }
    }
    assert_eq!(rest[0], [Turn::Vetoed { due_ns: 6_000_000, times: 2 }]);
    let due = [1, 3].map(|ms| Turn::Due { due_ns: ms * 1_000_000 });
    assert_eq!(rest[1][..2], due);
    assert!(matches!(rest[1][..], [_, _, Turn::Due { .. }, Turn::Vetoed { times: 2, .. }]), "{:?}", rest[1]);
    assert_eq!(turns.rest(1, 10_000_000, 0), None);
}

#[test]
fn numbers_have_no_gaps_whatever_is_vetoed() {
    let turns = timetable(PLAN, "1000/s");
    assert_eq!(turns.next(1, 0, 0), Turn::Wait { until_ns: Some(1_000_000) });
    // Ten triggers are due, five each; each has room for two.
    assert_eq!(all(&turns, 0, 9_000_000, 0), (vec![0, 2], 3));
    assert_eq!(all(&turns, 1, 9_000_000, 0), (vec![1, 3], 3));
    assert_eq!(all(&turns, 1, 20_000_000, 1), (vec![5], 4));
}

#[test]
fn turns_pass_over_who_is_full_and_the_least_busy_comes_first() {
    let turns = timetable(TurnsPlan { choice: BuilderChoice::RoundRobin, ..PLAN }, "1000/s");
    assert_eq!(turns.next(1, 0, 2), Turn::Wait { until_ns: Some(1_000_000) });
    assert_eq!(all(&turns, 0, 1_000_000, 0), (vec![0, 2], 0));
    assert_eq!(all(&turns, 0, 3_000_000, 2), (vec![], 1), "his turn, and nobody has room");
    assert_eq!(all(&turns, 1, 3_000_000, 2), (vec![], 1));
    let turns =
        timetable(TurnsPlan { choice: BuilderChoice::LeastOutstanding, window: 10, ..PLAN }, "1000/s");
    turns.next(1, 0, 4);
    assert_eq!(all(&turns, 0, 4_000_000, 0), (vec![0, 2, 4, 6], 0));
}

#[test]
fn hosts_share_a_timetable_without_a_word() {
    for choice in [BuilderChoice::Modulo, BuilderChoice::RoundRobin, BuilderChoice::LeastOutstanding] {
        let mut events: Vec<u64> = Vec::new();
        for builder_first in [0, 2] {
            let plan =
                TurnsPlan { choice, builder_first, builders_all: 4, window: 100, events: Some(40), ..PLAN };
            let turns = timetable(plan, "poisson 1000/s");
            for builder in [0, 1] {
                events.extend(all(&turns, builder, 1_000_000_000, 0).0);
            }
            assert_eq!(turns.next(0, 2_000_000_000, 0), Turn::Over);
        }
        events.sort_unstable();
        assert!(
            events.len() == 40 && events.windows(2).all(|pair| pair[0] < pair[1]),
            "{choice:?} {events:?}"
        );
    }
}

#[test]
fn a_builder_that_sleeps_fills_no_memory() {
    let turns = timetable(PLAN, "1000000/s");
    all(&turns, 1, 1_000_000_000, 0);
    let state = turns.state();
    assert!(state.seats[0].inbox.len() < 200, "{}", state.seats[0].inbox.len());
}

#[test]
fn who_is_far_behind_gets_no_more_at_once_than_he_can_take() {
    let turns = timetable(TurnsPlan { builders: 1, builders_all: 1, ..PLAN }, "1000000/s");
    for calls in 1..4 {
        turns.next(0, 1_000_000_000, 2);
        assert_eq!(turns.state().dealt, calls * DEAL_MAX as u64);
    }
}
