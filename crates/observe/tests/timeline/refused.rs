//! An error says what cannot be watched, with advice.

use observe::timeline::session::Session;
use sys::child::suspended_child::SuspendedChild;
use sys::trace::{Target, TraceError};

use crate::common::{backends, wish, words};

#[test]
fn missing_process_is_reported() {
    let _alone = crate::common::alone();
    for backend in backends(|| true) {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let pid = ended.id().cast_signed();
        ended.wait().unwrap();
        let mut session = Session::open(wish(backend, "", false)).unwrap();
        let error = session.follow(Target::Process(pid)).unwrap_err();
        assert!(matches!(error, TraceError::NoProcess { pid: its } if its == pid), "{error}");
    }
}

#[test]
fn missing_or_non_executable_program_is_reported() {
    let _alone = crate::common::alone();
    let held = SuspendedChild::prepare(&words(&["/nowhere/at-all"]), true).unwrap();
    let error = held.release().unwrap_err().to_string();
    assert!(error.contains("/nowhere/at-all") && error.contains("no such program"), "{error}");
    let held = SuspendedChild::prepare(&words(&["/dev/null"]), true).unwrap();
    let error = held.release().unwrap_err().to_string();
    assert!(error.contains("not executable"), "{error}");
}

#[test]
fn dropped_suspended_program_never_runs() {
    let _alone = crate::common::alone();
    let (folder, path) = crate::common::folder();
    let file = path.join("made");
    let held = SuspendedChild::prepare(&words(&["touch", file.to_str().unwrap()]), true).unwrap();
    drop(held);
    assert!(!file.exists());
    drop(folder);
}
