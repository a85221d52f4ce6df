//! Crashes of kagiri and of its lab's supervisor: what they leave is undone.
//!
//! Alone, because any other measurement would undo it first: the journals of root lie in one folder.

use std::time::Duration;

use kagiri_tests::{RunInLab, World, alone, need_root, valid, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);

/// A run in its lab whose kagiri and keeper are both killed: no process is left to undo the changes.
fn crash(world: &World) -> (u32, u32) {
    let (RunInLab { live, .. }, keeper) = RunInLab::measured(world, PATIENCE);
    let pid = live.pid();
    kill(Pid::from_raw(keeper.cast_signed()), Signal::SIGKILL).expect("the keeper can be killed");
    live.signal(Signal::SIGKILL);
    let _ = live.end(PATIENCE);
    // Agents die with their keeper, and what they run with them.
    wait_until("the agents' end", PATIENCE, || world.traces(pid).processes.is_empty());
    (pid, keeper)
}

#[test]
fn what_a_crash_leaves_is_undone() {
    need_root!();
    let _alone = alone();
    let world = World::new();
    let (pid, keeper) = crash(&world);
    let left = world.traces(keeper);
    assert!(!left.mounts.is_empty() && !left.cgroups.is_empty() && !left.journals.is_empty(), "{left:#?}");
    let undone = world.run(&["undo"]).code(0).stdout;
    for word in ["unmount", "detach", "control group", "network namespace"] {
        assert!(undone.contains(word), "no '{word}' in\n{undone}");
    }
    world.assert_nothing_left(pid);
    world.assert_nothing_left(keeper);
    let again = world.run(&["undo"]).code(0).stdout;
    assert_eq!(again, "Nothing to undo.\n");
}

/// `kill -9` while files are made leaves a tree, which undo removes; what else is in the directory stays.
#[test]
fn files_that_a_killed_run_made_are_undone() {
    let _alone = alone();
    let world = World::new();
    let dir = world.path("dir");
    std::fs::create_dir(&dir).unwrap();
    world.write("dir/precious", "not kagiri's");
    let mut live = world.start(&["files", "dir", "--set", "nfiles=200000", "--set", "meanfilesize=1k"]);
    live.wait_for("making 200000 files", PATIENCE);
    wait_until("a tree", PATIENCE, || {
        let own = std::fs::read_dir(&dir).unwrap().flatten().find(|entry| entry.file_name() != "precious");
        own.is_some_and(|own| std::fs::read_dir(own.path()).is_ok_and(|entries| entries.count() > 1))
    });
    let pid = live.pid();
    live.signal(Signal::SIGKILL);
    let _ = live.end(PATIENCE);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "the tree is left");
    let undone = world.run(&["undo"]).code(0).stdout;
    assert!(undone.contains("kagiri-files-"), "{undone}");
    let names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["precious"]);
    world.assert_nothing_left(pid);
}

#[test]
fn the_next_measurement_tidies_up_after_a_crash() {
    need_root!();
    let _alone = alone();
    let world = World::new();
    let (pid, keeper) = crash(&world);
    let film = ["content", "make", "film.ts", "--duration", "15s", "--bitrate", "2Mbit/s", "--quiet"];
    world.run(&film).code(0);
    let words = ["stream", "--content", "film.ts", "--streams", "1", "--hold", "1s", "--json"];
    let mut said = String::new();
    let (next, _) = valid(|| {
        let next = world.measure(&words, PATIENCE);
        said += &next.stderr;
        next
    });
    next.code(0);
    assert!(said.contains("unmount"), "and says so: {said}");
    world.assert_nothing_left(pid);
    world.assert_nothing_left(keeper);
}
