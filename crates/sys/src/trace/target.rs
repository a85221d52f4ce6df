//! The traced target and its threads.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::TraceError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Process(i32),
    Thread(i32),
    /// A child of ours that has not executed its program yet ([`crate::child::suspended_child`]).
    Suspended(i32),
}

pub fn threads_of(pid: i32) -> Result<Vec<i32>, TraceError> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|source| match is_there(pid) {
        true => TraceError::NotSeen { pid, source },
        false => TraceError::NoProcess { pid },
    })?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let threads: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    // An entry of a process that has ended and waits for its parent has its task still, but nothing will come
    // of it.
    match threads.is_empty() || is_zombie(pid) {
        true => Err(TraceError::NoProcess { pid }),
        false => Ok(threads),
    }
}

/// The processes that process `pid` has started and that still run (`/proc/PID/task/TID/children`, proc(5));
/// none where the kernel does not report it.
pub fn children_of(pid: i32) -> Vec<i32> {
    let threads = threads_of(pid).unwrap_or_default();
    let of_thread =
        |thread| std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
    let lists: Vec<String> = threads.into_iter().map(of_thread).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|child| child.parse().ok()).collect()
}

/// The process of a thread; the thread itself if that is no longer known.
pub(super) fn process_of(thread: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(thread)
}

/// A thread's current name (`/proc/PID/comm`, proc(5)); `None` once it has ended.
pub fn name_of_thread(thread: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{thread}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

/// The number of the call in which a thread waits at this moment (`/proc/PID/syscall`, proc(5)); `None` if it
/// waits in none, or this may not be seen.
pub fn waits_in(thread: i32) -> Option<u16> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    // "running", "-1 ..." outside of a call, or the number and more.
    text.split_whitespace().next()?.parse().ok()
}

/// Whether thread `id` exists (kill(2) with signal 0). Opens no file, since descriptors may have run out.
fn is_there(thread: i32) -> bool {
    kill(Pid::from_raw(thread), None) != Err(Errno::ESRCH)
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    // A leader that has ended before its other threads is a zombie too, but has threads to follow.
    matches!(state, Some('Z' | 'X'))
        && std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count) <= 1
}

/// Calls `follow` for every thread of `pid`, and again for those that were started meanwhile, until there is
/// none that it has not been called for. A thread that ends meanwhile is no error.
/// Errors: There is no such process, or `follow` failed for a thread that is still there.
pub(super) fn for_each_thread(
    pid: i32,
    mut follow: impl FnMut(i32) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    /// Threads that are started by threads which are followed already are followed without us; a few rounds
    /// see all.
    const ROUNDS: usize = 8;
    let mut known = std::collections::BTreeSet::new();
    for _ in 0..ROUNDS {
        let fresh: Vec<i32> = threads_of(pid)?.into_iter().filter(|thread| known.insert(*thread)).collect();
        if fresh.is_empty() {
            break;
        }
        for thread in fresh {
            match follow(thread) {
                Err(_) if !is_there(thread) => {}
                other => other?,
            }
        }
    }
    Ok(())
}
