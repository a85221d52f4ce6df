//! Linear scales and round tick values.

/// A straight mapping of values to pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    /// The values at the two ends.
    pub domain: [f64; 2],
    /// The pixels at the two ends.
    pub range: [f64; 2],
}

impl Linear {
    /// The pixel of a value; values beyond the domain are held at its ends, so that no mark leaves its panel.
    pub fn at(&self, value: f64) -> f64 {
        let [from, to] = self.domain;
        let width = to - from;
        if !value.is_finite() || width.abs() < f64::MIN_POSITIVE {
            return self.range[0];
        }
        let share = ((value - from) / width).clamp(0.0, 1.0);
        self.range[0] + share * (self.range[1] - self.range[0])
    }
}

/// Round values (1, 2 or 5 times a power of ten) that cover `[low, high]`, about `count` of them. The first
/// is at or below `low`, the last at or above `high`.
pub fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let (low, high) = match (low.is_finite(), high.is_finite()) {
        (true, true) if low < high => (low, high),
        (true, true) => (low.min(0.0), if high > 0.0 { high } else { 1.0 }),
        _ => (0.0, 1.0),
    };
    let rough = (high - low) / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = power
        * match rough / power {
            r if r <= 1.0 => 1.0,
            r if r <= 2.0 => 2.0,
            r if r <= 5.0 => 5.0,
            _ => 10.0,
        };
    // A value a rounding error above a tick does not deserve another tick.
    let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    let n = (last - first).clamp(1.0, 1000.0) as usize;
    (0..=n).map(|i| (first + i as f64) * step).collect()
}

/// A coordinate with one decimal at most.
pub fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_their_range() {
        for (low, high, count, expected) in [
            (0.0, 75.0, 4, vec![0.0, 20.0, 40.0, 60.0, 80.0]),
            (0.0, 133.0, 3, vec![0.0, 50.0, 100.0, 150.0]),
            (0.0, 2.0, 2, vec![0.0, 1.0, 2.0]),
            (-1.0, 1.0, 2, vec![-1.0, 0.0, 1.0]),
            (0.0, 0.0, 2, vec![0.0, 0.5, 1.0]),
            (f64::NAN, 3.0, 2, vec![0.0, 0.5, 1.0]),
        ] {
            let found = ticks(low, high, count);
            let same = found.len() == expected.len()
                && found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(same, "{low}..{high}: {found:?}");
        }
    }

    #[test]
    fn scale_stays_within_its_range() {
        let scale = Linear { domain: [0.0, 10.0], range: [100.0, 0.0] };
        assert_eq!([0.0, 5.0, 20.0, -3.0, f64::NAN].map(|v| scale.at(v)), [100.0, 50.0, 0.0, 100.0, 100.0]);
        assert_eq!(Linear { domain: [1.0, 1.0], range: [3.0, 9.0] }.at(1.0), 3.0);
    }
}
