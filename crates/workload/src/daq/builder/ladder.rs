//! What to do about orders that were not heard: say them again to all, then to those concerned over their connections, and
//! in the end give the event up.
//!
//! Sources of one group share one ear, so an order is lost for a whole group. While nothing of a group that was told to
//! send has arrived, the order is a *rung*: it is due after twice the 99th percentile of that group's usual delay, but not
//! before [`QUIET_NS_MIN`]. Anything that arrives takes the rung away. A group that answers an order which was given
//! later has not heard the earlier one, as TCP takes a segment for lost (RFC 8985): that is due soon ([`REORDER_NS`]), though
//! not before the group has had its usual time for it.

use std::collections::VecDeque;

/// However quick a group usually is, so long it is waited for it.
pub const QUIET_NS_MIN: u64 = 5_000_000;
/// Answers to an earlier order may be read so much later than those to a later one.
const REORDER_NS: u64 = 500_000;
/// So many events before the one that was answered are looked at.
const OVERTAKEN_MAX: usize = 64;
/// What a group is taken to need at most while nothing is known of it.
const UNKNOWN_P99_NS: u64 = 20_000_000;
/// Delays that are remembered of a group.
const DELAYS: usize = 128;
/// From so many on they say something.
const DELAYS_MIN: usize = 16;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Say it to all again, flagged as such: this event, for these sources.
    Again {
        /// The event.
        event: u64,
        /// The first source.
        first_source: u32,
        /// How many.
        sources: u32,
    },
    /// Say it to those of these sources that belong to `group` and whose fragment is missing, over their connections.
    Unicast {
        /// The event.
        event: u64,
        /// The first source.
        first_source: u32,
        /// How many.
        sources: u32,
        /// The group, as [`Ladder::join`] was told.
        group: u32,
    },
    /// The event's time is over.
    GiveUp {
        /// The event.
        event: u64,
    },
}

/// What an arrival says of the order that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heard {
    /// How many times the order had been repeated when the source sent.
    pub repeats: u32,
}

/// How long a group usually takes from an order to its first fragment.
#[derive(Debug, Clone, Default)]
struct Habit {
    delays_ns: Vec<u64>,
    next: usize,
    p99_ns: Option<u64>,
}

impl Habit {
    fn learn(&mut self, delay_ns: u64) {
        if self.delays_ns.len() < DELAYS {
            self.delays_ns.push(delay_ns);
        } else {
            self.delays_ns[self.next % DELAYS] = delay_ns;
        }
        self.next = (self.next + 1) % DELAYS;
        if self.delays_ns.len() >= DELAYS_MIN {
            // Of 128 the largest but one.
            let mut largest = (0, 0);
            for &delay_ns in &self.delays_ns {
                if delay_ns > largest.0 {
                    largest = (delay_ns, largest.0);
                } else if delay_ns > largest.1 {
                    largest.1 = delay_ns;
                }
            }
            self.p99_ns = Some(largest.1);
        }
    }

    fn usual_ns(&self) -> u64 {
        self.p99_ns.unwrap_or(UNKNOWN_P99_NS)
    }

    fn quiet_ns(&self) -> u64 {
        (2 * self.usual_ns()).max(QUIET_NS_MIN)
    }
}

/// An order of which a group has not shown yet that it heard it; or one that had to be repeated.
#[derive(Debug, Clone, Copy)]
struct Rung {
    group: u32,
    first_source: u32,
    sources: u32,
    ordered_ns: u64,
    repeats: u32,
    /// When it was repeated for the first time.
    repeated_ns: u64,
    due_ns: u64,
    heard: bool,
}

impl Rung {
    fn covers(&self, group: u32, source: u32) -> bool {
        self.group == group && source >= self.first_source && source - self.first_source < self.sources
    }
}

#[derive(Debug, Default)]
struct Climb {
    event: u64,
    give_up_ns: u64,
    rungs: Vec<Rung>,
}

