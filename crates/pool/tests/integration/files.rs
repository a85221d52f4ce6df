//! Files come, are replaced, and go; what was committed is there when the pool is opened again.

use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};

use crate::{SEGMENT, check, content, index, pattern, put, small};
use pool::{Pool, PoolError};

#[test]
fn committed_files_are_there_after_reopening() {
    let (_dir, folder, pool) = small();
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let large = pattern(10_000, 1);
    assert!(!put(&pool, "sub/a b", &large) && !put(&pool, "empty", b"") && !put(&pool, "x", b"old"));
    assert!(put(&pool, "x", b"new"), "replaced");
    let first = pool.file("x").unwrap().version();
    assert!(!pool.remove("none").unwrap() && pool.remove("empty").unwrap() && !pool.remove("empty").unwrap());
    for _ in 0..2 {
        assert!(matches!(Pool::open(&folder), Err(PoolError::Busy { .. })), "one user at a time");
    }
    drop(pool);
    let pool = Pool::open(&folder).unwrap();
    check(&pool);
    let names: Vec<_> = pool.list().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["sub/a b", "x"]);
    assert!(content(&pool.file("sub/a b").unwrap()) == large);
    assert_eq!(content(&pool.file("x").unwrap()), b"new");
    assert_eq!(pool.free_bytes(), 4 * SEGMENT);
    pool.compact().unwrap();
    let again = pool.file("x").unwrap();
    put(&pool, "y", b"after the index was written anew");
    assert_eq!(again.version(), first);
    drop((again, pool));
    let pool = Pool::open(&folder).unwrap();
    check(&pool);
    assert_eq!((pool.list().len(), pool.file("x").unwrap().version()), (3, first));
}

#[test]
fn full_pool_refuses_and_forgets_the_upload() {
    let (_dir, _folder, pool) = small();
    put(&pool, "a", &pattern(3 * SEGMENT as usize, 2));
    let mut writer = pool.begin().unwrap();
    let error = writer.write_all(&pattern(6 * SEGMENT as usize, 3)).unwrap_err();
    assert!(error.is_full() && error.to_string().contains("no room"), "{error}");
    assert_eq!(pool.free_bytes(), 0);
    drop(writer);
    assert_eq!(pool.free_bytes(), 5 * SEGMENT);
    let mut writer = pool.begin().unwrap();
    assert!(
        writer.reserve(6 * SEGMENT).unwrap_err().is_full() && writer.reserve(u64::MAX).unwrap_err().is_full()
    );
    writer.reserve(5 * SEGMENT).unwrap();
    assert_eq!(pool.free_bytes(), 0);
    writer.write_all(b"short").unwrap();
    writer.commit("b").unwrap();
    assert_eq!(pool.free_bytes(), 4 * SEGMENT, "what was reserved and not needed is free");
    for name in ["", "/a", "a/", "a//b", "../a", ".", "a\0", &"n".repeat(256)] {
        let error = pool.begin().unwrap().commit(name).unwrap_err();
        assert!(matches!(error, PoolError::Name(_)), "{name:?}: {error}");
    }
    check(&pool);
}

#[test]
fn removed_file_keeps_its_segments_until_its_last_reader_is_gone() {
    let (_dir, _folder, pool) = small();
    let old = pattern(3 * SEGMENT as usize, 4);
    put(&pool, "a", &old);
    let reader = pool.file("a").unwrap();
    pool.remove("a").unwrap();
    assert!(pool.file("a").is_none());
    assert_eq!(pool.free_bytes(), 5 * SEGMENT);
    put(&pool, "b", &pattern(5 * SEGMENT as usize, 5));
    assert!(content(&reader) == old);
    drop(reader);
    assert_eq!(pool.free_bytes(), 3 * SEGMENT);
    check(&pool);
}

#[test]
fn pieces_lead_to_the_content_in_the_file_of_segments() {
    let (_dir, _folder, pool) = small();
    put(&pool, "first", &[1; SEGMENT as usize]);
    put(&pool, "second", &[2; SEGMENT as usize]);
    pool.remove("first").unwrap();
    let whole = pattern(7 * SEGMENT as usize - 10, 6);
    put(&pool, "a", &whole);
    let file = pool.file("a").unwrap();
    let reader = file.reader().unwrap();
    let mut read = Vec::new();
    while let Some((at, len)) = file.piece_at(read.len() as u64) {
        let mut piece = vec![0; len.min(1500) as usize];
        reader.read_exact_at(&mut piece, at).unwrap();
        read.extend(piece);
    }
    assert!(read == whole);
    let lens: u64 = file.segments().map(|(_, len)| len).sum();
    assert_eq!((file.segments().count(), lens), (7, whole.len() as u64));
    assert_eq!(file.piece_at(whole.len() as u64), None);
}

