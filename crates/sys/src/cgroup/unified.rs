//! Control groups of version 2 without limits: they mark the processes in them.

use std::path::{Path, PathBuf};

use crate::journal::ownership::PREFIX;
use crate::journal::{EntryId, Journal, Undo};
use crate::proc::mounts::mounts;
use crate::{Error, Result};

/// A control group of the version 2 hierarchy. Dropping it moves the processes that are left to the group
/// above, and removes it.
#[derive(Debug)]
pub struct UnifiedGroup {
    journal: Journal,
    entry: EntryId,
    folder: PathBuf,
}

impl UnifiedGroup {
    /// Makes a group at the top of the hierarchy; `name` is the end of its name.
    /// Errors: there is no hierarchy of version 2, or no right to make a group.
    pub fn create(journal: &Journal, name: &str) -> Result<Self> {
        let all = mounts(Path::new("/")).map_err(|e| Error::file("read", "/proc/self/mountinfo", e))?;
        let top = all.into_iter().find(|mount| mount.fs_type == "cgroup2").map(|mount| mount.target);
        let top = top.ok_or_else(|| {
            Error::Refused(
                "this host has no control groups of version 2; mount them: 'mount -t cgroup2 none \
                 /sys/fs/cgroup/unified'"
                    .to_owned(),
            )
        })?;
        Self::create_in(journal, &top, name)
    }

    /// Makes a group below the one with this folder.
    /// Errors: that is no group, or no right.
    pub fn create_in(journal: &Journal, above: &Path, name: &str) -> Result<Self> {
        if !above.join("cgroup.procs").exists() {
            return Err(Error::Refused(format!("{} is no control group", above.display())));
        }
        let folder = above.join(format!("{PREFIX}{}-{name}", std::process::id()));
        let entry = journal.record(Undo::RemoveCgroup { folders: vec![folder.clone()] })?;
        if let Err(error) = std::fs::create_dir(&folder) {
            journal.done(entry)?;
            return Err(Error::file("create control group", &folder, error));
        }
        Ok(Self { journal: journal.clone(), entry, folder })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file by which a process joins: it writes `0` (cgroups(7)).
    pub fn process_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for UnifiedGroup {
    fn drop(&mut self) {
        // What cannot be removed stays in the journal, which reports it.
        self.journal.undo(self.entry);
    }
}

/// The control group of version 2 that this path of a folder means, as it stands in `/proc/PID/cgroup`:
/// `None` if the folder is in no hierarchy of version 2.
pub fn unified_path(folder: &Path) -> Option<String> {
    let all = mounts(Path::new("/")).ok()?;
    let tops = all.into_iter().filter(|mount| mount.fs_type == "cgroup2");
    let inside = tops.filter_map(|mount| folder.strip_prefix(&mount.target).ok().map(Path::to_path_buf));
    inside.map(|inside| Path::new("/").join(inside).to_string_lossy().into_owned()).next()
}
