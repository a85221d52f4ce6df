//! CPU time that programs started from here can get: the CPUs they may use, or the quota of a control group they are in.

use std::path::{Path, PathBuf};

use base::outcome::Ceiling;
use sys::cgroup::{CgroupVersion, Hierarchies};

use super::CalibrateError;

/// The ceiling in % of one core. Below `root` are `proc` and the control groups; the CPUs are always this thread's.
///
/// # Errors
/// The kernel does not say which CPUs may be used (`sched_getaffinity(2)`).
pub fn cpu(root: &Path) -> Result<Ceiling, CalibrateError> {
    let cores = sys::thread::online_cpus();
    let cores = cores
        .map_err(|error| CalibrateError::NotMeasured(format!("count the CPUs of this process: {error}")))?
        .len();
    let by_cores = 100.0 * cores as f64;
    Ok(match quota_percent(root).filter(|quota| *quota < by_cores) {
        Some(quota) => {
            Ceiling { value: quota, source: format!("cgroup quota of {quota:.0} % on {cores} cores") }
        }
        None if cores == 1 => Ceiling { value: by_cores, source: "1 core".to_owned() },
        None => Ceiling { value: by_cores, source: format!("{cores} cores") },
    })
}

/// The least quota of the control groups that this process is in, in % of one core; `None` without one.
fn quota_percent(root: &Path) -> Option<f64> {
    let (version, top) = Hierarchies::find(root).ok()?.cpu?;
    let membership = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let inside = group_of(&membership, version)?;
    let top = root.join(top.strip_prefix("/").ok()?);
    let mut folder: PathBuf = top.join(inside.trim_start_matches('/'));
    let mut least: Option<f64> = None;
    // A quota holds for everything below it, so that of any group above counts too.
    while folder.starts_with(&top) {
        if let Some(quota) = quota_of(&folder, version) {
            least = Some(least.map_or(quota, |least| least.min(quota)));
        }
        if !folder.pop() {
            break;
        }
    }
    least
}

/// The path of this process's group from `/proc/self/cgroup` (`ID:CONTROLLERS:PATH`, cgroups(7)).
fn group_of(membership: &str, version: CgroupVersion) -> Option<&str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = match version {
            CgroupVersion::V1 => controllers.split(',').any(|name| name == "cpu"),
            CgroupVersion::V2 => controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

fn quota_of(folder: &Path, version: CgroupVersion) -> Option<f64> {
    let text = |name| std::fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match version {
        CgroupVersion::V1 => (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?),
        CgroupVersion::V2 => {
            let both = text("cpu.max")?;
            let (quota, period) = both.split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
    };
    // -1 and `max` mean no quota, and are no unsigned numbers.
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (period > 0 && quota > 0).then(|| 100.0 * quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(mountinfo: &str, membership: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/self/mountinfo", mountinfo);
        put("proc/self/cgroup", membership);
        for (name, text) in files {
            put(name, text);
        }
        root
    }

    #[test]
    fn version_2_takes_the_least_on_the_way_up() {
        let root = root(
            "1 0 0:9 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "0::/a/b\n",
            &[
                ("sys/fs/cgroup/cgroup.controllers", "cpu io\n"),
                ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ],
        );
        assert_eq!(quota_percent(root.path()), Some(50.0));
        assert_eq!(cpu(root.path()).unwrap().value, 50.0);
    }

    #[test]
    fn version_1_has_two_files_and_minus_one() {
        let mount = "1 0 0:9 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let files = [
            ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        let inside = root(mount, "3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/\n", &files);
        assert_eq!(quota_percent(inside.path()), Some(150.0));
        let outside = root(mount, "2:cpu:/\n", &files);
        assert_eq!(quota_percent(outside.path()), None);
    }

    #[test]
    fn without_groups_the_cores_count() {
        let root = root("", "", &[]);
        let ceiling = cpu(root.path()).unwrap();
        assert_eq!(ceiling.value, 100.0 * sys::thread::online_cpus().unwrap().len() as f64);
        assert!(ceiling.source.contains("core"), "{}", ceiling.source);
    }
}
