//! Restricts a request to watch to what the host's owner permits: the plan may be another user's.

use std::path::Path;

use base::part::{HostContext, Watch};
use base::permit::SystemChange;
use sys::proc::ProcessSet;
use sys::proc::mounts::mounts;

/// What may be watched, and a sentence for each thing that may not.
pub fn permitted(root: &Path, watch: &Watch, host: &HostContext) -> (Watch, Vec<String>) {
    let (mut allowed, mut refused) = (watch.clone(), Vec::new());
    if let Some(folder) = &watch.cgroup_cpu {
        match check_group(root, Path::new(folder), host) {
            Ok(()) => {}
            Err(why) => {
                allowed.cgroup_cpu = None;
                refused.push(format!("the control group {folder} cannot be watched: {why}."));
            }
        }
    }
    if let Some(pid) = watch.network_namespace_pid
        && let Err(why) = check_namespace(root, pid, host)
    {
        // Without the namespace, device and port would belong to other programs.
        (allowed.network_namespace_pid, allowed.network_device, allowed.tcp_port) = (None, None, None);
        refused.push(format!("the network of process {pid} cannot be watched: {why}."));
    }
    (allowed, refused)
}

/// Any control group is permitted: it contains only the kernel's files. Other folders need the policy's
/// permission.
fn check_group(root: &Path, folder: &Path, host: &HostContext) -> Result<(), String> {
    // Where it leads, after links and `..`.
    let inside = std::fs::canonicalize(folder).is_ok_and(|folder| {
        let is_group = |fs_type: &str| matches!(fs_type, "cgroup" | "cgroup2");
        let all = mounts(root).unwrap_or_default();
        all.iter().any(|mount| is_group(&mount.fs_type) && folder.starts_with(&mount.target))
    });
    match inside {
        true => Ok(()),
        false => {
            host.permit.directory(folder).map_err(|error| format!("it is not a control group, and {error}"))
        }
    }
}

/// Permitted: a process in this network namespace, and one that this process started (it belongs to a part).
/// Any other process's network is entered only with the permission to change networks.
fn check_namespace(root: &Path, pid: u32, host: &HostContext) -> Result<(), String> {
    let own = std::process::id().cast_signed();
    let is_ours = |pid: i32| ProcessSet::open(root, &[own]).is_ok_and(|set| set.pids().any(|one| one == pid));
    let link = |pid: &str| std::fs::read_link(root.join(format!("proc/{pid}/ns/net"))).ok();
    let is_here = link("self").is_some_and(|here| link(&pid.to_string()) == Some(here));
    match is_here || i32::try_from(pid).is_ok_and(is_ours) {
        true => Ok(()),
        false => host.permit.system_change(SystemChange::Network).map_err(|error| error.to_string()),
    }
}
