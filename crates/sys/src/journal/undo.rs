//! Undoes one change within a deadline, after checking that it is still ours.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::network::{delete_htb, restore_new_sockets, restore_sockets, restore_sysctl};
use super::ownership::{OWNER_FILE, is_our_group, is_our_namespace, namespace_path};
use super::processes::{end_if_started_at, end_processes_in};
use super::remove_tree::remove_tree;
use super::{EntryId, Outcome, Undo, UndoResult};
use crate::clock::Deadline;
use crate::proc::BlockDevice;
use crate::proc::mounts::{Mount, mounts};

const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
/// Longest time of retries while a step is busy.
const BUSY_FOR: Duration = Duration::from_secs(5);
/// Longest time of a step that hangs in the kernel: without progress, if it counts what it removes.
const STEP_FOR: Duration = Duration::from_secs(20);
/// Between two retries.
const RETRY_EVERY: Duration = Duration::from_millis(10);

type Step = Result<Outcome, String>;

/// Entries of a tree that were removed: a large one takes longer than [`STEP_FOR`].
pub(crate) type Removed = AtomicU64;

/// Undoes one change. Takes at most [`STEP_FOR`] after the last progress, unless no thread can be started for
/// it.
pub(crate) fn perform(undo: Undo) -> UndoResult {
    let step = undo.clone();
    perform_by(undo, Arc::new(move |removed: &Removed| run(&step, removed)))
}

/// [`perform`] where the caller knows how: by what it holds open.
pub(crate) fn perform_by(undo: Undo, step: Arc<dyn Fn(&Removed) -> Outcome + Send + Sync>) -> UndoResult {
    let outcome = in_time(move |removed| step(removed)).unwrap_or_else(Outcome::Failed);
    UndoResult { undo, outcome }
}

/// Undoes all [`Undo::RestoreSocket`] of `pending` at once, newest first: they are many, and programs wait
/// for their rate.
pub(super) fn perform_for_sockets(pending: &[(EntryId, Undo)]) -> HashMap<EntryId, Outcome> {
    let of_socket = |(id, undo): &(EntryId, Undo)| match undo {
        Undo::RestoreSocket { socket, original } => Some((*id, (*socket, *original))),
        _ => None,
    };
    let (ids, sockets): (Vec<_>, Vec<_>) = pending.iter().rev().filter_map(of_socket).unzip();
    if ids.is_empty() {
        return HashMap::new();
    }
    let outcomes = in_time(move |_| restore_sockets(&sockets));
    let outcomes = outcomes.unwrap_or_else(|why| vec![Outcome::Failed(why); ids.len()]);
    ids.into_iter().zip(outcomes).collect()
}

/// What `work` returns, or why that took too long. It runs on a thread of its own, because a call such as
/// `umount` can hang in the kernel and cannot be interrupted.
fn in_time<T: Send + 'static>(work: impl Fn(&Removed) -> T + Send + Clone + 'static) -> Result<T, String> {
    let (send, receive) = sync_channel(1);
    let removed = Arc::new(Removed::new(0));
    let (counted, step) = (removed.clone(), work.clone());
    let thread = std::thread::Builder::new().name("undo".to_owned()).spawn(move || {
        // The receiver may have given up.
        let _ = send.send(step(&counted));
    });
    if thread.is_err() {
        return Ok(work(&removed));
    }
    let mut before = 0;
    loop {
        let now = || removed.load(Ordering::Relaxed);
        match receive.recv_timeout(STEP_FOR) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) if now() > before => before = now(),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("no answer within {} s", STEP_FOR.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the undoing thread ended early".to_owned());
            }
        }
    }
}

