//! The load from which on requests take many times longer: where queues begin to grow.

use base::format;
use base::outcome::{Evidence, Resource};
use base::statistics::median;

use crate::explain::table::{LoadTable, Series};
use crate::explain::words;

/// From this multiple of its median at lower loads on a latency has bent.
const BENT: f64 = 3.0;
/// Above the bend it stays above this multiple.
const STAYS: f64 = 2.0;
/// It also exceeds the largest value at lower loads by this factor: one that grows evenly has no bend.
const ABOVE_ALL: f64 = 1.5;
/// Maximum number of loads at which a bend is searched.
const BENDS_MAX: usize = 500;

#[derive(Debug, Clone, PartialEq)]
pub struct LatencyBend {
    /// The first load at which it took so long, and the largest one at which it did not.
    pub load: f64,
    pub below: f64,
    series: Series,
    /// What it was there, and its median at lower loads.
    value: f64,
    value_below: f64,
}

impl LatencyBend {
    /// The lowest load at which a latency of the table bends, with at least two loads below it.
    pub fn of(table: &LoadTable) -> Option<Self> {
        let bends = table.latencies.iter().filter_map(|series| bend(table, series));
        bends.min_by(|a, b| a.load.total_cmp(&b.load))
    }

    /// "at 80 users p99_ms was 80 ms, 3 ms at lower loads".
    pub fn evidence(&self, load_unit: &str) -> Evidence {
        let text = |value: f64| match self.series.has_unit {
            true => format::quantity(Some(value / 1e3), "s"),
            false => format::number(value),
        };
        let statement = format!(
            "at {} {} was {}, {} at lower loads",
            words::load(self.load, load_unit),
            self.series.header,
            text(self.value),
            text(self.value_below)
        );
        let evidence = Evidence::counted(Resource::None, statement);
        let name = &self.series.counter;
        evidence.with(name.clone(), self.value).with(format!("below_{name}"), self.value_below)
    }
}

fn bend(table: &LoadTable, series: &Series) -> Option<LatencyBend> {
    let points = table.counter_by_load(&series.counter);
    let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    let found = |at: usize| {
        let usual = median(&values[..at]).filter(|usual| *usual > 0.0)?;
        let most = values[..at].iter().copied().fold(0.0, f64::max);
        let bends = values[at] >= BENT * usual
            && values[at] > ABOVE_ALL * most
            && values[at..].iter().all(|value| *value >= STAYS * usual);
        bends.then(|| LatencyBend {
            load: points[at].0,
            below: points[at - 1].0,
            series: series.clone(),
            value: values[at],
            value_below: usual,
        })
    };
    (2..points.len().min(BENDS_MAX)).find_map(found)
}
