//! Groups, disks, namespaces and children on the real kernel. Everything made here is undone here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{LONG, Pair, as_root, journal, own_name, work_folder};
use nix::mount::{MsFlags, mount, umount};
use sys::Error;
use sys::cgroup::Cgroup;
use sys::child::Spawn;
use sys::clock::Deadline;
use sys::disk::{DiskImage, FileSystem, ImageSpec, drop_file_cache, resident_bytes};
use sys::journal::Journal;
use sys::netlink::Queue;
use sys::netns::{Namespace, Subnet};
use sys::proc::{BlockDeviceReader, ProcessSet, block_device_of_path};

#[test]
fn quota_throttles_a_child_and_is_counted() {
    let Some((_folder, journal)) = as_root() else { return };
    let group = Cgroup::create(&journal, "quota").unwrap();
    group.set_cpu_quota_percent(20.0).unwrap();
    let stat = group.cpu_stat_path().unwrap();
    let mut reader = group.cpu_reader().unwrap();
    let mut child = Spawn::new("sh")
        .args(["-c", "echo ready; while :; do :; done"])
        .cgroup(&group)
        .start(&journal)
        .unwrap();
    child.wait_line(LONG, |line| line == "ready").unwrap();
    assert_eq!(group.pids().unwrap(), [child.pid()]);

    // Not a time but a condition: until it has been held back in several periods.
    let before = reader.read().unwrap();
    let started = Instant::now();
    let mut after = before;
    while after.periods_throttled.unwrap() < before.periods_throttled.unwrap() + 5 && started.elapsed() < LONG
    {
        std::thread::sleep(Duration::from_millis(20));
        after = reader.read().unwrap();
    }
    assert!(
        after.periods_throttled.unwrap() >= before.periods_throttled.unwrap() + 5,
        "{before:?} {after:?}"
    );
    assert!(after.throttled_ns > before.throttled_ns && after.usage_ns > before.usage_ns);

    let mut set = ProcessSet::open(Path::new("/"), &[child.pid()]).unwrap();
    assert!(set.read_cpu().cpu_ns > 0);
    // What can be found out from the process alone.
    let limits = sys::cgroup::limits_of(Path::new("/"), child.pid(), None).unwrap();
    assert_eq!(limits.cpu_quota_percent, Some(20.0));
    let by_pid = sys::cgroup::cpu_reader_of(Path::new("/"), child.pid()).unwrap().read().unwrap();
    assert!(by_pid.throttled_ns >= after.throttled_ns);
    assert!(matches!(group.set_cpu_quota_percent(0.0), Err(Error::Refused(_))));
    assert!(matches!(group.set_cpu_quota_percent(f64::NAN), Err(Error::Refused(_))));

    // The group is removed although its process still runs: that goes to the group above.
    drop(group);
    assert!(!stat.exists());
    assert!(child.try_wait().unwrap().is_none());
    child.stop(LONG).unwrap();
    assert_eq!(journal.pending(), 0);
    let file = journal.path().to_path_buf();
    drop(journal);
    assert!(!file.exists());
}

#[test]
fn image_of_each_file_system_has_a_read_limit() {
    let Some((folder, journal)) = as_root() else { return };
    for file_system in FileSystem::ALL {
        let spec = ImageSpec {
            image: folder.path().join("disk.img"),
            size_bytes: 320 << 20,
            file_system,
            target: folder.path().join("mounted"),
        };
        match DiskImage::create(&journal, &spec) {
            Ok(disk) => use_disk(&journal, &disk),
            Err(error @ Error::MissingProgram { .. }) => {
                features::skip(&format!("{}: {error}", file_system.name()));
            }
            Err(error) => panic!("{}: {error}", file_system.name()),
        }
        assert!(!spec.image.exists() && !spec.target.exists(), "{} is undone", file_system.name());
        assert_eq!(journal.pending(), 0);
    }
}

/// A disk whose file is on a mount of rclone that was killed. Everything is unmounted when it is dropped.
struct DeadMount<'a> {
    folder: &'a Path,
}

