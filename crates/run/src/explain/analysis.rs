//! What the table shows before a limit is chosen: sound rows, lines, and the load at which usage bends.

use std::collections::BTreeMap;

use base::limit_rules::{CEILING, EXCEEDED_FROM};
use base::outcome::{Ceiling, Resource, Saturation};
use base::statistics::median;
use base::verdict::Verdict;

use super::ceiling::GIVEN;
use super::measured::Measured;
use super::models::fit::{Fit, unbent};
use super::models::latency::LatencyBend;
use super::models::scalability::Scalability;
use super::table::{LoadTable, RESOURCES, Row, distinct};
use super::words;

/// The source of an assumed ceiling begins with this.
pub const ASSUMED: &str = "assumed";
/// The source of a ceiling that was computed from where usage stopped growing begins with this.
pub const COMPUTED: &str = "computed";
/// A floor must not fall by one because of the last bit of a division.
const ROUNDING: f64 = 1e-9;
/// Maximum number of loads at which a bend is searched.
const BENDS_MAX: usize = 64;

pub struct Analysis<'a> {
    pub table: &'a LoadTable,
    pub measured: Option<Measured>,
    /// A resource that used more than its given ceiling at loads that passed: the verdicts are then those of
    /// another machine.
    pub what_if: Option<Resource>,
    /// Without verdicts: the load from which on usage no longer grows, or requests take many times longer.
    pub bend: Option<f64>,
    pub latency: Option<LatencyBend>,
    pub scalability: Option<Scalability>,
    pub ceilings: BTreeMap<Resource, Ceiling>,
    /// The lines through the sound rows.
    pub fits: BTreeMap<Resource, Fit>,
}

impl<'a> Analysis<'a> {
    pub fn of(table: &'a LoadTable) -> Self {
        let measured = Measured::of(table);
        let latency = LatencyBend::of(table);
        let bends = || bend(table).into_iter().chain(latency.as_ref().map(|latency| latency.load));
        let bend = if measured.is_none() { bends().min_by(f64::total_cmp) } else { None };
        let mut analysis = Self {
            table,
            what_if: what_if(table),
            measured,
            bend,
            latency,
            scalability: Scalability::of(table),
            ceilings: ceilings(table),
            fits: BTreeMap::new(),
        };
        for resource in RESOURCES {
            let points = points(analysis.sound_rows(), resource);
            let points = unbent(&points, analysis.ceilings.get(&resource));
            // Two loads lie on a line whatever they are: that shows no slope.
            let fit = Fit::through(&points).filter(|fit| fit.scatter.is_some());
            analysis.fits.extend(fit.map(|fit| (resource, fit)));
        }
        analysis
    }

    /// Rows that no limit has bent: they passed, or lie below the first failure or the bend.
    pub fn sound_rows(&self) -> impl Iterator<Item = &'a Row> + '_ {
        let failed = self.measured.as_ref().and_then(|measured| measured.failed);
        let turn = failed.or(self.bend);
        self.table.rows.iter().filter(move |row| match row.verdict {
            Some(verdict) => verdict == Verdict::Pass,
            None => turn.is_none_or(|turn| row.load < turn),
        })
    }

    /// The verdicts, if they apply to the given ceilings.
    pub fn verdicts(&self) -> Option<&Measured> {
        self.measured.as_ref().filter(|_| self.what_if.is_none())
    }

    /// The load whose counters are evidence: the first that failed or was invalid, the bend, or the highest.
    pub fn critical_load(&self) -> Option<f64> {
        let measured = self.measured.as_ref().and_then(|m| m.failed.or(m.invalid));
        measured.or(self.bend).or_else(|| self.table.loads().last().copied())
    }

    /// The critical load with its unit: "6 streams".
    pub fn critical_text(&self) -> String {
        self.critical_load().map_or_else(String::new, |load| words::load(load, &self.table.load_unit))
    }

