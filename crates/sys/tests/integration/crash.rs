//! A crash with everything held: the process is killed with SIGKILL, and replaying its journal leaves nothing
//! behind.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{LONG, own_name, root, work_folder};
use sys::cgroup::Cgroup;
use sys::child::Spawn;
use sys::clock::Deadline;
use sys::disk::{DiskImage, FileSystem, ImageSpec};
use sys::journal::{Journal, Outcome, Undo};
use sys::netns::Namespace;

/// Set for the process that is to be killed: the folder to work in.
const HOLD_IN: &str = "KAGIRI_TEST_HOLD_IN";

/// Everything on this machine that this crate can make and that carries its name.
fn traces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut add = |kind: &str, folder: &Path, prefix: &str| {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) {
                found.insert(format!("{kind} {}", folder.join(name).display()));
            }
        }
    };
    for mount in sys::proc::mounts::mounts(Path::new("/")).unwrap() {
        if mount.fs_type.starts_with("cgroup") {
            add("cgroup", &mount.target, "kagiri-");
        }
    }
    add("netns", Path::new("/run/netns"), "kagiri-");
    found
}

fn traces_of(pid: u32) -> Vec<String> {
    let (dashed, pid) = (format!("-{pid}-"), pid.to_string());
    traces().into_iter().filter(|trace| trace.contains(&dashed) && trace.contains(&pid)).collect()
}

fn mounted_below(folder: &Path) -> usize {
    let mounts = sys::proc::mounts::mounts(Path::new("/")).unwrap();
    mounts.iter().filter(|mount| mount.target.starts_with(folder)).count()
}

/// The loop devices whose file lies below `folder`.
fn loops_below(folder: &Path) -> usize {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let files =
        devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| Path::new(file.trim()).starts_with(folder)).count()
}

fn image(folder: &Path) -> ImageSpec {
    ImageSpec {
        image: folder.join("disk.img"),
        size_bytes: 64 << 20,
        file_system: FileSystem::Ext4,
        target: folder.join("mounted"),
    }
}

/// Not a test of its own: the part that is killed. Holds one of everything, says so, and waits.
#[test]
fn holder() {
    let Some(folder) = std::env::var_os(HOLD_IN).map(PathBuf::from) else { return };
    let journal = Journal::open(&folder.join("journal")).unwrap();
    let group = Cgroup::create(&journal, "crash").unwrap();
    group.set_cpu_quota_percent(50.0).unwrap();
    let disk = DiskImage::create(&journal, &image(&folder)).unwrap();
    group.set_read_limit(disk.block_device(), 13_750_000).unwrap();
    let namespace = Namespace::create(&journal, &own_name("crash")).unwrap();
    // Goes with the namespace, and its other end too.
    namespace.ip("link add one type veth peer name other").unwrap();
    // A child that ignores polite requests and has started another, with its working folder on the disk.
    let script = "trap '' TERM; sleep 600 & echo ready; while :; do sleep 1; done";
    let mut child = Spawn::new("sh")
        .args(["-c", script])
        .cgroup(&group)
        .namespace(&namespace)
        .current_dir(disk.target())
        .start(&journal)
        .unwrap();
    child.wait_line(Duration::from_secs(20), |line| line == "ready").unwrap();
    println!("\nholding {}", child.pid());
    loop {
        std::thread::park();
    }
}

fn start_holder(folder: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::holder", "--nocapture"])
        .env(HOLD_IN, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn kill(owner: &mut std::process::Child) {
    owner.kill().unwrap();
    assert_eq!(owner.wait().unwrap().signal(), Some(9));
}

fn assert_nothing_left(owner: u32, folder: &Path) {
    assert_eq!(traces_of(owner), Vec::<String>::new());
    assert_eq!((mounted_below(folder), loops_below(folder)), (0, 0));
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["journal"]);
    assert_eq!(std::fs::read_dir(folder.join("journal")).unwrap().count(), 0, "a settled journal is removed");
}

#[test]
fn replay_after_kill_leaves_nothing() {
    if !root() {
        return;
    }
    let folder = work_folder();
    let folder = folder.path();
    let mut owner = start_holder(folder);
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let held = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("holding ").map(str::to_owned));
    let journals = folder.join("journal");
    // While the owner lives, its journal is not replayed.
    let early = Journal::leftovers(&journals, Duration::ZERO).unwrap().journals.len();
    kill(&mut owner);
    let child: i32 = held.expect("the holder came so far").parse().unwrap();
    assert_eq!(early, 0);
    assert!(traces_of(owner.id()).len() >= 3, "{:?}", traces_of(owner.id()));
    assert_eq!((mounted_below(folder), loops_below(folder)), (1, 1));

    let mut leftovers = Journal::leftovers(&journals, Duration::ZERO).unwrap().journals;
    assert_eq!(leftovers.len(), 1);
    assert!(
        Journal::leftovers(&journals, Duration::ZERO).unwrap().journals.is_empty(),
        "one replay at a time"
    );
    let leftover = leftovers.pop().unwrap();
    assert_eq!(leftover.owner_pid(), i32::try_from(owner.id()).unwrap());
    let file = leftover.path().to_path_buf();
    let before = std::fs::read(&file).unwrap();
    let results = leftover.replay();
    for result in &results {
        assert!(result.outcome.is_settled(), "{result}");
    }
    assert!(matches!(results[0].undo, Undo::KillProcess { .. }), "newest first: {:?}", results[0]);
    assert!(results.iter().any(|result| result.outcome == Outcome::Done));
    assert!(!Path::new("/proc").join(child.to_string()).join("cwd").exists(), "the child has ended");
    assert_nothing_left(owner.id(), folder);

    // Once more, as after a crash of the replay itself: nothing to do, and nothing of others is touched.
    std::fs::write(&file, before).unwrap();
    let again = Journal::leftovers(&journals, Duration::ZERO).unwrap().journals.pop().unwrap().replay();
    assert_eq!(again.len(), results.len());
    for result in again {
        // The folder of all namespaces may hold another program's.
        assert!(result.outcome.is_settled() && result.outcome != Outcome::Done, "{result}");
    }
}

/// Killed between any two changes: as soon as the journal has that many lines.
#[test]
fn replay_after_a_kill_at_every_step_leaves_nothing() {
    if !root() {
        return;
    }
    for lines in 1..=8 {
        let folder = work_folder();
        let folder = folder.path();
        let journals = folder.join("journal");
        let mut owner = start_holder(folder);
        let written = || {
            let files = std::fs::read_dir(&journals).into_iter().flatten().flatten();
            let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
            texts.map(|text| text.lines().count()).sum::<usize>()
        };
        let deadline = Deadline::after(LONG);
        while written() < lines && owner.try_wait().unwrap().is_none() && !deadline.passed() {
            std::thread::yield_now();
        }
        let came_so_far = written() >= lines;
        kill(&mut owner);
        // A child of the killed one, such as `mkfs`, holds the device until the kernel has ended it too.
        for leftover in Journal::leftovers(&journals, Duration::ZERO).unwrap().journals {
            for result in leftover.replay() {
                assert!(result.outcome.is_settled(), "killed after {lines} lines: {result}");
            }
        }
        assert!(came_so_far, "the holder never wrote {lines} lines");
        assert_nothing_left(owner.id(), folder);
    }
}
