//! Assigns triggers to the builders of a process, and numbers their events.
//!
//! Events of builder b of M have the numbers k x M + b without gaps: vetoed triggers have none, so that a
//! later trigger shows a source which ones it missed.
//!
//! The builders wait for one another at barriers: they share one hold, and do not disturb what another still
//! measures. A builder that failed is not waited for.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::settings::{BuilderChoice, Due};

/// Vetoes of one builder within this time are merged.
const VETOES_TOGETHER_NS: u64 = 10_000_000;
/// Triggers assigned at once; a builder that is behind by more reads its sockets in between.
const ASSIGN_MAX: usize = 4096;
/// A barrier opens so long after the last builder arrived, so that all have noticed.
const NOTICE_NS: u64 = 10_000_000;

/// What the assignment depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SchedulerPlan {
    pub choice: BuilderChoice,
    /// Number of this process's first builder.
    pub builder_first: u16,
    /// Builders in this process.
    pub builders: u16,
    /// Builders in all processes, each of which has as many.
    pub builders_all: u16,
    /// Events that each builder may have under way.
    pub window: u32,
    /// Total number of events of all builders.
    pub events: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// Begin an event, numbered by [`TriggerScheduler::next_event_number`].
    Due {
        due_ns: u64,
    },
    /// Count triggers for which no builder had room.
    Vetoed {
        due_ns: u64,
        times: u64,
    },
    /// Wait; ask again then, or when an event ends.
    Wait {
        /// When the next trigger is due; `None`: it follows the end of an event.
        until_ns: Option<u64>,
    },
    Over,
}

/// Where the builders of a process wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    Hold,
    /// Before the comparison with push: all holds are over.
    Compare,
    /// Before its second round.
    Push,
}

const BARRIERS: usize = Barrier::Push as usize + 1;

#[derive(Debug, Default)]
struct BuilderSlot {
    has_arrived: [bool; BARRIERS],
    /// Whether it takes no more triggers.
    is_over: bool,
    /// Whether it has left.
    is_gone: bool,
    /// Events under way, as reported last.
    outstanding: u32,
    /// Assignments that it has not fetched.
    assignments: VecDeque<Assignment>,
    /// The triggers among them.
    waiting: u32,
    begun: u64,
}

#[derive(Debug, Default)]
struct State {
    due: Option<std::iter::Peekable<Due>>,
    start_ns: Option<u64>,
    open_ns: [Option<u64>; BARRIERS],
    /// Triggers assigned, of all processes.
    assigned: u64,
    /// Events that may still begin in this process.
    left: u64,
    next_slot: usize,
    slots: Vec<BuilderSlot>,
}

/// Shared by the builders of a process.
#[derive(Debug)]
pub(crate) struct TriggerScheduler {
    plan: SchedulerPlan,
    state: Mutex<State>,
}

impl TriggerScheduler {
    /// `due`: the timetable, the same in all processes; `None`: each builder triggers as soon as it has room.
    pub(crate) fn new(plan: SchedulerPlan, due: Option<Due>) -> Self {
        let slots = (0..plan.builders.max(1)).map(|_| BuilderSlot::default()).collect();
        let hosts = u64::from(plan.builders_all.max(1) / plan.builders.max(1)).max(1);
        let left = plan.events.map_or(u64::MAX, |events| events.div_ceil(hosts));
        let state = State { due: due.map(Iterator::peekable), left, slots, ..State::default() };
        Self { plan, state: Mutex::new(state) }
    }

    /// The builder (its slot) has arrived at a barrier. Returns when the barrier opens, the same for all;
    /// `None`: some are missing.
    pub(crate) fn arrive(&self, builder: usize, barrier: Barrier, now_ns: u64) -> Option<u64> {
        let mut state = self.state();
        let at = barrier as usize;
        if let Some(slot) = state.slots.get_mut(builder) {
            slot.has_arrived[at] = true;
        }
        if state.open_ns[at].is_none() && state.slots.iter().all(|slot| slot.is_gone || slot.has_arrived[at])
        {
            let are_several = state.slots.iter().filter(|slot| !slot.is_gone).count() > 1;
            state.open_ns[at] = Some(now_ns.saturating_add(if are_several { NOTICE_NS } else { 0 }));
        }
        state.open_ns[at]
    }

