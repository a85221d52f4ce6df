//! The space of a pool: reserved in whole, in one piece a segment, or not at all.

use std::os::unix::fs::MetadataExt;

use pool::{Pool, PoolError};
use sys::disk::{DiskImage, FileSystem, ImageSpec, extents_of};
use sys::journal::Journal;

use crate::{check, pattern, put, small};

#[test]
fn creation_is_refused_where_it_cannot_hold() {
    let (dir, folder, pool) = small();
    assert!(matches!(Pool::create(&folder, 1 << 20, 4096), Err(PoolError::Exists { .. })));
    let other = dir.path().join("other");
    let refused = Pool::create(&other, 1 << 62, 1 << 30).unwrap_err();
    assert!(matches!(refused, PoolError::Size(_)), "{refused}");
    for (total, segment) in [(0, 4096), (4095, 4096), (1 << 20, 0), (1 << 20, 1000)] {
        assert!(matches!(Pool::create(&other, total, segment), Err(PoolError::Size(_))), "{total} {segment}");
    }
    let full = Pool::create(&other, 1 << 49, 1 << 30).unwrap_err();
    assert!(full.is_full(), "{full}");
    assert!(!other.exists(), "nothing is left behind");
    assert!(matches!(Pool::open(&other), Err(PoolError::Missing { .. })));
    drop(pool);
    // As after a creation that was interrupted.
    std::fs::remove_file(folder.join("index")).unwrap();
    std::fs::remove_file(folder.join("index.copy")).unwrap();
    std::fs::rename(folder.join("segments"), folder.join("segments.new")).unwrap();
    assert!(matches!(Pool::open(&folder), Err(PoolError::Missing { .. })));
    assert_eq!(Pool::open_or_create(&folder, 5 * 4096, 4096).unwrap().total_bytes(), 5 * 4096);
    assert_eq!(Pool::open_or_create(&folder, 5 * 4096 + 1, 4096).unwrap().total_bytes(), 5 * 4096);
    let error = Pool::open_or_create(&folder, 6 * 4096, 4096).unwrap_err().to_string();
    assert!(error.contains("20480"), "{error}");
}

#[test]
fn segments_without_an_index_are_left_as_they_are() {
    let (_dir, folder, pool) = small();
    put(&pool, "a", &pattern(4096, 1));
    drop(pool);
    let before = std::fs::read(folder.join("segments")).unwrap();
    let saved = std::fs::read(folder.join("index")).unwrap();
    std::fs::remove_file(folder.join("index")).unwrap();
    std::fs::remove_file(folder.join("index.copy")).unwrap();
    let error = Pool::open(&folder).unwrap_err();
    assert!(matches!(error, PoolError::IndexMissing { .. }), "it must not count as an absent pool: {error}");
    for segments in [8, 5] {
        let error = Pool::open_or_create(&folder, segments * 4096, 4096).unwrap_err();
        assert!(matches!(error, PoolError::IndexMissing { .. }), "{error}");
        assert!(error.to_string().contains("restore the index"), "{error}");
    }
    assert!(std::fs::read(folder.join("segments")).unwrap() == before);
    assert!(!folder.join("segments.new").exists());
    std::fs::write(folder.join("index"), saved).unwrap();
    std::fs::rename(folder.join("segments"), folder.join("elsewhere")).unwrap();
    let error = Pool::open(&folder).unwrap_err();
    assert!(matches!(error, PoolError::SegmentsMissing { .. }), "{error}");
    std::fs::rename(folder.join("elsewhere"), folder.join("segments")).unwrap();
    assert_eq!(Pool::open(&folder).unwrap().list().len(), 1);
}

