//! Trials of candidates: what they decide.

use serde::Serialize;

use crate::statistics::{change, detectable, hodges_lehmann, holm, interval, log_ratios, probability};

/// A smaller change is not worth a setting that differs from the kernel's.
pub const EFFECT_MIN: f64 = 0.05;
/// The level of all tests of a stage together.
const LEVEL: f64 = 0.05;

/// Values of the tests' blocks, and how many blocks had a trial without a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    /// For each block, the geometric mean of each variant's two trials.
    pub values: Vec<Vec<f64>>,
    pub left_out: usize,
}

/// Blocks of two repetitions each: the engine goes through the variants in a random order in the first and in
/// its reverse in the second, so that a steady drift falls on all variants alike. `repetitions`: for each
/// repetition, in their order, the value of each variant; `None`: its trial is not usable.
pub fn blocks(repetitions: &[Vec<Option<f64>>]) -> Blocks {
    let pairs: Vec<&[Vec<Option<f64>>]> = repetitions.chunks_exact(2).collect();
    let block = |pair: &&[Vec<Option<f64>>]| -> Option<Vec<f64>> {
        let both = pair[0].iter().zip(&pair[1]);
        both.map(|(one, other)| Some((one.as_ref()? * other.as_ref()?).sqrt())).collect()
    };
    let values: Vec<Vec<f64>> = pairs.iter().filter_map(block).collect();
    Blocks { left_out: pairs.len() - values.len(), values }
}

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Higher,
    Lower,
}

/// What the blocks show of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Better,
    Worse,
    /// No difference was found; one of `detectable_change` would have been.
    NoDifference,
    /// The blocks could not have shown any difference.
    Undecided,
}

/// A candidate against the current settings, in one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub verdict: Verdict,
    /// Hodges-Lehmann, as a share: -0.2 for 20 % less than with the current settings.
    pub change: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// Of the randomisation test, after Holm.
    pub probability: f64,
    /// The smallest change for the better that would have been found in 80 % of such runs.
    pub detectable_change: Option<f64>,
    pub blocks: usize,
}

/// Values of one metric: for each block and variant (the current settings first) the mean of its trials.
/// Candidates are compared with variant 0. `None`: a block has another number of variants.
pub fn compare(blocks: &[Vec<f64>], better: Better, seed: u64) -> Option<Vec<Comparison>> {
    let candidates = blocks.first()?.len().checked_sub(1)?;
    if blocks.iter().any(|block| block.len() != candidates + 1) {
        return None;
    }
    let differences: Vec<Option<Vec<f64>>> = (1..=candidates)
        .map(|at| log_ratios(&blocks.iter().map(|block| (block[0], block[at])).collect::<Vec<_>>()))
        .collect();
    let probabilities: Vec<f64> =
        differences.iter().map(|one| one.as_ref().map_or(1.0, |one| probability(one, seed))).collect();
    let adjusted = holm(&probabilities);
    let judge = |(one, probability): (&Option<Vec<f64>>, f64)| match one {
        Some(one) => comparison(one, probability, candidates, better, seed),
        None => Comparison {
            verdict: Verdict::Undecided,
            change: None,
            interval: None,
            probability,
            detectable_change: None,
            blocks: blocks.len(),
        },
    };
    Some(differences.iter().zip(adjusted).map(judge).collect())
}

