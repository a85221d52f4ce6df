//! CPU time that programs started from here can get: the CPUs they may use, or the quota of a control group
//! they are in.

use std::path::Path;

use base::outcome::Ceiling;
use sys::cgroup::limits_of;

use super::CalibrateError;

/// The ceiling in % of one core. Below `root` are `proc` and the control groups; the CPUs are always this
/// thread's.
/// Errors: Those of `sched_getaffinity(2)`.
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
    let pid = std::process::id().cast_signed();
    limits_of(root, pid, None).ok()?.cpu_quota_percent
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
        put(&format!("proc/{}/cgroup", std::process::id()), membership);
        for (name, text) in files {
            put(name, text);
        }
        root
    }

    #[test]
    fn version_2_quota_is_the_least_of_all_parents() {
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
    fn version_1_quota_is_read_from_two_files() {
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
    fn cpu_ceiling_without_groups_is_the_cores() {
        let root = root("", "", &[]);
        let ceiling = cpu(root.path()).unwrap();
        assert_eq!(ceiling.value, 100.0 * sys::thread::online_cpus().unwrap().len() as f64);
        assert!(ceiling.source.contains("core"), "{}", ceiling.source);
    }
}
