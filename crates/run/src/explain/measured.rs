//! The capacity by the verdicts: the loads that passed, and the first that failed.

use base::outcome::{Capacity, Trial};
use base::verdict::Verdict;

use super::table::{LoadTable, Row};

#[derive(Debug, Clone, Copy, PartialEq)]
struct Tally {
    load: f64,
    passes: u32,
    fails: u32,
    invalids: u32,
    /// Of the invalid ones those that the players spoiled.
    spoiled: u32,
}

impl Tally {
    /// More trials passed than failed.
    fn is_carried(&self) -> bool {
        self.passes > self.fails
    }

    /// At least as many trials failed as passed.
    fn is_failed(&self) -> bool {
        self.has_failed() && self.fails >= self.passes
    }

    /// It failed no more often than the players disturbed it, so the failures may be the players'.
    fn is_doubtful(&self) -> bool {
        self.passes == 0 && self.spoiled > 0 && self.fails <= self.spoiled
    }

    /// At least one trial failed, and it was the target that did.
    fn has_failed(&self) -> bool {
        self.fails > 0 && !self.is_doubtful()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The largest load that was carried below the first that failed.
    pub carried: Option<f64>,
    /// The smallest load that failed; `None` if the players were exhausted first.
    pub failed: Option<f64>,
    /// The smallest load above `carried` (and below `failed`) at which no trial was valid.
    pub invalid: Option<f64>,
    pub capacity: Capacity,
}

impl Measured {
    /// Read the verdicts; `None` when the table has none.
    pub fn of(table: &LoadTable) -> Option<Self> {
        let tallies = tallies(&table.rows);
        if tallies.is_empty() {
            return None;
        }
        Some(match &table.capacity {
            Some(capacity) => Self::found(capacity, &tallies),
            None => Self::read(table, &tallies),
        })
    }

    /// Where the verdicts turn, when a search has said which load was carried.
    fn found(capacity: &Capacity, tallies: &[Tally]) -> Self {
        let carried = capacity.value.filter(|value| *value > 0.0);
        let above = |tally: &&Tally| carried.is_none_or(|carried| tally.load > carried);
        let failed = tallies.iter().filter(above).find(|tally| tally.has_failed()).map(|tally| tally.load);
        let players = players_gave_out(tallies, carried, failed);
        let failed = failed.filter(|_| players.is_none());
        let invalid = tallies.iter().filter(above).find(|tally| is_only_invalid(tally, failed));
        let invalid = players.or(invalid.map(|tally| tally.load));
        Self { carried, failed, invalid, capacity: capacity.clone() }
    }

    /// Where the verdicts turn, from the verdicts alone.
    fn read(table: &LoadTable, tallies: &[Tally]) -> Self {
        let failed = tallies.iter().find(|tally| tally.is_failed()).copied();
        let below = |load: f64| failed.is_none_or(|failed| load < failed.load);
        let carried = tallies.iter().rev().find(|tally| tally.is_carried() && below(tally.load)).copied();
        let players = players_gave_out(tallies, carried.map(|c| c.load), failed.map(|f| f.load));
        let failed = failed.filter(|_| players.is_none());
        let above = |load: f64| carried.is_none_or(|carried| load > carried.load);
        let invalid = tallies
            .iter()
            .find(|tally| above(tally.load) && is_only_invalid(tally, failed.map(|failed| failed.load)));
        let step = if table.is_counted() { 1.0 } else { 0.0 };
        let value = match (carried, failed) {
            (Some(carried), _) => Some(carried.load),
            // Nothing below the smallest load was tried: only a failure of the very first unit makes it zero.
            (None, Some(failed)) => (failed.load <= 1.0).then_some(0.0),
            (None, None) => None,
        };
        let capacity = Capacity {
            value,
            unit: table.load_unit.clone(),
            interval: [
                least(tallies),
                most(tallies).filter(|_| players.is_none()).map(|load| (load - step).max(0.0)),
            ],
            passes: carried.map_or(0, |carried| carried.passes),
            failures_above: failed.map_or(0, |failed| failed.fails),
        };
        let invalid = players.or(invalid.map(|tally| tally.load));
        Self { carried: carried.map(|c| c.load), failed: failed.map(|f| f.load), invalid, capacity }
    }
}

/// The smallest load above `carried` that the players spoiled, if they spoiled most of the trials that were
/// made from there to the first load that failed. Trials that other programs disturbed do not count.
fn players_gave_out(tallies: &[Tally], carried: Option<f64>, failed: Option<f64>) -> Option<f64> {
    let is_between = |tally: &&Tally| {
        carried.is_none_or(|carried| tally.load > carried) && failed.is_none_or(|failed| tally.load <= failed)
    };
    let between = || tallies.iter().filter(is_between);
    let spoiled: u32 = between().map(|tally| tally.spoiled).sum();
    let judged: u32 = between().map(|tally| tally.passes + tally.fails).sum();
    let first = between().find(|tally| tally.spoiled > 0 && !tally.is_carried())?;
    (spoiled > judged).then_some(first.load)
}

/// The upper end of a capacity that a search found: the largest load below the first that the target itself
/// failed; `None` where nothing says that it does not carry more.
pub fn upper_end<'a>(trials: impl IntoIterator<Item = &'a Trial>, capacity: f64) -> Option<f64> {
    let rows: Vec<Row> = trials.into_iter().map(Row::from_trial).collect();
    let tallies = tallies(&rows);
    // A load above that both passed and failed is within the uncertainty.
    let failed = tallies.iter().find(|t| t.load > capacity && t.passes == 0 && t.has_failed())?.load;
    players_gave_out(&tallies, Some(capacity), Some(failed)).is_none().then_some(failed - 1.0)
}

/// There is no valid result at this load, which lies below the first that failed.
fn is_only_invalid(tally: &Tally, failed: Option<f64>) -> bool {
    tally.invalids > 0 && !tally.is_carried() && failed.is_none_or(|failed| tally.load < failed)
}

/// The largest load that passed below any failure at all, even a single one.
fn least(tallies: &[Tally]) -> Option<f64> {
    let first_fail = tallies.iter().find(|tally| tally.has_failed());
    let below = tallies.iter().take_while(|tally| first_fail.is_none_or(|fail| tally.load < fail.load));
    let passed = below.filter(|tally| tally.passes > 0).map(|tally| tally.load).last();
    passed.or(first_fail.map(|_| 0.0))
}

/// The smallest load that failed with no pass at it or above it.
fn most(tallies: &[Tally]) -> Option<f64> {
    let hopeless = tallies.iter().rev().take_while(|tally| tally.passes == 0);
    hopeless.filter(|tally| tally.has_failed()).map(|tally| tally.load).last()
}

/// Verdicts by load, ascending.
fn tallies(rows: &[Row]) -> Vec<Tally> {
    let judged = rows.iter().filter_map(|row| Some((row.load, row.verdict?, row.is_spoiled_by_players())));
    let mut judged: Vec<_> = judged.collect();
    judged.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut tallies: Vec<Tally> = Vec::new();
    for (load, verdict, spoiled) in judged {
        if tallies.last().is_none_or(|tally| tally.load != load) {
            tallies.push(Tally { load, passes: 0, fails: 0, invalids: 0, spoiled: 0 });
        }
        if let Some(tally) = tallies.last_mut() {
            tally.spoiled += u32::from(spoiled);
            match verdict {
                Verdict::Pass => tally.passes += 1,
                Verdict::Fail => tally.fails += 1,
                Verdict::Invalid => tally.invalids += 1,
            }
        }
    }
    tallies
}
