//! Control groups of version 1 and 2 behind one type: a CPU quota and a read limit for a server under test.
//!
//! Version 1: Documentation/admin-guide/cgroup-v1, one folder per controller. Version 2: cgroups(7) and
//! Documentation/admin-guide/cgroup-v2.rst, one folder for all. Both may exist on one machine; each
//! controller is taken from where the kernel has put it.

mod existing;
mod limits;
mod unified;

use std::io;
use std::path::{Path, PathBuf};

use crate::journal::ownership::PREFIX;
use crate::journal::{EntryId, Journal, Undo};
use crate::proc::mounts::{Mount, mounts};
use crate::proc::{BlockDevice, CgroupCpu};
use crate::{Error, Result};

pub use existing::ExistingGroup;
pub use limits::{GroupLimits, cpu_reader_of, limits_of};
pub use unified::{UnifiedGroup, unified_path};

/// The quota period in microseconds: the kernel's default.
const PERIOD_US: u64 = 100_000;
/// The least quota the kernel takes, microseconds.
const QUOTA_LEAST_US: u64 = 1_000;

/// The version of the control group interface a controller is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    V1,
    V2,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// The CPU controller's root folder.
    pub cpu: Option<(CgroupVersion, PathBuf)>,
    /// The version 1 CPU accounting controller's root folder.
    pub cpu_accounting: Option<PathBuf>,
    /// The disk controller's root folder (`blkio` in version 1, `io` in version 2).
    pub io: Option<(CgroupVersion, PathBuf)>,
}

impl Hierarchies {
    /// Finds them below `root`; their folders are below it too.
    pub fn find(root: &Path) -> io::Result<Self> {
        let mounts = mounts(root)?;
        let folder = |mount: &Mount| root.join(mount.target.strip_prefix("/").unwrap_or(&mount.target));
        let v1 = |controller: &str| {
            let has = |mount: &&Mount| {
                mount.fs_type == "cgroup" && mount.options.split(',').any(|option| option == controller)
            };
            mounts.iter().find(has).map(folder)
        };
        let v2 = |controller: &str| {
            let folder = folder(mounts.iter().find(|mount| mount.fs_type == "cgroup2")?);
            let offered = std::fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
            offered.split_whitespace().any(|name| name == controller).then_some(folder)
        };
        let either = |name_v1: &str, name_v2: &str| {
            let first = v1(name_v1).map(|folder| (CgroupVersion::V1, folder));
            first.or_else(|| v2(name_v2).map(|folder| (CgroupVersion::V2, folder)))
        };
        Ok(Self { cpu: either("cpu", "cpu"), cpu_accounting: v1("cpuacct"), io: either("blkio", "io") })
    }
}

/// A control group that this program has made. Dropping it removes it; processes still in it go to the group
/// above.
#[derive(Debug)]
pub struct Cgroup {
    journal: Journal,
    /// In the order they were made: enabling controllers first, then the group.
    entries: Vec<EntryId>,
    cpu: Option<(CgroupVersion, PathBuf)>,
    cpu_accounting: Option<PathBuf>,
    io: Option<(CgroupVersion, PathBuf)>,
}

impl Cgroup {
    /// Makes a group named `kagiri-PID-NAME` in every hierarchy it needs. `name` is letters, digits and `-`.
    /// Errors: no rights, no CPU or disk controller at all, a name in use.
    pub fn create(journal: &Journal, name: &str) -> Result<Self> {
        Self::create_below(Path::new("/"), journal, name)
    }

