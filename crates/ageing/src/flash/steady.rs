//! When a write rate is steady: the rule of SNIA's Solid State Storage Performance Test Specification.

use base::statistics::least_squares;
use serde::{Deserialize, Serialize};

/// Rounds that are looked at: the last ones.
pub const WINDOW: usize = 5;
/// The rates in the window differ by this share of their mean at most.
pub const RANGE_MAX: f64 = 0.20;
/// The straight line through the rates changes by this share of their mean at most, from the window's first
/// round to its last.
pub const DRIFT_MAX: f64 = 0.10;

/// How much the rates of the last [`WINDOW`] rounds differ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Steadiness {
    pub mean: f64,
    /// Largest less least rate, as a share of the mean.
    pub range: f64,
    /// Change of the line of least squares within the window, as a share of the mean; negative: it falls.
    pub drift: f64,
}

impl Steadiness {
    /// Of the last of these rates, one of each round; `None`: there are too few.
    pub fn from_rates(rates: &[f64]) -> Option<Self> {
        let window = &rates[rates.len().checked_sub(WINDOW)?..];
        let mean = window.iter().sum::<f64>() / WINDOW as f64;
        if mean <= 0.0 {
            return None;
        }
        let most = window.iter().copied().fold(f64::MIN, f64::max);
        let least = window.iter().copied().fold(f64::MAX, f64::min);
        let points: Vec<_> = window.iter().enumerate().map(|(round, rate)| (round as f64, *rate)).collect();
        let slope = least_squares(&points)?.slope;
        Some(Self { mean, range: (most - least) / mean, drift: slope * (WINDOW - 1) as f64 / mean })
    }

    pub fn is_steady(&self) -> bool {
        self.range <= RANGE_MAX && self.drift.abs() <= DRIFT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_steady_by_range_and_slope_of_the_last_five() {
        for (rates, is_steady, why) in [
            (&[100.0, 100.0, 100.0, 100.0][..], None, "too few rounds"),
            (&[], None, "no round"),
            (&[0.0; 5], None, "nothing was written"),
            (&[100.0; 5], Some(true), "all the same"),
            (&[900.0, 500.0, 102.0, 98.0, 100.0, 103.0, 97.0], Some(true), "earlier rounds do not count"),
            (&[100.0, 110.0, 90.0, 110.0, 100.0], Some(true), "a range of just 20 %"),
            (&[100.0, 111.0, 90.0, 111.0, 100.0], Some(false), "a range of 20.5 %"),
            (&[100.0, 100.0, 70.0, 100.0, 100.0], Some(false), "a round that is an excursion"),
            (&[105.0, 102.5, 100.0, 97.5, 95.0], Some(true), "falls by just 10 %"),
            (&[106.0, 103.0, 100.0, 97.0, 94.0], Some(false), "falls by 12 %, within a range of 12 %"),
            (&[94.0, 97.0, 100.0, 103.0, 106.0], Some(false), "rises by 12 %"),
        ] {
            let found = Steadiness::from_rates(rates);
            assert_eq!(found.map(|found| found.is_steady()), is_steady, "{why}: {found:?}");
        }
    }

    #[test]
    fn drift_has_the_sign_of_the_slope_and_mean_is_of_the_window() {
        let falling = Steadiness::from_rates(&[1000.0, 120.0, 110.0, 100.0, 90.0, 80.0]).unwrap();
        assert!((falling.mean - 100.0).abs() < 1e-9, "{falling:?}");
        assert!((falling.range - 0.4).abs() < 1e-9, "{falling:?}");
        assert!((falling.drift + 0.4).abs() < 1e-9, "{falling:?}");
    }
}
