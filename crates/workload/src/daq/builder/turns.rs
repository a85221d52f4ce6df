//! Whose event is next: the timetable that the builders of a process share, and the numbers of their events.
//!
//! Events of builder b of M bear the numbers k x M + b, consecutive by builder: whatever was vetoed has none, so that a
//! source can tell from a later trigger which ones it missed.
//!
//! The builders wait for one another at two gates, so that the same time counts for all of them and nobody disturbs what
//! another one still measures. Who broke off is waited for no longer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::daq::settings::{BuilderChoice, Due};

/// Vetoes of one builder within so short a time are told of together.
const VETOES_TOGETHER_NS: u64 = 10_000_000;
/// Triggers dealt out at once, at most: who is behind by more reads in between.
const DEAL_MAX: usize = 4096;
/// Several builders pass a gate so long after the last of them came to it: until then all have noticed.
const NOTICE_NS: u64 = 10_000_000;

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
    /// A trigger was due, and it is this builder's: it says [`Turns::begin`].
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

/// Where the builders of a process wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Before what counts: each found its credit.
    Hold,
    /// Before what would disturb it: each has all events behind it that count.
    Compare,
}

#[derive(Debug, Default)]
struct Seat {
    /// Whether it came to each gate.
    came: [bool; 2],
    /// Whether it takes no more triggers.
    is_over: bool,
    /// Whether it left for good: nobody waits for it.
    is_gone: bool,
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
    /// When the timetable begins.
    start_ns: Option<u64>,
    /// When each gate opens, since the last builder came to it.
    open_ns: [Option<u64>; 2],
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
        let state = State {
            due: due.map(Iterator::peekable),
            start_ns: None,
            open_ns: [None; 2],
            dealt: 0,
            left,
            next_seat: 0,
            seats,
        };
        Self { plan, state: Mutex::new(state) }
    }

    /// The builder (counted from 0 in this process) is at a gate at `now_ns`. The answer is when the gate opens, the same for
    /// all; `None`: somebody has still to come, and it is to be asked again soon.
    pub fn meet(&self, builder: usize, gate: Gate, now_ns: u64) -> Option<u64> {
        let mut state = self.state();
        let at = gate as usize;
        if let Some(seat) = state.seats.get_mut(builder) {
            seat.came[at] = true;
        }
        if state.open_ns[at].is_none() && state.seats.iter().all(|seat| seat.is_gone || seat.came[at]) {
            let are_several = state.seats.iter().filter(|seat| !seat.is_gone).count() > 1;
            state.open_ns[at] = Some(now_ns.saturating_add(if are_several { NOTICE_NS } else { 0 }));
        }
        state.open_ns[at]
    }

    /// The timetable begins then. All builders say the same, and the first who says it is believed.
    pub fn begin_at(&self, start_ns: u64) {
        self.state().start_ns.get_or_insert(start_ns);
    }

    /// The builder takes part no longer, however that came about: nobody waits for it, and what it did not fetch is dealt
    /// out again. To leave twice is no harm.
    pub fn leave(&self, builder: usize) {
        self.state().leave(&self.plan, builder);
    }

    /// What the builder is to do at `now_ns`, with `outstanding` events under way. To be asked until it is to wait.
    pub fn next(&self, builder: usize, now_ns: u64, outstanding: u32) -> Turn {
        let mut state = self.state();
        if let Some(seat) = state.seats.get_mut(builder) {
            seat.outstanding = outstanding;
        }
        state.deal(&self.plan, now_ns);
        let turn = state.fetch(&self.plan, builder, now_ns);
        if let Some(seat) = state.seats.get_mut(builder) {
            seat.is_over |= turn == Turn::Over;
        }
        turn
    }

    /// Triggers that were due before the end at `until_ns` and that the builder did not fetch by then; `None`: there are no
    /// more, and it takes none from now on. To be asked until then.
    pub fn rest(&self, builder: usize, until_ns: u64, outstanding: u32) -> Option<Turn> {
        let mut state = self.state();
        let seat = state.seats.get_mut(builder).filter(|seat| seat.is_here())?;
        seat.outstanding = outstanding;
        loop {
            let is_behind = state.deal(&self.plan, until_ns.saturating_sub(1));
            let seat = state.seats.get_mut(builder)?;
            if let Some(turn) = seat.take() {
                return Some(turn);
            }
            if !is_behind {
                seat.is_over = true;
                return None;
            }
        }
    }

    /// The builder begins an event, of a trigger that was due or while it finds its credit: this is its number.
    pub fn begin(&self, builder: usize) -> u64 {
        let mut state = self.state();
        let Some(seat) = state.seats.get_mut(builder) else { return 0 };
        let k = seat.begun;
        seat.begun += 1;
        k * u64::from(self.plan.builders_all) + u64::from(self.plan.builder_first) + builder as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Whether triggers can be dealt to it.
    const fn is_here(&self) -> bool {
        !self.is_over && !self.is_gone
    }

    /// What it has not fetched yet, the first of it.
    fn take(&mut self) -> Option<Turn> {
        let turn = self.inbox.pop_front()?;
        if matches!(turn, Turn::Due { .. }) {
            self.waiting = self.waiting.saturating_sub(1);
            // Until it says so itself.
            self.outstanding = self.outstanding.saturating_add(1);
        }
        Some(turn)
    }

    fn veto(&mut self, due_ns: u64, vetoed: u64) {
        match self.inbox.back_mut() {
            Some(Turn::Vetoed { due_ns: first_ns, times })
                if due_ns.abs_diff(*first_ns) < VETOES_TOGETHER_NS =>
            {
                *times += vetoed;
            }
            _ => self.inbox.push_back(Turn::Vetoed { due_ns, times: vetoed }),
        }
    }
}

