//! The few statistics that kagiri needs, on slices, with what they assume.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The median; `None` for an empty slice. NaN sorts last.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The `q` quantile (0..1) by linear interpolation between order statistics (Hyndman and Fan's type 7).
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// Arithmetic mean; `None` for an empty slice.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation; `None` below two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// The two-sided critical value of Student's t; `None` without degrees of freedom.
pub fn student_t(confidence: f64, degrees: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some(distribution.inverse_cdf(0.5 + confidence / 2.0))
}

/// A straight line through points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Change of y per unit of x.
    pub slope: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// Standard error of the slope; `None` with fewer than three points.
    pub slope_error: Option<f64>,
    pub n: usize,
}

impl Line {
    /// y at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// The interval of the slope at a confidence such as 0.95.
    pub fn slope_interval(&self, confidence: f64) -> Option<[f64; 2]> {
        let half = student_t(confidence, self.n as f64 - 2.0)? * self.slope_error?;
        Some([self.slope - half, self.slope + half])
    }
}

/// Ordinary least squares; `None` unless at least two different x are known.
pub fn least_squares(points: &[(f64, f64)]) -> Option<Line> {
    let n = points.len();
    let (x_mean, y_mean) = (mean_of(points, |p| p.0), mean_of(points, |p| p.1));
    let sxx: f64 = points.iter().map(|p| (p.0 - x_mean).powi(2)).sum();
    if n < 2 || sxx <= f64::EPSILON {
        return None;
    }
    let slope = points.iter().map(|p| (p.0 - x_mean) * (p.1 - y_mean)).sum::<f64>() / sxx;
    let intercept = y_mean - slope * x_mean;
    Some(Line { slope, intercept, slope_error: slope_error(points, slope, intercept, sxx), n })
}

fn mean_of(points: &[(f64, f64)], which: fn(&(f64, f64)) -> f64) -> f64 {
    points.iter().map(which).sum::<f64>() / points.len() as f64
}

/// The slope's standard error from the residuals.
fn slope_error(points: &[(f64, f64)], slope: f64, intercept: f64, sxx: f64) -> Option<f64> {
    let rss: f64 = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum();
    (points.len() > 2).then(|| (rss / (points.len() - 2) as f64 / sxx).sqrt())
}

/// A robust line: the median of the slopes of all pairs, the median of the intercepts (Theil 1950, Sen 1968).
/// Up to 29 % of the points may be arbitrarily wrong. The slope's error is estimated from the residuals' MAD.
pub fn theil_sen(points: &[(f64, f64)]) -> Option<Line> {
    let mut slopes = Vec::new();
    for (i, a) in points.iter().enumerate() {
        slopes.extend(points[..i].iter().filter(|b| a.0 != b.0).map(|b| (a.1 - b.1) / (a.0 - b.0)));
    }
    let slope = median(&slopes)?;
    let intercept = median(&points.iter().map(|(x, y)| y - slope * x).collect::<Vec<_>>())?;
    let residuals: Vec<_> = points.iter().map(|(x, y)| (y - intercept - slope * x).abs()).collect();
    // 1.4826 turns a median absolute deviation into the standard deviation of a normal distribution.
    let scale = 1.4826 * median(&residuals)?;
    let x_mean = mean_of(points, |p| p.0);
    let sxx: f64 = points.iter().map(|p| (p.0 - x_mean).powi(2)).sum();
    let slope_error = (points.len() > 2).then(|| scale / sxx.sqrt());
    Some(Line { slope, intercept, slope_error, n: points.len() })
}

/// The trend of an evenly sampled quantity, with its slope's error widened for samples that resemble their
/// predecessors: n is replaced by n (1 - r) / (1 + r), r being the residuals' lag-one correlation (Bartlett
/// 1935).
pub fn trend(points: &[(f64, f64)]) -> Option<Line> {
    let mut line = least_squares(points)?;
    let residuals: Vec<f64> = points.iter().map(|(x, y)| y - line.at(*x)).collect();
    let all: f64 = residuals.iter().map(|r| r * r).sum();
    let lagged: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if all > 0.0 {
        let r = (lagged / all).clamp(0.0, 0.99);
        line.slope_error = line.slope_error.map(|error| error * ((1.0 + r) / (1.0 - r)).sqrt());
    }
    Some(line)
}

/// The 95 % upper bound of a rate per hour when nothing was seen in `hours` (the rule of three: Hanley and
/// Lippman-Hand, JAMA 1983).
pub fn rule_of_three_per_h(hours: f64) -> Option<f64> {
    (hours > 0.0).then(|| 3.0 / hours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_statistics_of_known_samples() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[0.0, 10.0], 0.25), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(deviation(&[2.0, 4.0]), Some(2f64.sqrt()));
    }

    #[test]
    fn student_t_agrees_with_the_printed_tables() {
        for (degrees, expected) in [(1.0, 12.706), (4.0, 2.776), (30.0, 2.042)] {
            assert!((student_t(0.95, degrees).unwrap() - expected).abs() < 2e-3);
        }
        assert_eq!(student_t(0.95, 0.0), None);
    }

    #[test]
    fn outlier_bends_least_squares_but_not_theil_sen() {
        let mut points: Vec<_> = (1..=9).map(|n| (f64::from(n), 14.0 * f64::from(n) + 1.0)).collect();
        points[8].1 = 500.0;
        assert!(least_squares(&points).unwrap().slope > 20.0);
        let robust = theil_sen(&points).unwrap();
        assert!((robust.slope - 14.0).abs() < 1e-9 && (robust.intercept - 1.0).abs() < 1e-9);
    }

    #[test]
    fn correlated_samples_count_for_less() {
        let wave: Vec<_> = (0..100).map(|i| (f64::from(i), (f64::from(i) / 15.0).sin())).collect();
        let (plain, widened) = (least_squares(&wave).unwrap(), trend(&wave).unwrap());
        assert!(widened.slope_error.unwrap() > 3.0 * plain.slope_error.unwrap());
    }

    #[test]
    fn line_needs_two_different_loads() {
        assert_eq!(least_squares(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(theil_sen(&[(1.0, 2.0)]), None);
        assert_eq!(least_squares(&[(0.0, 1.0), (2.0, 5.0)]).unwrap().slope_interval(0.95), None);
    }

    proptest! {
        #[test]
        fn exact_line_is_recovered(slope in -1e3f64..1e3, intercept in -1e3f64..1e3, n in 3usize..40) {
            let points: Vec<_> = (0..n).map(|i| (i as f64, slope * i as f64 + intercept)).collect();
            for line in [least_squares(&points).unwrap(), theil_sen(&points).unwrap()] {
                prop_assert!((line.slope - slope).abs() < 1e-6 && (line.intercept - intercept).abs() < 1e-5);
            }
        }
    }
}