#[test]
fn space_of_an_interrupted_creation_is_used_by_the_next() {
    let work = folder_on_disk();
    let Some(disk) = new_disk(&work, FileSystem::Ext4, 64 << 20) else { return };
    let folder = disk.target().join(pool::FOLDER);
    let available = sys::disk::space(disk.target()).unwrap().available_bytes;
    let total = available * 2 / 3 / 4096 * 4096;
    std::fs::create_dir(&folder).unwrap();
    let left = std::fs::File::create(folder.join("segments.new")).unwrap();
    assert!(sys::file::reserve(&left, 0, total, true).unwrap());
    left.sync_all().unwrap();
    drop(left);
    assert_eq!(Pool::open_or_create(&folder, total, 4096).unwrap().total_bytes(), total);
    assert!(!folder.join("segments.new").exists());
}

/// Beside the test program, which is on a disk; `/tmp` may be memory.
fn folder_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

/// A file system of its own, mounted in `work`. `None`: it cannot be made here, and the test is skipped.
fn new_disk(work: &tempfile::TempDir, file_system: FileSystem, size_bytes: u64) -> Option<DiskImage> {
    if !sys::environment::is_root() {
        features::skip("needs root");
        return None;
    }
    let journal = Journal::open(&work.path().join("journal")).unwrap();
    let (image, target) = (work.path().join("disk.img"), work.path().join("mounted"));
    match DiskImage::create(&journal, &ImageSpec { image, size_bytes, file_system, target }) {
        Ok(disk) => Some(disk),
        Err(error) => {
            features::skip(&format!("{}: {error}", file_system.name()));
            None
        }
    }
}

/// Where the pieces of all segments are on the disk.
fn places(pool: &Pool) -> Vec<Vec<Option<u64>>> {
    let file = std::fs::File::open(pool.segments_path()).unwrap();
    let segments = (0..pool.total_bytes() / pool.segment_bytes()).map(|at| at * pool.segment_bytes());
    let of = |at| extents_of(&file, at, pool.segment_bytes()).unwrap().unwrap();
    segments.map(|at| of(at).iter().map(|extent| extent.disk_offset_bytes).collect()).collect()
}

#[test]
fn segments_are_contiguous_on_each_file_system() {
    const SEGMENT: u64 = 1 << 20;
    let work = folder_on_disk();
    // ext3 cannot reserve: all is written. On btrfs, copy-on-write is turned off.
    for file_system in [FileSystem::Ext4, FileSystem::Ext3, FileSystem::Btrfs] {
        let Some(disk) = new_disk(&work, file_system, 192 << 20) else { return };
        let pool = Pool::create(&disk.target().join(pool::FOLDER), 40 * SEGMENT, SEGMENT).unwrap();
        let blocks = std::fs::metadata(pool.segments_path()).unwrap().blocks();
        assert!(blocks * 512 >= 40 * SEGMENT, "{}: all of it is reserved", file_system.name());
        let before = places(&pool);
        // Again and again in place, in other segments each time.
        for round in 0..12_u8 {
            put(&pool, &format!("f{}", round % 5), &pattern((5 << 20) + 5000, round));
        }
        check(&pool);
        assert_eq!(places(&pool), before, "{}: what is rewritten stays where it was", file_system.name());
        for (name, file) in pool.list() {
            let reader = file.reader().unwrap();
            for (at, len) in file.segments() {
                let found = extents_of(&reader, at, len).unwrap().unwrap();
                let most = if file_system == FileSystem::Ext3 { 2 } else { 1 };
                assert!((1..=most).contains(&found.len()), "{name} on {}: {found:?}", file_system.name());
            }
        }
    }
}

/// Into a file that grows, ext3 puts the first blocks one by one on a large disk.
#[test]
fn first_segment_is_contiguous_on_a_large_ext3() {
    let work = folder_on_disk();
    let Some(disk) = new_disk(&work, FileSystem::Ext3, 4 << 30) else { return };
    let pool = Pool::create(&disk.target().join(pool::FOLDER), 8 * pool::SEGMENT_BYTES, pool::SEGMENT_BYTES);
    let file = std::fs::File::open(pool.unwrap().segments_path()).unwrap();
    let first = extents_of(&file, 0, pool::SEGMENT_BYTES).unwrap().unwrap();
    // The blocks that say where the others are lie between them.
    assert!(first.len() <= 6, "{} pieces", first.len());
}
