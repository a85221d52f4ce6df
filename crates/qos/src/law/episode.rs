//! A time in which a queue stands.

use std::collections::VecDeque;

use super::growth::GROWTH_START;
use super::settings::State;
use super::{Law, Step};

/// Lowest multiple of the rate that is applied while a queue drains, and the time to drain it, in seconds.
pub const DRAIN_MIN: f64 = 0.3;
const DRAIN_S: f64 = 0.25;
/// Cut by losses without a long queue, and by a queue that others cause.
const CUT: f64 = 0.9;
/// While messages leave bulk less, a queue below this multiple of the limit does not lower the estimate.
const DOUBTFUL: f64 = 2.0;
/// Ticks before this one that an estimate of the capacity rests on.
const EPISODE_TICKS: u32 = 4;
/// Ticks whose delivered rate makes the estimate of the capacity.
const SAMPLES: usize = EPISODE_TICKS as usize;
/// Lowest capacity that an estimate can be, in bit/s.
const CAPACITY_MIN: f64 = 64_000.0;
/// A queue within this time, in seconds, beyond what the own sending explains is evidence of a slower link.
const UNEXPLAINED_S: f64 = 0.002;
/// An estimate grows by this factor per tick at most: ACKs that a stall held back arrive all at once.
const GROWTH_MAX: f64 = 1.5;

/// By this tick of an episode, what arrives shows the first reaction to the queue.
const REFERENCE_TICK: usize = 8;
/// A fall of what arrives below this share, while more than this share of the queue is left, means that
/// others take the place of what is not sent.
const DISPLACED_SHARE: f64 = 0.7;
const QUEUE_LEFT_SHARE: f64 = 0.5;
/// A queue that is longer than the longest before by this factor grows: who fills it is not known yet.
const GROWING: f64 = 1.25;

/// What the law knew when the queue appeared, and what it saw since then.
#[derive(Debug, Clone)]
pub struct Episode {
    /// Aggregate rate of bulk when the queue appeared, in bit/s.
    pub bulk_before: f64,
    delivered: VecDeque<f64>,
    /// Longest delay by the queue, in seconds.
    queue_max_s: f64,
    /// How much of the queue should have drained by now, in seconds.
    drained_s: f64,
    ticks: usize,
    /// Delivered rate and queue once the first reaction has shown.
    reference: Option<(f64, f64)>,
    /// Whether less and less arrives, and the queue stays all the same.
    is_displaced: bool,
}

/// What is sent at a moment. Rates in bit/s.
#[derive(Debug, Clone, Copy)]
struct Sending {
    /// Of bulk, as enforced.
    pub applied: f64,
    /// Of urgent sockets, as delivered.
    pub urgent: f64,
    /// Delivered of both in the last tick.
    pub delivered: f64,
}

impl Episode {
    pub fn new(bulk_before: f64, delivered: f64, queue_s: f64) -> Self {
        Self {
            bulk_before,
            delivered: [delivered].into(),
            queue_max_s: queue_s,
            drained_s: 0.0,
            ticks: 1,
            reference: None,
            is_displaced: false,
        }
    }

    /// Takes a further tick, and returns the estimate of the capacity in bit/s.
    ///
    /// What arrives while a queue stands is what the bottleneck carries. If less is sent than the present
    /// estimate, less arrives, too: then only a queue that this does not explain lowers the estimate.
    /// Otherwise the law would measure its own throttle, and collapse.
    fn estimate(&mut self, capacity: f64, sending: Sending, queue_s: f64, base_s: f64, dt_s: f64) -> f64 {
        let unused = 1.0 - (sending.applied + sending.urgent) / capacity;
        if queue_s > GROWING * self.queue_max_s {
            // Such as by a slower link during a long episode.
            (self.drained_s, self.ticks, self.reference) = (0.0, 0, None);
        }
        self.queue_max_s = self.queue_max_s.max(queue_s);
        self.drained_s += unused * dt_s;
        if self.delivered.len() == SAMPLES {
            self.delivered.pop_front();
        }
        self.delivered.push_back(sending.delivered);
        let mean = self.delivered.iter().sum::<f64>() / self.delivered.len() as f64;
        self.ticks += 1;
        if self.ticks == REFERENCE_TICK {
            self.reference = Some((mean, queue_s));
        }
        self.is_displaced |= self.reference.is_some_and(|(delivered, queue)| {
            mean < DISPLACED_SHARE * delivered && queue_s > QUEUE_LEFT_SHARE * queue
        });
        if mean > capacity {
            mean.min(GROWTH_MAX * capacity)
        } else if queue_s > unused * base_s + UNEXPLAINED_S {
            mean.max(CAPACITY_MIN)
        } else {
            capacity
        }
    }

