//! Ends processes that a crashed owner has left behind.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::Outcome;
use super::ownership::namespace_path;
use crate::proc::process::set::{all_pids, group_of};
use crate::proc::start_ticks;
use crate::process::{PidFd, end_all};

/// How long a process left over from a crash may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long processes of a namespace that is to go may take to end by themselves.
const NAMESPACE_GRACE: Duration = Duration::from_millis(500);

/// Ends process `pid` (and the rest of its group) if it was started at `start_ticks`: SIGTERM, a grace time,
/// SIGKILL.
pub(super) fn end_if_started_at(pid: i32, started: u64, group: bool) -> Result<Outcome, String> {
    if pid <= 1 || pid == nix::unistd::getpid().as_raw() {
        return Ok(Outcome::NotOurs("it is this process or the first one".to_owned()));
    }
    let anybody = end_all(GRACE, || running(pid, started, group))?;
    Ok(if anybody { Outcome::Done } else { Outcome::AlreadyGone })
}

/// The process `pid` that was started at `started` and, if asked for, the rest of its group, as far as they
/// run.
fn running(pid: i32, started: u64, group: bool) -> Vec<PidFd> {
    let root = Path::new("/");
    let mut found = Vec::new();
    // The handle is opened before the check, so the process checked is the process signalled.
    if let Ok(handle) = PidFd::try_open(pid) {
        match start_ticks(root, pid) {
            Ok(ticks) if ticks == started => found.push(handle),
            // Another process has this number now, so no group of ours can have it.
            Ok(_) => return Vec::new(),
            Err(_) => {}
        }
    }
    if group {
        // Members outlive their leader; while one lives, the number is not given to a new process.
        for member in all_pids(root).into_iter().filter(|member| *member != pid) {
            if let Ok(handle) = PidFd::try_open(member)
                && group_of(root, member) == Some(pid)
                && start_ticks(root, member).is_ok_and(|ticks| ticks >= started)
            {
                found.push(handle);
            }
        }
    }
    found.retain(|process| !process.has_ended());
    found
}

/// Ends all processes in namespace `name`: SIGTERM, a grace time, SIGKILL. Those that start others meanwhile
/// are met again.
pub(super) fn end_processes_in(name: &str) -> Result<(), String> {
    // A file without a namespace behind it belongs to no process.
    let Ok(wanted) = std::fs::metadata(namespace_path(name)) else { return Ok(()) };
    let wanted = (wanted.dev(), wanted.ino());
    let ended = end_all(NAMESPACE_GRACE, || processes_in(wanted));
    ended.map(drop).map_err(|error| format!("{name}: {error}"))
}

/// The living processes in the namespace that is this device and inode (namespaces(7)), but never this one.
fn processes_in(namespace: (u64, u64)) -> Vec<PidFd> {
    let is_in = |pid: i32| {
        let facts = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        facts.is_ok_and(|facts| (facts.dev(), facts.ino()) == namespace)
    };
    let own = nix::unistd::getpid().as_raw();
    let others = all_pids(Path::new("/")).into_iter().filter(|pid| *pid > 1 && *pid != own && is_in(*pid));
    // Checked again with a handle: the id may have been reused by another process.
    others
        .filter_map(|pid| PidFd::open(pid).ok().filter(|process| is_in(pid) && !process.has_ended()))
        .collect()
}
