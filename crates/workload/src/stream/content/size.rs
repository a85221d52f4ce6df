//! The sizes of the pictures.
//!
//! A key frame is five times as large as another. In variable mode a whole group of pictures is larger or smaller
//! than the nominal rate asks, by a lognormal factor of mean 1 and sigma 0.30 (as measured on HD broadcasts for the
//! design); a fifth of the debt (or of the credit) that has come up is paid back in every group, and what is left is
//! paid evenly over the last five, so that the whole file has the nominal rate. In constant mode all is paid at once.

use super::spec::{ContentSpec, RateMode};
use super::ts::PACKET_BYTES;

/// A key frame weighs as much as this many others.
const KEY_WEIGHT: u64 = 5;
/// Sigma of the logarithm of a group's size.
const SIGMA: f64 = 0.30;
/// The share of the debt that the next group pays.
const GAIN: f64 = 0.2;
/// A group is never planned smaller or larger than this, as a share of its nominal size.
const FACTOR_RANGE: (f64, f64) = (0.25, 3.0);
/// A group can be asked to pay back (or to spend) this share of its nominal size.
const DEBT_SHARE_MAX: f64 = 0.5;

/// Plans the sizes of groups, following what was really written.
#[derive(Debug)]
pub(super) struct SizeModel {
    mode: RateMode,
    random: fastrand::Rng,
}

impl SizeModel {
    pub(super) fn new(spec: &ContentSpec) -> Self {
        Self { mode: spec.mode, random: fastrand::Rng::with_seed(spec.seed) }
    }

    /// The packets of the next group.
    ///
    /// `nominal_bytes` is what its frames should have by the rate, `debt_bytes` how much more than that was written
    /// before it, `groups_left` how many groups are to come, with this one, and `later_bytes` what those after this
    /// one should have by the rate: the last may be as short as a frame.
    pub(super) fn group_packets(
        &mut self,
        nominal_bytes: u64,
        debt_bytes: i64,
        groups_left: u64,
        later_bytes: u64,
    ) -> u64 {
        let nominal = nominal_bytes as f64;
        let (factor, gain) = match self.mode {
            RateMode::Cbr => (1.0, 1.0),
            // The last group takes what is left: with a factor of its own the whole would miss the rate.
            RateMode::Vbr if groups_left <= 1 => (1.0, 1.0),
            RateMode::Vbr => (self.lognormal(), GAIN.max(1.0 / groups_left as f64)),
        };
        let wanted = factor * nominal - gain * debt_bytes as f64;
        let bytes = match self.mode {
            RateMode::Cbr => wanted.max(0.0),
            RateMode::Vbr => {
                // What is owed after this group must be little enough for those that are left to pay.
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
pub(super) fn share(packets: u64, frames: u64, done: u64) -> u64 {
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
    fn the_whole_has_the_nominal_size_whatever_the_seed() {
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
    fn groups_vary_as_the_model_says() {
        let sizes: Vec<f64> = groups(RateMode::Vbr, 7, 5000).iter().map(|&p| (p * 188) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / 5000.0;
        let deviation = (sizes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 5000.0).sqrt() / mean;
        // sqrt(exp(0.09) - 1) = 0.307 of the factor, and a little from paying debts: x 1/sqrt(1 - 0.8^2 / ...).
        assert!((0.28..0.36).contains(&deviation), "{deviation}");
        let constant = groups(RateMode::Cbr, 7, 5000);
        assert!(constant.iter().max() <= constant.iter().min().map(|m| m + 1).as_ref());
    }

    #[test]
    fn a_key_frame_is_five_times_another() {
        let sizes: Vec<u64> = (0..12).map(|k| share(1600, 12, k + 1) - share(1600, 12, k)).collect();
        assert_eq!((sizes[0], sizes[1], sizes.iter().sum::<u64>()), (500, 100, 1600));
        assert_eq!(share(10, 1, 1), 10);
    }
}
