//! Content as files: a failed or stopped write leaves no partial file. Four tests write to memory or
//! /dev/full.

use crate::common;
use common::{go_on, spec_named};
use mpegts::{
    Codec, ContentError, ContentSpec, IndexError, clear_parts, index_file, index_path, load_index, make_file,
    save_index, write_content,
};
use proptest::prelude::*;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("a directory")
        .map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn make_file_leaves_content_and_index_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.ts");
    let index = make_file(&spec_named("small mpeg2"), &path, &mut go_on).expect("content");
    assert_eq!(names(directory.path()), ["a.ts", "a.ts.kgi"]);
    assert_eq!(fs::metadata(&path).expect("there").len(), index.total_bytes());
}

#[test]
fn stop_keeps_the_previous_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.ts");
    let old = make_file(&spec_named("small mpeg2"), &path, &mut go_on).expect("content");
    let mut calls = 0;
    let stopped = make_file(&spec_named("small h264"), &path, &mut |_| {
        calls += 1;
        if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(ContentError::Stopped)));
    assert_eq!(names(directory.path()), ["a.ts", "a.ts.kgi"]);
    assert_eq!(load_index(&path).expect("the old one"), old);
}

#[test]
fn leftover_is_overwritten_unless_locked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.ts");
    let part = directory.path().join("a.ts.part");
    fs::write(&part, vec![7; 5_000_000]).expect("written");
    let other = fs::File::open(&part).expect("open");
    other.lock().expect("locked");
    let busy = make_file(&spec_named("small mpeg2"), &path, &mut go_on);
    assert!(matches!(busy, Err(ContentError::Busy { .. })));
    assert_eq!(fs::metadata(&part).expect("there").len(), 5_000_000);
    drop(other);
    make_file(&spec_named("small mpeg2"), &path, &mut go_on).expect("content");
    assert_eq!(names(directory.path()), ["a.ts", "a.ts.kgi"]);
    assert!(load_index(&path).is_ok());
}

#[test]
fn clear_parts_removes_only_abandoned_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    for name in ["a.ts", "b.ts", "a.ts.part", "b.ts.kgi.part", "c.ts.part"] {
        fs::write(path(name), "x").expect("written");
    }
    let other = fs::File::open(path("c.ts.part")).expect("open");
    other.lock().expect("locked");
    clear_parts(directory.path());
    assert_eq!(names(directory.path()), ["a.ts", "b.ts", "c.ts.part"]);
    assert_eq!(fs::read_to_string(path("c.ts.part")).expect("there"), "x");
    clear_parts(&path("nowhere"));
}

/// A file system of 1 MiB, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "kagiri-test"])
            .arg(directory.path())
            .output();
        if mounted.is_ok_and(|o| o.status.success()) {
            return Some(Self(directory));
        }
        features::skip("needs root to mount a small disk");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn full_disk_is_reported_and_nothing_remains() {
    let Some(disk) = SmallDisk::new() else { return };
    let path = disk.0.path().join("a.ts");
    let error = make_file(&spec_named("hd mpeg2"), &path, &mut go_on).expect_err("full");
    assert!(matches!(error, ContentError::DiskFull { total_bytes: 12_500_000, .. }), "{error}");
    assert!(error.to_string().contains("a.ts") && error.to_string().contains("free some space"), "{error}");
    assert!(names(disk.0.path()).is_empty());
}

