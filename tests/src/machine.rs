//! The machine that the tests run on: what it offers, and which test has it alone.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::Uid;

/// A lock that all test binaries of this user share; held until it is dropped.
#[must_use]
pub struct MachineLock(#[allow(dead_code, reason = "held, not read")] Flock<File>);

/// Wait until no other test uses the lock. For tests that judge timings, fill the machine, or crash kagiri on
/// purpose (the next measurement would undo what the crash left).
pub fn alone() -> MachineLock {
    lock(FlockArg::LockExclusive)
}

/// Wait until no test needs the machine alone. For tests that offer light traffic, which disturbs only those.
pub fn beside_others() -> MachineLock {
    lock(FlockArg::LockShared)
}

fn lock(kind: FlockArg) -> MachineLock {
    let path = std::env::temp_dir().join(format!("kagiri-tests-{}.lock", Uid::effective()));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    MachineLock(Flock::lock(file, kind).unwrap_or_else(|(_, error)| panic!("flock: {error}")))
}

pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The first of these programs that is not installed.
pub fn missing<'a>(names: &[&'a str]) -> Option<&'a str> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders: Vec<&str> = path.split(':').chain(["/usr/sbin", "/sbin"]).collect();
    let there = |name: &str| {
        folders.iter().any(|folder| {
            std::fs::metadata(format!("{folder}/{name}"))
                .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
        })
    };
    names.iter().copied().find(|name| !there(name))
}

/// Wait until `condition` holds, looking often; panics with `what` after `within`.
pub fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A small file system in memory, gone when dropped. Needs root.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mount one of `bytes` at a folder that is made for it.
    pub fn mount(at: &Path, bytes: u64) -> Self {
        std::fs::create_dir(at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
        let options = format!("size={bytes}");
        mount(Some("none"), at, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .unwrap_or_else(|error| panic!("mount {}: {error}", at.display()));
        Self(at.to_owned())
    }

    /// Mount an ext4 image of `bytes` at a folder that is made for it; the image lies beside it.
    pub fn mount_ext4(at: &Path, bytes: u64) -> Self {
        std::fs::create_dir(at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
        let script = "truncate -s $2 $1.image && mkfs.ext4 -qF $1.image && mount -o loop $1.image $1";
        let made = Command::new("sh").args(["-c", script, "sh"]).arg(at).arg(bytes.to_string()).output();
        let made = made.expect("sh runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self(at.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fill what is left of it; returns the file that does.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = File::create(&path).expect("a file on the small disk");
        let full = std::io::copy(&mut std::io::repeat(0), &mut file).expect_err("it has an end");
        assert_eq!(full.raw_os_error(), Some(nix::errno::Errno::ENOSPC as i32), "{full}");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