fn comparison(differences: &[f64], probability: f64, tests: usize, better: Better, seed: u64) -> Comparison {
    let estimate = hodges_lehmann(differences);
    let interval = interval(differences, seed);
    let detectable = detectable(differences, tests);
    let excludes_none = interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0);
    let change_seen = estimate.map(change);
    let is_large = change_seen.is_some_and(|change| change.abs() > EFFECT_MIN);
    let is_different = excludes_none && is_large && probability <= LEVEL;
    let verdict = match (is_different, change_seen) {
        (true, Some(change)) if (change > 0.0) == (better == Better::Higher) => Verdict::Better,
        (true, _) => Verdict::Worse,
        (false, _) if detectable.is_none() => Verdict::Undecided,
        (false, _) => Verdict::NoDifference,
    };
    Comparison {
        verdict,
        change: change_seen,
        interval: interval.map(|ends| ends.map(change)),
        probability,
        // No smaller change is ever called a difference.
        detectable_change: detectable.map(|one| match better {
            Better::Higher => change(one).max(EFFECT_MIN),
            Better::Lower => change(-one).min(-EFFECT_MIN),
        }),
        blocks: differences.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::normal;

    /// A simulated run: noise of a share `scatter`, a drift over time, and candidates with an effect.
    fn series(count: usize, effects: &[f64], scatter: f64, random: &mut fastrand::Rng) -> Vec<Vec<f64>> {
        let drift = 0.02 * normal(random);
        let mut at = 0.0;
        let repetition = |number: usize| {
            let mut values = vec![None; effects.len() + 1];
            let mut order: Vec<usize> = (0..=effects.len()).collect();
            if number % 2 == 1 {
                order.reverse();
            }
            for variant in order {
                let effect = variant.checked_sub(1).map_or(0.0, |candidate| effects[candidate]);
                let noise = scatter * normal(random) + drift * at;
                at += 1.0;
                values[variant] = Some(100.0 * (1.0 + effect) * noise.exp());
            }
            values
        };
        let made = blocks(&(0..2 * count).map(repetition).collect::<Vec<_>>());
        assert_eq!((made.values.len(), made.left_out), (count, 0));
        made.values
    }

    fn found(blocks: &[Vec<f64>], seed: u64) -> Option<usize> {
        let compared = compare(blocks, Better::Lower, seed).unwrap();
        compared.iter().position(|one| one.verdict != Verdict::NoDifference)
    }

    #[test]
    fn hundred_runs_without_a_difference_have_at_most_five_false_alarms() {
        for (seed, scatter) in [(1, 0.05), (2, 0.2), (3, 0.5)] {
            let mut random = fastrand::Rng::with_seed(seed);
            let alarms = (0..100).filter(|run| {
                let blocks = series(8, &[0.0, 0.0, 0.0], scatter, &mut random);
                found(&blocks, *run).is_some()
            });
            let alarms = alarms.count();
            assert!(alarms <= 5, "{alarms} false alarms with a scatter of {scatter}");
        }
    }

    #[test]
    fn planted_difference_is_found_and_its_direction_named() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut right = 0;
        for run in 0..100 {
            let blocks = series(8, &[0.0, -0.3, 0.4], 0.15, &mut random);
            let verdicts: Vec<Verdict> =
                compare(&blocks, Better::Lower, run).unwrap().iter().map(|one| one.verdict).collect();
            assert_ne!((verdicts[1], verdicts[2]), (Verdict::Worse, Verdict::Better));
            right += usize::from(verdicts[1] == Verdict::Better && verdicts[2] == Verdict::Worse);
        }
        assert!(right >= 80, "{right} of 100");
    }

    #[test]
    fn drift_over_a_run_is_no_difference() {
        let value = |at: i32| Some((0.05 * f64::from(at)).exp());
        let repetition = |number: i32| match number % 2 {
            0 => vec![value(2 * number), value(2 * number + 1)],
            _ => vec![value(2 * number + 1), value(2 * number)],
        };
        let drifting = blocks(&(0..16).map(repetition).collect::<Vec<_>>());
        assert!(drifting.values.iter().all(|block| (block[0] / block[1] - 1.0).abs() < 1e-9));
        assert_eq!(found(&drifting.values, 1), None);
    }

    #[test]
    fn blocks_without_a_value_are_left_out_and_counted() {
        let some = vec![Some(1.0), Some(4.0)];
        let made = blocks(&[some.clone(), some.clone(), vec![None, Some(4.0)], some.clone(), some]);
        assert_eq!(made, Blocks { values: vec![vec![1.0, 4.0]], left_out: 1 });
    }

    #[test]
    fn few_blocks_are_undecided_and_say_nothing_of_a_difference() {
        let compared = compare(&[vec![1.0, 2.0], vec![1.0, 2.1]], Better::Higher, 1).unwrap();
        assert_eq!((compared[0].verdict, compared[0].detectable_change), (Verdict::Undecided, None));
        let zero = compare(&[vec![0.0, 2.0], vec![1.0, 2.1]], Better::Higher, 1).unwrap();
        assert_eq!(zero[0].verdict, Verdict::Undecided);
        assert_eq!(compare(&[vec![1.0, 2.0], vec![1.0]], Better::Higher, 1), None);
        assert_eq!(compare(&[], Better::Higher, 1), None);
    }

    #[test]
    fn no_difference_names_the_smallest_that_would_have_been_found() {
        let mut random = fastrand::Rng::with_seed(3);
        let noisy = compare(&series(8, &[0.0], 0.4, &mut random), Better::Lower, 1).unwrap();
        let quiet = compare(&series(8, &[0.0], 0.001, &mut random), Better::Lower, 1).unwrap();
        let (noisy, quiet) = (noisy[0].detectable_change.unwrap(), quiet[0].detectable_change.unwrap());
        assert!(noisy < -0.15 && quiet == -EFFECT_MIN, "{noisy} {quiet}");
    }
}
