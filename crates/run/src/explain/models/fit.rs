//! How a resource grows with load: a robust line, and the load at which it meets a ceiling.

use base::outcome::{Ceiling, Resource, Saturation};
use base::statistics::{Line, median, student_t, theil_sen};

use crate::explain::table::distinct;

/// All pairs of points are compared; more points than this are first brought together in bins.
const POINTS_MAX: usize = 400;
/// Usage this close to the ceiling (as a share of it) may already be bent by it.
const BENT: f64 = 0.03;
const CONFIDENCE: f64 = 0.95;

/// A line through what one resource used, with what its intervals need.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub line: Line,
    /// Scatter about the line, in the resource's unit; `None` with fewer than three loads.
    pub scatter: Option<f64>,
    /// Largest distance from the line, as % of the line's value at the highest load.
    pub error_percent: f64,
    /// Number of points before any binning.
    pub n: u32,
    /// Sum of squared distances of the loads from their mean.
    load_spread: f64,
    load_mean: f64,
}

impl Fit {
    /// Fit a line through `(load, usage)`; `None` unless two different loads are known.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = u32::try_from(points.len()).unwrap_or(u32::MAX);
        let points = thinned(points);
        let line = theil_sen(&points)?;
        let count = points.len() as f64;
        let load_mean = points.iter().map(|p| p.0).sum::<f64>() / count;
        let load_spread: f64 = points.iter().map(|p| (p.0 - load_mean).powi(2)).sum();
        let residuals: Vec<f64> = points.iter().map(|(x, y)| (y - line.at(*x)).abs()).collect();
        let highest = points.iter().map(|p| p.0).fold(f64::MIN, f64::max);
        let error_percent = 100.0 * residuals.iter().fold(0.0, |a: f64, b| a.max(*b))
            / line.at(highest).abs().max(f64::MIN_POSITIVE);
        let scatter = (distinct(points.iter().map(|p| p.0)).len() > 2).then(|| {
            // A robust line passes exactly through many of few points, so that their median distance is too
            // small an estimate; the root of the mean square is not, and the larger of both is taken.
            let squares: f64 = residuals.iter().map(|r| r * r).sum();
            let rms = (squares / (count - 2.0)).sqrt();
            rms.max(1.4826 * median(&residuals).unwrap_or_default())
        });
        let finite = line.slope.is_finite() && line.intercept.is_finite() && load_spread > 0.0;
        finite.then_some(Self { line, scatter, error_percent, n, load_spread, load_mean })
    }

    /// The factor of Student's t for this fit's number of points.
    fn t(&self) -> Option<f64> {
        student_t(CONFIDENCE, self.line.n as f64 - 2.0)
    }

    pub fn slope_interval(&self) -> Option<[f64; 2]> {
        let half = self.t()? * self.scatter? / self.load_spread.sqrt();
        Some([self.line.slope - half, self.line.slope + half])
    }

    /// Whether the slope exceeds twice its standard error: another one is noise, and predicts nothing.
    pub fn rises(&self) -> bool {
        let error = self.scatter.unwrap_or(0.0) / self.load_spread.sqrt();
        self.line.slope > 2.0 * error
    }

    /// The load at which the line meets `ceiling`; `None` for a line that does not rise.
    pub fn meets(&self, ceiling: f64) -> Option<f64> {
        let load = (ceiling - self.line.intercept) / self.line.slope;
        (self.rises() && load.is_finite()).then_some(load.max(0.0))
    }

    /// 95 % interval of the load at which the line meets `ceiling`: Fieller's theorem (1954), as in inverse
    /// regression. `None` where the slope is not surely above zero: the interval then has no end.
    pub fn meets_interval(&self, ceiling: f64) -> Option<[f64; 2]> {
        let (load, t, scatter) = (self.meets(ceiling)?, self.t()?, self.scatter?);
        let relative = t * scatter / self.line.slope;
        let g = relative.powi(2) / self.load_spread;
        if g >= 1.0 {
            return None;
        }
        let distance = load - self.load_mean;
        let n = self.line.n as f64;
        let half = relative * ((1.0 - g) / n + distance.powi(2) / self.load_spread).sqrt();
        let ends = [-half, half].map(|end| (self.load_mean + (distance + end) / (1.0 - g)).max(0.0));
        Some(ends)
    }

    pub fn saturation(&self, resource: Resource, ceiling: Option<&Ceiling>) -> Saturation {
        Saturation {
            unit: resource.unit().to_owned(),
            cost_per_load: self.line.slope,
            cost_interval: self.slope_interval(),
            usage_at_zero: self.line.intercept,
            ceiling: ceiling.cloned(),
            saturates_at: ceiling.and_then(|c| self.meets(c.value)),
            saturates_interval: ceiling.and_then(|c| self.meets_interval(c.value)),
            n: self.n,
        }
    }
}

/// Leave out the points at the ceiling, as long as three different loads remain. Usage clearly above the
/// ceiling is kept: it was not bent by a ceiling that was not there.
pub fn unbent(points: &[(f64, f64)], ceiling: Option<&Ceiling>) -> Vec<(f64, f64)> {
    let Some(ceiling) = ceiling else { return points.to_vec() };
    let free = points.iter().copied().filter(|(_, usage)| (usage / ceiling.value - 1.0).abs() > BENT);
    let free: Vec<_> = free.collect();
    if distinct(free.iter().map(|p| p.0)).len() >= 3 { free } else { points.to_vec() }
}

/// At most [`POINTS_MAX`] points: neighbours in load are replaced by their medians.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = |bin: &[(f64, f64)]| {
        let (loads, usages): (Vec<f64>, Vec<f64>) = bin.iter().copied().unzip();
        Some((median(&loads)?, median(&usages)?))
    };
    sorted.chunks(sorted.len().div_ceil(POINTS_MAX)).filter_map(middle).collect()
}