impl State {
    /// Deals out the triggers that are due, up to [`DEAL_MAX`]; returns whether there may be more.
    fn deal(&mut self, plan: &TurnsPlan, now_ns: u64) -> bool {
        let Some(start_ns) = self.start_ns else { return false };
        for _ in 0..DEAL_MAX {
            let due = self.due.as_mut().filter(|_| self.left > 0);
            let after_ns =
                due.and_then(|due| due.next_if(|&after_ns| start_ns.saturating_add(after_ns) <= now_ns));
            let Some(after_ns) = after_ns else { return false };
            let index = self.dealt;
            self.dealt += 1;
            if let Some(at) = choose(plan, index, self.next_seat, &self.seats) {
                self.give(plan, at, start_ns.saturating_add(after_ns));
            }
        }
        true
    }

    /// Gives a trigger to the builder whose it is: its event, or the veto. What one that is gone should have built is vetoed
    /// by the next one, so that it is counted.
    fn give(&mut self, plan: &TurnsPlan, at: usize, due_ns: u64) {
        self.next_seat = (at + 1) % self.seats.len();
        let seat = &mut self.seats[at];
        if !seat.is_here() {
            self.veto_elsewhere(at, due_ns, 1);
        } else if seat.outstanding + seat.waiting < plan.window {
            seat.waiting += 1;
            seat.inbox.push_back(Turn::Due { due_ns });
            self.left -= 1;
        } else {
            seat.veto(due_ns, 1);
        }
    }

    /// Lets the next who is there count vetoes in place of that one.
    fn veto_elsewhere(&mut self, at: usize, due_ns: u64, times: u64) {
        let mut others = (1..self.seats.len()).map(|more| (at + more) % self.seats.len());
        if let Some(next) = others.find(|&other| self.seats[other].is_here()) {
            self.seats[next].veto(due_ns, times);
        }
    }

    fn leave(&mut self, plan: &TurnsPlan, builder: usize) {
        let Some(seat) = self.seats.get_mut(builder) else { return };
        seat.is_gone = true;
        (seat.waiting, seat.outstanding) = (0, 0);
        for turn in std::mem::take(&mut seat.inbox) {
            match turn {
                Turn::Due { due_ns } => {
                    self.left = self.left.saturating_add(1);
                    let other = choose_here(plan, self.next_seat, &self.seats);
                    self.give(plan, other.unwrap_or(builder), due_ns);
                }
                Turn::Vetoed { due_ns, times } => self.veto_elsewhere(builder, due_ns, times),
                Turn::Wait { .. } | Turn::Over => {}
            }
        }
    }

    fn fetch(&mut self, plan: &TurnsPlan, builder: usize, now_ns: u64) -> Turn {
        let Some(seat) = self.seats.get_mut(builder) else { return Turn::Over };
        if let Some(turn) = seat.take() {
            return turn;
        }
        if self.left == 0 {
            return Turn::Over;
        }
        let Some(start_ns) = self.start_ns else { return Turn::Wait { until_ns: None } };
        let Some(due) = self.due.as_mut() else {
            if now_ns < start_ns {
                return Turn::Wait { until_ns: Some(start_ns) };
            }
            if seat.outstanding >= plan.window {
                return Turn::Wait { until_ns: None };
            }
            self.left -= 1;
            return Turn::Due { due_ns: now_ns };
        };
        match due.peek() {
            Some(&after_ns) => Turn::Wait { until_ns: Some(start_ns.saturating_add(after_ns)) },
            None => Turn::Over,
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
    choose_here(plan, next_seat, seats)
}

/// Which builder of this process a trigger is for that any of them may build; `None`: it is of one alone, or nobody is there.
fn choose_here(plan: &TurnsPlan, next_seat: usize, seats: &[Seat]) -> Option<usize> {
    let load = |seat: usize| seats[seat].outstanding + seats[seat].waiting;
    let mut in_turn =
        (0..seats.len()).map(|at| (next_seat + at) % seats.len()).filter(|&seat| seats[seat].is_here());
    match plan.choice {
        BuilderChoice::Modulo => None,
        BuilderChoice::LeastOutstanding => in_turn.min_by_key(|&seat| load(seat)),
        BuilderChoice::RoundRobin => {
            // If nobody has room, the veto is his whose turn it was.
            let first = in_turn.clone().next();
            in_turn.find(|&seat| load(seat) < plan.window).or(first)
        }
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
