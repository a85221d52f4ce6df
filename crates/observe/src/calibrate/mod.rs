//! Measures how much of each resource this host has, by using all of it for a short time.
//!
//! Every measurement has a deadline, is made several times, and its source states how it was made. A
//! resource that could not be measured is absent, with a line that says why. A ceiling found here holds for
//! the way it was measured; a workload with another pattern may meet a lower one.

mod cpu;
mod disk;
mod loopback;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;

use base::outcome::{Ceiling, Resource};
use base::part::Watch;
use base::statistics::median;
use sys::clock::monotonic_ns;

use crate::sampler::{Quantity, Snapshot, Sources, rates};

pub use cpu::cpu;
pub use disk::disk_read;
pub use loopback::loopback;

/// How often disk and memory are measured; the median counts.
const REPEATS: usize = 3;
/// Larger than the caches of most machines.
const MEMORY_BUFFER_BYTES: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The kernel refused a call.
    #[error(transparent)]
    Sys(#[from] sys::Error),
    #[error(transparent)]
    Net(#[from] sys::net::NetError),
    #[error("{action} {path}: {source}; choose another directory, or free some space")]
    File { action: &'static str, path: String, source: std::io::Error },
    /// There is nothing to measure, or too little was measured for a number.
    #[error("{0}")]
    NotMeasured(String),
    #[error("the calibration was stopped before its end; run it again")]
    Stopped,
}

/// Finds the ceilings of CPU, disk and loopback, a few seconds each. `directory` lies on the file system that
/// is to be measured and takes a file of up to 256 MiB, which is removed afterwards. `say` gets what is being
/// done; `stopped` is polled often.
pub fn all(
    directory: &Path,
    say: &mut dyn FnMut(&str),
    stopped: &dyn Fn() -> bool,
) -> BTreeMap<Resource, Ceiling> {
    let mut ceilings = BTreeMap::new();
    let mut noise = Noise::listen();
    let mut keep = |resource, found: Result<Ceiling, CalibrateError>, say: &mut dyn FnMut(&str)| match found {
        Ok(mut ceiling) if resource != Resource::Cpu => {
            if let Some(percent) = noise.heard() {
                say(&format!(
                    "{resource}: other programs used {percent:.0} % of a core meanwhile; there may be more"
                ));
                ceiling.source += &format!(", while other programs used {percent:.0} % of a core");
            }
            ceilings.insert(resource, ceiling);
        }
        Ok(ceiling) => {
            ceilings.insert(resource, ceiling);
        }
        Err(CalibrateError::Stopped) => {}
        Err(error) => say(&format!("{resource}: not calibrated: {error}")),
    };
    keep(Resource::Cpu, cpu(Path::new("/")), say);
    keep(Resource::Disk, disk_read(directory, say, stopped), say);
    keep(Resource::Network, loopback(directory, say, stopped), say);
    if !stopped() {
        let rate = memory_copy_bytes_per_s();
        say(&format!("memory: one core copies {:.1} GB/s", rate / 1e9));
    }
    ceilings
}

/// From this much of a core on, other programs make a ceiling look lower than it is.
const NOISE_LEAST_PERCENT: f64 = 20.0;

/// CPU use of other programs while a ceiling is measured.
struct Noise {
    sources: Sources,
    since: Snapshot,
}

impl Noise {
    fn listen() -> Self {
        let mut sources = Sources::open(Path::new("/"), &Watch::default());
        let since = sources.read();
        Self { sources, since }
    }

    /// CPU time of other programs since the last call, in % of one core; `None` if it is too little to
    /// matter, or unknown.
    fn heard(&mut self) -> Option<f64> {
        let now = self.sources.read();
        let percent = rates(&self.since, &now).get(Quantity::OtherCpu);
        self.since = now;
        percent.filter(|percent| *percent >= NOISE_LEAST_PERCENT)
    }
}

/// Bytes that one core copies per second from one buffer of 64 MiB to another, median of 3; about 0.1 s. A
/// server that copies its content spends at least that.
pub fn memory_copy_bytes_per_s() -> f64 {
    let from = vec![1u8; MEMORY_BUFFER_BYTES];
    // Not zeros: the pages must exist before the clock runs.
    let mut to = vec![2u8; MEMORY_BUFFER_BYTES];
    let mut rates = [0.0; REPEATS];
    for rate in &mut rates {
        let started_ns = monotonic_ns();
        to.copy_from_slice(black_box(&from));
        black_box(&to);
        let elapsed_ns = monotonic_ns().saturating_sub(started_ns).max(1);
        *rate = MEMORY_BUFFER_BYTES as f64 * 1e9 / elapsed_ns as f64;
    }
    median(&rates).expect("REPEATS is not 0")
}

/// The spread of repeated values, to be read beside their median.
fn spread_percent(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    if most > 0.0 { 100.0 * (most - least) / most } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_relative_to_the_maximum() {
        assert_eq!(spread_percent(&[4.0, 5.0, 3.0]), 40.0);
        assert_eq!(spread_percent(&[]), 0.0);
    }
}
