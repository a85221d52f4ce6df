//! Finding the credit: rounds of events with more and more fragments under way, until the port is full or loses some.
//!
//! With too little credit the port idles while grants are on their way; with more than its buffer holds, fragments are lost
//! and stall for 200 ms. The rate of events rises in between and then stays. The search doubles the credit until the rate
//! does, too little for two rounds, or something stalled; narrows down where it stalled; and makes sure of what it takes,
//! until that is what is best.

use crate::daq::report::{CreditTrial, Steered};

use super::cause::STALL_NS;

/// Events of a round of the search, and of the one that makes sure.
const EVENTS: (u32, u32) = (12, 20);
/// A round in which so many stalled needs no more.
const STALLED_ENOUGH: u32 = 2;
/// The first credit fills so much of a buffer.
const FIRST_BYTES: u64 = 16 << 10;
/// A rate of the best one's share is as good.
const AS_GOOD: f64 = 0.97;
/// A greater credit that gains less than this gains nothing.
const GAIN_MIN: f64 = 1.03;
/// Credits closer than this are not told apart.
const CLOSE: f64 = 1.06;
/// Of the least credit that stalled: closer to it there is no margin.
const MARGIN: f64 = 0.9;
/// Rounds of the search, whatever it finds.
const ROUNDS_MAX: usize = 14;

/// What is to be tried next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Fragments that may be under way at once; of push all sources.
    pub credit: u32,
    /// Events to trigger, unless [`STALLED_ENOUGH`] of them stalled before (see [`Tally::is_over`]).
    pub events: u32,
    /// Whether all sources send at the trigger.
    pub push: bool,
}

/// What is known of the events of a round so far.
#[derive(Debug, Clone)]
pub struct Tally {
    round: Round,
    started_ns: u64,
    last_ns: u64,
    events: u32,
    stalled: u32,
    took_ns: Vec<u64>,
    rates_bit_per_s: Vec<f64>,
}

impl Tally {
    /// The round begins at `now_ns`: nothing of another one is under way.
    pub const fn new(round: Round, now_ns: u64) -> Self {
        Self {
            round,
            started_ns: now_ns,
            last_ns: now_ns,
            events: 0,
            stalled: 0,
            took_ns: Vec::new(),
            rates_bit_per_s: Vec::new(),
        }
    }

    /// An event of the round ended at `now_ns`: it took so long from its trigger, its slowest fragment was under way for
    /// `way_ns`, and `wire_bytes` came within `spread_ns` of its first.
    pub fn event(&mut self, took_ns: u64, way_ns: u64, complete: bool, arrived: (u64, u64), now_ns: u64) {
        let (wire_bytes, spread_ns) = arrived;
        self.events += 1;
        self.last_ns = self.last_ns.max(now_ns);
        self.took_ns.push(took_ns);
        if !complete || way_ns >= STALL_NS {
            self.stalled += 1;
        } else if spread_ns > 0 {
            self.rates_bit_per_s.push(wire_bytes as f64 * 8e9 / spread_ns as f64);
        }
    }

    /// Whether no more events are to be triggered.
    pub const fn is_over(&self) -> bool {
        self.events >= self.round.events || self.stalled >= STALLED_ENOUGH
    }

    /// Whether a fragment of an event was stalled, or none of its fragments came.
    pub const fn has_stalled(&self) -> bool {
        self.stalled > 0
    }

    /// What it came to.
    pub fn trial(&self) -> CreditTrial {
        let lasted_s = self.last_ns.saturating_sub(self.started_ns) as f64 / 1e9;
        let mut took_ns = self.took_ns.clone();
        took_ns.sort_unstable();
        let p99 = (took_ns.len() * 99).div_ceil(100).saturating_sub(1);
        CreditTrial {
            credit: self.round.credit,
            events: self.events,
            events_per_s: if lasted_s > 0.0 { f64::from(self.events) / lasted_s } else { 0.0 },
            completion_p99_ms: took_ns.get(p99).map_or(0.0, |&ns| ns as f64 / 1e6),
            stalled: self.stalled,
        }
    }

