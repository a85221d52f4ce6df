use super::*;
use crate::journal::Outcome;

const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
    34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
    38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n";
const V2: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

/// A root folder whose kernel has these mounts, and offers these version 2 controllers.
fn sample(mountinfo: &str, controllers: Option<&str>) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
    std::fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
    if let Some(controllers) = controllers {
        let folder = root.path().join("sys/fs/cgroup/unified");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup.controllers"), controllers).unwrap();
        std::fs::write(folder.join("cgroup.subtree_control"), "memory\n").unwrap();
    }
    root
}

fn device(root: &Path) -> BlockDevice {
    let folder = root.join("sys/block/loop7");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(root.join("sys/dev/block")).unwrap();
    std::os::unix::fs::symlink(folder, root.join("sys/dev/block/7:7")).unwrap();
    BlockDevice::from_numbers(root, 7, 7).unwrap()
}

#[test]
fn controllers_are_found_in_both_versions() {
    let find = |mountinfo: &str, controllers: Option<&str>| {
        let root = sample(mountinfo, controllers);
        let found = Hierarchies::find(root.path()).unwrap();
        let plain = |folder: PathBuf| folder.strip_prefix(root.path()).unwrap().display().to_string();
        let pair =
            |place: Option<(CgroupVersion, PathBuf)>| place.map(|(version, folder)| (version, plain(folder)));
        (pair(found.cpu), found.cpu_accounting.map(plain), pair(found.io))
    };
    let joint = "sys/fs/cgroup/cpu,cpuacct".to_owned();
    let unified = "sys/fs/cgroup/unified".to_owned();
    let hybrid = V1.lines().take(2).collect::<Vec<_>>().join("\n") + "\n" + V2;
    let (cpu, accounting, io) = find(&hybrid, Some("io memory\n"));
    assert_eq!(cpu, Some((CgroupVersion::V1, joint.clone())));
    assert_eq!(accounting, Some(joint));
    assert_eq!(io, Some((CgroupVersion::V2, unified.clone())));
    assert_eq!(find(V2, Some("cpuset cpu io\n")).0, Some((CgroupVersion::V2, unified)));
    assert_eq!(find(V2, Some("hugetlb\n")), (None, None, None));
    assert_eq!(find("", None), (None, None, None));
}

#[test]
fn invalid_names_and_values_are_refused_first() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("journal")).unwrap();
    for name in ["", "../x", "a b", "ä"] {
        assert!(matches!(Cgroup::create(&journal, name), Err(Error::Refused(_))), "{name}");
    }
    let nothing = sample(V2, Some("hugetlb\n"));
    let said = Cgroup::create_below(nothing.path(), &journal, "a").unwrap_err().to_string();
    assert!(said.contains("no CPU or disk control group"), "{said}");
    assert_eq!(journal.pending(), 0);
}

/// Plain files show what would be written to the kernel; that the kernel takes it is tested where the
/// controllers are (`tests/machine.rs`).
#[test]
fn version_2_limits_are_written_in_its_format() {
    let root = sample(V2, Some("cpu io\n"));
    let journal = Journal::open(&root.path().join("journal")).unwrap();
    let group = Cgroup::create_below(root.path(), &journal, "two").unwrap();
    let above = root.path().join("sys/fs/cgroup/unified");
    let folder = group.folders().pop().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();

    // Both controllers were switched on for children; a plain file keeps only the last word.
    assert_eq!(std::fs::read_to_string(above.join("cgroup.subtree_control")).unwrap(), "+io");
    let recorded = std::fs::read_to_string(journal.path()).unwrap();
    assert_eq!(recorded.matches("disable_controllers").count(), 2);

    group.set_cpu_quota_percent(75.0).unwrap();
    assert_eq!(read("cpu.max"), "75000 100000");
    let disk = device(root.path());
    group.set_read_limit(&disk, 13_750_000).unwrap();
    assert_eq!(read("io.max"), "7:7 rbps=13750000");
    group.add(42).unwrap();
    assert_eq!(group.pids().unwrap(), [42]);

    let membership = format!("0::/{}\n", folder.file_name().unwrap().to_str().unwrap());
    std::fs::create_dir_all(root.path().join("proc/42")).unwrap();
    std::fs::write(root.path().join("proc/42/cgroup"), membership).unwrap();
    let limits = limits_of(root.path(), 42, Some(&disk)).unwrap();
    let expected = GroupLimits {
        cpu_quota_percent: Some(75.0),
        read_bytes_per_s: Some(13_750_000),
        ..GroupLimits::default()
    };
    assert_eq!(limits, expected);
    std::fs::write(folder.join("io.max"), "7:7 rbps=max wbps=5 riops=max wiops=6").unwrap();
    let limits = limits_of(root.path(), 42, Some(&disk)).unwrap();
    assert_eq!((limits.read_bytes_per_s, limits.write_bytes_per_s), (None, Some(5)));
    assert_eq!((limits.reads_per_s, limits.writes_per_s), (None, Some(6)));

    std::fs::write(folder.join("cpu.stat"), "usage_usec 5\nnr_throttled 2\n").unwrap();
    assert_eq!(cpu_reader_of(root.path(), 42).unwrap().read().unwrap().usage_ns, Some(5000));
    std::fs::write(folder.join("cpu.max"), "max 100000").unwrap();
    std::fs::write(folder.join("io.max"), "7:7 rbps=max").unwrap();
    assert_eq!(limits_of(root.path(), 42, Some(&disk)).unwrap(), GroupLimits::default());

    // A real group is an empty folder to rmdir(2); this one has files.
    std::fs::remove_dir_all(&folder).unwrap();
    drop(group);
    let left: Vec<Outcome> = journal.undo_all().into_iter().map(|result| result.outcome).collect();
    assert_eq!(left, []);
}

