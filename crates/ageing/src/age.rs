//! The whole procedure: fresh recordings, ageing, aged recordings.

use std::path::Path;

use sys::disk::Space;

use crate::churn::{Churn, Monitor};
use crate::readout::{self, DiskModel, READ_BYTES};
use crate::recording::{self, POOL_SHARE, Place, STEP_BYTES, Stored};
use crate::report::{Aged, AgeingReport, FreeSpace, Growth};
use crate::{AgeingError, Layout, Result, Severity};

/// Less would hold only a few recordings.
const CAPACITY_MIB_LEAST: u64 = 400;
/// The recordings that are read back take this share of the space.
const RECORDINGS_SHARE: f64 = 0.18;
const RECORDING_BYTES_MAX: u64 = 256 << 20;

/// What is aged, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ageing<'a> {
    /// An empty folder on the file system. All files are made in it, and left there.
    pub dir: &'a Path,
    pub severity: Severity,
    pub layout: Layout,
    pub seed: u64,
    /// Recordings that are made at the same time and read back.
    pub recordings: u32,
    pub model: DiskModel,
}

/// The size of each of `recordings` on a file system with `capacity_bytes` free.
pub fn recording_bytes(capacity_bytes: u64, recordings: u32) -> u64 {
    let share = (capacity_bytes as f64 * RECORDINGS_SHARE) as u64 / u64::from(recordings.max(1));
    (share / READ_BYTES * READ_BYTES).clamp(READ_BYTES, RECORDING_BYTES_MAX)
}

/// As many recordings as fit on a file system with `capacity_bytes` free: each has a read, and where space is
/// taken in steps, a step.
fn recordings_max(capacity_bytes: u64, layout: Layout) -> u64 {
    let (share, least_bytes) = match layout {
        Layout::Plain => (RECORDINGS_SHARE, READ_BYTES),
        Layout::Fallocate | Layout::ExtentSizeHint | Layout::Pool => (POOL_SHARE, STEP_BYTES),
    };
    (capacity_bytes as f64 * share) as u64 / least_bytes
}

/// Ages the file system of `ageing.dir`, which it fills nearly whole.
///
/// # Errors
/// The file system is too small, does not say where files lie, or cannot lay them out as asked; a call fails;
/// the monitor stopped it. What was written stays then, too.
pub fn age(ageing: &Ageing<'_>, monitor: &Monitor<'_>) -> Result<AgeingReport> {
    let space = sufficient_space(ageing.dir)?;
    let capacity_bytes = space.available_bytes;
    let most = recordings_max(capacity_bytes, ageing.layout);
    if u64::from(ageing.recordings) > most {
        let path = ageing.dir.to_path_buf();
        return Err(AgeingError::TooMany { path, recordings: ageing.recordings, most });
    }
    let mut place = Place::new(ageing.dir, ageing.layout, capacity_bytes)?;
    probe(&mut place)?;
    let mut churn = Churn::new(place, ageing.severity, ageing.seed, capacity_bytes, monitor);
    let (count, bytes) = (ageing.recordings as usize, recording_bytes(capacity_bytes, ageing.recordings));

    (monitor.say)(&format!("making {count} recordings of {} MiB on the fresh disk", bytes >> 20));
    let recordings = churn.record(count, bytes)?;
    let fresh = look(&churn.place, &recordings, ageing.model, monitor)?;
    for recording in &recordings {
        churn.place.remove(recording)?;
    }
    churn.place.sync()?;

    let growth = churn.run()?;
    let (files, data_bytes) = (churn.files(), churn.data_bytes());
    churn.place.sync()?;
    let free_space = sys::disk::free_pieces(ageing.dir)?.map(|pieces| FreeSpace::of(&pieces));

    (monitor.say)(&format!("making {count} recordings of {} MiB on the aged disk", bytes >> 20));
    let recordings = churn.record(count, bytes)?;
    let aged = look(&churn.place, &recordings, ageing.model, monitor)?;
    Ok(AgeingReport {
        capacity_bytes,
        used_before: space.used_share(),
        fresh,
        aged,
        growth,
        files,
        data_bytes,
        deleted_files: churn.deleted,
        free_space,
    })
}

/// Ages the file system of `dir`, an empty folder on it, and leaves what was written there. In the end at
/// least `free_bytes` are free, in the gaps between the files.
///
/// # Errors
/// As [`age`].
pub fn wear(
    dir: &Path,
    severity: Severity,
    seed: u64,
    free_bytes: u64,
    monitor: &Monitor<'_>,
) -> Result<Growth> {
    let capacity_bytes = sufficient_space(dir)?.available_bytes;
    let place = Place::new(dir, Layout::Plain, capacity_bytes)?;
    let mut churn = Churn::new(place, severity, seed, capacity_bytes, monitor);
    let growth = churn.run()?;
    churn.free(free_bytes)?;
    churn.place.sync()?;
    Ok(growth)
}

/// The space of the file system of `dir`.
///
/// # Errors
/// Too little of it is free.
pub(crate) fn sufficient_space(dir: &Path) -> Result<Space> {
    // What was deleted before is free only then.
    recording::sync(dir)?;
    let space = sys::disk::space(dir)?;
    let free_mib = space.available_bytes >> 20;
    if free_mib < CAPACITY_MIB_LEAST {
        let path = dir.to_path_buf();
        return Err(AgeingError::TooSmall { path, free_mib, least_mib: CAPACITY_MIB_LEAST });
    }
    Ok(space)
}

/// Whether the file system lays out a recording as asked, and says where it lies.
fn probe(place: &mut Place) -> Result<()> {
    let mut writing = place.begin(true)?;
    writing.append(&[0; 4096])?;
    let stored = place.finish(writing)?;
    place.locate(&stored)?;
    place.remove(&stored)
}

/// Where recordings lie, and how fast they are read.
fn look(place: &Place, recordings: &[Stored], model: DiskModel, monitor: &Monitor<'_>) -> Result<Aged> {
    let located = recordings.iter().map(|one| place.locate(one)).collect::<Result<Vec<_>>>()?;
    Ok(Aged {
        extents: located.iter().map(|one| one.extents.len() as u64).sum(),
        bytes: recordings.iter().map(Stored::len_bytes).sum(),
        modelled: readout::modelled(&located, model),
        measured: readout::measured(&located, &monitor.is_stopped)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_recordings_as_are_allowed_fit() {
        assert_eq!(recordings_max(600 << 20, Layout::Plain), 54);
        assert_eq!(recordings_max(600 << 20, Layout::Pool), 30);
        for capacity_bytes in [CAPACITY_MIB_LEAST << 20, 600 << 20, 5 << 30] {
            for layout in Layout::ALL {
                let (step_bytes, share) = match layout {
                    Layout::Plain => (1, RECORDINGS_SHARE),
                    _ => (STEP_BYTES, POOL_SHARE),
                };
                let most = recordings_max(capacity_bytes, layout);
                assert!(most >= 12, "the setting of a plan that says nothing: {most}");
                for count in 1..=most {
                    let bytes = recording_bytes(capacity_bytes, count as u32).next_multiple_of(step_bytes);
                    let all = (bytes * count) as f64;
                    assert!(all <= share * capacity_bytes as f64, "{count} of {bytes} B, {layout:?}");
                }
            }
        }
    }
}
