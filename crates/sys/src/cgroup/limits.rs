//! The limits that control groups, ours or others', set on a process: the ceilings an explanation compares
//! with.

use std::io;
use std::path::{Path, PathBuf};

use super::{CgroupVersion, Hierarchies};
use crate::proc::parse::{decimal, lines, words};
use crate::proc::{BlockDevice, CgroupCpu};

/// The limits of a process's groups; `None` where there is no limit. The tightest of all groups above it
/// applies.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GroupLimits {
    pub cpu_quota_percent: Option<f64>,
    /// Bytes per second it may read from the device asked about.
    pub read_bytes_per_s: Option<u64>,
    /// The same for writing to it.
    pub write_bytes_per_s: Option<u64>,
    /// Reads per second.
    pub reads_per_s: Option<u64>,
    pub writes_per_s: Option<u64>,
}

/// A controller's root folder and the group of a process below it.
struct Place {
    version: CgroupVersion,
    root: PathBuf,
    group: PathBuf,
}

impl Place {
    /// The process's group and all above it, up to the controller's root.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        self.group.ancestors().take_while(|folder| folder.starts_with(&self.root))
    }
}

/// The group of `pid` in the hierarchy at `found`; `None` when the controller is nowhere.
fn place_of(found: Option<(CgroupVersion, PathBuf)>, controller: &str, membership: &str) -> Option<Place> {
    let (version, root) = found?;
    // `7:cpu,cpuacct:/a/b` in version 1, `0::/a/b` in version 2 (cgroups(7)).
    let path = membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let here = match version {
            CgroupVersion::V1 => names.split(',').any(|name| name == controller),
            CgroupVersion::V2 => number == "0" && names.is_empty(),
        };
        here.then_some(path)
    })?;
    // `..` appears when the group lies outside what this namespace shows.
    let below = path.trim_start_matches('/');
    let group = if below.split('/').any(|part| part == "..") { root.clone() } else { root.join(below) };
    Some(Place { version, root, group })
}

fn read(root: &Path, pid: i32) -> io::Result<(Hierarchies, String)> {
    let path = root.join("proc").join(pid.to_string()).join("cgroup");
    let membership = std::fs::read_to_string(&path);
    let membership = membership.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    Ok((Hierarchies::find(root)?, membership))
}

/// The limits of process `pid`; those of a disk for `device`, a whole disk.
pub fn limits_of(root: &Path, pid: i32, device: Option<&BlockDevice>) -> io::Result<GroupLimits> {
    let (found, membership) = read(root, pid)?;
    let cpu = place_of(found.cpu, "cpu", &membership);
    let io = place_of(found.io, "blkio", &membership);
    let quotas =
        cpu.iter().flat_map(|place| place.folders().filter_map(|folder| quota(place.version, folder)));
    let of_disk = |names: IoLimit| {
        let (place, device) = (io.as_ref()?, device?);
        place.folders().filter_map(|folder| io_limit(place.version, folder, &device.numbers(), names)).min()
    };
    Ok(GroupLimits {
        cpu_quota_percent: quotas.min_by(f64::total_cmp),
        read_bytes_per_s: of_disk(("read_bps", "rbps=")),
        write_bytes_per_s: of_disk(("write_bps", "wbps=")),
        reads_per_s: of_disk(("read_iops", "riops=")),
        writes_per_s: of_disk(("write_iops", "wiops=")),
    })
}

/// A reader of the CPU time and throttling of the group that `pid` is in. All processes of the group are
/// counted. Errors with `NotFound` without a CPU controller.
pub fn cpu_reader_of(root: &Path, pid: i32) -> io::Result<CgroupCpu> {
    let (found, membership) = read(root, pid)?;
    let accounting = found.cpu_accounting.map(|folder| (CgroupVersion::V1, folder));
    let usage = place_of(accounting, "cpuacct", &membership).map(|place| place.group.join("cpuacct.usage"));
    let place = place_of(found.cpu, "cpu", &membership)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no CPU control group on this machine"))?;
    CgroupCpu::open(&place.group.join("cpu.stat"), usage.as_deref())
}

fn quota(version: CgroupVersion, folder: &Path) -> Option<f64> {
    let number = |name: &str| decimal(std::fs::read(folder.join(name)).ok()?.trim_ascii());
    let (quota_us, period_us) = match version {
        // -1 means none, and is not a decimal here.
        CgroupVersion::V1 => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
        CgroupVersion::V2 => {
            let text = std::fs::read(folder.join("cpu.max")).ok()?;
            let mut numbers = words(&text).map(decimal);
            (numbers.next()??, numbers.next()??)
        }
    };
    (period_us > 0).then(|| quota_us as f64 * 100.0 / period_us as f64)
}

/// What a limit of a disk is called in version 1, and in version 2.
type IoLimit = (&'static str, &'static str);

fn io_limit(version: CgroupVersion, folder: &Path, numbers: &str, names: IoLimit) -> Option<u64> {
    let (name, key) = match version {
        CgroupVersion::V1 => (format!("blkio.throttle.{}_device", names.0), ""),
        CgroupVersion::V2 => ("io.max".to_owned(), names.1),
    };
    let text = std::fs::read(folder.join(name)).ok()?;
    lines(&text).find_map(|line| {
        let mut words = words(line);
        (words.next()? == numbers.as_bytes()).then_some(())?;
        words.find_map(|word| word.strip_prefix(key.as_bytes()).and_then(decimal))
    })
}
