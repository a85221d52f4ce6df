//! When output cannot be written (closed pipe, full disk), a run is still measured and stored. A full disk
//! fails the command, a closed pipe does not.

use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

use kagiri_tests::World;
use serde_json::Value;

/// A search of a few trials, each of which says something while it lasts.
const SEARCH: [&str; 5] = ["daq", "--search", "sources", "--max", "4"];
const SINGLE: [&str; 3] = ["daq", "--sources", "4"];
const SHORT: [&str; 4] = ["--time", "500ms", "--omit", "0s"];

/// Where a command's output goes.
type SetUp = dyn Fn(&mut Command);

/// A disk without room (full(4)).
fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("the device")
}

/// Runs the command with this output; returns its exit code and the stored runs.
fn run_and_list(
    world: &World,
    words: &[&str],
    set_up: impl FnOnce(&mut Command),
) -> (Option<i32>, Vec<Value>) {
    let mut command = world.command(&[words, &SHORT].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    set_up(&mut command);
    let mut child = command.spawn().expect("kagiri starts");
    // Close the read ends before the first line is written, so that every write fails.
    drop((child.stdout.take(), child.stderr.take()));
    let ended = child.wait().expect("it ends");
    let runs = world.run(&["runs", "list", "--json"]).code(0).json();
    (ended.code(), runs.as_array().expect("a list").clone())
}

#[test]
fn run_is_stored_when_its_output_fails() {
    let set_ups: [(&str, &[&str], i32, &SetUp); 3] = [
        ("a closed pipe", &SEARCH, 0, &|command| {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }),
        ("a full disk", &SINGLE, 1, &|command| {
            command.stdout(full()).stderr(full());
        }),
        ("no progress, but a result", &SINGLE, 0, &|command| {
            command.stderr(full());
        }),
    ];
    for (what, words, ends, set_up) in set_ups {
        let world = World::new();
        let (code, runs) = run_and_list(&world, words, |command| set_up(command));
        assert_eq!(code, Some(ends), "{what}: {runs:?}");
        assert_eq!(runs.len(), 1, "{what}: {runs:?}");
        assert_eq!(runs[0]["state"], "complete", "{what}: {runs:?}");
    }
}

#[test]
fn export_to_a_full_disk_fails() {
    let world = World::new();
    let help = [&["--help"][..], &["--version"], &["daq", "--help"]];
    let exports = [&["runs", "schema"][..], &["runs", "list", "--json"], &["plan", "schema", "daq"]];
    for words in help.into_iter().chain(exports) {
        let ended = world.command(words).stdout(full()).output().expect("kagiri starts");
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {error}");
        assert!(error.contains("cannot write to standard output: No space left"), "{words:?}: {error}");
    }
}