    /// The rows whose counters are evidence.
    fn critical_rows(&self) -> Vec<&'a Row> {
        let Some(load) = self.critical_load() else { return Vec::new() };
        let at = self.table.rows.iter().filter(|row| row.load == load);
        let judged = self.measured.as_ref().is_some_and(|m| m.failed.or(m.invalid).is_some());
        let failed = self.measured.as_ref().is_some_and(|m| m.failed.is_some());
        // An invalid trial is no evidence of a failure, nor of a pass.
        let is_out = |verdict| match verdict {
            Verdict::Pass => judged,
            Verdict::Invalid => failed || !judged,
            Verdict::Fail => false,
        };
        at.filter(|row| !row.verdict.is_some_and(is_out)).collect()
    }

    pub fn usage_at_critical(&self, resource: Resource) -> Option<f64> {
        let values = self.critical_rows().into_iter().filter_map(|row| row.usage.get(&resource).copied());
        median(&values.collect::<Vec<_>>())
    }

    pub fn counter_at_critical(&self, name: &str) -> Option<f64> {
        let values = self.critical_rows().into_iter().filter_map(|row| row.counters.get(name).copied());
        median(&values.collect::<Vec<_>>())
    }

    pub fn share_at_critical(&self, resource: Resource) -> Option<(f64, &Ceiling)> {
        let ceiling = self.ceilings.get(&resource)?;
        Some((self.usage_at_critical(resource)? / ceiling.value, ceiling))
    }

    /// Median of a counter at the sound loads below the critical one.
    pub fn counter_below(&self, name: &str) -> Option<f64> {
        let critical = self.critical_load()?;
        let below = self.sound_rows().filter(|row| row.load < critical);
        median(&below.filter_map(|row| row.counters.get(name).copied()).collect::<Vec<_>>())
    }

    /// Whether a resource stopped growing at the critical load: what it used, and what its line gives there.
    pub fn flat(&self, resource: Resource) -> Option<(f64, f64)> {
        let (load, used) = (self.critical_load()?, self.usage_at_critical(resource)?);
        let last = self.sound_rows().map(|row| row.load).filter(|l| *l < load).max_by(f64::total_cmp)?;
        let fit = self.fits.get(&resource)?;
        // Another trial used more, so this value is no ceiling.
        let mut usage = self.table.rows.iter().filter_map(|row| row.usage.get(&resource));
        let is_exceeded = usage.any(|other| *other > EXCEEDED_FROM * used);
        (!is_exceeded && is_flat(fit, last, load, used)).then(|| (used, fit.line.at(load)))
    }

    /// The load at which a resource's line meets its ceiling, unless the table itself refutes it.
    pub fn saturates_at(&self, resource: Resource) -> Option<f64> {
        let load = self.fits.get(&resource)?.meets(self.ceilings.get(&resource)?.value)?;
        self.spared_beyond(resource, load).is_none().then_some(load)
    }

    /// The greatest load beyond the one at which a resource's line meets its ceiling, and what it used there,
    /// if that is less than the ceiling: the line does not hold so far. Known without verdicts only; a load
    /// that failed may use less because it failed.
    pub fn refuting_usage(&self, resource: Resource) -> Option<(f64, f64)> {
        let load = self.fits.get(&resource)?.meets(self.ceilings.get(&resource)?.value)?;
        self.spared_beyond(resource, load)
    }

    fn spared_beyond(&self, resource: Resource, load: f64) -> Option<(f64, f64)> {
        let ceiling = self.ceilings.get(&resource).filter(|_| self.measured.is_none())?.value;
        let beyond = points(self.table.rows.iter(), resource).into_iter().filter(|(at, _)| *at > load);
        let greatest = beyond.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
        (greatest.1 < CEILING.used_up_from * ceiling).then_some(greatest)
    }

    pub fn saturation(&self) -> BTreeMap<Resource, Saturation> {
        let of = |(resource, fit): (&Resource, &Fit)| {
            let saturation = fit.saturation(*resource, self.ceilings.get(resource));
            let saturates_at = self.saturates_at(*resource);
            let saturates_interval = saturates_at.and(saturation.saturates_interval);
            (*resource, Saturation { saturates_at, saturates_interval, ..saturation })
        };
        self.fits.iter().map(of).collect()
    }

    pub fn first_saturated(&self) -> Option<(Resource, f64)> {
        let known = self.fits.keys().filter_map(|resource| Some((*resource, self.saturates_at(*resource)?)));
        known.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The capacity that the lines and ceilings alone predict: whole units where loads are counted.
    pub fn predicted(&self) -> Option<f64> {
        self.first_saturated().map(|(_, load)| self.whole(load))
    }

    /// A load rounded down to what can be offered.
    pub fn whole(&self, load: f64) -> f64 {
        if self.table.is_counted() { (load + ROUNDING).floor() } else { load }
    }

    pub fn sound_loads(&self) -> usize {
        distinct(self.sound_rows().map(|row| row.load)).len()
    }
}

