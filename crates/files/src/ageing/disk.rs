//! The file system that is aged: kind `ageing.disk`.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ageing::flash::{self, FlashReport, bring_to_steady_state};
use ageing::readout::DiskModel;
use ageing::{Ageing, AgeingError, AgeingReport, Layout, Monitor, Severity, age};
use base::part::{HostContext, Live, PartError, Progress, Say};
use base::permit::SystemChange;
use nix::sys::stat::{Mode, mkdirat};
use serde::{Deserialize, Serialize};
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::proc::block_device_of_path;
use sys::proc::mounts::{mount_of, mounts};
use sys::tree::{OwnPaths, open_folder, open_same, path_of_open, remove_own_at};
use workload::part::{Part, Peers};

use crate::parts::folder::{FolderEndpoint, FolderPart};
use crate::under_way::{UnderWay, Watched};

/// Recording and deleting writes at most this many times the space, the recordings included.
const PASSES_MAX: f64 = 4.4;
/// The directory in the folder that is filled.
const AGED: &str = "aged";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskTask {
    /// Name of the part that has the folder.
    pub folder: String,
    pub work: Work,
    pub seed: u64,
}

/// How the disk is aged.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Files { severity: Severity, layout: Layout, recordings: u32, model: DiskModel },
    Flash,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskReport {
    Files(FilesReport),
    Flash(FlashDiskReport),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilesReport {
    pub ageing: AgeingReport,
    /// As mounted: `ext4`.
    pub file_system: Option<String>,
    /// Of all; the ageing itself is a part of it.
    pub took_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlashDiskReport {
    pub flash: FlashReport,
    /// As mounted: `ext4`.
    pub file_system: Option<String>,
    /// The kernel's name of the block device: `nvme0n1p2`.
    pub device: Option<String>,
    /// `None`: a virtual disk, or none, so that what is beneath is unknown.
    pub is_flash: Option<bool>,
    /// Whether the file system discards the space of deleted files (mount option `discard`).
    pub discards: bool,
    /// Of all, the preparation included.
    pub took_s: f64,
}

/// What the ageing makes in its folder.
pub(super) fn own_paths() -> OwnPaths {
    OwnPaths::new(ageing::other_paths().into_iter().map(|path| Path::new(AGED).join(path)))
}

pub struct DiskPart {
    task: DiskTask,
    prepared: Option<Prepared>,
    under_way: Option<UnderWay<Result<DiskReport, PartError>>>,
    stop: Arc<AtomicBool>,
}

struct Prepared {
    folder: PathBuf,
    own: OwnPaths,
    opened: OwnedFd,
    file_system: Option<String>,
    discards: bool,
    say: Say,
}

impl Part for DiskPart {
    const KIND: &'static str = "ageing.disk";
    type Task = DiskTask;
    type Endpoint = ();
    type Report = DiskReport;

    fn new(task: DiskTask) -> Result<Self, PartError> {
        Ok(Self { task, prepared: None, under_way: None, stop: Arc::default() })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let FolderEndpoint { path: folder, identity, own, .. } =
            peers.get::<FolderPart>(&self.task.folder)?;
        let opened = open_same(&folder, identity)
            .map_err(|error| PartError::new(format!("{}: {error}", folder.display())))?;
        host.permit.directory(&folder)?;
        host.permit.system_change(SystemChange::Disk)?;
        let dir = folder.parent().unwrap_or(&folder);
        let all = mounts(Path::new("/")).map_err(PartError::new)?;
        let mount = mount_of(&all, dir);
        if dir == Path::new("/") || mount.is_none_or(|mount| mount.target != dir) {
            // It would take the space of all others.
            return Err(PartError::usage(format!(
                "ageing.dir: {} is no file system of its own, and ageing fills the whole file system; mount \
                 a new one and give its mount point, or let a lab make it (plans/ageing.toml)",
                dir.display()
            )));
        }
        let file_system = mount.map(|mount| mount.fs_type.clone());
        let discards = mount.is_some_and(|mount| discards(&mount.options));
        self.prepared = Some(Prepared { folder, own, opened, file_system, discards, say: host.say.clone() });
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let prepared = self.prepared.take().ok_or_else(|| PartError::new("the disk was not prepared"))?;
        let capacity_bytes = sys::disk::space(&prepared.folder).map_err(PartError::new)?.available_bytes;
        let written_bytes = Arc::new(AtomicU64::new(0));
        let (task, stop, counted) = (self.task.clone(), self.stop.clone(), written_bytes.clone());
        let work = move || {
            sleep_until_ns(at_monotonic_ns);
            prepared.run(&task, &stop, &counted)
        };
        let written = {
            let written_bytes = written_bytes.clone();
            move || written_bytes.load(Ordering::Relaxed)
        };
        let passes_max = match self.task.work {
            Work::Files { .. } => PASSES_MAX,
            Work::Flash => flash::PASSES_MAX,
        };
        let due_bytes = passes_max * capacity_bytes.max(1) as f64;
        let done = move || written_bytes.load(Ordering::Relaxed) as f64 / due_bytes;
        let watched = Watched { count: Box::new(written), rate: "written_byte_per_s", done: Box::new(done) };
        self.under_way = Some(UnderWay::start(at_monotonic_ns, watched, work)?);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        self.under_way.as_ref().map_or(Progress::Running { done: Some(0.0) }, UnderWay::progress)
    }

    fn live(&mut self) -> Live {
        self.under_way.as_mut().map_or_else(Live::new, UnderWay::live)
    }

    fn stop(&mut self) -> Result<DiskReport, PartError> {
        let under_way = self.under_way.take();
        let under_way =
            under_way.ok_or_else(|| PartError::new("the ageing was not started, so there is no report"))?;
        under_way.stop(&self.stop)?
    }
}

impl Drop for DiskPart {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Prepared {
    fn run(
        self,
        task: &DiskTask,
        stop: &AtomicBool,
        written_bytes: &AtomicU64,
    ) -> Result<DiskReport, PartError> {
        let began_ns = monotonic_ns();
        let dir = self.folder.join(AGED);
        mkdirat(&self.opened, AGED, Mode::S_IRWXU)
            .map_err(|error| PartError::new(format!("cannot create {}: {error}", dir.display())))?;
        let say = |line: &str| (self.say)(line);
        let is_stopped = || stop.load(Ordering::Relaxed);
        let monitor = Monitor { is_stopped: &is_stopped, written_bytes, say: &say };
        let opened = open_folder(self.opened.as_fd(), OsStr::new(AGED))
            .map_err(|error| PartError::new(format!("cannot open {}: {error}", dir.display())))?;
        // The owner of a directory above can put a link in the place of any of its folders: all work goes
        // through the descriptor, which stays with the folder that was made.
        let place = path_of_open(opened.as_fd());
        let found = self.age(task, &place, &monitor);
        let named = |error: AgeingError| {
            let (place, dir) = (place.to_string_lossy(), dir.to_string_lossy());
            PartError::new(error.to_string().replace(&*place, &dir))
        };
        // The next repetition finds the file system as this one did.
        let _ = remove_own_at(self.opened.as_fd(), OsStr::new(AGED), Some(&self.own), &AtomicU64::new(0));
        let took_s = || monotonic_ns().saturating_sub(began_ns) as f64 / 1e9;
        let mut report = found.map_err(named)?;
        match &mut report {
            DiskReport::Files(report) => report.took_s = took_s(),
            DiskReport::Flash(report) => report.took_s = took_s(),
        }
        Ok(report)
    }

    fn age(&self, task: &DiskTask, dir: &Path, monitor: &Monitor<'_>) -> Result<DiskReport, AgeingError> {
        let file_system = self.file_system.clone();
        match task.work {
            Work::Files { severity, layout, recordings, model } => {
                let ageing = Ageing { dir, severity, layout, seed: task.seed, recordings, model };
                let ageing = age(&ageing, monitor)?;
                Ok(DiskReport::Files(FilesReport { ageing, file_system, took_s: 0.0 }))
            }
            Work::Flash => {
                let flash = bring_to_steady_state(dir, task.seed, monitor)?;
                let root = Path::new("/");
                let device = block_device_of_path(root, dir).ok().flatten();
                Ok(DiskReport::Flash(FlashDiskReport {
                    flash,
                    file_system,
                    is_flash: device.as_ref().and_then(|device| device.is_flash(root)),
                    device: device.map(|device| device.name),
                    discards: self.discards,
                    took_s: 0.0,
                }))
            }
        }
    }
}

/// Whether a file system with these options tells its disk which space deleted files had; `discard=async` is
/// that of btrfs.
fn discards(options: &str) -> bool {
    options.split(',').any(|option| option == "discard" || option.starts_with("discard="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarding_file_systems_are_known_by_their_options() {
        assert!(discards("rw,relatime,rw,discard"));
        assert!(discards("rw,ssd,discard=async,space_cache=v2"));
        assert!(!discards("rw,relatime,rw,nodiscard"));
    }
}
