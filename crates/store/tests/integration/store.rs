//! Runs as they are written, found and read again.

use crate::common::{arbitrary, begun, run, trial};
use base::outcome::{Certainty, LoadMetric, Resource, Run, State};
use proptest::prelude::*;
use store::{Filter, Store, StoreError, export, read_export, resolve_among};
use tempfile::TempDir;

fn new_store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("new/kagiri")).unwrap();
    (dir, store)
}

fn message<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn run_written_step_by_step_reads_back() {
    let (_dir, mut store) = new_store();
    let whole = run("20261121-143012-k3f9");
    store.begin(&begun(&whole.run)).unwrap();
    for (index, trial) in whole.trials.iter().enumerate() {
        store.add_trial(&whole.run, trial).unwrap();
        let so_far = store.load(&whole.run).unwrap();
        assert_eq!(so_far.state, State::Running, "its process is this one, and it lives");
        assert_eq!(so_far.trials, whole.trials[..=index]);
    }
    store.finish(&whole).unwrap();
    assert_eq!(store.load(&whole.run).unwrap(), whole);
}

#[test]
fn finish_updates_trials_and_adds_missing_ones() {
    let (_dir, mut store) = new_store();
    let mut whole = run("a");
    store.begin(&begun("a")).unwrap();
    store.add_trial("a", &whole.trials[0]).unwrap();
    whole.trials[0].reasons.push("judged again".into());
    whole.trials[0].metrics.remove("stalls");
    store.finish(&whole).unwrap();
    assert_eq!(store.load("a").unwrap(), whole);
}

#[test]
fn reading_makes_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("new/kagiri");
    let store = Store::open_to_read(&place).unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap(), []);
    assert!(message(store.resolve("last")).contains("no run 'last'"));
    assert!(!dir.path().join("new").exists());
    Store::open(&place).unwrap().save(&run("a")).unwrap();
    assert_eq!(Store::open_to_read(&place).unwrap().resolve("last").unwrap(), run("a"));
}

#[test]
fn folder_and_file_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, store) = new_store();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(store.path()), mode(store.path().parent().unwrap())), (0o600, 0o700));
}

#[test]
fn metrics_can_be_queried_by_hand_and_unknown_is_not_zero() {
    let (_dir, mut store) = new_store();
    store.save(&run("a")).unwrap();
    let db = rusqlite::Connection::open(store.path()).unwrap();
    let ask = |sql: &str| db.query_row(sql, [], |row| row.get::<_, Option<f64>>(0)).unwrap();
    assert_eq!(
        ask("SELECT max(value) FROM metric JOIN trial ON trial.run = metric.run AND number = trial \
             WHERE name = 'server_cpu_percent' AND verdict = 'pass'"),
        Some(100.1)
    );
    assert_eq!(ask("SELECT value FROM metric WHERE name = 'disk_bit_per_s' AND trial = 1"), None);
}

#[test]
fn runs_are_listed_newest_first_and_filtered() {
    let (_dir, mut store) = new_store();
    for (id, workload, second) in [("a", "stream", 0), ("b", "daq", 1), ("c", "stream", 1)] {
        let mut run = run(id);
        run.workload = workload.into();
        run.variants[0].findings = vec![LoadMetric { metric: "goodput_bit_per_s".into(), values: vec![9e8] }];
        // "...:00Z" and "...:00.5Z" do not sort as texts.
        run.started_at =
            jiff::Timestamp::new(1_700_000_000, if second == 0 { 0 } else { 500_000_000 }).unwrap();
        store.save(&run).unwrap();
    }
    let ids = |filter: &Filter| {
        store.list(filter).unwrap().into_iter().map(|summary| summary.run).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(&Filter::default()), "c b a");
    assert_eq!(ids(&Filter { workload: Some("stream".into()), ..Filter::default() }), "c a");
    assert_eq!(ids(&Filter { count_max: Some(1), ..Filter::default() }), "c");
    assert_eq!(ids(&Filter { count_max: Some(0), ..Filter::default() }), "");
    assert_eq!(ids(&Filter { state: Some(State::Failed), ..Filter::default() }), "");
    let since = Some(jiff::Timestamp::new(1_700_000_000, 1000).unwrap());
    assert_eq!(ids(&Filter { since, ..Filter::default() }), "c b");
    let summary = &store.list(&Filter::default()).unwrap()[0];
    assert_eq!((summary.trials, summary.capacity, summary.unit.as_str()), (6, Some(5.0), "streams"));
    assert_eq!(summary.interval, [Some(5.0), Some(6.0)]);
    assert_eq!(summary.finding.as_ref().and_then(LoadMetric::median), Some(9e8));
    assert_eq!((summary.limit, summary.certainty), (Resource::Cpu, Certainty::Confirmed));
}

