//! Modelled disks on the real kernel: as slow as their model, without lost data, and removed even after a
//! kill.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{this_program, wait_until, work_folder};
use lab::disk::{Disk, DiskModel, DiskSpec};
use lab::supervisor::Program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::disk::{DirectFile, FileSystem, ImageSpec};
use sys::journal::{Journal, Leftover};

/// Everything here is faster, unless it hangs.
const LONG: Duration = Duration::from_secs(30);
const SIZE: u64 = 512 << 20;

/// The owner of a disk that is to be killed.
pub fn own(folder: &Path) {
    let (_journal, disk) = make(folder, "ivdr-2006", FileSystem::Ext4);
    println!("\nowns {}", disk.server_pid().unwrap());
    std::thread::sleep(LONG);
}

fn spec(folder: &Path, model: &str, file_system: FileSystem) -> DiskSpec {
    let (image, target) = (folder.join("a.img"), folder.join("a"));
    DiskSpec {
        image: ImageSpec { image, size_bytes: SIZE, file_system, target },
        model: Some(DiskModel::preset(model).unwrap()),
    }
}

fn make(folder: &Path, model: &str, file_system: FileSystem) -> (Journal, Disk) {
    let journal = Journal::open(&folder.join("journal")).unwrap();
    let disk = Disk::create(&journal, &spec(folder, model, file_system), &this_program()).unwrap();
    (journal, disk)
}

/// What is still mounted or attached below `folder`, and the files left in it.
fn left_in(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> =
        mounts.lines().filter(|line| line.contains(name)).map(str::to_owned).collect();
    for entry in std::fs::read_dir("/sys/block").unwrap() {
        let behind = entry.unwrap().path().join("loop/backing_file");
        left.extend(std::fs::read_to_string(behind).ok().filter(|file| file.contains(name)));
    }
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    left.extend(files.filter(|path| !path.ends_with("journal")).map(|path| path.display().to_string()));
    left
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Drops `disk` and checks that it is removed, fast enough that nothing hung.
fn assert_removed(folder: &Path, journal: &Journal, disk: Disk) {
    let server = disk.server_pid().unwrap();
    let began = Instant::now();
    drop(disk);
    assert!(began.elapsed() < LONG, "took {:?}", began.elapsed());
    assert_eq!(left_in(folder), Vec::<String>::new());
    assert!(!is_running(server));
    assert_eq!(journal.pending(), 0);
}

#[test]
fn disk_is_never_faster_than_its_model() {
    let Some(folder) = work_folder() else { return };
    let (journal, disk) = make(folder.path(), "hdd-7200", FileSystem::Ext4);
    let mut device = DirectFile::open(disk.device_path(), 1 << 20, false).unwrap();
    let (began, bytes) = (Instant::now(), 48 << 20);
    for offset in (0..bytes).step_by(1 << 20) {
        device.read_at(offset).unwrap();
    }
    // 150 MB/s, less the few milliseconds by which the overheads of accesses differ.
    let least = Duration::from_secs_f64(bytes as f64 / 150e6 * 0.97);
    assert!(began.elapsed() > least, "{:?} < {least:?}", began.elapsed());

    drop(device);
    let before = disk.counters().unwrap().unwrap();
    let mut device = DirectFile::open(disk.device_path(), 4096, false).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let (began, reads) = (Instant::now(), 100);
    for _ in 0..reads {
        device.read_at(random.u64(0..SIZE / 4096) * 4096).unwrap();
    }
    let after = disk.counters().unwrap().unwrap();
    // A mean seek of 8.4 ms and half a turn of 4.2 ms; the mean of a hundred is within a quarter of that.
    assert!(began.elapsed() > reads * Duration::from_micros(9_400), "{:?}", began.elapsed());
    assert!(after.paced && after.reads >= before.reads + u64::from(reads), "{after:?}");
    assert!(after.seeks >= before.seeks + 95, "{before:?} {after:?}");

    // The same without its model: only the overhead.
    disk.set_paced(false).unwrap();
    let unpaced = disk.counters().unwrap().unwrap();
    device.read_at(0).unwrap();
    assert!(!unpaced.paced && disk.counters().unwrap().unwrap().busy_ns == unpaced.busy_ns);
    drop(device);
    assert_removed(folder.path(), &journal, disk);
}

#[test]
fn written_data_is_kept_and_fsync_waits_for_the_platter() {
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        let Some(folder) = work_folder() else { return };
        let (journal, disk) = make(folder.path(), "ivdr-2006", file_system);
        let content: Vec<u8> = (0..6_000_000u32).map(|index| (index * 7 % 251) as u8).collect();
        let path = disk.target().join("content");
        let began = Instant::now();
        let mut file = File::create(&path).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        // 6 MB at 13.75 MB/s, with an empty cache at the end.
        assert!(began.elapsed() > Duration::from_millis(436), "{:?}", began.elapsed());
        sys::disk::drop_file_cache(&path).unwrap();
        let began = Instant::now();
        let mut back = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut back).unwrap();
        assert!(back == content);
        // Its beginning may still be in the drive's buffer.
        assert!(began.elapsed() > Duration::from_millis(300), "{:?}", began.elapsed());
        let counters = disk.counters().unwrap().unwrap();
        assert!(counters.flushes > 0 && counters.written_bytes >= 6_000_000, "{counters:?}");
        drop(file);
        assert_removed(folder.path(), &journal, disk);
    }
}

