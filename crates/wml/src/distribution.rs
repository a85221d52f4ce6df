//! Random variables: what is drawn for sizes, offsets and counts.

use fastrand::Rng;

/// How values are spread.
#[derive(Debug, Clone, PartialEq)]
pub enum Law {
    Uniform {
        low: f64,
        high: f64,
    },
    /// `low` plus a gamma variable.
    Gamma {
        low: f64,
        shape: f64,
        scale: f64,
    },
    /// Parts: percent, low and high; all values times `factor`.
    Table {
        parts: Vec<(u64, f64, f64)>,
        factor: f64,
    },
    Exponential {
        mean: f64,
    },
    Normal {
        mean: f64,
        sigma: f64,
    },
    /// The logarithm is normal with mean `scale` and deviation `shape`.
    LogNormal {
        shape: f64,
        scale: f64,
    },
    Weibull {
        shape: f64,
        scale: f64,
    },
    Triangular {
        lower: f64,
        upper: f64,
        mode: f64,
    },
    /// The sum of `shape` exponential variables of this rate.
    Erlang {
        shape: f64,
        rate: f64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    pub law: Law,
    /// Values are rounded to the nearest multiple; 0: not.
    pub round: u64,
    pub min: u64,
    pub max: Option<u64>,
}

impl Distribution {
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        let value = self.law.sample(rng);
        // A cast saturates: not a number is 0.
        let value = match self.round {
            0 | 1 => value as u64,
            round => ((value / round as f64).round() as u64).saturating_mul(round),
        };
        value.clamp(self.min, self.max.unwrap_or(u64::MAX).max(self.min))
    }
}

impl Law {
    fn sample(&self, rng: &mut Rng) -> f64 {
        match self {
            Self::Uniform { low, high } => low + (high - low) * rng.f64(),
            Self::Gamma { low, shape, scale } => low + scale * gamma(rng, *shape),
            Self::Table { parts, factor } => {
                let mut percent = rng.u64(0..100);
                let part = parts.iter().find(|(share, ..)| {
                    let is_here = percent < *share;
                    percent = percent.saturating_sub(*share);
                    is_here
                });
                part.or(parts.last()).map_or(0.0, |(_, low, high)| factor * (low + (high - low) * rng.f64()))
            }
            Self::Exponential { mean } => mean * exponential(rng),
            Self::Normal { mean, sigma } => mean + sigma * normal(rng),
            Self::LogNormal { shape, scale } => (scale + shape * normal(rng)).exp(),
            Self::Weibull { shape, scale } => scale * exponential(rng).powf(1.0 / shape),
            Self::Triangular { lower, upper, mode } => {
                let (width, share) = (upper - lower, rng.f64());
                if width <= 0.0 {
                    return *lower;
                }
                match share < (mode - lower) / width {
                    true => lower + (share * width * (mode - lower)).sqrt(),
                    false => upper - ((1.0 - share) * width * (upper - mode)).sqrt(),
                }
            }
            Self::Erlang { shape, rate } => gamma(rng, *shape) / rate,
        }
    }
}

/// Of mean 1.
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Standard normal: Marsaglia's polar method.
fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (u, v) = (2.0 * rng.f64() - 1.0, 2.0 * rng.f64() - 1.0);
        let square = u * u + v * v;
        if square > 0.0 && square < 1.0 {
            return u * (-2.0 * square.ln() / square).sqrt();
        }
    }
}

/// A gamma variable of scale 1 (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).
pub(crate) fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    if shape < 1.0 {
        return gamma(rng, shape + 1.0) * (1.0 - rng.f64()).powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(law: Law) -> f64 {
        let mut rng = Rng::with_seed(7);
        let all = 40_000;
        let distribution = Distribution { law, round: 0, min: 0, max: None };
        (0..all).map(|_| distribution.sample(&mut rng) as f64).sum::<f64>() / f64::from(all)
    }

    #[test]
    fn every_law_has_its_mean() {
        let table = vec![(50, 0.0, 10_000.0), (50, 30_000.0, 50_000.0)];
        for (law, right) in [
            (Law::Uniform { low: 0.0, high: 20_000.0 }, 10_000.0),
            (Law::Gamma { low: 0.0, shape: 1.5, scale: 1e4 }, 15_000.0),
            (Law::Gamma { low: 5_000.0, shape: 0.5, scale: 1e4 }, 10_000.0),
            (Law::Table { parts: table, factor: 2.0 }, 45_000.0),
            (Law::Exponential { mean: 9_000.0 }, 9_000.0),
            (Law::Normal { mean: 9_000.0, sigma: 100.0 }, 9_000.0),
            (Law::LogNormal { shape: 0.5, scale: 9.0 }, (9.0f64 + 0.125).exp()),
            (Law::Weibull { shape: 2.0, scale: 10_000.0 }, 8_862.0),
            (Law::Triangular { lower: 0.0, upper: 9_000.0, mode: 3_000.0 }, 4_000.0),
            (Law::Erlang { shape: 3.0, rate: 0.001 }, 3_000.0),
        ] {
            let seen = mean(law.clone());
            assert!((seen / right - 1.0).abs() < 0.03, "{law:?}: {seen} for {right}");
        }
    }

    #[test]
    fn values_are_rounded_and_within_their_bounds() {
        let law = Law::Normal { mean: 5_000.0, sigma: 1e6 };
        let distribution = Distribution { law, round: 512, min: 512, max: Some(10_240) };
        let mut rng = Rng::with_seed(1);
        for _ in 0..1_000 {
            let value = distribution.sample(&mut rng);
            assert!((512..=10_240).contains(&value) && value.is_multiple_of(512), "{value}");
        }
    }

    #[test]
    fn absurd_parameters_give_a_value() {
        let mut rng = Rng::with_seed(1);
        for law in [
            Law::Weibull { shape: 1e-9, scale: f64::MAX },
            Law::LogNormal { shape: 1e9, scale: 1e9 },
            Law::Table { parts: Vec::new(), factor: 1.0 },
            Law::Triangular { lower: 5.0, upper: 1.0, mode: 9.0 },
        ] {
            let _ = Distribution { law, round: 7, min: 0, max: None }.sample(&mut rng);
        }
    }
}