    /// Whether others fill the queue: it should have drained long ago, or less and less arrives while it
    /// stays. Where the own traffic fills it, what arrives does not depend on what is sent until it is empty.
    pub fn is_foreign(&self) -> bool {
        self.drained_s > 2.0 * self.queue_max_s + 0.3 || self.is_displaced
    }
}

/// A queue that others cause.
#[derive(Debug, Clone)]
pub struct ForeignQueue {
    since_ns: u64,
    queue_at_start_s: f64,
    delivered_at_start: f64,
    short_since_ns: Option<u64>,
}

/// The queue is gone after it was short for this time.
const SHORT_NS: u64 = 500_000_000;
/// The law looks again after this time.
const LOOK_AGAIN_NS: u64 = 10_000_000_000;

impl ForeignQueue {
    pub fn new(now_ns: u64, queue_s: f64, delivered: f64) -> Self {
        Self {
            since_ns: now_ns,
            queue_at_start_s: queue_s,
            delivered_at_start: delivered,
            short_since_ns: None,
        }
    }

    /// Whether it is over: the queue is short again, the link has become slower, or it is time to look again.
    pub fn is_over(
        &mut self,
        now_ns: u64,
        queue_s: Option<f64>,
        queue_target_s: f64,
        delivered: f64,
    ) -> bool {
        let is_short = queue_s.is_some_and(|queue_s| queue_s < queue_target_s);
        self.short_since_ns = is_short.then(|| self.short_since_ns.unwrap_or(now_ns));
        let passed = |since: u64| now_ns.saturating_sub(since);
        self.short_since_ns.is_some_and(|since| passed(since) >= SHORT_NS)
            || passed(self.since_ns) >= LOOK_AGAIN_NS
            || queue_s.is_some_and(|queue_s| queue_s > 2.0 * self.queue_at_start_s + 0.02)
            || delivered < 0.4 * self.delivered_at_start
    }
}