/// What is meant among the listed runs, without the store.
fn among(store: &Store, text: &str) -> Result<String, StoreError> {
    resolve_among(&store.list(&Filter::default()).unwrap(), text)
}

#[test]
fn run_is_found_by_id_prefix_name_and_last() {
    let (dir, mut store) = new_store();
    for (index, id) in ["20261121-1", "20261121-12", "20261122-9"].into_iter().enumerate() {
        let mut run = run(id);
        run.started_at = jiff::Timestamp::from_second(index as i64).unwrap();
        store.save(&run).unwrap();
    }
    let found = |text: &str| store.resolve(text).map(|run| run.run);
    for (text, id) in [
        ("last", "20261122-9"),
        ("last~2", "20261121-1"),
        ("20261122", "20261122-9"),
        ("20261121-1", "20261121-1"),
    ] {
        assert_eq!(found(text).unwrap(), id);
        assert_eq!(store.resolve_id(text).unwrap(), id);
        assert_eq!(among(&store, text).unwrap(), id);
    }
    for meant in [store.resolve_id("20261121"), among(&store, "20261121")] {
        assert!(message(meant).contains("20261121-1 or 20261121-12"));
    }
    assert!(message(found("20261121")).contains("20261121-1 or 20261121-12"));
    assert!(matches!(found("last~3"), Err(StoreError::NoneMeasured { .. })));
    assert!(matches!(among(&store, "last~3"), Err(StoreError::NoneMeasured { .. })));
    for text in ["%", "", "2026112_", "lost"] {
        assert!(matches!(found(text), Err(StoreError::NoRun { .. })), "{text}");
        assert!(matches!(among(&store, text), Err(StoreError::NoRun { .. })), "{text}");
    }
    let file = dir.path().join("elsewhere.json");
    std::fs::write(&file, export(&run("elsewhere")).unwrap()).unwrap();
    assert_eq!(found(file.to_str().unwrap()).unwrap(), "elsewhere");
    assert!(matches!(store.resolve_id(file.to_str().unwrap()), Err(StoreError::NoRun { .. })));
    let missing = store.resolve("gone/away.json").unwrap_err();
    assert!(missing.is_usage() && missing.to_string().contains("gone/away.json"), "{missing}");
    assert!(message(found(store.path().to_str().unwrap())).contains("not an exported run"));
}

#[test]
fn last_means_last_run_with_trials() {
    let (_dir, mut store) = new_store();
    let at = |id: &str, second, trials: bool| {
        let mut run = run(id);
        run.started_at = jiff::Timestamp::from_second(second).unwrap();
        if !trials {
            run.trials.clear();
            run.state = State::Failed;
        }
        run
    };
    store.save(&at("typo-first", 1, false)).unwrap();
    let refused = store.resolve("last").unwrap_err();
    assert!(refused.is_usage() && refused.to_string().contains("at least one trial"), "{refused}");
    store.save(&at("one", 2, true)).unwrap();
    store.save(&at("typo", 3, false)).unwrap();
    store.save(&at("two", 4, true)).unwrap();
    store.save(&at("typo-again", 5, false)).unwrap();
    let found = |text: &str| store.resolve(text).map(|run| run.run);
    assert_eq!((found("last").unwrap(), found("last~1").unwrap()), ("two".into(), "one".into()));
    assert_eq!(
        (among(&store, "last").unwrap(), among(&store, "last~1").unwrap()),
        ("two".into(), "one".into())
    );
    assert!(found("last~2").is_err());
    // Nothing is lost: they are listed, and shown by their ids.
    assert_eq!(store.list(&Filter::default()).unwrap().len(), 5);
    assert_eq!(found("typo-again").unwrap(), "typo-again");
}