#[test]
fn full_device_is_a_write_error() {
    let Ok(mut full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let error = write_content(&spec_named("small mpeg2"), &mut full, &mut go_on).expect_err("full");
    assert!(matches!(error, ContentError::Io { action: "write", .. }), "{error}");
}

#[test]
fn missing_directory_and_file_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let nowhere = directory.path().join("nowhere").join("a.ts");
    let error = make_file(&spec_named("small mpeg2"), &nowhere, &mut go_on).expect_err("no directory");
    assert!(error.to_string().contains("cannot create") && error.to_string().contains("nowhere"), "{error}");
    let error = index_file(&nowhere, &mut go_on).expect_err("no file");
    assert!(error.to_string().contains("cannot open"), "{error}");
    let error = load_index(&nowhere).expect_err("no index");
    let ContentError::File { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn index_of_other_content_is_rejected() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.ts");
    let index = make_file(&spec_named("small mpeg2"), &path, &mut go_on).expect("content");
    let mut bytes = fs::read(&path).expect("content");
    bytes.truncate(bytes.len() - 188);
    fs::write(&path, bytes).expect("written");
    let error = load_index(&path).expect_err("stale");
    assert!(
        matches!(error, ContentError::Stale { .. }) && error.to_string().contains("kagiri content index")
    );
    fs::write(index_path(&path), b"kgi").expect("written");
    assert!(matches!(load_index(&path), Err(ContentError::Index(IndexError::Length { .. }))));
    save_index(&index, &path).expect("saved");
    assert_eq!(names(directory.path()), ["a.ts", "a.ts.kgi"]);
}

#[test]
fn too_low_rate_names_a_sufficient_one() {
    for codec in [Codec::Mpeg2, Codec::H264] {
        let spec = ContentSpec { codec, rate_bit_per_s: 300_000, duration_s: 2.0, ..Default::default() };
        let mut out = Vec::new();
        let error = write_content(&spec, &mut out, &mut go_on).expect_err("too low");
        assert!(out.is_empty(), "refused before the first byte");
        let ContentError::RateTooLow { least_bit_per_s, .. } = error else { panic!("{error}") };
        let enough = ContentSpec { rate_bit_per_s: least_bit_per_s, duration_s: 20.0, ..spec };
        let index = write_content(&enough, &mut out, &mut go_on).expect("enough");
        let off = index.total_bytes().abs_diff(enough.total_bytes()) as f64 / enough.total_bytes() as f64;
        assert!(off < 1e-3, "{codec}: off by {off}");
    }
}

#[test]
fn progress_rises_to_the_end() {
    let spec = spec_named("hd mpeg2");
    let mut seen = Vec::new();
    let index = write_content(&spec, &mut Vec::new(), &mut |p| {
        seen.push(p);
        ControlFlow::Continue(())
    })
    .expect("content");
    assert!(seen.windows(2).all(|w| w[0].bytes_done < w[1].bytes_done));
    let last = seen.last().expect("called");
    assert_eq!((last.bytes_done, last.frames_done), (index.total_bytes(), 100));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_specification_is_met_or_rejected(
        (codec, mode, rate) in (0..3_usize, 0..2_usize, 1_000..40_000_000_u64),
        (width, height, fps) in (30..100_u32, 30..100_u32, 0..8_usize),
        (duration_s, seed) in (0.0..6.0, any::<u64>()),
    ) {
        use mpegts::{FrameRate, RateMode};
        let spec = ContentSpec {
            codec: [Codec::Mpeg2, Codec::H264, Codec::Hevc][codec],
            mode: [RateMode::Vbr, RateMode::Cbr][mode],
            rate_bit_per_s: rate,
            duration_s,
            frame_rate: FrameRate::NAMED[fps],
            width: width * 2,
            height: height * 2,
            seed,
        };
        let mut bytes = Vec::new();
        let Ok(index) = write_content(&spec, &mut bytes, &mut go_on) else { return Ok(()) };
        prop_assert_eq!(bytes.len() as u64, index.total_bytes());
        prop_assert_eq!(index.frame_count() as u64, u64::from(spec.frames()));
        // To three packets and 0.1 %.
        let total = spec.total_bytes();
        let off = index.total_bytes().abs_diff(total) as f64;
        prop_assert!(off <= 600.0 + total as f64 * 1e-3, "off by {} of {}", off, total);
        // The same specification makes the same bytes.
        let mut again = Vec::new();
        write_content(&spec, &mut again, &mut go_on).expect("as before");
        prop_assert!(bytes == again);
    }
}