#[test]
fn folder_lists_its_own_files_only() {
    let (_dir, _folder, pool) = small();
    for name in ["a", "d/b", "d/e/c", "d0", "dd/x"] {
        put(&pool, name, b"");
    }
    let names = |folder: &str, max| -> Vec<String> {
        pool.list_folder(folder, max).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(
        (names("", 9), names("d", 9), names("", 1)),
        (vec!["a".into(), "d0".into()], vec!["b".into()], vec!["a".into()])
    );
    assert_eq!(names("none", 9), Vec::<String>::new());
    for name in ["d/e/g/h", "d/e.x", "d/z", "dd/y/z"] {
        put(&pool, name, b"");
    }
    assert_eq!(
        (pool.subfolders("", 9), pool.subfolders("", 1)),
        (vec!["d".into(), "dd".into()], vec!["d".into()])
    );
    assert_eq!((pool.subfolders("d", 9), pool.subfolders("d/e", 9)), (vec!["e".into()], vec!["g".into()]));
    assert_eq!(pool.subfolders("a", 9), Vec::<String>::new());
    for (name, is_folder) in [("d", true), ("d/e/g", true), ("a", false), ("d0", false), ("d/", false)] {
        assert_eq!(pool.has_folder(name), is_folder, "{name}");
    }
}

#[test]
fn a_pool_in_use_can_be_looked_at() {
    let (_dir, folder, pool) = small();
    put(&pool, "gone", &[1; SEGMENT as usize]);
    let whole = pattern(3 * SEGMENT as usize + 5, 7);
    put(&pool, "a", &whole[..1]);
    pool.remove("gone").unwrap();
    put(&pool, "a", &whole);
    // The start of a record that is being written.
    std::fs::OpenOptions::new().append(true).open(index(&folder)).unwrap().write_all(b"01234567 [").unwrap();
    let before = std::fs::read(index(&folder)).unwrap();
    let seen = pool::look(&folder).unwrap();
    assert_eq!(seen.files.keys().collect::<Vec<_>>(), ["a"]);
    let segments = std::fs::File::open(pool.segments_path()).unwrap();
    let mut read = Vec::new();
    for (at, len) in seen.files["a"].pieces(seen.segment_bytes) {
        let mut piece = vec![0; len as usize];
        segments.read_exact_at(&mut piece, at).unwrap();
        read.extend(piece);
    }
    assert!(read == whole);
    assert_eq!(std::fs::read(index(&folder)).unwrap(), before, "nothing is changed");
    assert!(matches!(pool::look(&folder.join("none")), Err(PoolError::Missing { .. })));
}

#[test]
fn index_stays_short_over_many_changes() {
    let (_dir, folder, pool) = small();
    for _ in 0..700 {
        put(&pool, "a", b"");
        assert!(pool.remove("a").unwrap());
    }
    let lines = std::fs::read_to_string(index(&folder)).unwrap().lines().count();
    assert!(lines < 500, "{lines} records of 1400");
    drop(pool);
    assert_eq!(Pool::open(&folder).unwrap().list().len(), 0);
}

#[test]
fn pool_whose_new_index_cannot_be_made_still_takes_changes() {
    let (_dir, folder, pool) = small();
    let in_the_way = folder.join("index.new");
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(matches!(pool.compact(), Err(PoolError::Io { .. })));
    put(&pool, "a", b"x");
    std::fs::remove_dir(&in_the_way).unwrap();
    pool.compact().unwrap();
    drop(pool);
    assert_eq!(Pool::open(&folder).unwrap().list().len(), 1);
}

#[test]
fn new_file_does_not_replace_another() {
    let (_dir, _folder, pool) = small();
    let (mut first, second) = (pool.begin().unwrap(), pool.begin().unwrap());
    first.write_all(b"first").unwrap();
    assert!(!first.commit_new("a").unwrap().replaced);
    assert!(matches!(second.commit_new("a"), Err(PoolError::NameTaken(_))));
    assert_eq!(content(&pool.file("a").unwrap()), b"first");
    check(&pool);
}