    /// The rate at which its fragments came, bit/s on the wire: of the quicker events, which shows the port rather than
    /// the sources.
    pub fn rate_bit_per_s(&self) -> Option<f64> {
        base::statistics::quantile(&self.rates_bit_per_s, 0.75)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// More credit each time.
    Climb,
    /// Between a credit that held and one that stalled.
    Narrow,
    /// Once more what is to be taken.
    Confirm,
    /// All at once, for comparison.
    Push,
    Done,
}

/// The search.
#[derive(Debug)]
pub struct Steer {
    sources: u32,
    fragment_bytes: u64,
    phase: Phase,
    credit: u32,
    tried: Vec<CreditTrial>,
    push: Option<CreditTrial>,
    rate_bit_per_s: Option<f64>,
    /// The port's rate as it is known.
    link_bit_per_s: Option<f64>,
    /// Rounds of the climb that gained nothing, one after the other.
    flat: u32,
    rounds: usize,
    /// Credits that were tried once more: what a short round was lucky with may not be the best after all.
    sure_of: Vec<u32>,
}

impl Steer {
    /// For so many sources with fragments of `fragment_bytes` on the wire (their mean), and the port's buffer where it is
    /// known.
    pub fn new(sources: u32, fragment_bytes: u64, buffer_bytes: Option<u64>) -> Self {
        let fits = |bytes: u64| crate::daq::theory::credit_that_fits(bytes, fragment_bytes);
        let first = buffer_bytes.map_or(fits(FIRST_BYTES), |bytes| fits(bytes / 2));
        Self {
            sources: sources.max(1),
            fragment_bytes,
            phase: Phase::Climb,
            credit: first.clamp(1, sources.max(1)),
            tried: Vec::new(),
            push: None,
            rate_bit_per_s: None,
            link_bit_per_s: None,
            flat: 0,
            rounds: 0,
            sure_of: Vec::new(),
        }
    }

    /// The rate of the port is known, bit/s: fragments that waited together and then came together seem to come quicker.
    #[must_use]
    pub fn through(mut self, link_bit_per_s: Option<f64>) -> Self {
        self.link_bit_per_s = link_bit_per_s.filter(|&rate| rate > 0.0);
        self
    }

    /// What is to be tried next; `None` when the search is over.
    pub fn next(&self) -> Option<Round> {
        let events = if self.phase == Phase::Confirm { EVENTS.1 } else { EVENTS.0 };
        match self.phase {
            Phase::Done => None,
            Phase::Push => Some(Round { credit: self.sources, events, push: true }),
            _ => Some(Round { credit: self.credit, events, push: false }),
        }
    }

    /// What the round came to.
    pub fn told(&mut self, tally: &Tally) {
        let trial = tally.trial();
        if trial.stalled == 0 {
            let rate = tally.rate_bit_per_s().into_iter().chain(self.rate_bit_per_s);
            self.rate_bit_per_s = rate.reduce(f64::max);
        }
        if self.phase == Phase::Push {
            self.push = Some(trial);
            self.phase = Phase::Done;
            return;
        }
        let best_before = self.best_rate();
        self.rounds += 1;
        self.note(trial);
        match self.phase {
            Phase::Climb if trial.stalled == 0 => {
                let gained = trial.events_per_s > best_before * GAIN_MIN;
                self.flat = if gained { 0 } else { self.flat + 1 };
                if self.flat >= 2 || self.credit >= self.sources {
                    self.confirm();
                } else {
                    self.credit = self.credit.saturating_mul(2).min(self.sources);
                }
            }
            Phase::Climb => self.narrow(true),
            Phase::Narrow => self.narrow(trial.stalled > 0 || trial.events_per_s > best_before * GAIN_MIN),
            Phase::Confirm => {
                if trial.stalled == 0 {
                    self.sure_of.push(trial.credit);
                }
                if self.sure_of.contains(&self.choice()) { self.finish() } else { self.confirm() }
            }
            Phase::Push | Phase::Done => {}
        }
        if self.rounds >= ROUNDS_MAX && matches!(self.phase, Phase::Climb | Phase::Narrow | Phase::Confirm) {
            self.finish();
        }
    }

    /// Ends the search with what is known so far: its time is over.
    pub fn stop(&mut self) {
        self.phase = Phase::Done;
    }