/// The ladder of one builder.
#[derive(Debug, Default)]
pub struct Ladder {
    /// Group of each source; `u32::MAX`: not connected.
    group_of: Vec<u32>,
    habits: Vec<Habit>,
    /// Ascending.
    events: VecDeque<Climb>,
    spare: Vec<Climb>,
    /// No step is due before this.
    quiet_until_ns: u64,
    /// Sources counted by group while an order is noted, kept so that nothing allocates.
    seen: Vec<bool>,
}

impl Ladder {
    /// For sources 0 to `sources`, none of which has joined.
    pub fn new(sources: u32) -> Self {
        Self { group_of: vec![u32::MAX; sources as usize], ..Self::default() }
    }

    /// The source is connected, and hears with the ear of that group; groups are numbered from 0.
    pub fn join(&mut self, source: u32, group: u32) {
        if let Some(of) = self.group_of.get_mut(source as usize) {
            *of = group;
        }
        let groups = (group as usize + 1).max(self.habits.len()).min(self.group_of.len().max(1));
        self.habits.resize_with(groups, Habit::default);
    }

    /// The source is gone: nobody waits for it to have heard.
    pub fn leave(&mut self, source: u32) {
        if let Some(of) = self.group_of.get_mut(source as usize) {
            *of = u32::MAX;
        }
    }

    /// An event happened, which is given up at `give_up_ns`. Events begin in ascending order.
    pub fn begin(&mut self, event: u64, give_up_ns: u64) {
        let mut climb = self.spare.pop().unwrap_or_default();
        (climb.event, climb.give_up_ns) = (event, give_up_ns);
        climb.rungs.clear();
        self.events.push_back(climb);
        self.quiet_until_ns = self.quiet_until_ns.min(give_up_ns);
    }

    /// At `now_ns` these sources were told by multicast to send for the event.
    pub fn ordered(&mut self, event: u64, first_source: u32, sources: u32, now_ns: u64) {
        let Some(at) = self.place(event) else { return };
        self.seen.clear();
        self.seen.resize(self.habits.len(), false);
        let range = self.group_of.iter().skip(first_source as usize).take(sources as usize);
        for &group in range {
            let Some(seen) = self.seen.get_mut(group as usize) else { continue };
            if std::mem::replace(seen, true) {
                continue;
            }
            let due_ns = now_ns.saturating_add(self.habits[group as usize].quiet_ns());
            self.quiet_until_ns = self.quiet_until_ns.min(due_ns);
            self.events[at].rungs.push(Rung {
                group,
                first_source,
                sources,
                ordered_ns: now_ns,
                repeats: 0,
                repeated_ns: 0,
                due_ns,
                heard: false,
            });
        }
    }

    /// A fragment of the event came at `now_ns`; `sent_ns` is when its source sent it, by the builder's clock, where that
    /// is known: what was sent before an order was repeated shows that its first copy had been heard.
    pub fn arrived(&mut self, event: u64, source: u32, sent_ns: Option<u64>, now_ns: u64) -> Heard {
        let Some(at) = self.place(event) else { return Heard::default() };
        let group = self.group_of.get(source as usize).copied().unwrap_or(u32::MAX);
        let rungs = &mut self.events[at].rungs;
        let Some(on) = rungs.iter().position(|rung| rung.covers(group, source)) else {
            return Heard::default();
        };
        let rung = &mut rungs[on];
        let first_copy = rung.repeats == 0 || sent_ns.is_some_and(|sent_ns| sent_ns < rung.repeated_ns);
        let heard = Heard { repeats: if first_copy { 0 } else { rung.repeats } };
        if first_copy {
            let Rung { ordered_ns, heard, .. } = rungs.swap_remove(on);
            if let Some(habit) = self.habits.get_mut(group as usize).filter(|_| !heard) {
                habit.learn(now_ns.saturating_sub(ordered_ns));
                self.overtaken(at, group, ordered_ns, now_ns);
            }
        } else {
            // Kept, to know of the group's other fragments that they came by a repeated order.
            rung.heard = true;
        }
        heard
    }

