//! How much is recorded and deleted.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// How hard a file system is aged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A recorder at home: two recordings at a time, no other files, 80 % full.
    Mild,
    /// A busy server: eight recordings at a time among small files, 95 % full.
    #[default]
    Harsh,
}

/// Sizes of recordings: log-normal about 8 MiB, within these bounds. Where there is less space than this many
/// of the largest, all are smaller by as much.
const RECORDING: RangeInclusive<u64> = MIB..=64 * MIB;
const RECORDING_MEDIAN: f64 = 8.0 * MIB as f64;
const LARGEST_MIN: u64 = 64;
/// Standard deviation of a recording's logarithmic size.
const RECORDING_SIGMA: f64 = 1.0;
/// Sizes of small files, each as likely.
const SMALL: RangeInclusive<u64> = 4 * KIB..=512 * KIB;

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Mild => "mild",
            Self::Harsh => "harsh",
        }
    }

    /// Files that are written at the same time.
    pub(crate) fn writers(self) -> usize {
        match self {
            Self::Mild => 2,
            Self::Harsh => 8,
        }
    }

    /// Share of the space that is in use.
    pub(crate) fn fill(self) -> f64 {
        match self {
            Self::Mild => 0.80,
            Self::Harsh => 0.95,
        }
    }

    /// Most files that are deleted at once.
    pub(crate) fn deleted_max(self) -> usize {
        match self {
            Self::Mild => 3,
            Self::Harsh => 11,
        }
    }

    fn small_share(self) -> f64 {
        match self {
            Self::Mild => 0.0,
            Self::Harsh => 0.6,
        }
    }

    /// The next file where `capacity_bytes` are to be filled: its size in bytes, whole blocks of 4 KiB, and
    /// whether it is a recording. `random` is the only source of chance.
    pub(crate) fn next_file(self, random: &mut fastrand::Rng, capacity_bytes: u64) -> (u64, bool) {
        let is_recording = random.f64() >= self.small_share();
        let bytes = match is_recording {
            true => {
                let scale = (capacity_bytes as f64 / (LARGEST_MIN * RECORDING.end()) as f64).min(1.0);
                let bytes = log_normal(random).clamp(*RECORDING.start(), *RECORDING.end());
                (bytes as f64 * scale) as u64
            }
            false => random.u64(SMALL),
        };
        (bytes.next_multiple_of(4 * KIB), is_recording)
    }
}

/// By Box and Muller's method.
fn log_normal(random: &mut fastrand::Rng) -> u64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
    (RECORDING_MEDIAN * (RECORDING_SIGMA * normal).exp()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_same_for_a_seed_and_of_the_announced_sizes() {
        let draw = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..2000).map(|_| Severity::Harsh.next_file(&mut random, 4 << 30)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let (mut recordings, small): (Vec<_>, Vec<_>) = draw(1).into_iter().partition(|(_, is)| *is);
        assert!((1100..1300).contains(&small.len()), "60 %, found {}", small.len());
        assert!(small.iter().all(|(bytes, _)| SMALL.contains(bytes) && bytes % (4 * KIB) == 0));
        assert!(recordings.iter().all(|(bytes, _)| RECORDING.contains(bytes)));
        recordings.sort_unstable();
        let median = recordings[recordings.len() / 2].0 as f64 / RECORDING_MEDIAN;
        assert!((0.85..1.15).contains(&median), "{median}");
        let mut random = fastrand::Rng::with_seed(1);
        let mild: Vec<_> = (0..100).map(|_| Severity::Mild.next_file(&mut random, 1 << 30)).collect();
        assert!(mild.iter().all(|(bytes, is_recording)| *is_recording && *bytes <= RECORDING.end() / 4));
    }
}
