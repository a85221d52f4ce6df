//! Whether paired blocks of trials differ, and what difference they could have shown.
//!
//! Differences are of logarithms: a change of -20 % and its inverse, +25 %, are equally far from none, and
//! noise that grows with the value (as that of times and rates does) becomes even. Sources: Hodges and
//! Lehmann (1963) for the difference, Efron (1979) for its interval, Fisher's randomisation test for the
//! probability, Holm (1979) for several tests.

use base::statistics::{deviation, mean, median, quantile, student_t};

/// Resamples of the interval.
const RESAMPLES: usize = 2000;
/// Up to this number of blocks, all ways to exchange the two sides of a block are counted.
const EXACT_BLOCKS_MAX: usize = 14;
const RANDOM_FLIPS: u32 = 20_000;
/// Up to this number of blocks, the power of the test is simulated; above it, that of the t test is near.
const SIMULATED_BLOCKS_MAX: usize = 10;
/// Confidence of intervals; 1 - this is the level of tests.
pub const CONFIDENCE: f64 = 0.95;
/// Planned power: the share of runs in which the smallest detectable effect is found.
pub const POWER: f64 = 0.8;
/// Simulated runs for the power at one effect.
const SIMULATIONS: usize = 400;

/// Differences of logarithms, candidate minus current; `None` if a value is not above 0.
pub fn log_ratios(pairs: &[(f64, f64)]) -> Option<Vec<f64>> {
    let one = |&(current, candidate): &(f64, f64)| {
        let ratio = (candidate / current).ln();
        (current > 0.0 && candidate > 0.0 && ratio.is_finite()).then_some(ratio)
    };
    pairs.iter().map(one).collect()
}

/// The change that a difference of logarithms is, as a share: 0.25 for +25 %.
pub fn change(log_ratio: f64) -> f64 {
    log_ratio.exp_m1()
}

/// The median of the means of all pairs, each with itself, too; `None` for no difference at all. Up to 29 %
/// of the blocks may be arbitrarily wrong.
pub fn hodges_lehmann(differences: &[f64]) -> Option<f64> {
    let means = differences.iter().enumerate();
    let means = means.flat_map(|(at, one)| differences[at..].iter().map(move |other| (one + other) / 2.0));
    median(&means.collect::<Vec<_>>())
}