impl Law {
    /// A queue stands: estimate the capacity, and leave room for it to drain.
    pub(super) fn make_room(&mut self, step: Step<'_>) -> State {
        let Step { now_ns, dt_s, seen, ranking, queue_s, limit_s } = step;
        let urgent = self.history.urgent(1);
        let applied = self.applied_bits / dt_s;
        let sending = Sending { applied, urgent, delivered: self.history.delivered(1) };
        let was_cut = self.was_cut(now_ns, EPISODE_TICKS, dt_s);
        let Some(episode) = &mut self.episode else {
            self.episode = Some(Episode::new(self.bulk, sending.delivered, queue_s));
            return State::Draining;
        };
        let estimate = episode.estimate(self.capacity, sending, queue_s, seen.base_s, dt_s);
        // Little arrives because little was sent, and a short queue may be the noise of a measurement.
        let is_doubtful = was_cut && queue_s < DOUBTFUL * limit_s;
        self.capacity = if is_doubtful { estimate.max(self.capacity) } else { estimate };
        self.confirmed = Some(self.capacity);
        self.hold.confirmed(now_ns, self.capacity);
        self.growth = GROWTH_START;
        let (before, is_foreign) = (episode.bulk_before, episode.is_foreign());
        if is_foreign {
            self.episode = None;
            self.foreign = Some(ForeignQueue::new(now_ns, queue_s, sending.delivered));
            self.bulk = CUT * before;
            self.applied = self.bulk;
            return State::Foreign;
        }
        let fits = self.beta() * self.capacity - ranking.urgent;
        // Losses without a long queue say less than a queue does, and undo nothing that a queue has shown.
        let least = if queue_s > limit_s { 0.0 } else { CUT * self.bulk };
        self.bulk = fits.max(least).min(before).max(0.0);
        let drained = self.bulk - self.capacity * (queue_s - limit_s / 2.0) / DRAIN_S;
        self.applied = drained.max(DRAIN_MIN * self.bulk).min(self.bulk);
        State::Draining
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDING: Sending = Sending { applied: 45e6, urgent: 5e6, delivered: 20e6 };

    #[test]
    fn capacity_is_what_arrives_while_the_queue_stands() {
        let mut episode = Episode::new(45e6, 20e6, 0.02);
        assert_eq!(episode.estimate(50e6, SENDING, 0.03, 0.001, 0.05), 20e6);
        // More than known: at most half more in a tick.
        let burst = Sending { delivered: 100e6, ..SENDING };
        assert_eq!(episode.estimate(20e6, burst, 0.03, 0.001, 0.05), 30e6);
        // The mean of the last four.
        let mut episode = Episode::new(45e6, 90e6, 0.02);
        let estimates: Vec<f64> = (0..4).map(|_| episode.estimate(200e6, SENDING, 0.3, 0.0, 0.05)).collect();
        assert_eq!(estimates, [55e6, (90e6 + 40e6) / 3.0, 37.5e6, 20e6]);
    }

    #[test]
    fn own_throttle_is_not_taken_for_the_capacity() {
        let mut episode = Episode::new(45e6, 10e6, 0.02);
        let throttled = Sending { applied: 5e6, urgent: 5e6, delivered: 10e6 };
        assert_eq!(episode.estimate(50e6, throttled, 0.011, 0.02, 0.05), 50e6);
        assert_eq!(episode.estimate(50e6, throttled, 0.03, 0.02, 0.05), 10e6);
    }

    #[test]
    fn queue_that_does_not_drain_is_foreign() {
        let mut episode = Episode::new(45e6, 10e6, 0.05);
        let throttled = Sending { applied: 0.0, urgent: 5e6, delivered: 5e6 };
        let ticks = (0..).take_while(|_| {
            episode.estimate(50e6, throttled, 0.05, 0.1, 0.05);
            !episode.is_foreign()
        });
        // 0.9 of the link is free: 2 x 50 ms + 0.3 s are over after nine ticks.
        assert_eq!(ticks.count(), 8);
    }

    #[test]
    fn queue_that_stays_while_less_arrives_is_foreign() {
        let after = |ticks: i32, fall: f64, queue_s: f64| {
            let mut episode = Episode::new(45e6, 40e6, 0.02);
            let mut capacity = 50e6;
            for tick in 0..ticks {
                let delivered = 40e6 * fall.powi(tick);
                let sending = Sending { applied: 0.97 * delivered, urgent: 0.0, delivered };
                let queue_s = if tick < 8 { 0.02 } else { queue_s };
                capacity = episode.estimate(capacity, sending, queue_s, 0.001, 0.05);
            }
            episode.is_foreign()
        };
        assert!(after(25, 0.97, 0.02));
        assert!(!after(10, 0.97, 0.02), "it may be the first reaction");
        assert!(!after(25, 0.97, 0.005), "the queue drains");
        assert!(!after(25, 1.0, 0.02), "the link is slower");
    }

    #[test]
    fn slower_link_during_a_long_episode_is_not_foreign() {
        let mut episode = Episode::new(45e6, 47e6, 0.01);
        let held = Sending { applied: 40e6, urgent: 3e6, delivered: 47e6 };
        for _ in 0..120 {
            episode.estimate(47e6, held, 0.01, 0.001, 0.05);
        }
        assert!(episode.is_foreign(), "without a slower link");
        let mut episode = Episode::new(45e6, 47e6, 0.01);
        for _ in 0..70 {
            episode.estimate(47e6, held, 0.01, 0.001, 0.05);
        }
        assert!(!episode.is_foreign());
        let slower = Sending { applied: 12e6, urgent: 1e6, delivered: 16e6 };
        for tick in 1..8 {
            let queue_s = (0.033 * f64::from(tick)).min(0.2);
            episode.estimate(16e6, slower, queue_s, 0.001, 0.05);
            assert!(!episode.is_foreign(), "{tick}");
        }
    }

    #[test]
    fn foreign_queue_ends_when_it_is_short_or_the_link_changes() {
        let second = |s: f64| (s * 1e9) as u64;
        let start = ForeignQueue::new(0, 0.02, 10e6);
        let over = |queue_s, s, delivered| start.clone().is_over(second(s), Some(queue_s), 0.01, delivered);
        assert!(!over(0.03, 1.0, 10e6) && !over(0.005, 1.0, 10e6));
        assert!(over(0.03, 10.0, 10e6), "it is time to look again");
        assert!(over(0.07, 1.0, 10e6), "the link is slower");
        assert!(over(0.03, 1.0, 3e6), "the link is slower");
        let mut queue = start.clone();
        let is_over = [1.0, 1.4, 1.5].map(|s| queue.is_over(second(s), Some(0.005), 0.01, 10e6));
        assert_eq!(is_over, [false, false, true]);
        let mut queue = start.clone();
        assert!(!queue.is_over(second(1.0), Some(0.005), 0.01, 10e6));
        assert!(!queue.is_over(second(1.2), None, 0.01, 10e6), "unknown is not short");
        assert!(!queue.is_over(second(1.6), Some(0.005), 0.01, 10e6));
    }
}
