//! Indexes that are cut off, damaged or made by an attacker.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::{SEGMENT, check, content, index, put, small};
use pool::index::{Change, Entry, encode, replay};
use pool::{Pool, PoolError};
use proptest::prelude::*;

fn put_change(name: &str, len_bytes: u64, runs: &[(u32, u32)]) -> Change {
    let file = Entry { len_bytes, mtime_ns: 0, version: 0, runs: runs.to_vec() };
    Change::Put { name: name.to_owned(), file }
}

fn pool_change() -> Change {
    Change::Pool { format: 1, segment_bytes: SEGMENT, segments: 8 }
}

fn log(records: &[Vec<Change>]) -> Vec<u8> {
    records.iter().zip(0..).flat_map(|(changes, sequence)| encode(sequence, changes).unwrap()).collect()
}

fn copy(folder: &Path) -> PathBuf {
    folder.join("index.copy")
}

/// An index and its copy.
fn write_both(folder: &Path, bytes: &[u8]) {
    std::fs::write(index(folder), bytes).unwrap();
    std::fs::write(copy(folder), bytes).unwrap();
}

#[test]
fn answered_records_that_one_index_lost_are_in_the_other() {
    let (_dir, folder, pool) = small();
    put(&pool, "a", b"first");
    put(&pool, "b", b"second");
    drop(pool);
    let whole = std::fs::read(index(&folder)).unwrap();
    assert_eq!(std::fs::read(copy(&folder)).unwrap(), whole);
    let last = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        Some(bytes)
    };
    let cut = |len: usize| Some(whole[..len].to_vec());
    // Its end was not written, as when a program is killed between the two writes; damaged within, missing.
    let unfinished = [cut(whole.len() - 1), cut(last + 9), cut(last), flipped(last + 20)];
    let severe = [flipped(20), cut(0), None];
    let losses = unfinished.iter().chain(&severe);
    for (number, lost) in losses.enumerate() {
        for (damaged, other) in [(index(&folder), copy(&folder)), (copy(&folder), index(&folder))] {
            std::fs::write(&other, &whole).unwrap();
            match lost {
                Some(bytes) => std::fs::write(&damaged, bytes).unwrap(),
                None => std::fs::remove_file(&damaged).unwrap(),
            }
            assert_eq!(pool::look(&folder).unwrap().files.len(), 2, "{number}");
            let pool = Pool::open(&folder).unwrap();
            let is_usual = damaged == copy(&folder) && number < unfinished.len();
            assert_eq!(pool.repaired().is_none(), is_usual, "{number}: {:?}", pool.repaired());
            for (name, bytes) in [("a", &b"first"[..]), ("b", b"second")] {
                assert_eq!(content(&pool.file(name).unwrap()), bytes, "{number}");
            }
            put(&pool, "c", b"third");
            pool.remove("c").unwrap();
            drop(pool);
            // Both are whole again.
            assert_eq!(std::fs::read(index(&folder)).unwrap(), std::fs::read(copy(&folder)).unwrap());
            std::fs::remove_file(&other).unwrap();
            assert_eq!(Pool::open(&folder).unwrap().list().len(), 2, "{number}");
        }
    }
    // Damage of one does not hide that the other one lost its end.
    std::fs::write(index(&folder), flipped(20).unwrap()).unwrap();
    std::fs::write(copy(&folder), cut(whole.len() - 1).unwrap()).unwrap();
    assert!(matches!(Pool::open(&folder).unwrap_err(), PoolError::Damaged { .. }));
}

#[test]
fn record_cut_off_at_any_byte_is_forgotten_whole() {
    let (_dir, folder, pool) = small();
    put(&pool, "a", b"first");
    drop(pool);
    let before = std::fs::read(index(&folder)).unwrap();
    // Two changes that hold together.
    let record = encode(2, &[put_change("b", 1, &[(3, 1)]), Change::Remove { name: "a".into() }]).unwrap();
    for cut in 0..=record.len() {
        write_both(&folder, &[&before, &record[..cut]].concat());
        let pool = Pool::open(&folder).unwrap();
        let names: Vec<_> = pool.list().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [if cut == record.len() { "b" } else { "a" }], "{cut}");
        check(&pool);
        if cut < record.len() {
            put(&pool, "c", b"behind");
            drop(pool);
            assert_eq!(content(&Pool::open(&folder).unwrap().file("c").unwrap()), b"behind");
        }
    }
    // Zeros are what some file systems show of a page that was not written.
    write_both(&folder, &[&before[..], &[0; 4096]].concat());
    assert_eq!(Pool::open(&folder).unwrap().list().len(), 1);
}