impl<'a> DeadMount<'a> {
    /// Needs rclone, fusermount3 and losetup.
    fn new(folder: &'a Path) -> Self {
        let this = Self { folder };
        let script = "mkdir behind mount disk && truncate -s 64M behind/image || exit 1\n\
            rclone mount behind mount --vfs-cache-mode full --config '' --cache-dir cache &\n\
            for i in $(seq 100); do [ -e mount/image ] && break; sleep 0.1; done\n\
            mkfs.ext4 -q mount/image && mount -o loop mount/image disk; code=$?\n\
            kill -KILL $!; wait; exit $code";
        assert!(this.run(script), "a disk is made on a mount of rclone");
        this
    }

    fn run(&self, script: &str) -> bool {
        let quiet = std::process::Stdio::null;
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]).current_dir(self.folder).stdout(quiet()).stderr(quiet());
        command.status().unwrap().success()
    }
}

impl Drop for DeadMount<'_> {
    fn drop(&mut self) {
        // Lazily: what is behind them does not answer.
        self.run("umount --lazy disk; umount --lazy mount");
    }
}

#[test]
fn btrfs_is_made_beside_a_mount_whose_server_is_dead() {
    let Some((folder, journal)) = as_root() else { return };
    let has_rclone = std::process::Command::new("rclone").arg("version").output().is_ok();
    if !has_rclone {
        return features::skip("needs rclone");
    }
    let _dead = DeadMount::new(folder.path());
    let stat = std::fs::metadata(folder.path().join("mount/image")).unwrap_err();
    assert_eq!(stat.raw_os_error(), Some(libc::ENOTCONN), "its server is dead");
    let image = folder.path().join("disk.img");
    let spec = ImageSpec {
        image: image.clone(),
        size_bytes: 320 << 20,
        file_system: FileSystem::Btrfs,
        target: folder.path().join("mounted"),
    };
    let disk = DiskImage::create(&journal, &spec).unwrap();
    std::fs::write(disk.target().join("file"), "text").unwrap();
    // What was unmounted for it was unmounted there only.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(mounts.contains(&format!(" {} ", folder.path().join("disk").display())), "{mounts}");
    drop(disk);
    assert!(!image.exists() && journal.pending() == 0);
}

/// Unmounts when dropped, before the disk below is.
struct Overlay(std::path::PathBuf);

impl Overlay {
    fn mount(below: &Path) -> Self {
        let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| below.join(name));
        for folder in [&lower, &upper, &work, &merged] {
            std::fs::create_dir(folder).unwrap();
        }
        let options =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        mount(Some("overlay"), &merged, Some("overlay"), MsFlags::empty(), Some(options.as_str())).unwrap();
        Self(merged)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        if let Err(error) = umount(&self.0) {
            eprintln!("{} stays mounted: {error}", self.0.display());
        }
    }
}

#[test]
fn cached_pages_of_an_overlay_are_seen() {
    const BYTES: u64 = 1 << 20;
    let Some((folder, journal)) = as_root() else { return };
    let spec = ImageSpec {
        image: folder.path().join("disk.img"),
        size_bytes: 64 << 20,
        file_system: FileSystem::Ext4,
        target: folder.path().join("mounted"),
    };
    let disk = DiskImage::create(&journal, &spec).unwrap();
    let overlay = Overlay::mount(disk.target());
    let file = overlay.0.join("content");
    std::fs::write(&file, vec![7; BYTES as usize]).unwrap();
    assert_eq!(resident_bytes(&file).unwrap(), Some(BYTES));
    drop_file_cache(&file).unwrap();
    assert_eq!(resident_bytes(&file).unwrap(), Some(0));
}

