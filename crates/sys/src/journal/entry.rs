//! The lines of a journal and the outcome of undoing one.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::EntryId;
use super::file_system::FileSystem;
use crate::netlink::NamespaceId;
use crate::proc::boot_id;
use crate::process::SocketChange;
use crate::tree::OwnPaths;
use crate::{Error, Result};

/// The format of a journal file; readers refuse a newer one.
pub(super) const VERSION: u32 = 1;

/// A socket of another program, in a form that recognises it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketId {
    /// The process that held it, and when that was started (see [`crate::proc::start_ticks`]).
    pub pid: i32,
    pub start_ticks: u64,
    /// The descriptor at which it was found.
    pub fd: i32,
    /// Its number in `/proc/PID/fd`.
    pub inode: u64,
    /// The kernel's own number of it, which no other socket gets (`SO_COOKIE`).
    pub cookie: u64,
}

/// How to undo one change to the system, with what is needed to recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Undo {
    /// Remove a control group: its folder in each hierarchy. Leftover processes go to the group above.
    /// Each folder must be named `kagiri-...`.
    RemoveCgroup { folders: Vec<PathBuf> },
    /// Take the controllers that were not enabled before from a version 2 group's children again; `file`: the
    /// group's `cgroup.subtree_control`.
    DisableControllers { file: PathBuf, controllers: Vec<String> },
    /// Unmount `target` if the device `source` is mounted there.
    Unmount { target: PathBuf, source: PathBuf },
    /// Cut the FUSE file system on `target`, a folder in a marked one of ours, off from its server, and
    /// unmount it. For programs that mount by themselves: their device's name is not known before.
    UnmountFuse { target: PathBuf },
    /// Detach a loop device (`/dev/loop3`) if `backing_file` is behind it.
    DetachLoop { device: PathBuf, backing_file: PathBuf },
    /// Remove a file that did not exist before.
    RemoveFile { path: PathBuf },
    /// Remove a folder that did not exist before, if it is empty.
    RemoveFolder { path: PathBuf },
    /// Remove a folder that did not exist before, with all that is in it. It must not be a link, and nothing
    /// may be mounted below it. `owner`: the content of its file `.kagiri-owner`; a folder of the same name
    /// with another owner is left alone. `own`: only these paths in it are removed, and others stay; without
    /// it, as in older journals, all are. `file_system`: where it was made; one that is not there counts as
    /// removed only if that file system is mounted. Without it, as in older journals, it always does.
    RemoveTree {
        path: PathBuf,
        owner: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own: Option<OwnPaths>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_system: Option<FileSystem>,
    },
    /// Delete a network namespace named `kagiri-...`; with `end_processes` after ending the processes in it.
    DeleteNetns {
        name: String,
        #[serde(default)]
        end_processes: bool,
    },
    /// End a process if it is still the one that was started (see [`crate::proc::start_ticks`]); with `group`
    /// also the process group that it leads.
    KillProcess { pid: i32, start_ticks: u64, group: bool },
    /// Delete the objects below `prefix` of an S3 bucket that did not exist before. The program does it, with
    /// the credentials of its environment (see [`super::Leftover::replay_with`]): they are in no journal.
    /// `endpoint`: the server's URL, unless it is Amazon's.
    DeleteObjects { bucket: String, prefix: String, endpoint: Option<String> },
    /// Give a socket of another program its settings back.
    RestoreSocket { socket: SocketId, original: SocketChange },
    /// Give those sockets of the processes in a control group no pacing rate and priority 0 that have this
    /// rate, or this priority, from a BPF program of ours. `varies`: the rate may have been changed since,
    /// and only its lowest 8 bits are ours.
    RestoreNewSockets {
        group: PathBuf,
        change: SocketChange,
        #[serde(default)]
        varies: bool,
    },
    /// Delete the root queueing discipline of an interface if it is an HTB with this handle. `device`: the
    /// interface's number in the namespace.
    DeleteHtb { namespace: NamespaceId, interface: String, device: u32, handle: u32 },
    /// Give a network setting (`net.ipv4.tcp_tso_rtt_log`) of a namespace its value back if it still is the
    /// one that was set.
    RestoreSysctl { namespace: NamespaceId, name: String, original: String, ours: String },
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoveCgroup { folders } => {
                let name = folders.first().map_or(Path::new("?"), PathBuf::as_path);
                write!(f, "remove control group {}", name.display())
            }
            Self::DisableControllers { file, controllers } => {
                write!(f, "disable {} in {}", controllers.join(" "), file.display())
            }
            Self::Unmount { target, .. } | Self::UnmountFuse { target } => {
                write!(f, "unmount {}", target.display())
            }
            Self::DetachLoop { device, backing_file } => {
                write!(f, "detach {} from {}", device.display(), backing_file.display())
            }
            Self::RemoveFile { path } => write!(f, "remove {}", path.display()),
            Self::RemoveFolder { path } => write!(f, "remove folder {}", path.display()),
            Self::RemoveTree { path, .. } => write!(f, "remove {} and all in it", path.display()),
            Self::DeleteNetns { name, .. } => write!(f, "delete network namespace {name}"),
            Self::KillProcess { pid, group: false, .. } => write!(f, "end process {pid}"),
            Self::DeleteObjects { bucket, prefix, .. } => {
                write!(f, "delete objects below s3://{bucket}/{prefix}/")
            }
            Self::RestoreSocket { socket, original } => {
                let (fd, pid) = (socket.fd, socket.pid);
                let parts = [
                    ("pacing rate", original.pacing.is_some()),
                    ("priority", original.priority.is_some()),
                    ("congestion control", original.congestion.is_some()),
                ];
                let parts: Vec<&str> =
                    parts.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
                write!(f, "restore the {} of socket {fd} of process {pid}", parts.join(" and "))
            }
            Self::RestoreNewSockets { group, .. } => {
                write!(f, "restore the pacing rate and priority of new sockets of {}", group.display())
            }
            Self::DeleteHtb { interface, handle, .. } => {
                write!(f, "delete queueing discipline htb {:x}: of {interface}", handle >> 16)
            }
            Self::RestoreSysctl { name, original, .. } => write!(f, "set {name} to {original}"),
            Self::KillProcess { pid, group: true, .. } => write!(f, "end process {pid} and its group"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// There was nothing left to undo.
    AlreadyGone,
    /// The object found was not made by this program, so it was left alone. The text says what was found.
    NotOurs(String),
    /// It could not be undone. Says why.
    Failed(String),
}

