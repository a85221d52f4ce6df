//! When a client sends its next message. Pure: the caller passes the time.

use base::pace::OpenLoop;

use crate::settings::{Arrivals, Class, Loop, exponential};

/// Which client of how many of its class, and the seed of its randomness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: u64,
    pub(crate) clients: u64,
    pub(crate) seed: u64,
}

/// What decides the moments.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// The reply to the message before.
    Reply,
    /// The same, with at least this time after the previous message was sent.
    AtMost { interval_ns: f64 },
    /// A schedule at equal intervals.
    Even(OpenLoop),
    /// A schedule at random intervals of this mean.
    Random { interval_ns: f64 },
}

/// The moments of the messages of one client.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pace: Pace,
    is_random: bool,
    random: fastrand::Rng,
    number: u64,
    due_ns: u64,
    late_ns: u64,
}

impl Schedule {
    pub(crate) fn new(class: &Class, start_ns: u64, place: Place) -> Self {
        let mut random =
            fastrand::Rng::with_seed(place.seed ^ place.index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let is_random = class.arrivals == Arrivals::Poisson;
        let Some(rate) = class.rate_per_s else {
            let late_ns = u64::MAX;
            return Self { pace: Pace::Reply, is_random, random, number: 0, due_ns: start_ns, late_ns };
        };
        let interval_ns = 1e9 / rate;
        let (index, clients) = (place.index as usize, place.clients as usize);
        let even = OpenLoop::new(rate, start_ns, index, clients);
        let (pace, due_ns) = match (class.loop_kind, is_random) {
            (Loop::Open, false) => (Pace::Even(even), even.moment_ns(0)),
            (Loop::Open, true) => {
                let due_ns = start_ns.saturating_add(exponential(interval_ns, &mut random));
                (Pace::Random { interval_ns }, due_ns)
            }
            (Loop::Closed, _) => (Pace::AtMost { interval_ns }, even.moment_ns(0)),
        };
        Self { pace, is_random, random, number: 0, due_ns, late_ns: even.late_ns() }
    }

    /// Whether messages are due whatever the replies do.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.pace, Pace::Even(_) | Pace::Random { .. })
    }

    /// The number of the next message, from 0.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The moment of the next message; in a closed loop the earliest one.
    pub(crate) const fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// A message that is sent later than this after it could be is late.
    pub(crate) const fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// The next message is sent now.
    pub(crate) fn sent(&mut self, now_ns: u64) {
        self.number += 1;
        self.due_ns = match self.pace {
            Pace::Reply => now_ns,
            Pace::AtMost { interval_ns } => now_ns.saturating_add(match self.is_random {
                true => exponential(interval_ns, &mut self.random),
                false => interval_ns as u64,
            }),
            Pace::Even(schedule) => schedule.moment_ns(self.number),
            Pace::Random { interval_ns } => {
                self.due_ns.saturating_add(exponential(interval_ns, &mut self.random))
            }
        };
    }

    /// A closed loop does not try again before this moment.
    pub(crate) fn not_before(&mut self, at_ns: u64) {
        if !self.is_open() {
            self.due_ns = self.due_ns.max(at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::ExchangeSettings;

    fn schedule(settings: serde_json::Value, index: u64) -> Schedule {
        let class = ExchangeSettings::read(settings).unwrap().classes().remove(0);
        Schedule::new(&class, 1000, Place { index, clients: 4, seed: 1 })
    }

    fn moments(schedule: &mut Schedule, took_ns: u64, n: usize) -> Vec<u64> {
        (0..n)
            .map(|_| {
                let due_ns = schedule.due_ns();
                schedule.sent(due_ns);
                if !schedule.is_open() {
                    schedule.not_before(due_ns + took_ns);
                }
                due_ns
            })
            .collect()
    }

    #[test]
    fn open_loop_keeps_its_moments_whatever_the_replies_do() {
        let mut open = schedule(json!({"rate_per_s": 1000.0}), 1);
        assert_eq!(moments(&mut open, 9_000_000, 3), [251_000, 1_251_000, 2_251_000]);
        open.not_before(u64::MAX);
        assert_eq!(open.due_ns(), 3_251_000);
    }

    #[test]
    fn closed_loop_waits_for_replies_and_for_its_rate() {
        let mut plain = schedule(json!({}), 1);
        assert_eq!(moments(&mut plain, 5, 3), [1000, 1005, 1010]);
        let mut paced = schedule(json!({"rate_per_s": 1000.0, "loop": "closed"}), 0);
        assert_eq!(moments(&mut paced, 5, 2), [1000, 1_001_000]);
        assert_eq!(moments(&mut paced, 3_000_000, 2), [2_001_000, 5_001_000]);
    }

    #[test]
    fn poisson_intervals_have_the_mean_of_the_rate() {
        let mut random = schedule(json!({"rate_per_s": 1000.0, "arrivals": "poisson"}), 0);
        let found = moments(&mut random, 0, 10_000);
        assert!(found.is_sorted() && (9.5e9..10.5e9).contains(&(found[9_999] as f64)), "{}", found[9_999]);
    }
}