fn use_disk(journal: &Journal, disk: &DiskImage) {
    const BYTES: usize = 2 << 20;
    let file = disk.target().join("content");
    std::fs::write(&file, vec![7; BYTES]).unwrap();
    let device = block_device_of_path(Path::new("/"), &file).unwrap().unwrap();
    assert_eq!(&device, disk.block_device(), "found through the file, also on btrfs");
    drop_file_cache(&file).unwrap();
    assert_eq!(resident_bytes(&file).unwrap(), Some(0));

    let group = Cgroup::create(journal, "read").unwrap();
    group.set_read_limit(&device, 4_000_000).unwrap();
    assert!(matches!(group.set_read_limit(&device, 0), Err(Error::Refused(_))));
    let mut reader = BlockDeviceReader::open(&device).unwrap();
    let before = reader.read().unwrap();
    let started = Instant::now();
    let mut child = Spawn::new("cat").arg(&file).cgroup(&group).start(journal).unwrap();
    let limits = sys::cgroup::limits_of(Path::new("/"), child.pid(), Some(&device)).unwrap();
    assert_eq!(limits.read_bytes_per_s, Some(4_000_000));
    assert!(child.wait(LONG).unwrap().success());
    let took = started.elapsed();
    let read = reader.read().unwrap().read_bytes - before.read_bytes;
    assert!(read >= BYTES as u64, "read {read} B from the device");
    // 2 MiB at 4 MB/s take 0.52 s. A lower bound on a throttled time is no race: it can only take longer.
    assert!(took > Duration::from_millis(300), "{}: took {took:?}", disk.file_system().name());
    // A kernel that is short of memory may drop some at any time; read once more, they are there again.
    let deadline = Deadline::after(LONG);
    while resident_bytes(&file).unwrap() < Some(BYTES as u64) {
        assert!(!deadline.passed(), "{:?} of {BYTES} bytes stay", resident_bytes(&file).unwrap());
        assert_eq!(std::fs::read(&file).unwrap().len(), BYTES);
    }
    assert_eq!(resident_bytes(&file).unwrap(), Some(BYTES as u64));
}

#[test]
fn existing_image_is_not_touched() {
    let folder = work_folder();
    let journal = journal(folder.path());
    let image = folder.path().join("precious");
    std::fs::write(&image, "data").unwrap();
    let target = folder.path().join("mounted");
    let spec =
        ImageSpec { image: image.clone(), size_bytes: 64 << 20, file_system: FileSystem::Ext4, target };
    assert!(matches!(DiskImage::create(&journal, &spec), Err(Error::Refused(_))));
    assert_eq!(std::fs::read(&image).unwrap(), b"data");
    let spec = ImageSpec { image: folder.path().join("new"), size_bytes: u64::MAX, ..spec };
    assert!(matches!(DiskImage::create(&journal, &spec), Err(Error::Refused(_))));
    assert!(!spec.image.exists());
    assert_eq!(journal.pending(), 0);
}

/// Sends `bytes` from the server to the client and returns what arrived.
fn transfer(pair: &Pair, bytes: usize) -> usize {
    let listener = pair.server.within(|| TcpListener::bind((Pair::SERVER, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&vec![1; bytes]).unwrap();
    });
    let mut stream = pair.client.within(|| TcpStream::connect(address)).unwrap().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    server.join().unwrap();
    all.len()
}

#[test]
fn shaped_link_into_a_namespace_limits_traffic() {
    let Some((_folder, journal)) = as_root() else { return };
    let pair = Pair::make(&journal, "link");
    pair.server.ip("link add lonely type bridge").unwrap();
    pair.limit(16_000, 64_000);
    // A child inside sees only what is there, and others find its counters by its pid.
    let mut child = Spawn::new("sh")
        .args(["-c", "echo ready; sleep 600"])
        .namespace(&pair.server)
        .start(&journal)
        .unwrap();
    child.wait_line(LONG, |line| line == "ready").unwrap();
    let device = |pid: i32, name: &str| sys::proc::NetDevice::open_of_pid(Path::new("/"), pid, name);
    let mut inner = device(child.pid(), "eth0").unwrap();
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(device(child.pid(), "lonely").is_ok() && device(own, "lonely").is_err());
    let mut queue = Queue::open("eth0", Some(child.pid())).unwrap().unwrap();
    assert!(Queue::open("lonely", None).is_err(), "it is not in this namespace");
    let before = inner.read().unwrap();
    let started = Instant::now();
    assert_eq!(transfer(&pair, 500_000), 500_000);
    // 500 kB at 8 Mbit/s take 0.5 s, less the burst; it can only take longer.
    assert!(started.elapsed() > Duration::from_millis(300), "took {:?}", started.elapsed());
    assert!(inner.read().unwrap().tx_bytes >= before.tx_bytes + 500_000);
    let after = queue.read().unwrap();
    assert!(after.bytes >= Some(500_000) && after.overlimits > Some(0), "{after:?}");
    // A queue that holds less than a window in flight drops.
    pair.limit(4_000, 4_000);
    transfer(&pair, 500_000);
    let full = Queue::open("eth0", Some(child.pid())).unwrap().unwrap().read().unwrap();
    assert!(full.drops > Some(0), "{full:?}");
    // The device's own counter does not hold its queue's drops.
    assert!(inner.read().unwrap().tx_dropped < before.tx_dropped + full.drops.unwrap());
    drop(child);
    let names = [&pair.server, &pair.client].map(|side| side.name().to_owned());
    drop(pair);
    assert!(names.iter().all(|name| !Path::new("/run/netns").join(name).exists()));
    assert_eq!(journal.pending(), 0);
}

