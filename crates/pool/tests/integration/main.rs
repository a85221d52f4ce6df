//! A pool on a real file system, and its index in the hands of others.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod damage;
mod files;
mod reserved;

use std::path::{Path, PathBuf};

use pool::{Pool, PoolFile};

pub const SEGMENT: u64 = 4096;

/// A folder for a pool, and the pool with eight small segments.
pub fn small() -> (tempfile::TempDir, PathBuf, Pool) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(pool::FOLDER);
    let pool = Pool::create(&folder, 8 * SEGMENT, SEGMENT).unwrap();
    (dir, folder, pool)
}

pub fn put(pool: &Pool, name: &str, content: &[u8]) -> bool {
    let mut writer = pool.begin().unwrap();
    writer.write_all(content).unwrap();
    writer.commit(name).unwrap().replaced
}

pub fn content(file: &PoolFile) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 1000];
    loop {
        match file.read_at(&mut piece, all.len() as u64).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}

/// Bytes that differ everywhere.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + (i >> 8) * 7) as u8 ^ seed).collect()
}

/// Every segment is free or in one file.
pub fn check(pool: &Pool) {
    let files = pool.list();
    let mut all: Vec<_> = files.iter().flat_map(|(_, file)| file.segments().map(|(at, _)| at)).collect();
    let count = all.len() as u64;
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, count, "a segment is in two files");
    assert_eq!(count * pool.segment_bytes() + pool.free_bytes(), pool.total_bytes());
}

pub fn index(folder: &Path) -> PathBuf {
    folder.join("index")
}