    /// Sets when the timetable begins; the first call counts.
    pub(crate) fn begin_at(&self, start_ns: u64) {
        self.state().start_ns.get_or_insert(start_ns);
    }

    /// The builder leaves: it is not waited for, and its assignments are reassigned. Idempotent.
    pub(crate) fn leave(&self, builder: usize) {
        self.state().leave(&self.plan, builder);
    }

    /// The builder's next assignment, with `outstanding` events under way; call it until it is to wait.
    pub(crate) fn next(&self, builder: usize, now_ns: u64, outstanding: u32) -> Assignment {
        let mut state = self.state();
        if let Some(slot) = state.slots.get_mut(builder) {
            slot.outstanding = outstanding;
        }
        state.assign_due(&self.plan, now_ns);
        let assignment = state.fetch(&self.plan, builder, now_ns);
        if let Some(slot) = state.slots.get_mut(builder) {
            slot.is_over |= assignment == Assignment::Over;
        }
        assignment
    }

    /// Assignments that were due before `until_ns` and that the builder has not fetched; call it until
    /// `None`: then it gets no more.
    pub(crate) fn next_overdue(&self, builder: usize, until_ns: u64, outstanding: u32) -> Option<Assignment> {
        let mut state = self.state();
        let slot = state.slots.get_mut(builder).filter(|slot| slot.is_active())?;
        slot.outstanding = outstanding;
        loop {
            let is_behind = state.assign_due(&self.plan, until_ns.saturating_sub(1));
            let slot = state.slots.get_mut(builder)?;
            if let Some(assignment) = slot.take() {
                return Some(assignment);
            }
            if !is_behind {
                slot.is_over = true;
                return None;
            }
        }
    }