#[test]
fn concurrently_taken_name_is_kept() {
    let Some((_folder, journal)) = as_root() else { return };
    let name = own_name("taken");
    // The folder of names stays as long as one is left.
    let other = Namespace::create(&journal, &own_name("other")).unwrap();
    let first = Namespace::create(&journal, &name).unwrap();
    assert!(matches!(Namespace::create(&journal, &name), Err(Error::Refused(_))));
    first.within(|| ()).unwrap();
    drop(first);
    // A dangling link does not exist when it is looked up, but prevents creation: as if another program had
    // created the name in between.
    let theirs = Path::new("/run/netns").join(&name);
    std::os::unix::fs::symlink("nowhere", &theirs).unwrap();
    let said = Namespace::create(&journal, &name).unwrap_err().to_string();
    let stays = theirs.symlink_metadata().is_ok();
    std::fs::remove_file(&theirs).unwrap();
    assert!(stays, "{said}");
    drop(other);
    assert_eq!(journal.pending(), 0);
}

#[test]
fn subnet_in_use_is_refused() {
    // The loopback has it everywhere (RFC 1122, 3.2.1.3).
    let loopback: Subnet = "127.0.0.0/16".parse().unwrap();
    assert!(matches!(loopback.refuse_if_used(), Err(Error::Refused(_))));
}

#[test]
fn child_reports_ready_failure_and_end() {
    let folder = work_folder();
    let journal = journal(folder.path());
    let shell = |script: &str| Spawn::new("sh").args(["-c", script]).start(&journal).unwrap();

    let missing = Spawn::new("no-such-program-at-all").start(&journal).unwrap_err().to_string();
    assert!(missing.contains("no-such-program-at-all"), "{missing}");

    let mut early = shell("echo went wrong >&2; exit 7");
    let said = early.wait_line(LONG, |line| line == "ready").unwrap_err().to_string();
    assert!(said.contains("went wrong") && said.contains('7'), "{said}");

    // Of much that was written at once, the last line is read too, although the end is seen first.
    let mut eloquent = shell("seq 1 5000; echo that was all");
    eloquent.wait(LONG).unwrap();
    assert_eq!(eloquent.last_words(Deadline::after(LONG)).lines().last(), Some("that was all"));

    let mut late = shell("echo not yet; sleep 600");
    let said = late.wait_line(Duration::from_millis(300), |line| line == "ready").unwrap_err();
    assert!(matches!(said, Error::Deadline { .. }), "{said}");
    drop(late);

    // One that ends politely, and takes its exit code along.
    let mut polite = shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    polite.wait_line(LONG, |line| line == "ready").unwrap();
    assert_eq!(polite.stop(LONG).unwrap().code(), Some(3));

    // One that does not, and has a child of its own: both are gone.
    let mut stubborn = shell("trap '' TERM; sleep 600 & echo $!; while :; do sleep 0.01; done");
    let grandchild = stubborn.wait_line(LONG, |line| line.parse::<i32>().is_ok()).unwrap();
    assert!(!stubborn.stop(Duration::from_millis(50)).unwrap().success());
    let lives = || {
        let state = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    let started = Instant::now();
    while lives() && started.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!lives(), "the grandchild ends with the group");
    assert_eq!(journal.pending(), 0, "ended children are not in the journal");
}

#[test]
fn child_outlives_its_starting_thread() {
    let folder = work_folder();
    let journal = journal(folder.path());
    let start = || Spawn::new("sleep").arg("600").start(&journal).unwrap();
    let mut child = std::thread::scope(|scope| scope.spawn(start).join()).unwrap();
    // The death signal, were it bound to the thread, would have been sent when the thread ended.
    assert!(child.wait(Duration::from_millis(200)).is_err());
    assert!(child.try_wait().unwrap().is_none());
    child.stop(LONG).unwrap();
}