/// The 95 % interval of [`hodges_lehmann`] by resampling blocks (percentiles); `None` below two blocks.
pub fn interval(differences: &[f64], seed: u64) -> Option<[f64; 2]> {
    if differences.len() < 2 {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut resample = || {
        let drawn: Vec<f64> =
            differences.iter().map(|_| differences[random.usize(..differences.len())]).collect();
        hodges_lehmann(&drawn)
    };
    let estimates: Vec<f64> = (0..RESAMPLES).filter_map(|_| resample()).collect();
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Some([quantile(&estimates, tail)?, quantile(&estimates, 1.0 - tail)?])
}

/// The probability of a mean difference as far from 0 if it did not matter which side of a block is which:
/// all exchanges of sides, or for many blocks random ones. Two-sided; 1 without a block.
pub fn probability(differences: &[f64], seed: u64) -> f64 {
    let Some(seen) = mean(differences).map(f64::abs) else { return 1.0 };
    // Sums in another order differ in their last digits.
    let is_as_far = |sum: f64| sum.abs() / differences.len() as f64 >= seen * (1.0 - 1e-9);
    if differences.len() <= EXACT_BLOCKS_MAX {
        let all = 1_u32 << differences.len();
        let signed = |flips: u32| -> f64 {
            let signed = differences.iter().enumerate();
            signed.map(|(at, one)| if flips >> at & 1 == 1 { -one } else { *one }).sum()
        };
        let far = (0..all).filter(|flips| is_as_far(signed(*flips))).count();
        return far as f64 / f64::from(all);
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut signed = || differences.iter().map(|one| if random.bool() { -one } else { *one }).sum::<f64>();
    // The order that was measured is one of them.
    let far = 1 + (0..RANDOM_FLIPS).filter(|_| is_as_far(signed())).count();
    far as f64 / f64::from(RANDOM_FLIPS + 1)
}

/// Probabilities of several tests, adjusted so that the chance of any false one stays at the level of one.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut least: f64 = 0.0;
    for (place, at) in order.iter().enumerate() {
        let left = (probabilities.len() - place) as f64;
        least = least.max((probabilities[*at] * left).min(1.0));
        adjusted[*at] = least;
    }
    adjusted
}

/// The smallest difference of logarithms that this many tests of as many blocks as `differences`, with their
/// scatter, find with [`POWER`]. `None`: too few blocks to find any.
pub fn detectable(differences: &[f64], tests: usize) -> Option<f64> {
    Some(detectable_scatters(differences.len(), tests)? * deviation(differences)?)
}

/// [`detectable`] in standard deviations of the differences. `None`: with so few blocks, no difference can
/// reach the level of the tests.
pub fn detectable_scatters(blocks: usize, tests: usize) -> Option<f64> {
    let level = (1.0 - CONFIDENCE) / tests.max(1) as f64;
    // Both signs of equal blocks are the farthest.
    if blocks < 2 || (blocks < 31 && 2.0 / f64::from(1_u32 << blocks) > level) {
        return None;
    }
    let degrees = blocks as f64 - 1.0;
    let t = student_t(1.0 - level, degrees)? + student_t(2.0 * POWER - 1.0, degrees)?;
    let by_t = t / (blocks as f64).sqrt();
    if blocks > SIMULATED_BLOCKS_MAX {
        return Some(by_t);
    }
    // With few blocks the test of signs is weaker than the t distribution: simulated.
    let (mut low, mut high) = (by_t / 2.0, by_t * 4.0);
    for _ in 0..8 {
        let middle = f64::midpoint(low, high);
        match power(middle, blocks, level) >= POWER {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}

/// Share of simulated runs in which an effect, in standard deviations, is found at a level.
fn power(effect: f64, blocks: usize, level: f64) -> f64 {
    let mut random = fastrand::Rng::with_seed(1);
    let found = (0..SIMULATIONS).filter(|_| {
        let drawn: Vec<f64> = (0..blocks).map(|_| effect + normal(&mut random)).collect();
        probability(&drawn, 1) <= level
    });
    found.count() as f64 / SIMULATIONS as f64
}

/// A number of the standard normal distribution (Box and Muller 1958).
pub(crate) fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hodges_lehmann_of_known_samples() {
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 6.0]), Some(2.75));
        assert_eq!(hodges_lehmann(&[]), None);
        // One wild block moves the mean by 100 and this by little.
        assert!(hodges_lehmann(&[1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1000.0]).unwrap() < 1.2);
    }

    #[test]
    fn probabilities_are_exact_for_few_blocks() {
        assert_eq!(probability(&[1.0; 5], 1), 2.0 / 32.0);
        assert_eq!(probability(&[1.0, -1.0], 1), 1.0);
        assert_eq!(probability(&[], 1), 1.0);
        let many: Vec<f64> = (0..20).map(|at| if at % 2 == 0 { 1.0 } else { 0.9 }).collect();
        assert!(probability(&many, 1) < 1e-3);
    }

    #[test]
    fn holm_keeps_the_order_and_never_exceeds_1() {
        let adjusted = holm(&[0.04, 0.01, 0.5]);
        assert_eq!(adjusted, [0.08, 0.03, 0.5]);
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn logarithms_of_ratios_are_symmetric() {
        let ratios = log_ratios(&[(1.0, 1.25), (1.25, 1.0)]).unwrap();
        assert!((ratios[0] + ratios[1]).abs() < 1e-12 && (change(ratios[0]) - 0.25).abs() < 1e-12);
        assert_eq!(log_ratios(&[(0.0, 1.0)]), None);
        assert_eq!(log_ratios(&[(1.0, f64::NAN)]), None);
    }

    #[test]
    fn interval_contains_the_true_difference_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut covered = 0;
        for seed in 0..200 {
            let drawn: Vec<f64> = (0..12).map(|_| 0.3 + 0.2 * normal(&mut random)).collect();
            let [low, high] = interval(&drawn, seed).unwrap();
            covered += usize::from(low <= 0.3 && 0.3 <= high);
        }
        // Percentiles of few blocks cover a little less than 95 %.
        assert!((174..=198).contains(&covered), "{covered} of 200");
        assert_eq!(interval(&[1.0], 1), None);
    }

    #[test]
    fn detectable_effect_is_found_with_the_planned_power() {
        for (blocks, tests) in [(6, 1), (8, 1), (8, 6), (12, 3)] {
            let effect = detectable_scatters(blocks, tests).unwrap();
            let level = (1.0 - CONFIDENCE) / tests as f64;
            let mut random = fastrand::Rng::with_seed(77);
            let found = (0..300).filter(|_| {
                let drawn: Vec<f64> = (0..blocks).map(|_| effect + normal(&mut random)).collect();
                probability(&drawn, 1) <= level
            });
            let found = found.count();
            assert!((210..=270).contains(&found), "{blocks} blocks, {tests} tests: {found} of 300");
        }
        // Four blocks cannot show anything: 2 of 16 exchanges are as far.
        assert_eq!(detectable_scatters(4, 1), None);
        assert!(detectable_scatters(20, 1).unwrap() < detectable_scatters(12, 1).unwrap());
    }
}
