//! The machine that the tests run on: what it offers, and who has it for himself.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;

/// The machine for oneself, among all tests of all binaries, until it is dropped.
#[must_use]
pub struct Alone(#[allow(dead_code, reason = "held, not read")] Flock<File>);

/// Wait until no other test needs the machine for itself. Whoever offers traffic, or crashes kagiri on purpose (the
/// next measurement would tidy up after it), does it under this lock.
pub fn alone() -> Alone {
    let path = std::env::temp_dir().join(format!("kagiri-tests-{}.lock", Uid::effective()));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Alone(Flock::lock(file, FlockArg::LockExclusive).unwrap_or_else(|(_, error)| panic!("flock: {error}")))
}

/// Whether the tests run as root.
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
