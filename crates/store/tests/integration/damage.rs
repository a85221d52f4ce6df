//! What happens to the file: killed writers, full disks, damage, later versions.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{begun, run, trial};
use base::doubt::Doubt;
use base::outcome::State;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use store::{Filter, Store, StoreError};

/// Where the test below writes; unset in every other run of this binary.
const WRITER_DIR: &str = "STORE_TEST_WRITER_DIR";

/// Not a test by itself: the child that is killed.
#[test]
fn endless_writer() {
    let Some(dir) = std::env::var_os(WRITER_DIR) else { return };
    let mut store = Store::open(Path::new(&dir)).unwrap();
    store.begin(&begun("killed")).unwrap();
    for number in 1.. {
        store.add_trial("killed", &trial(number, 1.0)).unwrap();
        println!("\nstored {number}");
    }
}

#[test]
fn killed_writer_leaves_its_trials_and_an_interrupted_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["damage::endless_writer", "--exact", "--nocapture"])
        .env(WRITER_DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let fifth = lines.by_ref().map_while(Result::ok).find(|line| line == "stored 5");
    assert!(fifth.is_some(), "the writer ended early");
    let alive = Store::open(dir.path()).unwrap().load("killed").unwrap();
    assert_eq!((alive.state, alive.failure), (State::Running, None));
    child.kill().unwrap();
    child.wait().unwrap();

    let store = Store::open(dir.path()).unwrap();
    let left = store.load("killed").unwrap();
    assert!(left.trials.len() >= 5);
    for (index, found) in left.trials.iter().enumerate() {
        assert_eq!(*found, trial(index as u32 + 1, 1.0));
    }
    assert_eq!(left.state, State::Interrupted);
    assert!(left.failure.unwrap().contains(&child.id().to_string()));
    assert_eq!(left.doubts, [Doubt::Interrupted.into()]);
    let summary = store.list(&Filter::default()).unwrap().remove(0);
    assert_eq!((summary.state, summary.is_evaluated), (State::Interrupted, false));
    let light = store.load_without_series("killed").unwrap();
    assert!(light.trials.iter().all(|trial| trial.series.is_empty()));
    assert_eq!(light.trials[0].metrics, left.trials[0].metrics);
}

#[test]
fn newer_layout_is_not_modified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE run (id TEXT, all_new TEXT); PRAGMA user_version = 99").unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    let message = Store::open(dir.path()).unwrap_err().to_string();
    for part in [path.to_str().unwrap(), "layout 99", "up to 3", "newer kagiri"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no log was left beside it");
}

#[test]
fn database_of_another_program_is_not_modified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE marathon (km REAL)").unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Foreign { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn damaged_file_is_reported_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    Store::open(dir.path()).unwrap().save(&run("a")).unwrap();
    let whole = fs::read(&path).unwrap();
    for cut in [1, 50, 100, 1000, 4096, whole.len() / 2, whole.len() - 4096] {
        fs::write(&path, &whole[..cut]).unwrap();
        let used = Store::open(dir.path()).and_then(|store| store.load("a"));
        let message = used.unwrap_err().to_string();
        assert!(message.contains("damaged") && message.contains(path.to_str().unwrap()), "{cut}: {message}");
        assert_eq!(fs::read(&path).unwrap(), whole[..cut], "{cut}");
    }
    fs::write(&path, "").unwrap();
    fs::write(dir.path().join("runs.sqlite-wal"), &whole).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Damaged { .. })));
    fs::write(&path, "this is no database, but a letter to somebody").unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Damaged { .. })));
}