fn run(undo: &Undo, removed: &Removed) -> Outcome {
    let step = match undo {
        Undo::RemoveCgroup { folders } => remove_cgroup(folders),
        Undo::DisableControllers { file, controllers } => disable_controllers(file, controllers),
        Undo::Unmount { target, source } => unmount(target, Some(source)),
        Undo::UnmountFuse { target } => unmount_fuse(target),
        Undo::DetachLoop { device, backing_file } => detach_loop(device, backing_file),
        Undo::RemoveFile { path } => gone_or(std::fs::remove_file(path)),
        Undo::RemoveFolder { path } => remove_folder(path),
        Undo::RemoveTree { path, owner, own, file_system } => {
            remove_tree(path, owner, own.as_ref(), file_system.as_ref(), removed)
        }
        Undo::DeleteNetns { name, end_processes } => delete_netns(name, *end_processes),
        Undo::KillProcess { pid, start_ticks, group } => end_if_started_at(*pid, *start_ticks, *group),
        Undo::RestoreSocket { socket, original } => {
            Ok(restore_sockets(&[(*socket, *original)]).pop().unwrap_or(Outcome::AlreadyGone))
        }
        Undo::RestoreNewSockets { group, change, varies } => Ok(restore_new_sockets(group, change, *varies)),
        Undo::DeleteHtb { namespace, device, handle, .. } => delete_htb(namespace, *device, *handle),
        Undo::RestoreSysctl { namespace, name, original, ours } => {
            restore_sysctl(namespace, name, original, ours)
        }
        Undo::DeleteObjects { .. } => Err("it takes credentials: run 'kagiri undo' with them".to_owned()),
    };
    step.unwrap_or_else(Outcome::Failed)
}

fn gone_or(result: io::Result<()>) -> Step {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Outcome::AlreadyGone),
        Err(error) => Err(error.to_string()),
    }
}

fn remove_folder(path: &Path) -> Step {
    match gone_or(std::fs::remove_dir(path)) {
        Err(_) if std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) => {
            Ok(Outcome::NotOurs("it holds files that are not ours".to_owned()))
        }
        Err(_) if mounted_at(path).is_some() => {
            Ok(Outcome::NotOurs("something else is mounted on it".to_owned()))
        }
        other => other,
    }
}

fn remove_cgroup(folders: &[PathBuf]) -> Step {
    let mut outcome = Outcome::AlreadyGone;
    for folder in folders {
        let ours = folder.file_name().and_then(|name| name.to_str()).is_some_and(is_our_group);
        if !ours {
            return Ok(Outcome::NotOurs(format!("{} is not named like a group of ours", folder.display())));
        }
        if remove_one_group(folder)? {
            outcome = Outcome::Done;
        }
    }
    Ok(outcome)
}

/// Removes one group; `false` when there was none. Processes that fork while they are moved are met again.
fn remove_one_group(folder: &Path) -> Result<bool, String> {
    let deadline = Deadline::after(BUSY_FOR);
    loop {
        match std::fs::remove_dir(folder) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => empty_group(folder)?,
            Err(error) => return Err(format!("{}: {error}", folder.display())),
        }
        if !deadline.pause(RETRY_EVERY) {
            return Err(format!("{} still holds processes after {} s", folder.display(), BUSY_FOR.as_secs()));
        }
    }
}

/// Removes the groups of ours below, and moves the processes to the group above.
fn empty_group(folder: &Path) -> Result<(), String> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && entry.file_name().to_str().is_some_and(is_our_group) {
            remove_one_group(&entry.path())?;
        }
    }
    move_processes_up(folder);
    Ok(())
}

fn move_processes_up(folder: &Path) {
    let Some(above) = folder.parent() else { return };
    let Ok(pids) = std::fs::read_to_string(folder.join("cgroup.procs")) else { return };
    for pid in pids.split_whitespace() {
        // One that has ended meanwhile cannot be moved and need not be.
        let _ = std::fs::write(above.join("cgroup.procs"), pid);
    }
}