    fn create_below(root: &Path, journal: &Journal, name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            return Err(Error::Refused(format!(
                "`{name}` cannot name a control group: use 1 to 64 letters, digits and `-`"
            )));
        }
        let found = Hierarchies::find(root);
        let found = found.map_err(|error| Error::file("read", "/proc/self/mountinfo", error))?;
        if found.cpu.is_none() && found.io.is_none() {
            return Err(Error::Refused(
                "this machine offers no CPU or disk control group (neither version 1 nor 2 is mounted with \
                 them)"
                    .to_owned(),
            ));
        }
        let folder_name = format!("{PREFIX}{}-{name}", std::process::id());
        let below = |root: &PathBuf| root.join(&folder_name);
        let mut this = Self {
            journal: journal.clone(),
            entries: Vec::new(),
            cpu: found.cpu.as_ref().map(|(version, root)| (*version, below(root))),
            cpu_accounting: found.cpu_accounting.as_ref().map(below),
            io: found.io.as_ref().map(|(version, root)| (*version, below(root))),
        };
        this.enable_controllers(&found)?;
        let folders = this.folders();
        if let Some(taken) = folders.iter().find(|folder| folder.exists()) {
            return Err(Error::Refused(format!("the control group {} exists already", taken.display())));
        }
        this.entries.push(journal.record(Undo::RemoveCgroup { folders: folders.clone() })?);
        for folder in folders {
            // On an error, dropping `this` removes those already made.
            std::fs::create_dir(&folder)
                .map_err(|error| Error::file("create control group", &folder, error))?;
        }
        Ok(this)
    }

    /// A version 2 controller works in a group only when the group above lets its children have it.
    fn enable_controllers(&mut self, found: &Hierarchies) -> Result<()> {
        for (place, controller) in [(&found.cpu, "cpu"), (&found.io, "io")] {
            let Some((CgroupVersion::V2, root)) = place else { continue };
            let file = root.join("cgroup.subtree_control");
            let enabled =
                std::fs::read_to_string(&file).map_err(|error| Error::file("read", &file, error))?;
            if enabled.split_whitespace().any(|name| name == controller) {
                continue;
            }
            let undo =
                Undo::DisableControllers { file: file.clone(), controllers: vec![controller.to_owned()] };
            self.entries.push(self.journal.record(undo)?);
            let written = std::fs::write(&file, format!("+{controller}"));
            written.map_err(|error| Error::file("enable a controller in", &file, error))?;
        }
        Ok(())
    }

    /// The group's folders, each once: one in every hierarchy it is in. A process joins by its id in their
    /// `cgroup.procs`.
    pub fn folders(&self) -> Vec<PathBuf> {
        let places = [
            self.cpu.as_ref().map(|(_, f)| f),
            self.cpu_accounting.as_ref(),
            self.io.as_ref().map(|(_, f)| f),
        ];
        let mut folders: Vec<PathBuf> = places.into_iter().flatten().cloned().collect();
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// Lets the group use at most `percent` of one CPU (150 is one and a half), in periods of 100 ms.
    /// Errors: less than 1 % or not a number, or no CPU controller.
    pub fn set_cpu_quota_percent(&self, percent: f64) -> Result<()> {
        // A thousand CPUs are enough for any machine; the bound keeps the product exact.
        if !(1.0..=100_000.0).contains(&percent) {
            return Err(Error::Refused(format!("a CPU quota of {percent} % is outside 1..100000 %")));
        }
        let quota_us = ((percent / 100.0 * PERIOD_US as f64).round() as u64).max(QUOTA_LEAST_US);
        let none = || Error::Refused("this machine offers no CPU control group".to_owned());
        match self.cpu.as_ref().ok_or_else(none)? {
            (CgroupVersion::V1, folder) => {
                write(&folder.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&folder.join("cpu.cfs_quota_us"), &quota_us.to_string())
            }
            (CgroupVersion::V2, folder) => write(&folder.join("cpu.max"), &format!("{quota_us} {PERIOD_US}")),
        }
    }

    /// Lets the group read at most `bytes_per_s` from `device`, a whole disk (see
    /// [`BlockDevice::whole_disk`]).
    ///
    /// Reads from the page cache are not limited: drop the files first ([`crate::disk::drop_file_cache`]).
    /// Errors: zero, or no disk controller, or the kernel does not know the device.
    pub fn set_read_limit(&self, device: &BlockDevice, bytes_per_s: u64) -> Result<()> {
        self.set_limit("read", device, bytes_per_s)
    }

    /// As [`Cgroup::set_read_limit`], for writing.
    ///
    /// Version 1 limits direct and synchronous writes only: writes through the page cache are not accounted
    /// to the group.
    pub fn set_write_limit(&self, device: &BlockDevice, bytes_per_s: u64) -> Result<()> {
        self.set_limit("write", device, bytes_per_s)
    }

    fn set_limit(&self, way: &str, device: &BlockDevice, bytes_per_s: u64) -> Result<()> {
        if bytes_per_s == 0 {
            let problem = format!("a {way} limit of 0 B/s would mean no limit; use 1 or more");
            return Err(Error::Refused(problem));
        }
        let none = || Error::Refused("this machine offers no disk control group".to_owned());
        let (numbers, first) = (device.numbers(), &way[..1]);
        match self.io.as_ref().ok_or_else(none)? {
            (CgroupVersion::V1, folder) => {
                let file = format!("blkio.throttle.{way}_bps_device");
                write(&folder.join(file), &format!("{numbers} {bytes_per_s}"))
            }
            (CgroupVersion::V2, folder) => {
                write(&folder.join("io.max"), &format!("{numbers} {first}bps={bytes_per_s}"))
            }
        }
    }

    /// Moves process `pid`, with all its threads, into the group. Children it has already started stay where
    /// they are.
    pub fn add(&self, pid: i32) -> Result<()> {
        self.process_files().iter().try_for_each(|file| write(file, &pid.to_string()))
    }

    pub(crate) fn process_files(&self) -> Vec<PathBuf> {
        self.folders().into_iter().map(|folder| folder.join("cgroup.procs")).collect()
    }

    pub fn pids(&self) -> Result<Vec<i32>> {
        let Some(file) = self.process_files().into_iter().next() else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(&file).map_err(|error| Error::file("read", &file, error))?;
        Ok(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// The group's `cpu.stat`; `None` without a CPU controller.
    pub fn cpu_stat_path(&self) -> Option<PathBuf> {
        self.cpu.as_ref().map(|(_, folder)| folder.join("cpu.stat"))
    }

    /// A reader of the group's CPU time and throttling. Error: no CPU controller.
    pub fn cpu_reader(&self) -> io::Result<CgroupCpu> {
        let stat = self.cpu_stat_path().ok_or(io::ErrorKind::NotFound)?;
        let usage = self.cpu_accounting.as_ref().map(|folder| folder.join("cpuacct.usage"));
        CgroupCpu::open(&stat, usage.as_deref())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for entry in self.entries.drain(..).rev() {
            // What cannot be removed stays in the journal, which reports it.
            self.journal.undo(entry);
        }
    }
}

fn write(file: &Path, value: &str) -> Result<()> {
    std::fs::write(file, value).map_err(|error| Error::file("write", file, error))
}

#[cfg(test)]
#[path = "cgroup/tests.rs"]
mod tests;
