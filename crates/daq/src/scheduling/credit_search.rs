//! Searches the credit: rounds of events with growing credit, until the port is full or loses fragments.
//!
//! With too little credit the port idles while grants are on their way; with more than its buffer holds,
//! fragments are lost and stall for 200 ms. In between the event rate grows and then stays. The search
//! doubles the credit until the rate grows too little for two rounds, or an event stalls; narrows down the
//! limit; and confirms the best credit. Its rounds are short, and end early when events stall: their rates
//! are rough. The comparison with push therefore takes two longer rounds of equal bounds.

use crate::report::{CreditTrial, Steered};

use crate::recorder::STALL_NS;

/// Events of a round, and of one that confirms.
const EVENTS: (u32, u32) = (12, 20);
/// A round ends after this number of stalled events.
const STALLED_ENOUGH: u32 = 2;
/// Bounds of a round of the comparison: events, and ns. Stalls do not end it: a few of them are no rate.
const COMPARED: (u32, u64) = (200, 2_000_000_000);
/// The first credit, in bytes.
const FIRST_BYTES: u64 = 16 << 10;
/// Rates of at least this share of the best are equally good.
const AS_GOOD: f64 = 0.97;
/// A gain below this counts as none.
const GAIN_MIN: f64 = 1.03;
/// Credits closer than this are not distinguished.
const CLOSE: f64 = 1.06;
/// Margin below the smallest credit that stalled.
const MARGIN: f64 = 0.9;
const ROUNDS_MAX: usize = 14;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// With push: all sources.
    pub credit: u32,
    /// Unless it ends early, see [`RoundStats::is_over`].
    pub events: u32,
    /// Whether all sources send at the trigger.
    pub push: bool,
    /// Whether it ends after a time, instead of after a few stalls.
    pub is_compared: bool,
}

impl Round {
    pub(crate) const fn probe(credit: u32, events: u32) -> Self {
        Self { credit, events, push: false, is_compared: false }
    }

