//! What several of these tests need.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::journal::Journal;
use sys::netlink::{Flow, FlowSampler};
use sys::netns::Namespace;
use sys::process::{ForeignProcess, SocketOwners};

pub const LONG: Duration = Duration::from_secs(30);

/// Whether this is root; says so if not.
pub fn root() -> bool {
    let root = sys::environment::is_root();
    if !root {
        features::skip("needs root");
    }
    root
}

/// Beside the test program, which is on a disk; `/tmp` may be memory.
pub fn work_folder() -> tempfile::TempDir {
    let here = std::env::current_exe().unwrap();
    tempfile::tempdir_in(here.parent().unwrap()).unwrap()
}

/// A work folder and a journal in it; `None` unless this is root.
pub fn as_root() -> Option<(tempfile::TempDir, Journal)> {
    let folder = root().then(work_folder)?;
    let journal = journal(folder.path());
    Some((folder, journal))
}

pub fn journal(folder: &Path) -> Journal {
    Journal::open(&folder.join("journal")).unwrap()
}

pub fn own_name(name: &str) -> String {
    format!("kagiri-{}-{name}", std::process::id())
}

/// Two namespaces and a link, `eth0` in both, with addresses for documentation (RFC 5737).
pub struct Pair {
    pub server: Namespace,
    pub client: Namespace,
}

impl Pair {
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    pub fn make(journal: &Journal, name: &str) -> Self {
        let namespace =
            |side: &str| Namespace::create(journal, &own_name(&format!("{name}-{side}"))).unwrap();
        let this = Self { server: namespace("server"), client: namespace("client") };
        let other = this.client.name();
        this.server.ip(&format!("link add eth0 type veth peer name eth0 netns {other}")).unwrap();
        for (side, address) in [(&this.server, "192.0.2.1/30"), (&this.client, "192.0.2.2/30")] {
            side.ip(&format!("address add {address} dev eth0\nlink set eth0 up")).unwrap();
        }
        this
    }

    /// Limits what the server sends to 8 Mbit/s (tc-tbf(8)).
    pub fn limit(&self, burst_bytes: u32, buffer_bytes: u32) {
        let command = "qdisc replace dev eth0 root tbf rate 8mbit";
        self.server.tc(&format!("{command} burst {burst_bytes}b limit {buffer_bytes}b")).unwrap();
    }
}

/// Set for the process of [`holder`]: how many connections it makes.
pub const HOLD_SOCKETS: &str = "KAGIRI_TEST_HOLD_SOCKETS";

/// A namespace whose loopback is up.
pub fn namespace_with_loopback(journal: &Journal, name: &str) -> Namespace {
    let namespace = Namespace::create(journal, &own_name(name)).unwrap();
    namespace.ip("link set lo up").unwrap();
    namespace
}

/// A process of its own in `namespace` with this number of connections to itself, which it keeps
/// (`foreign_sockets::holder`).
pub fn holder(journal: &Journal, namespace: &Namespace, connections: usize) -> Child {
    let mut child = Spawn::new(std::env::current_exe().unwrap())
        .args(["--exact", "foreign_sockets::holder", "--nocapture"])
        .env(HOLD_SOCKETS, connections.to_string())
        .namespace(namespace)
        .start(journal)
        .unwrap();
    child.wait_line(LONG, |line| line == "holding").unwrap();
    child
}

/// All flows of the namespace that process `pid` is in.
pub fn flows(pid: i32) -> Vec<Flow> {
    let mut flows = Vec::new();
    FlowSampler::open(Some(pid)).unwrap().read(&mut |flow| flows.push(flow)).unwrap();
    flows
}

/// Holders of the sockets of these flows.
pub fn owners(flows: &[Flow]) -> SocketOwners {
    let mut owners = SocketOwners::new();
    let deadline = Deadline::after(LONG);
    while !owners.update(flows.iter().map(|flow| flow.inode), LONG) {
        assert!(!deadline.passed());
    }
    owners
}

/// The flows of process `pid` that `wanted` accepts, each with its descriptor.
pub fn flows_of(pid: i32, wanted: impl Fn(&Flow) -> bool) -> (ForeignProcess, Vec<(Flow, i32)>) {
    let flows: Vec<Flow> = flows(pid).into_iter().filter(wanted).collect();
    let owners = owners(&flows);
    let descriptor = |flow: Flow| {
        let holder = owners.holder(flow.inode).filter(|holder| holder.pid == pid)?;
        Some((flow, holder.fd))
    };
    let found = flows.into_iter().filter_map(descriptor).collect();
    (ForeignProcess::open(pid).unwrap(), found)
}
