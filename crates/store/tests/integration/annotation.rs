//! Tags and notes beside stored runs.

use rusqlite::Connection;
use store::{Annotation, Store, StoreError, export};

use crate::common::{begun, run};

#[test]
fn annotation_is_kept_beside_the_run_and_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.save(&run("a")).unwrap();
    let document = export(&store.load("a").unwrap()).unwrap();
    let annotation = Annotation::checked(&["night".to_owned()], "after the update").unwrap();
    store.annotate("a", &Annotation::default()).unwrap();
    store.annotate("a", &annotation).unwrap();
    assert_eq!(store.annotations().unwrap().get("a"), Some(&annotation));
    assert_eq!(export(&store.load("a").unwrap()).unwrap(), document, "it is no part of the document");
    assert!(matches!(store.annotate("none", &annotation), Err(StoreError::NoRun { .. })));
    assert!(matches!(store.check_known("las"), Err(StoreError::NoRun { .. })));
    store.delete(&["a".to_owned()]).unwrap();
    assert!(store.annotations().unwrap().is_empty());
}

#[test]
fn runs_of_an_older_layout_can_be_annotated() {
    let dir = tempfile::tempdir().unwrap();
    let older = Connection::open(dir.path().join("runs.sqlite")).unwrap();
    older.execute_batch(include_str!("../../src/schema/1.sql")).unwrap();
    older.execute_batch(include_str!("../../src/schema/2.sql")).unwrap();
    older.pragma_update(None, "user_version", 2).unwrap();
    drop(older);
    let mut store = Store::open(dir.path()).unwrap();
    assert!(store.annotations().unwrap().is_empty());
    store.save(&run("a")).unwrap();
    store.annotate("a", &Annotation { tags: vec!["x".into()], note: String::new() }).unwrap();
    assert_eq!(Store::open(dir.path()).unwrap().annotations().unwrap().len(), 1);
}

#[test]
fn only_runs_of_living_processes_are_measured_now() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.save(&run("imported")).unwrap();
    assert!(store.measured_now().unwrap().is_empty());
    store.begin(&begun("mine")).unwrap();
    assert_eq!(store.measured_now().unwrap(), [("mine".to_owned(), std::process::id())]);
}
