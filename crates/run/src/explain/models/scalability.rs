//! Throughput that does not grow in a straight line with load: the Universal Scalability Law (N. Gunther,
//! "Guerrilla Capacity Planning", 2007), X(N) = rate N / (1 + contention (N - 1) + coherency N (N - 1)).

use base::format;
use serde::{Deserialize, Serialize};

use crate::explain::table::LoadTable;
use crate::explain::words;

/// Fewer loads do not tell the law's three parameters from noise.
const LOADS_MIN: usize = 6;
/// By this much its AICc must be below that of a straight line (Burnham and Anderson: above 10, the other
/// model has no support), and by this much below that of a line that ends at a ceiling.
const CLEARLY: f64 = 10.0;
const RATHER: f64 = 2.0;
/// A peak beyond this many times the greatest measured load is a guess.
const FAR: f64 = 4.0;
/// Relative errors below this are as good as none.
const EXACT: f64 = 1e-6;

/// The Universal Scalability Law through the throughput of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scalability {
    /// The column, as the table names it.
    pub column: String,
    /// Throughput of a load of one, in the column's unit.
    pub rate_at_one: f64,
    /// The share of the work that only one can do at a time (queues, locks).
    pub contention: f64,
    /// The share of the work that each pair of users adds (keeping data coherent).
    pub coherency: f64,
    /// Where throughput is largest; `None` where it never falls, or beyond what the fit can tell.
    pub peak_load: Option<f64>,
    pub peak_throughput: Option<f64>,
    /// By how much the corrected Akaike information criterion is lower than that of a straight line.
    pub aicc_gain: f64,
    /// Number of loads.
    pub loads: u32,
}

impl Scalability {
    /// The law for the first throughput of the table that it fits clearly better than a straight line.
    pub fn of(table: &LoadTable) -> Option<Self> {
        table
            .throughputs
            .iter()
            .find_map(|series| Self::through(&table.counter_by_load(&series.counter), &series.header))
    }

    /// Through `(load, throughput)`, one point per load, ascending.
    fn through(points: &[(f64, f64)], column: &str) -> Option<Self> {
        if points.len() < LOADS_MIN || points.iter().any(|(load, x)| *load < 1.0 || *x <= 0.0) {
            return None;
        }
        let (law, errors) = law(points)?;
        let law_aicc = aicc(errors, points.len(), 3);
        let gain = aicc(line(points)?.1, points.len(), 2) - law_aicc;
        let capped = capped(points).map_or(f64::INFINITY, |errors| aicc(errors, points.len(), 3));
        if gain < CLEARLY || capped - law_aicc < RATHER {
            return None;
        }
        let [a, b, c] = law;
        let (contention, coherency) = (b / a, c / a);
        let greatest = points.last()?.0;
        let peak_load = Some(((1.0 - contention) / coherency).sqrt())
            .filter(|load| load.is_finite() && *load >= 1.0 && *load <= FAR * greatest);
        Some(Self {
            column: column.to_owned(),
            rate_at_one: 1.0 / a,
            contention,
            coherency,
            peak_load,
            peak_throughput: peak_load.map(|load| at(law, load)),
            aicc_gain: gain,
            loads: points.len() as u32,
        })
    }

    pub fn sentence(&self, load_unit: &str, greatest: f64) -> String {
        let percent = |share: f64| format::quantity(Some(100.0 * share), "%");
        let peak = match (self.peak_load, self.peak_throughput) {
            (Some(load), Some(most)) => {
                let beyond = if load > greatest { ", beyond the largest load measured" } else { "" };
                format!(
                    "it peaks at about {} with {} (computed{beyond})",
                    words::load(load.round(), load_unit),
                    format::number(most)
                )
            }
            _ => "it shows no peak near the measured loads".to_owned(),
        };
        format!(
            "{} bends: over {} loads the Universal Scalability Law fits clearly better than a straight line \
             (AICc lower by {}); {peak}. By that fit, {} of the work is done one at a time (locks, queues), \
             and each pair of {} adds {}.",
            self.column,
            self.loads,
            format::number(self.aicc_gain),
            percent(self.contention),
            if load_unit == "load" { "units of load" } else { load_unit },
            percent(self.coherency)
        )
    }
}

/// The law's throughput: `law` holds load over throughput as a + b (N - 1) + c N (N - 1).
fn at(law: [f64; 3], load: f64) -> f64 {
    load / (law[0] + law[1] * (load - 1.0) + law[2] * load * (load - 1.0))
}