impl Outcome {
    /// Whether nothing is left to do.
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoResult {
    pub undo: Undo,
    pub outcome: Outcome,
}

impl fmt::Display for UndoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Done => write!(f, "{}: done", self.undo),
            Outcome::AlreadyGone => write!(f, "{}: nothing left to do", self.undo),
            Outcome::NotOurs(what) => write!(f, "{}: left alone, {what}", self.undo),
            Outcome::Failed(why) => write!(f, "{}: failed: {why}", self.undo),
        }
    }
}

/// The first line of a journal: its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) kagiri_journal: u32,
    pub(super) pid: i32,
    pub(super) start_ticks: u64,
    /// Different after a restart of the machine, which undoes nearly everything by itself.
    pub(super) boot_id: String,
}

impl Header {
    pub(super) fn of_this_process() -> Result<Self> {
        let pid = nix::unistd::getpid().as_raw();
        let start_ticks = crate::proc::start_ticks(Path::new("/"), pid)
            .map_err(|error| Error::file("read", format!("/proc/{pid}/stat"), error))?;
        Ok(Self { kagiri_journal: VERSION, pid, start_ticks, boot_id: boot_id() })
    }

    pub(super) fn owner(&self) -> Owner {
        let started = crate::proc::start_ticks(Path::new("/"), self.pid);
        if self.boot_id != boot_id()
            || started.is_ok_and(|ticks| ticks != self.start_ticks)
            || is_zombie(self.pid)
        {
            return Owner::Ended;
        }
        match crate::proc::is_ending(self.pid) {
            Ok(false) => Owner::Lives,
            Ok(true) => Owner::Ends,
            Err(_) => Owner::Ended,
        }
    }
}

/// Whether the process that wrote a journal still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Lives,
    /// It was killed, and the kernel has not finished with it.
    Ends,
    Ended,
}

/// Whether `pid` has ended and only waits for its parent to notice.
pub(super) fn is_zombie(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/stat")).is_ok_and(|text| {
        crate::proc::parse::after_name(&text)
            .and_then(|rest| crate::proc::parse::words(rest).next())
            .is_some_and(|state| state == b"Z" || state == b"X")
    })
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Undo { id: EntryId, undo: Undo },
    Done { done: EntryId },
}