#[test]
fn tightest_group_limit_counts() {
    let root = sample(V1, None);
    let cpu = root.path().join("sys/fs/cgroup/cpu,cpuacct");
    let blkio = root.path().join("sys/fs/cgroup/blkio");
    let write = |folder: PathBuf, name: &str, text: &str| {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), text).unwrap();
    };
    for (group, quota) in [("", "-1"), ("pod", "50000"), ("pod/one", "80000")] {
        write(cpu.join(group), "cpu.cfs_quota_us", quota);
        write(cpu.join(group), "cpu.cfs_period_us", "100000");
    }
    write(blkio.join("disk"), "blkio.throttle.read_bps_device", "7:1 99\n7:7 13750000\n");
    write(blkio.join("disk"), "blkio.throttle.read_iops_device", "7:7 500\n");
    write(root.path().join("proc/7"), "cgroup", "9:cpu,cpuacct:/pod/one\n7:blkio:/disk\n0::/\n");
    let disk = device(root.path());
    let limits = limits_of(root.path(), 7, Some(&disk)).unwrap();
    let expected = GroupLimits {
        cpu_quota_percent: Some(50.0),
        read_bytes_per_s: Some(13_750_000),
        reads_per_s: Some(500),
        ..GroupLimits::default()
    };
    assert_eq!(limits, expected);
    assert_eq!(limits_of(root.path(), 7, None).unwrap().read_bytes_per_s, None);
    write(root.path().join("proc/8"), "cgroup", "9:cpu,cpuacct:/../../elsewhere\n");
    assert_eq!(limits_of(root.path(), 8, Some(&disk)).unwrap(), GroupLimits::default());
    assert!(limits_of(root.path(), 9, None).is_err());
}

#[test]
fn existing_group_is_found_in_each_hierarchy() {
    let root = sample(&(V1.to_owned() + V2), Some("memory\n"));
    let make = |folder: &str, file: &str| {
        let folder = root.path().join("sys/fs/cgroup").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(file), "").unwrap();
    };
    for folder in ["cpu,cpuacct/bench/nas", "cpuset/bench/nas", "unified/bench/nas"] {
        make(folder, "cgroup.procs");
    }
    make("cpu,cpuacct/bench/nas", "cpu.stat");
    let group = ExistingGroup::find_below(root.path(), "/bench/nas").unwrap();
    let files: Vec<PathBuf> = group.process_files().collect();
    let expected = ["cpu,cpuacct", "cpuset", "unified"]
        .map(|hierarchy| root.path().join("sys/fs/cgroup").join(hierarchy).join("bench/nas/cgroup.procs"));
    assert_eq!(files, expected);
    assert!(group.cpu_folder().is_some_and(|folder| folder.ends_with("cpu,cpuacct/bench/nas")));
    for (name, said) in
        [("bench/other", "no control group `bench/other`"), ("../x", "without `..`"), ("/", "cannot name")]
    {
        let error = ExistingGroup::find_below(root.path(), name).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
