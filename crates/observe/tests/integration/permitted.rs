//! A sampler on another owner's host: what the owner does not permit is not opened, and is named.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use base::part::{Endpoints, HostContext, PartError, Watch};
use base::permit::{Permit, SystemChange};
use observe::sampler::Sampler;
use serde_json::Value;
use workload::part;

/// An owner who permits nothing.
struct Nothing;

impl Permit for Nothing {
    fn peer(&self, _: SocketAddr) -> Result<(), PartError> {
        Err(PartError::new("no peer"))
    }
    fn rate(&self, _: u64) -> Result<(), PartError> {
        Err(PartError::new("no rate"))
    }
    fn directory(&self, _: &Path) -> Result<(), PartError> {
        Err(PartError::new("no directory is permitted"))
    }
    fn system_change(&self, _: SystemChange) -> Result<(), PartError> {
        Err(PartError::new("no change is permitted"))
    }
    fn program(&self, _: &str) -> Result<(), PartError> {
        Err(PartError::new("no program"))
    }
}

/// The endpoint of a sampler that is prepared to watch this, and what it cannot watch.
fn prepared(watch: &Watch, is_ours: bool) -> (Value, String) {
    let spec = part::spec::<Sampler>("s".into(), "nas", watch).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut host = HostContext::here(folder.path().into(), folder.path().into(), "unused".into());
    if !is_ours {
        host.permit = Arc::new(Nothing);
    }
    let endpoint = (part::kind::<Sampler>().build)(&spec).unwrap().prepare(&Endpoints::new(), &host).unwrap();
    let unavailable = endpoint["unavailable"].to_string();
    (endpoint, unavailable)
}

#[test]
fn plain_folder_as_group_is_read_only_on_own_host() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cpu.stat"), "usage_usec 5\n").unwrap();
    let names = |endpoint: &Value| endpoint["series"].to_string().contains("cgroup");
    let mut watch = Watch { cgroup_cpu: Some(folder.path().display().to_string()), ..Watch::default() };
    let (endpoint, _) = prepared(&watch, true);
    assert!(names(&endpoint), "{endpoint}");
    let (endpoint, unavailable) = prepared(&watch, false);
    assert!(!names(&endpoint) && unavailable.contains("no directory is permitted"), "{unavailable}");
    // A path that only begins like a group's.
    let groups = sys::cgroup::Hierarchies::find(Path::new("/")).unwrap();
    let Some((_, top)) = groups.cpu else { return features::skip("needs control groups") };
    watch.cgroup_cpu = Some(format!("{}/../../..{}", top.display(), folder.path().display()));
    assert!(prepared(&watch, false).1.contains("no directory is permitted"));
    watch.cgroup_cpu = Some(top.display().to_string());
    assert!(!prepared(&watch, false).1.contains("is permitted"));
}

#[test]
fn foreign_network_namespace_needs_permission() {
    if !sys::environment::is_root() {
        return features::skip("needs root");
    }
    // Its parent ends at once, so that it is no child of this test.
    let command = "unshare -n sleep 60 >/dev/null 2>&1 & echo $!";
    let said = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
    let pid: u32 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    let began = std::time::Instant::now();
    while network(&pid.to_string()) == network("self") {
        assert!(began.elapsed().as_secs() < 20, "its network is still that of the test");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let watch =
        Watch { network_namespace_pid: Some(pid), network_device: Some("lo".into()), ..Watch::default() };
    let (ours, others) = (prepared(&watch, true), prepared(&watch, false));
    let ended = std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
    assert!(ended.success());
    assert!(!ours.1.contains(&format!("process {pid}")), "{}", ours.1);
    assert!(
        others.1.contains(&format!("process {pid}")) && others.1.contains("no change is permitted"),
        "{}",
        others.1
    );
    assert_ne!(ours.0["series"], others.0["series"]);
}
