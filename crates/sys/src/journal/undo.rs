//! Undoes one change within a deadline, after checking that it is still ours.

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

use super::ownership::{OWNER_FILE, is_our_group, is_our_namespace, namespace_path};
use super::processes::{end_if_started_at, end_processes_in};
use super::{Outcome, Undo, UndoResult};
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
type Removed = AtomicU64;

/// Undoes one change. Takes at most [`STEP_FOR`] after the last progress, unless no thread can be started for
/// it.
pub(crate) fn perform(undo: Undo) -> UndoResult {
    let (send, receive) = sync_channel(1);
    let step = undo.clone();
    let removed = Arc::new(Removed::new(0));
    let counted = removed.clone();
    // A thread of its own, because a call such as `umount` can hang in the kernel and cannot be interrupted.
    let thread = std::thread::Builder::new().name("undo".to_owned()).spawn(move || {
        // The receiver may have given up.
        let _ = send.send(run(&step, &counted));
    });
    let outcome = match thread {
        Ok(_) => {
            let mut before = 0;
            loop {
                let now = || removed.load(Ordering::Relaxed);
                match receive.recv_timeout(STEP_FOR) {
                    Ok(outcome) => break outcome,
                    Err(RecvTimeoutError::Timeout) if now() > before => before = now(),
                    Err(RecvTimeoutError::Timeout) => {
                        break Outcome::Failed(format!("no answer within {} s", STEP_FOR.as_secs()));
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        break Outcome::Failed("the undoing thread ended early".to_owned());
                    }
                }
            }
        }
        Err(_) => run(&undo, &removed),
    };
    UndoResult { undo, outcome }
}

fn run(undo: &Undo, removed: &Removed) -> Outcome {
    let step = match undo {
        Undo::RemoveCgroup { folders } => remove_cgroup(folders),
        Undo::DisableControllers { file, controllers } => disable_controllers(file, controllers),
        Undo::Unmount { target, source } => unmount(target, source),
        Undo::DetachLoop { device, backing_file } => detach_loop(device, backing_file),
        Undo::RemoveFile { path } => gone_or(std::fs::remove_file(path)),
        Undo::RemoveFolder { path } => remove_folder(path),
        Undo::RemoveTree { path, owner } => remove_tree(path, owner, removed),
        Undo::DeleteNetns { name, end_processes } => delete_netns(name, *end_processes),
        Undo::KillProcess { pid, start_ticks, group } => end_if_started_at(*pid, *start_ticks, *group),
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

fn remove_tree(path: &Path, owner: &str, removed: &Removed) -> Step {
    let Ok(facts) = path.symlink_metadata() else { return Ok(Outcome::AlreadyGone) };
    let mark = path.join(OWNER_FILE);
    let marked = std::fs::read_to_string(&mark).ok();
    let held = || std::fs::read_dir(path).map_or(usize::MAX, Iterator::count);
    match marked {
        Some(found) if found == owner && facts.is_dir() => {}
        // An interrupted making can end so: nothing is in it but the mark, and the mark says nothing yet.
        Some(found) if found.is_empty() && facts.is_dir() && held() == 1 => {}
        // An interrupted removal ends so: the mark goes last.
        None if facts.is_dir() && held() == 0 => return gone_or(std::fs::remove_dir(path)),
        _ => return Ok(Outcome::NotOurs("it is not marked as ours".to_owned())),
    }
    let mounts = mounts(Path::new("/")).map_err(|error| error.to_string())?;
    if let Some(mount) = mounts.iter().find(|mount| mount.target.starts_with(path)) {
        return Err(format!("{} is mounted on {}", mount.source.display(), mount.target.display()));
    }
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        // An earlier try that took too long has ended after all.
        Err(error) => return gone_or(Err(error)),
    };
    for entry in entries.flatten() {
        let (entry, is_folder) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
        if entry != mark {
            let gone = match is_folder {
                true => remove_folders(&entry, removed),
                false => std::fs::remove_file(&entry),
            };
            gone_or(gone).map_err(|error| format!("{}: {error}", entry.display()))?;
        }
    }
    gone_or(std::fs::remove_file(mark))?;
    gone_or(std::fs::remove_dir(path))
}

/// [`std::fs::remove_dir_all`], which counts each folder below `folder`. Only the owner can enter the tree,
/// so that nobody puts a link in the place of a folder meanwhile.
fn remove_folders(folder: &Path, removed: &Removed) -> io::Result<()> {
    // The deepest first; what is left then is removed at once.
    for entry in std::fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_folders(&entry.path(), removed)?;
        }
    }
    std::fs::remove_dir_all(folder)?;
    removed.fetch_add(1, Ordering::Relaxed);
    Ok(())
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
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => move_processes_up(folder),
            Err(error) => return Err(format!("{}: {error}", folder.display())),
        }
        if !deadline.pause(RETRY_EVERY) {
            return Err(format!("{} still holds processes after {} s", folder.display(), BUSY_FOR.as_secs()));
        }
    }
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

fn unmount(target: &Path, source: &Path) -> Step {
    let deadline = Deadline::after(BUSY_FOR);
    loop {
        let flags = match mounted_at(target) {
            None => return Ok(Outcome::AlreadyGone),
            Some(other) if other.source != source => {
                return Ok(Outcome::NotOurs(format!("{} is mounted there", other.source.display())));
            }
            // Cuts its server off (fuse_umount_begin), which may hang and then would keep its users from
            // ending.
            Some(mount) if mount.fs_type == "fuse" => MntFlags::MNT_FORCE,
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