#[test]
fn rejected_writes_change_nothing() {
    let (_dir, mut store) = new_store();
    store.begin(&begun("a")).unwrap();
    store.add_trial("a", &trial(1, 1.0)).unwrap();
    assert!(matches!(store.begin(&begun("a")), Err(StoreError::Exists { .. })));
    assert!(matches!(store.add_trial("a", &trial(1, 2.0)), Err(StoreError::TrialExists { number: 1, .. })));
    assert!(matches!(store.add_trial("b", &trial(1, 2.0)), Err(StoreError::NoRun { .. })));
    assert!(matches!(store.finish(&run("b")), Err(StoreError::NoRun { .. })));
    assert!(matches!(store.delete(&["b".into()]), Err(StoreError::NoRun { .. })));
    for id in ["", "..", "a/b", "last", "last~4", "-x", "ü", &"x".repeat(65)] {
        assert!(matches!(store.save(&run(id)), Err(StoreError::BadId { .. })), "{id}");
    }
    assert!(message(store.add_trial("a", &trial(2, f64::NAN))).contains("the load of trial 2"));
    let mut unordered = run("c");
    unordered.trials.swap(0, 1);
    assert!(message(store.save(&unordered)).contains("trial 1 stands after trial 2"));
    let mut endless = run("c");
    endless.variants[0].saturation.values_mut().for_each(|s| s.cost_per_load = f64::INFINITY);
    assert!(message(store.save(&endless)).contains("the variants of run c"));
    assert_eq!(store.load("a").unwrap().trials, [trial(1, 1.0)]);
    assert_eq!(store.list(&Filter::default()).unwrap().len(), 1);
}

#[test]
fn run_of_living_process_is_not_deleted_and_keeps_others() {
    let (_dir, mut store) = new_store();
    store.save(&run("a")).unwrap();
    store.begin(&begun("b")).unwrap();
    let both = ["a".to_owned(), "b".to_owned()];
    let own = std::process::id();
    assert!(matches!(store.delete(&both), Err(StoreError::Measured { pid, .. }) if pid == own));
    assert_eq!(store.list(&Filter::default()).unwrap().len(), 2, "all or none");
    // The same process goes on, but the run has ended.
    store.finish(&run("b")).unwrap();
    store.delete(&both).unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap(), []);
}

#[test]
fn deleting_a_run_leaves_no_rows_of_it() {
    let (_dir, mut store) = new_store();
    store.save(&run("a")).unwrap();
    store.save(&run("b")).unwrap();
    store.delete(&["a".into()]).unwrap();
    let db = rusqlite::Connection::open(store.path()).unwrap();
    for table in ["trial", "metric", "series"] {
        let sql = format!("SELECT count(*) FILTER (WHERE run = 'a'), count(*) FROM {table}");
        let (of_a, all): (u32, u32) = db.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert!(of_a == 0 && all > 0, "{table}: {of_a} of {all}");
    }
    assert_eq!(store.load("b").unwrap(), run("b"));
}

#[test]
fn large_run_reads_back_unchanged() {
    let (_dir, mut store) = new_store();
    let mut large = Run { trials: Vec::new(), ..run("large") };
    // 10 trials with 10 series of 65 536 samples, 16 bytes each: 100 MiB.
    for number in 1..=10 {
        let mut trial = trial(number, f64::from(number));
        let mut series = base::series::Series::new("x", "s");
        for index in 0..65_536 {
            let at = f64::from(index) * 0.1;
            series.push(at, (index % 100 != 7).then(|| at.sin()));
        }
        trial.series = vec![series; 10];
        large.trials.push(trial);
    }
    let started = std::time::Instant::now();
    store.begin(&Run { state: State::Running, trials: Vec::new(), ..large.clone() }).unwrap();
    for trial in &large.trials {
        store.add_trial("large", trial).unwrap();
    }
    store.finish(&large).unwrap();
    let written = started.elapsed();
    let read = store.load("large").unwrap();
    eprintln!("100 MiB written in {written:?}, read in {:?}", started.elapsed() - written);
    assert!(read == large);
}

#[test]
fn two_processes_may_write_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // Both also make the file at the same time.
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (dir, barrier) = (dir.path(), &barrier);
            scope.spawn(move || {
                barrier.wait();
                let mut store = Store::open(dir).unwrap();
                let id = format!("writer-{writer}");
                store.begin(&begun(&id)).unwrap();
                for number in 1..=20 {
                    store.add_trial(&id, &trial(number, 1.0)).unwrap();
                }
            });
        }
    });
    let store = Store::open(dir.path()).unwrap();
    let runs = store.list(&Filter::default()).unwrap();
    assert_eq!(runs.iter().map(|run| run.trials).collect::<Vec<_>>(), [20; 4]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_run_comes_back_as_it_was(run in arbitrary::run("any")) {
        let (_dir, mut store) = new_store();
        store.save(&run).unwrap();
        prop_assert_eq!(&store.load("any").unwrap(), &run);
        prop_assert_eq!(&read_export(&export(&run).unwrap()).unwrap(), &run);
        store.finish(&run).unwrap();
        prop_assert_eq!(store.load("any").unwrap(), run);
    }
}
