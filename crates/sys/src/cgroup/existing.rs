//! Existing control groups: programs are started in them; the groups are not changed.

use std::path::{Component, Path, PathBuf};

use super::Hierarchies;
use crate::proc::mounts::mounts;
use crate::{Error, Result};

/// A control group by its name below each hierarchy's top, such as `bench.slice` or `kagiri/nas`. In version
/// 1 it is a folder in every hierarchy that has one of this name; in version 2 it is one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingGroup {
    folders: Vec<PathBuf>,
    cpu: Option<PathBuf>,
}

impl ExistingGroup {
    /// Finds the group.
    /// Errors: A name that leads elsewhere, or no hierarchy has such a group.
    pub fn find(name: &str) -> Result<Self> {
        Self::find_below(Path::new("/"), name)
    }

    pub(super) fn find_below(root: &Path, name: &str) -> Result<Self> {
        // With or without a slash before it, as in /proc/PID/cgroup.
        let inside = Path::new(name.trim_matches('/'));
        let is_plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || inside.as_os_str().is_empty() {
            return Err(Error::Refused(format!(
                "`{name}` cannot name a control group: write its path below the hierarchies' top, without \
                 `..`"
            )));
        }
        let unreadable = |error| Error::file("read", "/proc/self/mountinfo", error);
        let all = mounts(root).map_err(unreadable)?;
        let hierarchies = all.iter().filter(|mount| matches!(mount.fs_type.as_str(), "cgroup" | "cgroup2"));
        let folder = |top: &Path| root.join(top.strip_prefix("/").unwrap_or(top)).join(inside);
        let mut folders: Vec<_> = hierarchies.map(|mount| folder(&mount.target)).collect();
        folders.retain(|folder| folder.join("cgroup.procs").exists());
        folders.dedup();
        if folders.is_empty() {
            return Err(Error::Refused(format!(
                "there is no control group `{name}` in any hierarchy of this machine; make it, or name \
                 another"
            )));
        }
        let cpu = Hierarchies::find(root).map_err(unreadable)?.cpu.map(|(_, top)| top.join(inside));
        Ok(Self { folders, cpu: cpu.filter(|folder| folder.join("cpu.stat").exists()) })
    }

    pub(crate) fn process_files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.folders.iter().map(|folder| folder.join("cgroup.procs"))
    }

    /// The folder with the group's `cpu.stat`; `None` without a CPU controller.
    pub fn cpu_folder(&self) -> Option<&Path> {
        self.cpu.as_deref()
    }
}
