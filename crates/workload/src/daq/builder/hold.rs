//! What counts of a trial, and the events before it that are left out: at the same time with all builders of a process.

use sys::clock::monotonic_ns;

use super::phases::{Early, Phase};
use super::turns::{Gate, Turn};
use super::worker::Worker;

/// Whoever waits for another builder asks so often whether it came.
const ASK_NS: u64 = 5_000_000;
/// How long it waits: longer than sources gather and a credit is searched.
const PATIENCE_NS: u64 = 75_000_000_000;
/// And for so many events that never become complete.
const PATIENCE_EVENTS: u64 = 24;
/// However many triggers are due, after so long it is looked what came.
const BUSY_NS: u64 = 1_000_000;

/// A builder that gives triggers and has not looked since what came.
#[derive(Debug, Default)]
struct Busy {
    since_ns: Option<u64>,
}

impl Busy {
    /// Whether it is time to look.
    fn is_long(&mut self, now_ns: u64) -> bool {
        now_ns >= self.since_ns.get_or_insert(now_ns).saturating_add(BUSY_NS)
    }
}

impl Worker {
    /// Waits for the other builders of the process; returns when all go on together, which is now. `None`: somebody did not
    /// come.
    pub(super) fn meet(&mut self, gate: Gate) -> Result<Option<u64>, Early> {
        let events_ns = self.told.settings.timeout.ns().saturating_mul(PATIENCE_EVENTS);
        let until_ns = monotonic_ns().saturating_add(PATIENCE_NS).saturating_add(events_ns);
        loop {
            let now_ns = monotonic_ns();
            match self.turns.meet(self.seat, gate, now_ns) {
                Some(open_ns) if open_ns <= now_ns => return Ok(Some(open_ns)),
                Some(open_ns) => self.go_on(open_ns)?,
                None if now_ns >= until_ns => return Ok(None),
                None => self.go_on(now_ns + ASK_NS)?,
            }
        }
    }

    /// Events that are left out, when all builders of the process have found their credit; returns from when on events
    /// count, which is now.
    pub(super) fn warm_up(&mut self) -> Result<u64, Early> {
        let Some(from_ns) = self.meet(Gate::Hold)? else {
            return Err(Early::Broken("another builder of this host was not ready in time".to_owned()));
        };
        let until_ns = from_ns.saturating_add(self.told.settings.omit.ns());
        self.turns.begin_at(until_ns);
        let triggers = &self.told.settings.triggers;
        // Of its own: the timetable that all share begins with the hold.
        let mut due = triggers.due(self.told.seed ^ 1, self.told.times_ns.clone()).map(|due| {
            let (all, own) = (u64::from(self.told.builders_all.max(1)), u64::from(self.told.builder));
            due.zip(0_u64..)
                .filter(move |(_, index)| index % all == own)
                .map(|(after_ns, _)| after_ns)
                .peekable()
        });
        let mut busy = Busy::default();
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns {
                return Ok(until_ns);
            }
            let next_ns = match &mut due {
                Some(due) => due.peek().map_or(u64::MAX, |&after_ns| from_ns.saturating_add(after_ns)),
                None if self.outstanding() < self.told.window() => now_ns,
                None => u64::MAX,
            };
            if next_ns > now_ns || busy.is_long(now_ns) {
                self.go_on(next_ns.min(until_ns))?;
                busy = Busy::default();
                continue;
            }
            due.as_mut().and_then(Iterator::next);
            if self.outstanding() < self.told.window() {
                self.begin_event(next_ns);
            }
        }
    }

    /// Events that count, from `from_ns` on, until each of them has ended.
    pub(super) fn hold(&mut self, from_ns: u64) -> Phase {
        let settings = &self.told.settings;
        let (time_ns, events) = (settings.time.ns(), settings.events);
        // Less one that has ended just now.
        let is_full = self.outstanding() + 1 >= self.told.window();
        self.collect.begin_hold(from_ns, events.is_none().then_some(time_ns), is_full);
        let until_ns = if events.is_some() { u64::MAX } else { from_ns.saturating_add(time_ns) };
        let own_events =
            events.map(|events| events.div_ceil(u64::from(self.told.builders_all.max(1))).max(1));
        let (mut begun, mut busy) = (0_u64, Busy::default());
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns {
                self.collect.held_until(until_ns);
                break;
            }
            let share = match own_events {
                Some(own) => begun as f64 / own as f64,
                None => now_ns.saturating_sub(from_ns) as f64 / time_ns.max(1) as f64,
            };
            self.shared.set_done(share.min(0.999));
            self.look_if_long(&mut busy, now_ns)?;
            match self.turns.next(self.seat, now_ns, self.outstanding()) {
                Turn::Wait { until_ns: next_ns } => {
                    self.go_on(next_ns.unwrap_or(u64::MAX).min(until_ns))?;
                    busy = Busy::default();
                }
                Turn::Over => break,
                turn => begun += self.take_turn(turn),
            }
        }
        // What was due and came to the thread's notice too late: it counts, too.
        while let Some(turn) = self.turns.rest(self.seat, until_ns, self.outstanding()) {
            self.take_turn(turn);
            self.look_if_long(&mut busy, monotonic_ns())?;
        }
        while self.outstanding() > 0 {
            self.go_on(u64::MAX)?;
        }
        Ok(())
    }

    /// Gives a trigger that is due, or notes vetoes; returns how many events began.
    fn take_turn(&mut self, turn: Turn) -> u64 {
        match turn {
            Turn::Due { due_ns } => self.begin_event(due_ns),
            Turn::Vetoed { due_ns, times } => self.collect.vetoed(due_ns, times),
            Turn::Wait { .. } | Turn::Over => {}
        }
        u64::from(matches!(turn, Turn::Due { .. }))
    }

    /// Looks what came, unless that was just now, and in any case whether somebody wants the report.
    fn look_if_long(&mut self, busy: &mut Busy, now_ns: u64) -> Phase {
        if busy.is_long(now_ns) {
            *busy = Busy::default();
            return self.go_on(now_ns);
        }
        if self.shared.is_to_stop() { Err(Early::Stopped) } else { Ok(()) }
    }
}