fn disable_controllers(file: &Path, controllers: &[String]) -> Step {
    let enabled = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => return gone_or(Err(error)),
    };
    let mut outcome = Outcome::AlreadyGone;
    for controller in controllers {
        if enabled.split_whitespace().any(|name| name == controller) {
            match std::fs::write(file, format!("-{controller}")) {
                Ok(()) => outcome = Outcome::Done,
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Ok(Outcome::NotOurs(format!("another group uses {controller} now")));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(outcome)
}

/// Detaches `device` if its backing file is `backing_file`, and waits until the kernel has released it.
fn detach_loop(device: &Path, backing_file: &Path) -> Step {
    let root = Path::new("/");
    let behind =
        || BlockDevice::from_special_file(root, device).ok().flatten().and_then(|found| found.backing_file());
    // The kernel appends this when the file has been removed.
    let removed = PathBuf::from(format!("{} (deleted)", backing_file.display()));
    let ours = |found: &PathBuf| found == backing_file || *found == removed;
    match behind() {
        None => return Ok(Outcome::AlreadyGone),
        Some(found) if !ours(&found) => {
            return Ok(Outcome::NotOurs(format!("{} is behind it", found.display())));
        }
        Some(_) => {}
    }
    let deadline = Deadline::after(BUSY_FOR);
    loop {
        {
            let file = File::open(device).map_err(|error| error.to_string())?;
            // SAFETY: LOOP_CLR_FD takes no argument. A device in use is detached when its last user leaves.
            if unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CLR_FD, 0) } != 0 {
                let error = io::Error::last_os_error();
                if !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENXIO)) {
                    return Err(error.to_string());
                }
            }
        }
        if !behind().as_ref().is_some_and(ours) {
            return Ok(Outcome::Done);
        }
        if !deadline.pause(RETRY_EVERY) {
            let (device, within_s) = (device.display(), BUSY_FOR.as_secs());
            return Err(format!(
                "{device} is still in use after {within_s} s; end the program that has it open"
            ));
        }
    }
}

/// What is mounted at `target` and visible there.
fn mounted_at(target: &Path) -> Option<Mount> {
    let mounts = mounts(Path::new("/")).ok()?;
    mounts.into_iter().rev().find(|mount| mount.target == target)
}

fn unmount_fuse(target: &Path) -> Step {
    match mounted_at(target) {
        None => return Ok(Outcome::AlreadyGone),
        Some(other) if !other.is_fuse() => {
            return Ok(Outcome::NotOurs(format!("{} is mounted there", other.source.display())));
        }
        Some(_) => {}
    }
    if !target.parent().is_some_and(|above| above.join(OWNER_FILE).exists()) {
        return Ok(Outcome::NotOurs("it is in no folder of ours".to_owned()));
    }
    unmount(target, None)
}

/// Unmounts `target` if `source`, when it is known, is mounted there.
fn unmount(target: &Path, source: Option<&Path>) -> Step {
    let deadline = Deadline::after(BUSY_FOR);
    loop {
        let flags = match mounted_at(target) {
            None => return Ok(Outcome::AlreadyGone),
            Some(other) if source.is_some_and(|source| other.source != source) => {
                return Ok(Outcome::NotOurs(format!("{} is mounted there", other.source.display())));
            }
            // Cuts its server off (fuse_umount_begin), which may hang and then would keep its users from
            // ending.
            Some(mount) if mount.is_fuse() => MntFlags::MNT_FORCE,
            Some(_) => MntFlags::empty(),
        };
        match umount2(target, flags | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => return Ok(Outcome::Done),
            Err(Errno::EBUSY) => {}
            Err(error) => return Err(error.to_string()),
        }
        if !deadline.pause(RETRY_EVERY) {
            // A file is still open: unmount lazily; the kernel releases the mount with its last user.
            return match umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => Ok(Outcome::Done),
                Err(error) => Err(error.to_string()),
            };
        }
    }
}

fn delete_netns(name: &str, end_processes: bool) -> Step {
    if !is_our_namespace(name) {
        return Ok(Outcome::NotOurs("it is not named like a namespace of ours".to_owned()));
    }
    if end_processes {
        end_processes_in(name)?;
    }
    let path = namespace_path(name);
    // What `ip netns delete` does: take away the name. Namespaces end with their last process and name.
    match umount2(&path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => gone_or(std::fs::remove_file(&path)),
        Err(error) => Err(error.to_string()),
    }
}