/// `(load, usage)` of the rows in which the usage is known.
fn points<'r>(rows: impl Iterator<Item = &'r Row>, resource: Resource) -> Vec<(f64, f64)> {
    rows.filter_map(|row| Some((row.load, *row.usage.get(&resource)?))).collect()
}

/// The table's ceilings, and one core for a CPU of which nothing is known that used less.
fn ceilings(table: &LoadTable) -> BTreeMap<Resource, Ceiling> {
    let mut ceilings = table.ceilings.clone();
    ceilings.retain(|_, ceiling| ceiling.value.is_finite() && ceiling.value > 0.0);
    let used = table.rows.iter().filter_map(|row| row.usage.get(&Resource::Cpu)).copied();
    let most = used.max_by(f64::total_cmp);
    // More than one core was used: how many there are cannot be guessed.
    if most.is_some_and(|most| most <= 103.0) {
        let source = format!("{ASSUMED}, one core");
        ceilings.entry(Resource::Cpu).or_insert(Ceiling { value: 100.0, source });
    }
    ceilings
}

fn what_if(table: &LoadTable) -> Option<Resource> {
    let exceeded = |(resource, ceiling): (&Resource, &Ceiling)| {
        let passes = table.rows.iter().filter(|row| row.verdict == Some(Verdict::Pass));
        let most = passes.filter_map(|row| row.usage.get(resource)).copied().max_by(f64::total_cmp)?;
        (ceiling.source == GIVEN && most > EXCEEDED_FROM * ceiling.value).then_some(*resource)
    };
    table.ceilings.iter().filter(|_| table.elsewhere).find_map(exceeded)
}

/// Usage falls short of the line by most of what it should have grown by since the last sound load.
fn is_flat(fit: &Fit, last: f64, load: f64, used: f64) -> bool {
    let (expected, step) = (fit.line.at(load), fit.line.slope * (load - last));
    let short = expected - used;
    let noise = 3.0 * fit.scatter.unwrap_or(0.0);
    fit.line.slope > 0.0 && short > 0.6 * step && short > noise && short > 0.03 * expected
}

/// The load from which on CPU, disk or network stays flat, with at least three loads below it.
fn bend(table: &LoadTable) -> Option<f64> {
    let loads = table.loads();
    let step = (loads.len() / BENDS_MAX).max(1);
    let (mut bend, mut from) = (None, loads.len());
    for resource in [Resource::Cpu, Resource::Disk, Resource::Network] {
        let all = points(table.rows.iter(), resource);
        let found = (3..from).step_by(step).find(|&index| {
            let below: Vec<_> = all.iter().copied().filter(|(load, _)| *load < loads[index]).collect();
            let above = all.iter().filter(|(load, _)| *load >= loads[index]);
            let flat = |fit: &Fit| {
                above.clone().count() > 0
                    && above.clone().all(|(load, used)| is_flat(fit, loads[index - 1], *load, *used))
            };
            Fit::through(&below).is_some_and(|fit| fit.scatter.is_some() && flat(&fit))
        });
        if let Some(index) = found {
            (bend, from) = (Some(loads[index]), index);
        }
    }
    bend
}