    /// What it came to.
    pub fn steered(&self) -> Steered {
        let stalled = self.stalled_least();
        let held = self.tried.iter().filter(|trial| trial.stalled == 0).map(|trial| trial.credit).max();
        let credit = self.choice();
        // What a fragment takes at the port's rate, as far as it was seen.
        let rate = self.rate_bit_per_s.filter(|&rate| rate > 0.0);
        let rate = rate.map(|rate| self.link_bit_per_s.map_or(rate, |link| rate.min(link)));
        Steered {
            credit,
            stagger_ns: rate.map_or(0, |rate| (self.fragment_bytes as f64 * 8e9 / rate).ceil() as u64),
            buffer_bytes: stalled.and(held).map(|held| u64::from(held) * self.fragment_bytes),
            rate_bit_per_s: rate,
            tried: self.tried.clone(),
            push: self.push,
        }
    }

    /// Rounds with the same credit become one.
    fn note(&mut self, trial: CreditTrial) {
        let Some(old) = self.tried.iter_mut().find(|old| old.credit == trial.credit) else {
            return self.tried.push(trial);
        };
        let lasted_s = |trial: &CreditTrial| f64::from(trial.events) / trial.events_per_s.max(1e-9);
        let both_s = lasted_s(old) + lasted_s(&trial);
        old.events += trial.events;
        old.events_per_s = f64::from(old.events) / both_s;
        old.completion_p99_ms = old.completion_p99_ms.max(trial.completion_p99_ms);
        old.stalled += trial.stalled;
    }

    fn good(&self) -> impl Iterator<Item = &CreditTrial> {
        self.tried.iter().filter(|trial| trial.stalled == 0)
    }

    fn best_rate(&self) -> f64 {
        self.good().map(|trial| trial.events_per_s).fold(0.0, f64::max)
    }

    fn stalled_least(&self) -> Option<u32> {
        self.tried.iter().filter(|trial| trial.stalled > 0).map(|trial| trial.credit).min()
    }

    /// The largest credit below the least that stalled.
    fn held_most(&self) -> Option<u32> {
        let stalled = self.stalled_least().unwrap_or(u32::MAX);
        self.good().map(|trial| trial.credit).filter(|&credit| credit < stalled).max()
    }

    /// The next credit between one that held and one that stalled, while `worth_it`.
    fn narrow(&mut self, worth_it: bool) {
        self.phase = Phase::Narrow;
        let Some(stalled) = self.stalled_least() else { return self.confirm() };
        let Some(held) = self.held_most() else {
            // Nothing held yet: downwards.
            if stalled <= 1 {
                return self.finish();
            }
            self.credit = (stalled / 2).max(1);
            return;
        };
        let close = f64::from(stalled) < f64::from(held) * CLOSE || stalled - held <= 1;
        if close || !worth_it {
            return self.confirm();
        }
        let middle = (f64::from(held) * f64::from(stalled)).sqrt().round() as u32;
        self.credit = middle.clamp(held + 1, stalled - 1);
    }

    /// The credit to take: without stalls, within 3 % of the best rate, with the least 99th percentile, and not too near to
    /// where it stalls.
    fn choice(&self) -> u32 {
        let best = self.best_rate();
        let as_good = |trial: &&CreditTrial| trial.events_per_s >= best * AS_GOOD;
        let least = |safe: bool| {
            let most = self.stalled_least().map_or(f64::INFINITY, f64::from);
            let most = if safe { most * MARGIN } else { most };
            let within = self.good().filter(as_good).filter(|trial| f64::from(trial.credit) < most);
            let order = |a: &&CreditTrial, b: &&CreditTrial| {
                a.completion_p99_ms.total_cmp(&b.completion_p99_ms).then(a.credit.cmp(&b.credit))
            };
            within.min_by(order).map(|trial| trial.credit)
        };
        // Where everything stalls, the least is the least evil.
        let anything = || self.tried.iter().map(|trial| trial.credit).min();
        least(true)
            .or_else(|| least(false))
            .or_else(|| self.held_most())
            .or_else(anything)
            .unwrap_or(self.credit)
    }

    fn confirm(&mut self) {
        if self.good().next().is_none() {
            return self.finish();
        }
        self.phase = Phase::Confirm;
        self.credit = self.choice();
    }

    fn finish(&mut self) {
        let stalled_before = self.stalled_least().is_some();
        self.phase = if stalled_before { Phase::Done } else { Phase::Push };
    }
}

#[cfg(test)]
#[path = "steer_tests.rs"]
mod tests;
