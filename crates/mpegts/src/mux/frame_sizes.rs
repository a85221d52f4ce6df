//! The sizes of the pictures.
//!
//! A key frame is five times as large as another. In variable mode the size of a group deviates from the
//! nominal rate by a lognormal factor of mean 1 and sigma 0.30 (as measured on HD broadcasts). Each group
//! compensates a fifth of the deviation (debt) so far, the last five groups the rest, so that the whole file
//! has the nominal rate. In constant mode each group compensates all of it.

use crate::mux::ts::PACKET_BYTES;
use crate::spec::{ContentSpec, RateMode};

/// A key frame weighs as much as this many others.
const KEY_WEIGHT: u64 = 5;
/// Sigma of the logarithm of a group's size.
const SIGMA: f64 = 0.30;
/// The share of the debt that the next group compensates.
const GAIN: f64 = 0.2;
/// A group is never planned smaller or larger than this, as a share of its nominal size.
const FACTOR_RANGE: (f64, f64) = (0.25, 3.0);
/// The largest share of its nominal size that a group can compensate.
const DEBT_SHARE_MAX: f64 = 0.5;

/// Plans the sizes of groups from what was written so far.
#[derive(Debug)]
pub(crate) struct SizeModel {
    mode: RateMode,
    random: fastrand::Rng,
}

impl SizeModel {
    pub(crate) fn new(spec: &ContentSpec) -> Self {
        Self { mode: spec.mode, random: fastrand::Rng::with_seed(spec.seed) }
    }

    /// The packets of the next group.
    ///
    /// `nominal_bytes` is the size of its frames by the rate, `debt_bytes` the excess written before it,
    /// `groups_left` the number of groups to come with this one, and `later_bytes` the size of those
    /// after it by the rate.
    pub(crate) fn group_packets(
        &mut self,
        nominal_bytes: u64,
        debt_bytes: i64,
        groups_left: u64,
        later_bytes: u64,
    ) -> u64 {
        let nominal = nominal_bytes as f64;
        let (factor, gain) = match self.mode {
            RateMode::Cbr => (1.0, 1.0),
            // The last group takes what is left, so that the whole has the nominal rate.
            RateMode::Vbr if groups_left <= 1 => (1.0, 1.0),
            RateMode::Vbr => (self.lognormal(), GAIN.max(1.0 / groups_left as f64)),
        };
        let wanted = factor * nominal - gain * debt_bytes as f64;
        let bytes = match self.mode {
            RateMode::Cbr => wanted.max(0.0),
            RateMode::Vbr => {
                // The remaining groups must be able to compensate the debt after this one.
                let payable = later_bytes as f64 * DEBT_SHARE_MAX;
                let even = nominal - debt_bytes as f64;
                let range = (nominal * FACTOR_RANGE.0, nominal * FACTOR_RANGE.1);
                wanted.clamp(even - payable, even + payable).clamp(range.0, range.1)
            }
        };
        (bytes / PACKET_BYTES as f64).round() as u64
    }

    /// A lognormal factor of mean 1 (Box-Muller).
    fn lognormal(&mut self) -> f64 {
        // 1 - f64() is in (0, 1]: its logarithm is finite.
        let radius = (-2.0 * (1.0 - self.random.f64()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.random.f64()).cos();
        (SIGMA * normal - SIGMA * SIGMA / 2.0).exp()
    }
}

/// The packets that the first `done` frames of a group of `frames` have together, of `packets`.
pub(crate) fn cumulative_packets(packets: u64, frames: u64, done: u64) -> u64 {
    let weight = |frames: u64| if frames == 0 { 0 } else { KEY_WEIGHT + frames - 1 };
    packets * weight(done) / weight(frames).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(mode: RateMode, seed: u64, count: u64) -> Vec<u64> {
        let spec = ContentSpec { mode, seed, ..Default::default() };
        let (mut model, mut debt) = (SizeModel::new(&spec), 0_i64);
        (0..count)
            .map(|i| {
                let packets = model.group_packets(1_500_000, debt, count - i, (count - i - 1) * 1_500_000);
                debt += (packets * 188) as i64 - 1_500_000;
                packets
            })
            .collect()
    }

    #[test]
    fn total_size_is_nominal_for_any_seed() {
        for mode in [RateMode::Vbr, RateMode::Cbr] {
            for count in [1, 2, 3, 20, 1250] {
                for seed in 0..50 {
                    let bytes = groups(mode, seed, count).iter().sum::<u64>() * 188;
                    let wanted = 1_500_000 * count;
                    let off = bytes.abs_diff(wanted) as f64 / wanted as f64;
                    assert!(off < 1e-3, "{mode} {count} groups, seed {seed}: off by {off}");
                }
            }
        }
    }

    #[test]
    fn group_sizes_follow_the_model() {
        let sizes: Vec<f64> = groups(RateMode::Vbr, 7, 5000).iter().map(|&p| (p * 188) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / 5000.0;
        let deviation = (sizes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 5000.0).sqrt() / mean;
        // sqrt(exp(0.09) - 1) = 0.307 of the factor, and a little from paying debts: x 1/sqrt(1 - 0.8^2 /
        // ...).
        assert!((0.28..0.36).contains(&deviation), "{deviation}");
        let constant = groups(RateMode::Cbr, 7, 5000);
        assert!(constant.iter().max() <= constant.iter().min().map(|m| m + 1).as_ref());
    }

    #[test]
    fn key_frame_is_five_times_another() {
        let sizes: Vec<u64> =
            (0..12).map(|k| cumulative_packets(1600, 12, k + 1) - cumulative_packets(1600, 12, k)).collect();
        assert_eq!((sizes[0], sizes[1], sizes.iter().sum::<u64>()), (500, 100, 1600));
        assert_eq!(cumulative_packets(10, 1, 1), 10);
    }
}
