//! Whose event is next: the timetable that the builders of a process share, and the numbers of their events.
//!
//! Events of builder b of M bear the numbers k x M + b, consecutive by builder: whatever was vetoed has none, so that a
//! source can tell from a later trigger which ones it missed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::daq::settings::{BuilderChoice, Due};

/// Vetoes of one builder within so short a time are told of together.
const VETOES_TOGETHER_NS: u64 = 10_000_000;

/// What all builders of a process go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnsPlan {
    /// Who builds an event.
    pub choice: BuilderChoice,
    /// The number of this process's first builder.
    pub builder_first: u16,
    /// How many are in this process.
    pub builders: u16,
    /// How many there are in all processes, each of which has as many.
    pub builders_all: u16,
    /// Events that each may have under way.
    pub window: u32,
    /// End after so many events of all builders.
    pub events: Option<u64>,
}

/// What a builder is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A trigger was due, and it is this builder's: it says [`Turns::begin`], or vetoes for want of memory.
    Due {
        /// When it was due.
        due_ns: u64,
    },
    /// Triggers that nobody had room for.
    Vetoed {
        /// When the first of them was due.
        due_ns: u64,
        /// How many.
        times: u64,
    },
    /// Nothing now. Ask again then, or as soon as an event ended.
    Wait {
        /// When the next trigger is due; `None`: it depends on events that end.
        until_ns: Option<u64>,
    },
    /// There will be no more.
    Over,
}

#[derive(Debug, Default)]
struct Seat {
    /// From when on it takes part.
    ready_ns: Option<u64>,
    /// Events under way, as it said last.
    outstanding: u32,
    /// What it has not fetched yet.
    inbox: VecDeque<Turn>,
    /// Of these, triggers.
    waiting: u32,
    begun: u64,
}

#[derive(Debug)]
struct State {
    due: Option<std::iter::Peekable<Due>>,
    /// When the timetable begins: when the last builder was ready.
    start_ns: Option<u64>,
    /// Triggers dealt out, of all processes.
    dealt: u64,
    /// Events that may still be begun in this process.
    left: u64,
    /// Who is next in turn.
    next_seat: usize,
    seats: Vec<Seat>,
}

/// The timetable.
#[derive(Debug)]
pub struct Turns {
    plan: TurnsPlan,
    state: Mutex<State>,
}

impl Turns {
    /// `due`: the timetable, the same in all processes; without one, each builder has its next event as soon as it has room.
    pub fn new(plan: TurnsPlan, due: Option<Due>) -> Self {
        let seats = (0..plan.builders.max(1)).map(|_| Seat::default()).collect();
        let hosts = u64::from(plan.builders_all.max(1) / plan.builders.max(1)).max(1);
        let left = plan.events.map_or(u64::MAX, |events| events.div_ceil(hosts));
        let state =
            State { due: due.map(Iterator::peekable), start_ns: None, dealt: 0, left, next_seat: 0, seats };
        Self { plan, state: Mutex::new(state) }
    }

    /// The builder (counted from 0 in this process) takes part from `from_ns` on. The timetable begins when all do.
    pub fn ready(&self, builder: usize, from_ns: u64) {
        let mut state = self.state();
        if let Some(seat) = state.seats.get_mut(builder) {
            seat.ready_ns = Some(from_ns);
        }
        let all: Option<Vec<u64>> = state.seats.iter().map(|seat| seat.ready_ns).collect();
        if state.start_ns.is_none() {
            state.start_ns = all.and_then(|all| all.into_iter().max());
        }
    }

    /// What the builder is to do at `now_ns`, with `outstanding` events under way. To be asked until it is to wait.
    pub fn next(&self, builder: usize, now_ns: u64, outstanding: u32) -> Turn {
        let mut state = self.state();
        if let Some(seat) = state.seats.get_mut(builder) {
            seat.outstanding = outstanding;
        }
        state.deal(&self.plan, now_ns);
        state.fetch(&self.plan, builder, now_ns)
    }

    /// The builder begins an event, of a trigger that was due or while it finds its credit: this is its number.
    pub fn begin(&self, builder: usize) -> u64 {
        let mut state = self.state();
        let Some(seat) = state.seats.get_mut(builder) else { return 0 };
        let k = seat.begun;
        seat.begun += 1;
        k * u64::from(self.plan.builders_all) + u64::from(self.plan.builder_first) + builder as u64
    }