    /// What was ordered of the group before, up to the event at `at`, and was not answered: it is due soon.
    fn overtaken(&mut self, at: usize, group: u32, ordered_ns: u64, now_ns: u64) {
        let soon_ns = now_ns.saturating_add(REORDER_NS);
        // A large fragment is on its way for longer than a small one that was ordered later.
        let usual_ns = self.habits.get(group as usize).map_or(0, Habit::usual_ns);
        let climbs = self.events.range_mut(at.saturating_sub(OVERTAKEN_MAX)..=at);
        for rung in climbs.flat_map(|climb| &mut climb.rungs) {
            let is_silent = rung.group == group && rung.repeats == 0 && rung.ordered_ns < ordered_ns;
            let due_ns = soon_ns.max(rung.ordered_ns.saturating_add(usual_ns));
            if is_silent && due_ns < rung.due_ns {
                rung.due_ns = due_ns;
                self.quiet_until_ns = self.quiet_until_ns.min(due_ns);
            }
        }
    }

    /// The event is complete, or was given up.
    pub fn end(&mut self, event: u64) {
        if let Some(climb) = self.place(event).and_then(|at| self.events.remove(at)) {
            self.spare.push(climb);
        }
    }

    /// When [`Self::due`] is to be asked again; `None` while no event is under way.
    pub fn next_due_ns(&self) -> Option<u64> {
        (!self.events.is_empty()).then_some(self.quiet_until_ns)
    }

    /// The next thing that is due at `now_ns`, to be asked until there is nothing. Who gives an event up says so by
    /// [`Self::end`].
    pub fn due(&mut self, now_ns: u64) -> Option<Step> {
        if now_ns < self.quiet_until_ns {
            return None;
        }
        let over = self.events.iter_mut().find(|climb| climb.give_up_ns <= now_ns);
        if let Some(climb) = over {
            // Once only, even if nobody ends it.
            climb.give_up_ns = u64::MAX;
            climb.rungs.clear();
            return Some(Step::GiveUp { event: climb.event });
        }
        for climb in &mut self.events {
            if let Some(step) = climb.step(now_ns, &self.habits) {
                return Some(step);
            }
        }
        let rungs =
            |climb: &Climb| climb.rungs.iter().filter(|rung| !rung.heard).map(|rung| rung.due_ns).min();
        let dues = self.events.iter().map(|climb| rungs(climb).unwrap_or(u64::MAX).min(climb.give_up_ns));
        self.quiet_until_ns = dues.min().unwrap_or(u64::MAX);
        None
    }

    fn place(&self, event: u64) -> Option<usize> {
        self.events.binary_search_by_key(&event, |climb| climb.event).ok()
    }
}

impl Climb {
    fn step(&mut self, now_ns: u64, habits: &[Habit]) -> Option<Step> {
        let due = |rung: &Rung| !rung.heard && rung.due_ns <= now_ns;
        let Rung { first_source, sources, group, repeats, .. } = *self.rungs.iter().find(|rung| due(rung))?;
        let event = self.event;
        if repeats == 0 {
            // One datagram speaks to all groups that it is due for.
            let same = |rung: &&mut Rung| {
                due(rung) && rung.repeats == 0 && (rung.first_source, rung.sources) == (first_source, sources)
            };
            for rung in self.rungs.iter_mut().filter(same) {
                rung.repeats = 1;
                rung.repeated_ns = now_ns;
                rung.due_ns =
                    now_ns.saturating_add(habits.get(rung.group as usize).map_or(0, Habit::quiet_ns));
            }
            return Some(Step::Again { event, first_source, sources });
        }
        let same = |rung: &&mut Rung| due(rung) && (rung.group, rung.first_source) == (group, first_source);
        for rung in self.rungs.iter_mut().filter(same) {
            rung.repeats += 1;
            // A connection loses nothing: there is no third time.
            rung.due_ns = u64::MAX;
        }
        Some(Step::Unicast { event, first_source, sources, group })
    }
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
mod tests;