/// A process that writes 200 MiB to the disk.
fn writer(target: &Path) -> std::process::Child {
    Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "count=200", "conv=fsync"])
        .arg(format!("of={}", target.join("zeros").display()))
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for_queued_request(disk: &Disk) {
    wait_until("a request is queued at the disk", || disk.counters().unwrap().unwrap().waiting > 0);
}

fn wait_for_end(mut child: std::process::Child) {
    wait_until("the writer has ended", || child.try_wait().unwrap().is_some());
}

#[test]
fn killed_or_hung_server_does_not_block_removal() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let Some(folder) = work_folder() else { return };
        let (journal, disk) = make(folder.path(), "ivdr-2006", FileSystem::Ext4);
        let mut writing = writer(disk.target());
        wait_for_queued_request(&disk);
        kill(Pid::from_raw(disk.server_pid().unwrap()), signal).unwrap();
        if signal == Signal::SIGKILL {
            let output = disk.counters().unwrap_err().to_string();
            assert!(output.contains("stats"), "{output}");
        }
        // The writer gets a signal while it waits in the kernel: it ends when the disk is removed.
        writing.kill().unwrap();
        assert_removed(folder.path(), &journal, disk);
        wait_for_end(writing);
    }
}

#[test]
fn writes_finish_when_the_server_stops() {
    let Some(folder) = work_folder() else { return };
    let (journal, disk) = make(folder.path(), "ivdr-2006", FileSystem::Ext4);
    let mut writing = writer(disk.target());
    wait_for_queued_request(&disk);
    kill(Pid::from_raw(disk.server_pid().unwrap()), Signal::SIGTERM).unwrap();
    // 200 MiB would take 15 s at the disk's rate; they all arrive.
    assert!(writing.wait().unwrap().success());
    assert_eq!(std::fs::metadata(disk.target().join("zeros")).unwrap().len(), 200 << 20);
    assert!(!disk.counters().unwrap().unwrap().paced);
    assert_removed(folder.path(), &journal, disk);
}

#[test]
fn undo_removes_the_disk_of_a_killed_owner() {
    let Some(folder) = work_folder() else { return };
    let own = this_program();
    let mut owner = Command::new(own.path)
        .args(own.arguments)
        .arg("own")
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(owner.stdout.take().unwrap());
    let server = std::io::BufRead::lines(&mut output)
        .find_map(|line| line.unwrap().strip_prefix("owns ").map(|pid| pid.parse::<i32>().unwrap()))
        .unwrap();
    let target: PathBuf = folder.path().join("a");
    let mut writing = writer(&target);
    let began = Instant::now();
    while std::fs::metadata(target.join("zeros")).is_ok_and(|file| file.len() == 0) && began.elapsed() < LONG
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    writing.kill().unwrap();
    let began = Instant::now();
    let leftovers = Journal::leftovers(&folder.path().join("journal"), Duration::ZERO).unwrap().journals;
    assert_eq!(leftovers.len(), 1);
    for result in leftovers.into_iter().flat_map(Leftover::replay) {
        assert!(result.outcome.is_settled(), "{result}");
    }
    assert!(began.elapsed() < LONG, "took {:?}", began.elapsed());
    assert_eq!(left_in(folder.path()), Vec::<String>::new());
    assert!(!is_running(server), "it died with its owner");
    wait_for_end(writing);
}

#[test]
fn failed_creation_reports_and_leaves_nothing() {
    let Some(folder) = work_folder() else { return };
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let good = spec(folder.path(), "ssd-sata", FileSystem::Ext4);
    let wrong = Program { path: "/bin/false".into(), arguments: Vec::new() };
    let output = Disk::create(&journal, &good, &wrong).unwrap_err().to_string();
    assert!(output.contains("before it was ready"), "{output}");
    // Too small for its file system: mkfs says so.
    let small = ImageSpec { size_bytes: 1 << 20, file_system: FileSystem::Xfs, ..good.image.clone() };
    let small = DiskSpec { image: small, ..good.clone() };
    let output = Disk::create(&journal, &small, &this_program()).unwrap_err().to_string();
    assert!(output.contains("mkfs.xfs"), "{output}");
    std::fs::write(&good.image.image, "precious").unwrap();
    let output = Disk::create(&journal, &good, &this_program()).unwrap_err().to_string();
    assert!(output.contains("exists already"), "{output}");
    assert_eq!(std::fs::read(&good.image.image).unwrap(), b"precious");
    std::fs::remove_file(&good.image.image).unwrap();
    assert_eq!(left_in(folder.path()), Vec::<String>::new());
    assert_eq!(journal.pending(), 0);
}
