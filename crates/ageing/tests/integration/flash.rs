//! A flash disk's procedure on disk images.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ageing::flash::{FlashReport, bring_to_steady_state};
use ageing::{AgeingError, Monitor};
use sys::disk::FileSystem;
use sys::proc::{BlockDeviceReader, block_device_of_path};

use crate::fresh;

fn run(dir: &Path) -> Result<FlashReport, AgeingError> {
    let written_bytes = AtomicU64::new(0);
    let monitor = Monitor { is_stopped: &|| false, written_bytes: &written_bytes, say: &|_| {} };
    let report = bring_to_steady_state(dir, 1, &monitor)?;
    assert_eq!(written_bytes.load(Ordering::Relaxed), report.written_bytes());
    Ok(report)
}

fn names(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn written_bytes_are_those_that_the_disk_counts_and_nothing_stays() {
    let Some(fresh) = fresh(FileSystem::Ext4, 512) else { return };
    let dir = fresh.disk.target();
    let device = block_device_of_path(Path::new("/"), dir).unwrap().expect("a loop device");
    let mut disk = BlockDeviceReader::open(&device).unwrap();
    let before = disk.read().unwrap();
    let report = run(dir).unwrap();
    let after = disk.read().unwrap();

    let (ours, counted) = (report.written_bytes(), after.written_bytes - before.written_bytes);
    // The file system's own data, such as its journal, come on top.
    assert!((ours..=ours + ours / 20).contains(&counted), "{ours} B, by the disk {counted} B");
    let passes = ours as f64 / report.capacity_bytes as f64;
    assert!((2.0..=3.9).contains(&passes), "{passes}");
    assert!(report.sequential.bytes as f64 > 0.89 * report.capacity_bytes as f64, "{report:?}");
    assert!(report.rounds.iter().all(|round| round.bytes == report.rounds[0].bytes), "{report:?}");
    assert!(report.is_steady || report.rounds.len() == 30, "{report:?}");
    assert_eq!(names(dir), ["lost+found"]);
}

#[test]
fn disks_that_are_too_small_or_no_disks_are_refused() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let error = run(memory.path()).unwrap_err().to_string();
    assert!(error.contains("O_DIRECT") || error.contains("MiB free"), "{error}");
    assert!(names(memory.path()).is_empty());
    let Some(fresh) = fresh(FileSystem::Ext4, 64) else { return };
    let error = run(fresh.disk.target()).unwrap_err();
    assert!(error.to_string().contains("a larger file system"), "{error}");
}

#[test]
fn full_file_system_is_said_to_be_full() {
    let Some(fresh) = fresh(FileSystem::Ext4, 512) else { return };
    let dir = fresh.disk.target();
    let written_bytes = AtomicU64::new(0);
    // Another program takes the space as soon as writing has begun.
    let take = |line: &str| {
        if line.contains("in order") {
            let other = std::fs::File::create_new(dir.join("other")).unwrap();
            assert!(sys::file::reserve(&other, 0, 200 << 20, false).unwrap());
        }
    };
    let monitor = Monitor { is_stopped: &|| false, written_bytes: &written_bytes, say: &take };
    let error = bring_to_steady_state(dir, 1, &monitor).unwrap_err().to_string();
    assert!(error.contains("became full") && error.contains("something else writes there"), "{error}");
    let mut left = names(dir);
    left.sort();
    assert_eq!(left, ["lost+found", "other"]);
}

#[test]
fn it_ends_soon_after_its_stop_and_deletes_its_file() {
    let Some(fresh) = fresh(FileSystem::Ext4, 512) else { return };
    let dir = fresh.disk.target();
    // The first pass, and the rounds.
    for from_bytes in [100 << 20, 500 << 20] {
        let (stop, written_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        let (result, took) = std::thread::scope(|scope| {
            let (stop, written_bytes) = (&stop, &written_bytes);
            let thread = scope.spawn(move || {
                let is_stopped = || stop.load(Ordering::Relaxed);
                bring_to_steady_state(
                    dir,
                    1,
                    &Monitor { is_stopped: &is_stopped, written_bytes, say: &|_| {} },
                )
            });
            while written_bytes.load(Ordering::Relaxed) < from_bytes && !thread.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            let stopped = Instant::now();
            (thread.join().unwrap(), stopped.elapsed())
        });
        assert!(matches!(result, Err(AgeingError::Stopped)), "{result:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert_eq!(names(dir), ["lost+found"]);
    }
}