#[test]
fn damage_is_named_with_its_file_and_record() {
    let good = vec![pool_change()];
    let a = |runs: &[(u32, u32)], len| vec![put_change("a", len, runs)];
    let cases: Vec<(Vec<u8>, u64, &str)> = vec![
        (Vec::new(), 1, "does not describe"),
        (b"kagiri".to_vec(), 1, "does not describe"),
        (log(&[a(&[], 0)]), 1, "does not describe"),
        (log(&[vec![Change::Pool { format: 2, segment_bytes: SEGMENT, segments: 8 }]]), 1, "format 2"),
        (log(&[vec![Change::Pool { format: 1, segment_bytes: 1, segments: 8 }]]), 1, "multiple of 4096"),
        (
            log(&[vec![Change::Pool { format: 1, segment_bytes: SEGMENT, segments: u32::MAX }]]),
            1,
            "give 1 to",
        ),
        (log(&[good.clone(), a(&[(8, 1)], 1)]), 2, "missing or another file's"),
        (log(&[good.clone(), a(&[(u32::MAX, u32::MAX)], u64::from(u32::MAX) * SEGMENT)]), 2, "missing"),
        (log(&[good.clone(), a(&[(0, 1)], 1), vec![put_change("b", 1, &[(0, 1)])]]), 3, "another file's"),
        (log(&[good.clone(), a(&[(0, 2), (1, 1)], 3 * SEGMENT)]), 2, "another file's"),
        (log(&[good.clone(), a(&[(0, 1)], SEGMENT + 1)]), 2, "in 1 segments"),
        (log(&[good.clone(), vec![put_change("../a", 0, &[])]]), 2, "no name"),
        (log(&[good.clone(), vec![Change::Remove { name: "a".into() }]]), 2, "there is no file"),
        (log(&[good.clone(), good.clone()]), 2, "again"),
        ([log(std::slice::from_ref(&good)), encode(5, &[]).unwrap()].concat(), 2, "sequence number"),
        (
            [log(std::slice::from_ref(&good)), b"0 torn\n".to_vec(), encode(1, &[]).unwrap()].concat(),
            2,
            "records follow",
        ),
    ];
    let (_dir, folder, pool) = small();
    drop(pool);
    for (bytes, record, part) in cases {
        write_both(&folder, &bytes);
        let error = Pool::open(&folder).unwrap_err();
        let PoolError::Damaged { path, record: found, reason } = &error else { panic!("{error}") };
        assert!(*found == record && reason.contains(part) && *path == index(&folder), "{part}: {error}");
        assert_eq!(std::fs::read(index(&folder)).unwrap(), bytes, "a damaged index is left as it is");
    }
    write_both(&folder, &log(&[vec![Change::Pool { format: 1, segment_bytes: SEGMENT, segments: 9 }]]));
    assert!(Pool::open(&folder).unwrap_err().to_string().contains("announces"), "segments are missing");
}

#[test]
fn index_that_took_no_whole_record_is_shortened_before_the_next() {
    let (_dir, folder, pool) = small();
    drop(pool);
    let mut file = OpenOptions::new().append(true).open(index(&folder)).unwrap();
    file.write_all(b"12345678 [1,[{\"put\"").unwrap();
    put(&Pool::open(&folder).unwrap(), "a", b"x");
    assert_eq!(Pool::open(&folder).unwrap().list().len(), 1);
}

/// Changes of few names and segments, so that many of them are possible.
fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let name = prop::sample::select(vec!["a", "b", "c/d", ""]);
    let runs = prop::collection::vec((0..9_u32, 0..3_u32), 0..3);
    let put = (name.clone(), 0..4 * SEGMENT, runs).prop_map(|(name, len, runs)| put_change(name, len, &runs));
    let remove = name.prop_map(|name| Change::Remove { name: name.to_owned() });
    prop::collection::vec(prop::collection::vec(prop_oneof![put, remove], 0..3), 0..12)
}

proptest! {
    #[test]
    fn no_bytes_make_replay_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = replay(&bytes);
        let _ = replay(&[log(&[vec![pool_change()]]), bytes].concat());
    }

    #[test]
    fn accepted_logs_have_each_segment_once(changes in changes(), flip in any::<prop::sample::Index>()) {
        let mut bytes = log(&[&[vec![pool_change()]][..], &changes].concat());
        let verify = |bytes: &[u8]| match replay(bytes) {
            Ok(state) => {
                let runs = state.files.values().flat_map(|file| &file.runs);
                let mut all: Vec<_> = runs.flat_map(|&(first, count)| first..first + count).collect();
                let used = all.len() as u32;
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len() as u32, used);
                assert_eq!(used + state.free_segments(), state.segments);
                assert!(state.whole_bytes <= bytes.len() as u64);
            }
            Err(damage) => assert!(damage.record > 0 && !damage.reason.is_empty()),
        };
        verify(&bytes);
        let at = flip.index(bytes.len());
        bytes[at] ^= 0x10;
        verify(&bytes);
    }
}
