//! Ageing of real file systems on disk images.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod flash;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ageing::readout::DiskModel;
use ageing::{Ageing, AgeingError, AgeingReport, Layout, Monitor, Severity, age};
use sys::disk::{DiskImage, FileSystem, ImageSpec};
use sys::journal::Journal;

const MODEL: DiskModel = DiskModel { seek_s: 0.012, rate_bit_per_s: 110e6 };

struct Fresh {
    disk: DiskImage,
    _folder: tempfile::TempDir,
}

/// A new file system; `None`, said, where there are no rights for it.
fn fresh(file_system: FileSystem, size_mib: u64) -> Option<Fresh> {
    if !nix::unistd::geteuid().is_root() {
        features::skip("needs root: mounts a disk image");
        return None;
    }
    // Beside the test program, which is on a disk.
    let beside = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let (image, target) = (folder.path().join("disk.img"), folder.path().join("mounted"));
    let spec = ImageSpec { image, size_bytes: size_mib << 20, file_system, target };
    Some(Fresh { disk: DiskImage::create(&journal, &spec).unwrap(), _folder: folder })
}

fn aged(dir: &Path, layout: Layout, severity: Severity, seed: u64) -> Result<AgeingReport, AgeingError> {
    let dir = dir.join(format!("aged-{seed}"));
    std::fs::create_dir(&dir).unwrap();
    let ageing = Ageing { dir: &dir, severity, layout, seed, recordings: 12, model: MODEL };
    let written_bytes = AtomicU64::new(0);
    let monitor = Monitor { is_stopped: &|| false, written_bytes: &written_bytes, say: &|_| {} };
    let report = age(&ageing, &monitor)?;
    assert!(written_bytes.load(Ordering::Relaxed) > report.growth.written_bytes, "the recordings, too");
    Ok(report)
}

/// Extents of the recordings as filefrag counts them: those after the last of the others.
fn filefrag(dir: &Path) -> u64 {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    files.sort_by_key(|path| number(path));
    let last = files.split_off(files.len() - 12);
    let output = Command::new("filefrag").args(&last).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.rsplit(": ").next().unwrap().split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[test]
fn aged_ext4_has_more_extents_than_a_fresh_one_and_filefrag_sees_them() {
    let Some(fresh) = fresh(FileSystem::Ext4, 512) else { return };
    let report = aged(fresh.disk.target(), Layout::Plain, Severity::Harsh, 7).unwrap();
    let growth = &report.growth;
    assert!(growth.written_bytes >= 2 * report.capacity_bytes, "{growth:?}");
    assert!(report.aged.extents > report.fresh.extents, "{report:?}");
    assert!(report.aged.modelled.mean_bit_per_s < report.fresh.modelled.mean_bit_per_s, "{report:?}");
    let free = report.free_space.expect("ext4 tells its free space");
    assert!(free.pieces > 1 && free.largest_bytes < report.capacity_bytes / 2, "{free:?}");
    // filefrag counts extents of the file system, of which some follow each other on the disk.
    let counted = filefrag(&fresh.disk.target().join("aged-7"));
    let ours = report.aged.extents;
    assert!((ours..=ours + ours / 5 + 12).contains(&counted), "{ours} extents, filefrag {counted}");
}

#[test]
fn ageing_is_the_same_for_a_seed() {
    let extents = |seed| {
        let fresh = fresh(FileSystem::Ext4, 512)?;
        let report = aged(fresh.disk.target(), Layout::Plain, Severity::Harsh, seed).unwrap();
        Some((report.deleted_files, report.growth.pieces_per_mib.last().unwrap().1))
    };
    let Some(((deleted, first), (deleted_again, second))) = extents(3).zip(extents(3)) else { return };
    assert_eq!(deleted, deleted_again, "the same files are written and deleted");
    // The file system decides the rest.
    assert!((first / second - 1.0).abs() <= 0.10, "{first} and {second} extents per MiB");
}

#[test]
fn pool_keeps_the_rate_of_the_fresh_disk() {
    let Some(fresh) = fresh(FileSystem::Ext4, 1024) else { return };
    let report = aged(fresh.disk.target(), Layout::Pool, Severity::Harsh, 5).unwrap();
    let (before, after) = (report.fresh.modelled.mean_bit_per_s, report.aged.modelled.mean_bit_per_s);
    assert!(after >= 0.95 * before, "{before} and {after} bit/s");
    assert!(report.growth.written_bytes >= 2 * report.capacity_bytes);
}

#[test]
fn layout_that_a_file_system_has_not_is_refused() {
    let Some(fresh) = fresh(FileSystem::Ext4, 512) else { return };
    let error = aged(fresh.disk.target(), Layout::ExtentSizeHint, Severity::Mild, 1).unwrap_err();
    assert!(error.to_string().contains("use xfs"), "{error}");
}

#[test]
fn file_systems_without_extents_and_small_ones_are_refused() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let error = aged(memory.path(), Layout::Plain, Severity::Mild, 1).unwrap_err().to_string();
    assert!(error.contains("FIEMAP") || error.contains("MiB free"), "{error}");
    let Some(fresh) = fresh(FileSystem::Ext4, 64) else { return };
    let error = aged(fresh.disk.target(), Layout::Plain, Severity::Mild, 1).unwrap_err();
    assert!(error.to_string().contains("a larger file system"), "{error}");
}

#[test]
fn too_many_recordings_are_refused_with_the_number_that_fits() {
    for layout in [Layout::Plain, Layout::Fallocate, Layout::Pool] {
        let Some(fresh) = fresh(FileSystem::Ext4, 600) else { return };
        let dir = fresh.disk.target();
        let written_bytes = AtomicU64::new(0);
        let monitor = Monitor { is_stopped: &|| false, written_bytes: &written_bytes, say: &|_| {} };
        let severity = Severity::Mild;
        let ageing = |recordings| Ageing { dir, severity, layout, seed: 1, recordings, model: MODEL };
        let error = age(&ageing(500), &monitor).unwrap_err();
        let AgeingError::TooMany { most, .. } = error else { panic!("{layout:?}: {error}") };
        assert_eq!(written_bytes.load(Ordering::Relaxed), 0);
        let report = age(&ageing(most as u32), &monitor).unwrap();
        assert!(report.used_before < 0.04, "without the 5 % that ext4 reserves: {}", report.used_before);
    }
}

#[test]
fn ageing_ends_soon_after_its_stop() {
    let Some(fresh) = fresh(FileSystem::Ext4, 512) else { return };
    let dir = fresh.disk.target().join("aged");
    std::fs::create_dir(&dir).unwrap();
    let ageing = Ageing {
        dir: &dir,
        severity: Severity::Harsh,
        layout: Layout::Plain,
        seed: 1,
        recordings: 12,
        model: MODEL,
    };
    let (stop, written_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    let result = std::thread::scope(|scope| {
        let (stop, written_bytes) = (&stop, &written_bytes);
        let thread = scope.spawn(move || {
            let is_stopped = || stop.load(Ordering::Relaxed);
            age(&ageing, &Monitor { is_stopped: &is_stopped, written_bytes, say: &|_| {} })
        });
        while written_bytes.load(Ordering::Relaxed) < 100 << 20 && !thread.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap()
    });
    assert!(matches!(result, Err(AgeingError::Stopped)), "{result:?}");
}