    pub(crate) fn next_event_number(&self, builder: usize) -> u64 {
        let mut state = self.state();
        let Some(slot) = state.slots.get_mut(builder) else { return 0 };
        let k = slot.begun;
        slot.begun += 1;
        k * u64::from(self.plan.builders_all) + u64::from(self.plan.builder_first) + builder as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No panic leaves the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BuilderSlot {
    /// Whether it gets assignments.
    const fn is_active(&self) -> bool {
        !self.is_over && !self.is_gone
    }

    /// Its first assignment.
    fn take(&mut self) -> Option<Assignment> {
        let assignment = self.assignments.pop_front()?;
        if matches!(assignment, Assignment::Due { .. }) {
            self.waiting = self.waiting.saturating_sub(1);
            // Until it reports itself.
            self.outstanding = self.outstanding.saturating_add(1);
        }
        Some(assignment)
    }

    fn veto(&mut self, due_ns: u64, vetoed: u64) {
        match self.assignments.back_mut() {
            Some(Assignment::Vetoed { due_ns: first_ns, times })
                if due_ns.abs_diff(*first_ns) < VETOES_TOGETHER_NS =>
            {
                *times += vetoed;
            }
            _ => self.assignments.push_back(Assignment::Vetoed { due_ns, times: vetoed }),
        }
    }
}

impl State {
    /// Assigns due triggers, at most [`ASSIGN_MAX`]; returns whether there may be more.
    fn assign_due(&mut self, plan: &SchedulerPlan, now_ns: u64) -> bool {
        let Some(start_ns) = self.start_ns else { return false };
        for _ in 0..ASSIGN_MAX {
            let due = self.due.as_mut().filter(|_| self.left > 0);
            let after_ns =
                due.and_then(|due| due.next_if(|&after_ns| start_ns.saturating_add(after_ns) <= now_ns));
            let Some(after_ns) = after_ns else { return false };
            let index = self.assigned;
            self.assigned += 1;
            if let Some(at) = choose(plan, index, self.next_slot, &self.slots) {
                self.assign(plan, at, start_ns.saturating_add(after_ns));
            }
        }
        true
    }

    /// Assigns a trigger to a slot: an event, or a veto. The veto of one that has left goes to the next slot,
    /// so that it is counted.
    fn assign(&mut self, plan: &SchedulerPlan, at: usize, due_ns: u64) {
        self.next_slot = (at + 1) % self.slots.len();
        let slot = &mut self.slots[at];
        if !slot.is_active() {
            self.veto_elsewhere(at, due_ns, 1);
        } else if slot.outstanding + slot.waiting < plan.window {
            slot.waiting += 1;
            slot.assignments.push_back(Assignment::Due { due_ns });
            self.left -= 1;
        } else {
            slot.veto(due_ns, 1);
        }
    }

    /// Gives vetoes to the next active slot.
    fn veto_elsewhere(&mut self, at: usize, due_ns: u64, times: u64) {
        let mut others = (1..self.slots.len()).map(|more| (at + more) % self.slots.len());
        if let Some(next) = others.find(|&other| self.slots[other].is_active()) {
            self.slots[next].veto(due_ns, times);
        }
    }

    fn leave(&mut self, plan: &SchedulerPlan, builder: usize) {
        let Some(slot) = self.slots.get_mut(builder) else { return };
        slot.is_gone = true;
        (slot.waiting, slot.outstanding) = (0, 0);
        for assignment in std::mem::take(&mut slot.assignments) {
            match assignment {
                Assignment::Due { due_ns } => {
                    self.left = self.left.saturating_add(1);
                    let other = choose_local(plan, self.next_slot, &self.slots);
                    self.assign(plan, other.unwrap_or(builder), due_ns);
                }
                Assignment::Vetoed { due_ns, times } => self.veto_elsewhere(builder, due_ns, times),
                Assignment::Wait { .. } | Assignment::Over => {}
            }
        }
    }

    fn fetch(&mut self, plan: &SchedulerPlan, builder: usize, now_ns: u64) -> Assignment {
        let Some(slot) = self.slots.get_mut(builder) else { return Assignment::Over };
        if let Some(assignment) = slot.take() {
            return assignment;
        }
        if self.left == 0 {
            return Assignment::Over;
        }
        let Some(start_ns) = self.start_ns else { return Assignment::Wait { until_ns: None } };
        let Some(due) = self.due.as_mut() else {
            if now_ns < start_ns {
                return Assignment::Wait { until_ns: Some(start_ns) };
            }
            if slot.outstanding >= plan.window {
                return Assignment::Wait { until_ns: None };
            }
            self.left -= 1;
            return Assignment::Due { due_ns: now_ns };
        };
        match due.peek() {
            Some(&after_ns) => Assignment::Wait { until_ns: Some(start_ns.saturating_add(after_ns)) },
            None => Assignment::Over,
        }
    }
}

/// The slot of a trigger; `None`: it belongs to another process.
fn choose(plan: &SchedulerPlan, index: u64, next_slot: usize, slots: &[BuilderSlot]) -> Option<usize> {
    let (here, all) = (u64::from(plan.builders.max(1)), u64::from(plan.builders_all.max(1)));
    if plan.choice == BuilderChoice::Modulo {
        let slot = (index % all).checked_sub(plan.builder_first.into())?;
        return (slot < here).then_some(slot as usize);
    }
    let hosts = (all / here).max(1);
    if index % hosts != u64::from(plan.builder_first) / here {
        return None;
    }
    choose_local(plan, next_slot, slots)
}

/// The slot of a trigger that any builder of this process may take; `None`: a fixed builder, or none is
/// active.
fn choose_local(plan: &SchedulerPlan, next_slot: usize, slots: &[BuilderSlot]) -> Option<usize> {
    let load = |slot: usize| slots[slot].outstanding + slots[slot].waiting;
    let mut in_turn =
        (0..slots.len()).map(|at| (next_slot + at) % slots.len()).filter(|&slot| slots[slot].is_active());
    match plan.choice {
        BuilderChoice::Modulo => None,
        BuilderChoice::LeastOutstanding => in_turn.min_by_key(|&slot| load(slot)),
        BuilderChoice::RoundRobin => {
            // No builder has room: the next one counts the veto.
            let first = in_turn.clone().next();
            in_turn.find(|&slot| load(slot) < plan.window).or(first)
        }
    }
}

#[cfg(test)]
#[path = "trigger_scheduler_tests.rs"]
mod tests;