/// The parameters with the least sum of squared relative errors among those that are not negative.
fn law(points: &[(f64, f64)]) -> Option<([f64; 3], f64)> {
    let terms: [fn(f64) -> f64; 3] = [|_| 1.0, |n| n - 1.0, |n| n * (n - 1.0)];
    let inverse: Vec<(f64, f64)> = points.iter().map(|(n, x)| (*n, n / x)).collect();
    let fits = [&[0, 1, 2][..], &[0, 1], &[0, 2]].into_iter().filter_map(|used| {
        let chosen: Vec<_> = used.iter().map(|term| terms[*term]).collect();
        let found = least_squares(&inverse, &chosen)?;
        let mut law = [0.0; 3];
        used.iter().zip(found).for_each(|(term, value)| law[*term] = value);
        let sound = law[0] > 0.0 && law.iter().all(|value| *value >= 0.0 && value.is_finite());
        sound.then(|| (law, errors(points, |n| at(law, n))))
    });
    fits.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// A straight line with its errors.
fn line(points: &[(f64, f64)]) -> Option<([f64; 2], f64)> {
    let found = least_squares(points, &[|_| 1.0, |n| n])?;
    let line = [*found.first()?, *found.get(1)?];
    Some((line, errors(points, |n| line[0] + line[1] * n)))
}

/// The errors of the best line that ends at a ceiling: a resource that is used up bends like this.
fn capped(points: &[(f64, f64)]) -> Option<f64> {
    let ends = (2..points.len()).filter_map(|at| {
        let ([base, slope], _) = line(&points[..at])?;
        let most = points[at..].iter().map(|point| point.1).sum::<f64>() / (points.len() - at) as f64;
        Some(errors(points, |n| (base + slope * n).min(most)))
    });
    ends.min_by(f64::total_cmp)
}

/// Sum of squared relative errors.
fn errors(points: &[(f64, f64)], model: impl Fn(f64) -> f64) -> f64 {
    points.iter().map(|(n, x)| (model(*n) / x - 1.0).powi(2)).sum()
}

/// The corrected Akaike information criterion of a model with so many parameters besides the scatter.
fn aicc(errors: f64, points: usize, parameters: usize) -> f64 {
    let (n, k) = (points as f64, parameters as f64 + 1.0);
    n * (errors / n).max(EXACT * EXACT).ln() + 2.0 * k + 2.0 * k * (k + 1.0) / (n - k - 1.0)
}

/// Coefficients of the terms with the least squared relative errors, by the normal equations of columns that
/// are scaled to one (Gauss-Jordan); `None` where the terms are not independent.
fn least_squares(points: &[(f64, f64)], terms: &[fn(f64) -> f64]) -> Option<Vec<f64>> {
    let mut columns: Vec<Vec<f64>> =
        terms.iter().map(|term| points.iter().map(|(x, y)| term(*x) / y).collect()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let norms: Vec<f64> = columns.iter().map(|column| dot(column, column).sqrt()).collect();
    for (column, norm) in columns.iter_mut().zip(&norms) {
        column.iter_mut().for_each(|value| *value /= norm);
    }
    let ones = vec![1.0; points.len()];
    let mut rows: Vec<Vec<f64>> = columns
        .iter()
        .map(|row| columns.iter().chain([&ones]).map(|column| dot(row, column)).collect())
        .collect();
    for at in 0..rows.len() {
        let pivot = rows[at][at];
        if !pivot.is_finite() || pivot.abs() < 1e-12 {
            return None;
        }
        rows[at].iter_mut().for_each(|value| *value /= pivot);
        let scaled = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at];
            row.iter_mut().zip(&scaled).for_each(|(value, scaled)| *value -= factor * scaled);
        }
    }
    Some(rows.iter().zip(&norms).map(|(row, norm)| row[terms.len()] / norm).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(throughput: impl Fn(f64) -> f64) -> Option<Scalability> {
        let loads = [1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0];
        // An error of up to 1 %, different at each load.
        let noisy = |(at, n): (usize, &f64)| (*n, throughput(*n) * (1.0 + 0.01 * (at as f64 * 2.4).sin()));
        Scalability::through(&loads.iter().enumerate().map(noisy).collect::<Vec<_>>(), "rps")
    }

    #[test]
    fn law_is_recovered_with_its_peak() {
        let found = fit(|n| 100.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.001 * n * (n - 1.0))).unwrap();
        // The peak lies at sqrt((1 - 0.05) / 0.001) = 30.8.
        assert!((found.peak_load.unwrap() - 30.8).abs() < 3.0, "{found:?}");
        assert!((found.rate_at_one - 100.0).abs() < 5.0, "{found:?}");
        assert!((found.contention - 0.05).abs() < 0.02, "{found:?}");
        let text = found.sentence("users", 32.0);
        assert!(text.contains("Universal Scalability Law") && text.contains("peaks at about 3"), "{text}");
    }

    #[test]
    fn straight_line_and_hard_ceiling_get_no_law() {
        assert_eq!(fit(|n| 20.0 + 100.0 * n), None);
        assert_eq!(fit(|n| (100.0 * n).min(1250.0)), None);
    }

    #[test]
    fn few_loads_get_no_law() {
        let points: Vec<_> = (1..6).map(f64::from).map(|n| (n, 100.0 * n / (1.0 + 0.1 * n * n))).collect();
        assert_eq!(Scalability::through(&points, "rps"), None);
    }
}
