//! The order in which a repetition goes through the variants of a run.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The fact of a run's environment that asks for [`random_blocks`]. A continued run finds it there.
pub const FACT: &str = "trial_order";
const SEED: &str = "random_blocks_seed";
/// Seeds of neighbouring runs differ by small numbers; those of their blocks must not be the same.
const BLOCK_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The value of [`FACT`] for blocks of two repetitions: a random order, and the same backwards. A drift falls
/// on all variants alike, as it does without, and a disturbance with the period of a block favours none.
pub fn random_blocks(seed: u64) -> Value {
    json!({ SEED: seed })
}

/// Indices of the variants in the order of a repetition, which is counted from 1. Without the fact, every
/// other repetition goes through them backwards, so that a drift favours none of them.
pub(crate) fn of_repetition(
    environment: &BTreeMap<String, Value>,
    repetition: u32,
    variants: usize,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..variants).collect();
    if let Some(seed) = environment.get(FACT).and_then(|fact| fact[SEED].as_u64()) {
        let block = u64::from(repetition.saturating_sub(1) / 2);
        let seed = seed.wrapping_add(block.wrapping_mul(BLOCK_STEP));
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
    }
    if repetition.is_multiple_of(2) {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(environment: &BTreeMap<String, Value>, repetitions: u32) -> Vec<Vec<usize>> {
        (1..=repetitions).map(|at| of_repetition(environment, at, 3)).collect()
    }

    #[test]
    fn every_other_repetition_goes_backwards() {
        let orders = all(&BTreeMap::new(), 3);
        assert_eq!(orders, [vec![0, 1, 2], vec![2, 1, 0], vec![0, 1, 2]]);
    }

    #[test]
    fn blocks_are_in_random_orders_that_their_seed_repeats() {
        let environment = |seed: u64| BTreeMap::from([(FACT.to_owned(), random_blocks(seed))]);
        let orders = all(&environment(7), 200);
        for block in orders.chunks(2) {
            let mut backwards = block[1].clone();
            backwards.reverse();
            assert_eq!(block[0], backwards);
        }
        // Each variant is first in about a third of the blocks; of 100, 3 standard deviations are 14.
        for variant in 0..3 {
            let first = orders.iter().step_by(2).filter(|order| order[0] == variant).count();
            assert!((19..=48).contains(&first), "{variant} is first in {first} of 100 blocks");
        }
        assert_eq!(orders, all(&environment(7), 200));
        assert_ne!(orders, all(&environment(8), 200));
    }
}