    /// The builder vetoes a trigger that it fetched: the event limit does not count it.
    pub fn veto(&self, _builder: usize) {
        let mut state = self.state();
        state.left = state.left.saturating_add(1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Deals out the triggers that are due.
    fn deal(&mut self, plan: &TurnsPlan, now_ns: u64) {
        let (Some(start_ns), Some(due)) = (self.start_ns, self.due.as_mut()) else { return };
        while self.left > 0 {
            let Some(due_ns) = due.next_if(|&after_ns| start_ns.saturating_add(after_ns) <= now_ns) else {
                break;
            };
            let due_ns = start_ns.saturating_add(due_ns);
            let index = self.dealt;
            self.dealt += 1;
            let Some(seat) = choose(plan, index, self.next_seat, &self.seats) else { continue };
            self.next_seat = (seat + 1) % self.seats.len();
            let seat = &mut self.seats[seat];
            if seat.outstanding + seat.waiting < plan.window {
                seat.waiting += 1;
                seat.inbox.push_back(Turn::Due { due_ns });
                self.left -= 1;
            } else if let Some(Turn::Vetoed { times, .. }) = seat
                .inbox
                .back_mut()
                .filter(|turn| matches!(turn, Turn::Vetoed { due_ns: first_ns, .. } if due_ns - *first_ns < VETOES_TOGETHER_NS))
            {
                *times += 1;
            } else {
                seat.inbox.push_back(Turn::Vetoed { due_ns, times: 1 });
            }
        }
    }

    fn fetch(&mut self, plan: &TurnsPlan, builder: usize, now_ns: u64) -> Turn {
        let Some(seat) = self.seats.get_mut(builder) else { return Turn::Over };
        if let Some(turn) = seat.inbox.pop_front() {
            if matches!(turn, Turn::Due { .. }) {
                seat.waiting = seat.waiting.saturating_sub(1);
                // Until it says so itself.
                seat.outstanding = seat.outstanding.saturating_add(1);
            }
            return turn;
        }
        if self.left == 0 {
            return Turn::Over;
        }
        let Some(due) = self.due.as_mut() else {
            let Some(ready_ns) = seat.ready_ns else { return Turn::Wait { until_ns: None } };
            if now_ns < ready_ns {
                return Turn::Wait { until_ns: Some(ready_ns) };
            }
            if seat.outstanding >= plan.window {
                return Turn::Wait { until_ns: None };
            }
            self.left -= 1;
            return Turn::Due { due_ns: now_ns };
        };
        match (self.start_ns, due.peek()) {
            (Some(start_ns), Some(&after_ns)) => {
                Turn::Wait { until_ns: Some(start_ns.saturating_add(after_ns)) }
            }
            (Some(_), None) => Turn::Over,
            (None, _) => Turn::Wait { until_ns: None },
        }
    }
}

/// Which builder of this process a trigger is for; `None`: it is another process's.
fn choose(plan: &TurnsPlan, index: u64, next_seat: usize, seats: &[Seat]) -> Option<usize> {
    let (here, all) = (u64::from(plan.builders.max(1)), u64::from(plan.builders_all.max(1)));
    if plan.choice == BuilderChoice::Modulo {
        let seat = (index % all).checked_sub(plan.builder_first.into())?;
        return (seat < here).then_some(seat as usize);
    }
    let hosts = (all / here).max(1);
    if index % hosts != u64::from(plan.builder_first) / here {
        return None;
    }
    let load = |seat: usize| seats[seat].outstanding + seats[seat].waiting;
    let mut in_turn = (0..seats.len()).map(|at| (next_seat + at) % seats.len());
    match plan.choice {
        BuilderChoice::LeastOutstanding => in_turn.min_by_key(|&seat| load(seat)),
        // If nobody has room, the veto is his whose turn it was.
        _ => Some(in_turn.find(|&seat| load(seat) < plan.window).unwrap_or(next_seat)),
    }
}

#[cfg(test)]
mod tests {
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
        (0..usize::from(plan.builders)).for_each(|builder| turns.ready(builder, 0));
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
        turns.ready(0, 8);
        assert_eq!(turns.next(0, 7, 0), Turn::Wait { until_ns: Some(8) });
        assert_eq!(turns.next(0, 9, 0), Turn::Due { due_ns: 9 });
        assert_eq!(turns.begin(0), 0);
        assert_eq!(all(&turns, 0, 9, 1), (vec![2], 0));
        turns.ready(1, 8);
        assert_eq!(all(&turns, 1, 9, 0), (vec![1, 3], 0));
        assert_eq!(turns.next(1, 9, 2), Turn::Wait { until_ns: None });
        assert_eq!(turns.next(0, 10, 1), Turn::Due { due_ns: 10 });
        assert_eq!([turns.next(0, 10, 1), turns.next(1, 10, 0)], [Turn::Over, Turn::Over]);
        turns.veto(0);
        assert_eq!(turns.next(1, 11, 0), Turn::Due { due_ns: 11 }, "a veto is no event");
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
                let plan = TurnsPlan {
                    choice,
                    builder_first,
                    builders_all: 4,
                    window: 100,
                    events: Some(40),
                    ..PLAN
                };
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
        turns.next(1, 1_000_000_000, 0);
        let state = turns.state();
        assert!(state.seats[0].inbox.len() < 200, "{}", state.seats[0].inbox.len());
    }
}
