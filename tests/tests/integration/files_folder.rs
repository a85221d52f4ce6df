//! The folder of `kagiri files` when others rename, replace, remove or unmount it: nothing foreign is
//! removed, and nothing of kagiri's is forgotten.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Live, SmallDisk, World, beside_others, names, need_root, wait_until};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(120);
const MARK: &str = ".kagiri-owner";

/// A run that has its folder in `dir`, and the folder.
fn measuring(world: &World, dir: &str, time: &str) -> (Live, PathBuf) {
    let small = ["--set", "nfiles=100", "--set", "meanfilesize=8k"];
    let live = world.start(&[&["files", dir, "--threads", "2", "--time", time][..], &small].concat());
    let mut found = None;
    wait_until("files are made", PATIENCE, || {
        found = folder(&world.path(dir)).filter(|folder| has_tree(folder));
        found.is_some()
    });
    (live, found.expect("a folder"))
}

fn folder(dir: &Path) -> Option<PathBuf> {
    names(dir).into_iter().find(|name| name.starts_with("kagiri-files-")).map(|name| dir.join(name))
}

fn has_tree(folder: &Path) -> bool {
    std::fs::read_dir(folder)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != MARK)))
}

/// The folder of a run that was killed.
fn leftover(world: &World, dir: &str) -> PathBuf {
    let (live, folder) = measuring(world, dir, "60s");
    live.signal(Signal::SIGKILL);
    live.end(PATIENCE);
    folder
}

fn all_printed(ended: &kagiri_tests::Ended) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

#[test]
fn what_takes_the_name_of_the_folder_during_a_run_is_not_removed() {
    for is_link in [true, false] {
        let _beside = beside_others();
        let world = World::with_own_journal();
        for name in ["dir", "other", "other/tree"] {
            std::fs::create_dir(world.path(name)).expect("a directory");
        }
        world.write("other/tree/precious", "not kagiri's");
        let (live, folder) = measuring(&world, "dir", "3s");
        let moved = world.path("dir/moved");
        std::fs::rename(&folder, &moved).expect("renamed");
        match is_link {
            true => symlink(world.path("other"), &folder).expect("a link"),
            false => std::fs::rename(world.path("other"), &folder).expect("renamed"),
        }
        let ended = live.end(PATIENCE);
        let printed = all_printed(&ended);
        assert!(folder.join("tree/precious").exists(), "{printed}");
        assert_eq!(names(&moved), [MARK], "it was emptied: {printed}");
        assert!(printed.contains("renamed or replaced it") && printed.contains("dir/moved"), "{printed}");
        world.run(&["undo"]).code(0);
        assert!(folder.join("tree/precious").exists());
    }
}

#[test]
fn folder_removed_during_a_run_is_named_as_the_reason() {
    let _beside = beside_others();
    let world = World::new();
    std::fs::create_dir(world.path("dir")).expect("a directory");
    let (live, folder) = measuring(&world, "dir", "60s");
    // The threads of the run make files meanwhile.
    wait_until("the folder is removed", PATIENCE, || {
        std::fs::remove_dir_all(&folder).is_ok() || !folder.exists()
    });
    let ended = live.end(PATIENCE);
    let printed = all_printed(&ended);
    assert!(printed.contains("another program removed the folder"), "{printed}");
    assert_eq!(names(&world.path("dir")), [""; 0]);
}

#[test]
fn undo_keeps_a_folder_whose_file_system_is_not_mounted() {
    need_root!();
    let _beside = beside_others();
    let world = World::with_own_journal();
    let disk = world.path("disk");
    let small = SmallDisk::mount_ext4(&disk, 64 << 20);
    let folder = leftover(&world, "disk");
    umount2(&disk, MntFlags::MNT_DETACH).expect("unmounted");
    for _ in 0..2 {
        let ended = world.run(&["undo"]);
        let printed = all_printed(&ended);
        ended.code(1);
        for part in ["(ext4) is not mounted there", "mount it, or remove the journal's file /", ".jsonl"] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
    }
    let mount = Command::new("mount").args(["-o", "loop"]).arg(world.path("disk.image")).arg(&disk).status();
    assert!(mount.expect("mount runs").success());
    assert!(folder.exists());
    world.run(&["undo"]).code(0);
    assert_eq!(names(&disk), ["lost+found"]);
    // Removed by hand, on a file system that is mounted.
    let folder = leftover(&world, "disk");
    std::fs::remove_dir_all(folder).expect("removed");
    world.run(&["undo"]).code(0);
    drop(small);
}

#[test]
fn undo_leaves_what_others_put_into_a_leftover_and_names_it() {
    let _beside = beside_others();
    let world = World::with_own_journal();
    std::fs::create_dir(world.path("dir")).expect("a directory");
    let (live, folder) = measuring(&world, "dir", "60s");
    let tree = names(&folder).into_iter().find(|name| name.starts_with("tree-")).expect("a tree");
    wait_until("the set is made", PATIENCE, || folder.join(&tree).join("bigfileset").exists());
    live.signal(Signal::SIGKILL);
    live.end(PATIENCE);
    std::fs::write(folder.join("precious"), "not kagiri's").expect("written");
    std::fs::write(folder.join(&tree).join("bigfileset/notes"), "not kagiri's").expect("written");
    let ended = world.run(&["undo"]);
    let printed = all_printed(&ended);
    ended.code(1);
    for part in ["what kagiri did not make", "precious", "bigfileset/notes", "all else was removed"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert_eq!(names(&folder), ["precious", tree.as_str()]);
    assert_eq!(names(&folder.join(&tree)), ["bigfileset"]);
    assert_eq!(names(&folder.join(&tree).join("bigfileset")), ["notes"]);
    world.run(&["undo"]);
    assert!(folder.join("precious").exists());

    // The same at the end of a run.
    std::fs::create_dir(world.path("other")).expect("a directory");
    let (live, folder) = measuring(&world, "other", "2s");
    std::fs::write(folder.join("precious"), "not kagiri's").expect("written");
    let ended = live.end(PATIENCE);
    let printed = all_printed(&ended);
    assert!(printed.contains("what kagiri did not make: precious"), "{printed}");
    assert_eq!(names(&folder), ["precious"]);
}

#[test]
fn undo_fails_when_a_folder_lost_its_mark() {
    let _beside = beside_others();
    let world = World::with_own_journal();
    std::fs::create_dir(world.path("dir")).expect("a directory");
    let folder = leftover(&world, "dir");
    std::fs::write(folder.join(MARK), "1 2 3").expect("written");
    let ended = world.run(&["undo"]);
    let printed = all_printed(&ended);
    ended.code(1);
    assert!(printed.contains("left alone, it is not marked as ours"), "{printed}");
    assert!(has_tree(&folder));
}