#[test]
fn corrupt_rows_are_reported() {
    for (change, part) in [
        ("UPDATE run SET state = 'lost'", "state: unknown variant `lost`"),
        ("UPDATE run SET plan = '{'", "plan: EOF"),
        ("UPDATE trial SET started_at = 'noon'", "started_at: "),
        ("UPDATE trial SET repetition = -1", "repetition"),
        ("UPDATE series SET at_s = x'00'", "at_s: its length"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.save(&run("a")).unwrap();
        rusqlite::Connection::open(store.path()).unwrap().execute(change, []).unwrap();
        let message = store.load("a").unwrap_err().to_string();
        assert!(message.contains("damaged"), "{message}");
        if part != "repetition" {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn impossible_folder_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let message = Store::open(&file.join("kagiri")).unwrap_err().to_string();
    assert!(message.contains("file/kagiri") && message.contains("KAGIRI_DATA"), "{message}");
}

#[test]
fn write_check_leaves_store_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.check_writable().unwrap();
    store.save(&run("a")).unwrap();
    let names = || {
        let entries = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    store.check_writable().unwrap();
    assert_eq!(names(), before, "nothing is left beside it");
    assert_eq!(store.load("a").unwrap(), run("a"));
    drop(store);
    assert_eq!(Store::open(dir.path()).unwrap().load("a").unwrap(), run("a"));
}

#[test]
fn write_check_reports_unwritable_store() {
    on_small_disk("4m", |dir| {
        let store = Store::open(dir).unwrap();
        store.check_writable().unwrap();
        // Less than a run's trials need, but enough for a page or two.
        let free = |dir: &Path| {
            let found = nix::sys::statvfs::statvfs(dir).unwrap();
            found.blocks_available() * found.fragment_size()
        };
        fs::write(dir.join("filler"), vec![1; free(dir) as usize - (256 << 10)]).unwrap();
        assert!(matches!(store.check_writable(), Err(StoreError::Full { .. })));
        assert!(fs::write(dir.join("rest"), vec![1; 1 << 20]).is_err());
        assert!(matches!(store.check_writable(), Err(StoreError::Full { .. })));
        fs::remove_file(dir.join("rest")).unwrap();
        fs::remove_file(dir.join("filler")).unwrap();
        store.check_writable().unwrap();
    });
}

/// Runs `test` with a tmpfs of `size` over a folder; only the calling thread sees the mount, and it ends with
/// that thread.
fn on_small_disk(size: &str, test: impl FnOnce(&Path) + Send) {
    if !nix::unistd::geteuid().is_root() {
        return features::skip("needs root to mount a small disk");
    }
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            mount(none, dir.path(), Some("tmpfs"), MsFlags::empty(), Some(format!("size={size}").as_str()))
                .unwrap();
            test(dir.path());
        });
    });
}

#[test]
fn full_disk_is_reported_and_finished_trials_stay() {
    on_small_disk("1m", |dir| {
        let mut store = Store::open(dir).unwrap();
        store.begin(&begun("a")).unwrap();
        let mut large = trial(1, 1.0);
        large.series[0].at_s = vec![0.5; 2000];
        let error = loop {
            match store.add_trial("a", &large) {
                Ok(()) => large.number += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("free some space"));
        let stored = large.number - 1;
        assert!(stored >= 3, "{stored}");
        let left = store.load("a").unwrap();
        assert_eq!(left.trials.len(), stored as usize);
        assert_eq!(left.trials[0].series, large.series);
        drop(store);
        assert_eq!(Store::open(dir).unwrap().list(&Filter::default()).unwrap()[0].trials, stored);
    });
}

#[test]
fn full_disk_at_start_is_reported() {
    on_small_disk("1m", |dir| {
        let filler = fs::write(dir.join("filler"), vec![1; 2 << 20]);
        assert!(filler.is_err());
        let error = Store::open(&dir.join("kagiri")).unwrap_err();
        assert!(matches!(error, StoreError::Full { .. } | StoreError::Folder { .. }), "{error:?}");
    });
}

#[test]
fn read_only_disk_is_reported() {
    on_small_disk("1m", |dir| {
        Store::open(dir).unwrap().save(&run("a")).unwrap();
        let none = None::<&str>;
        mount(none, dir, none, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).unwrap();
        let message = match Store::open(dir) {
            Ok(mut store) => {
                let early = store.check_writable().unwrap_err().to_string();
                let late = store.save(&run("b")).unwrap_err().to_string();
                assert_eq!(early, late);
                early
            }
            Err(error) => error.to_string(),
        };
        assert!(message.contains("read-only") || message.contains("Read-only"), "{message}");
    });
}