    const fn compared(credit: u32, push: bool) -> Self {
        Self { credit, events: COMPARED.0, push, is_compared: true }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RoundStats {
    round: Round,
    started_ns: u64,
    last_ns: u64,
    events: u32,
    stalled: u32,
    /// Of the complete events.
    took_ns: Vec<u64>,
    rates_bit_per_s: Vec<f64>,
}

impl RoundStats {
    /// Begins a round at `now_ns`; no earlier event is under way.
    pub(crate) fn new(round: Round, now_ns: u64) -> Self {
        Self { round, started_ns: now_ns, last_ns: now_ns, ..Self::default() }
    }

    /// An event ended at `now_ns`: it took `took_ns` from its trigger, its slowest fragment `transit_ns`;
    /// `arrived`: wire bytes, and the time from its first fragment to its last.
    pub(crate) fn add_event(
        &mut self,
        took_ns: u64,
        transit_ns: u64,
        complete: bool,
        arrived: (u64, u64),
        now_ns: u64,
    ) {
        let (wire_bytes, spread_ns) = arrived;
        self.events += 1;
        self.last_ns = self.last_ns.max(now_ns);
        if complete {
            self.took_ns.push(took_ns);
        }
        if !complete || transit_ns >= STALL_NS {
            self.stalled += 1;
        } else if spread_ns > 0 {
            self.rates_bit_per_s.push(wire_bytes as f64 * 8e9 / spread_ns as f64);
        }
    }

    /// Whether the round needs no more events at `now_ns`.
    pub(crate) const fn is_over(&self, now_ns: u64) -> bool {
        let is_long_enough = match self.round.is_compared {
            true => now_ns.saturating_sub(self.started_ns) >= COMPARED.1,
            false => self.stalled >= STALLED_ENOUGH,
        };
        self.events >= self.round.events || is_long_enough
    }

    pub(crate) const fn has_stalled(&self) -> bool {
        self.stalled > 0
    }

    pub(crate) fn trial(&self) -> CreditTrial {
        let lasted_s = self.last_ns.saturating_sub(self.started_ns) as f64 / 1e9;
        let mut took_ns = self.took_ns.clone();
        took_ns.sort_unstable();
        let p99 = (took_ns.len() * 99).div_ceil(100).saturating_sub(1);
        let complete = took_ns.len() as u32;
        CreditTrial {
            credit: self.round.credit,
            events: self.events,
            complete,
            lasted_s,
            events_per_s: rate(complete, lasted_s),
            completion_p99_ms: took_ns.get(p99).map(|&ns| ns as f64 / 1e6),
            stalled: self.stalled,
        }
    }

    /// The rate at which fragments arrived, bit/s on the wire: of the quicker events, which show the port
    /// rather than the sources.
    pub(crate) fn rate_bit_per_s(&self) -> Option<f64> {
        base::statistics::quantile(&self.rates_bit_per_s, 0.75)
    }
}

/// Events a second.
fn rate(events: u32, lasted_s: f64) -> f64 {
    if lasted_s > 0.0 { f64::from(events) / lasted_s } else { 0.0 }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Grow,
    /// Between a credit that held and one that stalled.
    Narrow,
    Confirm,
    Done,
}

#[derive(Debug, Default)]
pub(crate) struct CreditSearch {
    sources: u32,
    fragment_bytes: u64,
    phase: Phase,
    credit: u32,
    tried: Vec<CreditTrial>,
    /// The credit in use, and push.
    compared: Option<(CreditTrial, CreditTrial)>,
    rate_bit_per_s: Option<f64>,
    /// Bounds the estimated rate: fragments that queued together seem to arrive faster than the port's rate.
    pub(crate) link_bit_per_s: Option<f64>,
    /// Consecutive rounds of [`Phase::Grow`] without gain.
    flat: u32,
    rounds: usize,
    /// Credits that were tried twice: a short round may have been lucky.
    confirmed: Vec<u32>,
}

impl CreditSearch {
    /// `fragment_bytes`: mean wire length; `buffer_bytes`: the port's buffer, if known.
    pub(crate) fn new(sources: u32, fragment_bytes: u64, buffer_bytes: Option<u64>) -> Self {
        let fits = |bytes: u64| crate::theory::credit_that_fits(bytes, fragment_bytes);
        let first = buffer_bytes.map_or(fits(FIRST_BYTES), |bytes| fits(bytes / 2));
        Self {
            sources: sources.max(1),
            fragment_bytes,
            credit: first.clamp(1, sources.max(1)),
            ..Self::default()
        }
    }

    /// The next round; `None`: the search is over.
    pub(crate) fn next(&self) -> Option<Round> {
        let events = if self.phase == Phase::Confirm { EVENTS.1 } else { EVENTS.0 };
        match self.phase {
            Phase::Done => None,
            _ => Some(Round::probe(self.credit, events)),
        }
    }

    /// The rounds that compare the credit in use with push, however the search ended.
    pub(crate) fn compared_rounds(&self) -> [Round; 2] {
        [Round::compared(self.best_credit(), false), Round::compared(self.sources, true)]
    }

    /// What [`Self::compared_rounds`] built.
    pub(crate) fn set_compared(&mut self, [granted, push]: [&RoundStats; 2]) {
        self.compared = Some((granted.trial(), push.trial()));
    }

    pub(crate) fn add_round(&mut self, stats: &RoundStats) {
        let trial = stats.trial();
        if trial.stalled == 0 {
            let rate = stats.rate_bit_per_s().into_iter().chain(self.rate_bit_per_s);
            self.rate_bit_per_s = rate.reduce(f64::max);
        }
        let best_before = self.best_rate();
        self.rounds += 1;
        self.note(trial);
        match self.phase {
            Phase::Grow if trial.stalled == 0 => {
                let gained = trial.events_per_s > best_before * GAIN_MIN;
                self.flat = if gained { 0 } else { self.flat + 1 };
                if self.flat >= 2 || self.credit >= self.sources {
                    self.confirm();
                } else {
                    self.credit = self.credit.saturating_mul(2).min(self.sources);
                }
            }
            Phase::Grow => self.narrow(true),
            Phase::Narrow => self.narrow(trial.stalled > 0 || trial.events_per_s > best_before * GAIN_MIN),
            Phase::Confirm => {
                if trial.stalled == 0 {
                    self.confirmed.push(trial.credit);
                }
                if self.confirmed.contains(&self.best_credit()) { self.stop() } else { self.confirm() }
            }
            Phase::Done => {}
        }
        if self.rounds >= ROUNDS_MAX {
            self.stop();
        }
    }

    pub(crate) fn stop(&mut self) {
        self.phase = Phase::Done;
    }

    pub(crate) fn result(&self) -> Steered {
        let stalled = self.smallest_stalled();
        let held = self.tried.iter().filter(|trial| trial.stalled == 0).map(|trial| trial.credit).max();
        let credit = self.best_credit();
        // The time that a fragment takes at the port's rate.
        let rate = self.rate_bit_per_s.filter(|&rate| rate > 0.0);
        let rate = rate.map(|rate| self.link_bit_per_s.map_or(rate, |link| rate.min(link)));
        Steered {
            credit,
            stagger_ns: rate.map_or(0, |rate| (self.fragment_bytes as f64 * 8e9 / rate).ceil() as u64),
            buffer_bytes: stalled.and(held).map(|held| u64::from(held) * self.fragment_bytes),
            rate_bit_per_s: rate,
            tried: self.tried.clone(),
            granted: self.compared.map(|(granted, _)| granted),
            push: self.compared.map(|(_, push)| push),
        }
    }

    /// Merges rounds with the same credit.
    fn note(&mut self, trial: CreditTrial) {
        let Some(old) = self.tried.iter_mut().find(|old| old.credit == trial.credit) else {
            return self.tried.push(trial);
        };
        old.events += trial.events;
        old.complete += trial.complete;
        old.lasted_s += trial.lasted_s;
        old.events_per_s = rate(old.complete, old.lasted_s);
        let both = [old.completion_p99_ms, trial.completion_p99_ms];
        old.completion_p99_ms = both.into_iter().flatten().max_by(f64::total_cmp);
        old.stalled += trial.stalled;
    }

    fn good(&self) -> impl Iterator<Item = &CreditTrial> {
        self.tried.iter().filter(|trial| trial.stalled == 0)
    }

    fn best_rate(&self) -> f64 {
        self.good().map(|trial| trial.events_per_s).fold(0.0, f64::max)
    }

    fn smallest_stalled(&self) -> Option<u32> {
        self.tried.iter().filter(|trial| trial.stalled > 0).map(|trial| trial.credit).min()
    }

    /// The largest credit below the smallest that stalled.
    fn largest_without_stall(&self) -> Option<u32> {
        let stalled = self.smallest_stalled().unwrap_or(u32::MAX);
        self.good().map(|trial| trial.credit).filter(|&credit| credit < stalled).max()
    }

    /// Picks a credit between one that held and one that stalled, unless it is not `worth_it`.
    fn narrow(&mut self, worth_it: bool) {
        self.phase = Phase::Narrow;
        let Some(stalled) = self.smallest_stalled() else { return self.confirm() };
        let Some(held) = self.largest_without_stall() else {
            // Nothing held yet: halve.
            if stalled <= 1 {
                return self.stop();
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

    /// The credit to use: without stalls, within 3 % of the best rate, with the lowest 99th percentile, and
    /// with a margin to where it stalls.
    fn best_credit(&self) -> u32 {
        let best = self.best_rate();
        let as_good = |trial: &&CreditTrial| trial.events_per_s >= best * AS_GOOD;
        let least = |safe: bool| {
            let most = self.smallest_stalled().map_or(f64::INFINITY, f64::from);
            let most = if safe { most * MARGIN } else { most };
            let within = self.good().filter(as_good).filter(|trial| f64::from(trial.credit) < most);
            // Without a stall, all are complete.
            let p99_ms = |trial: &CreditTrial| trial.completion_p99_ms.unwrap_or(f64::INFINITY);
            let order = |a: &&CreditTrial, b: &&CreditTrial| {
                p99_ms(a).total_cmp(&p99_ms(b)).then(a.credit.cmp(&b.credit))
            };
            within.min_by(order).map(|trial| trial.credit)
        };
        // Everything stalls: the smallest.
        let anything = || self.tried.iter().map(|trial| trial.credit).min();
        least(true)
            .or_else(|| least(false))
            .or_else(|| self.largest_without_stall())
            .or_else(anything)
            .unwrap_or(self.credit)
    }

    fn confirm(&mut self) {
        if self.good().next().is_none() {
            return self.stop();
        }
        self.phase = Phase::Confirm;
        self.credit = self.best_credit();
    }
}

#[cfg(test)]
#[path = "credit_search_tests.rs"]
mod tests;
