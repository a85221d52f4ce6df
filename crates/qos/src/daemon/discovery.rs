//! The sockets that leave through the bottleneck, with the class of each.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::netlink::{Flow, FlowSampler};
use sys::proc::{interface_number, interface_to};
use sys::process::{ForeignProcess, PacingRate, Program, SocketHolder, SocketOwners, user_name};

use crate::by_cookie::Cookies;
use crate::law::SocketSample;
use crate::policy::{Bottleneck, Policy, SocketFacts};

/// How long one tick may search for the holders of new sockets; the next tick continues.
const SEARCH_WITHIN: Duration = Duration::from_millis(10);
/// Name of the process of `kagiri qos coordinate`.
const COORDINATOR: &str = "kagiri";
/// How long the route to a peer is taken for known.
const ROUTE_FOR: Duration = Duration::from_secs(10);

/// A socket of a class.
#[derive(Debug)]
pub struct Found {
    pub flow: Flow,
    /// When it was read, on the monotonic clock.
    pub time_ns: u64,
    pub holder: SocketHolder,
    /// Index in the policy.
    pub class: usize,
    /// It did not exist at the reading before.
    pub is_new: bool,
    /// The rate that was set since it was read.
    pub set_since: Option<PacingRate>,
}

impl Found {
    /// What the law reads of it; `None` for UDP, and for a kernel that does not report all of it.
    pub fn sample(&self) -> Option<SocketSample> {
        let info = self.flow.tcp.as_ref()?;
        Some(SocketSample {
            id: self.flow.cookie,
            peer: self.flow.peer.ip(),
            class: self.class,
            time_ns: self.time_ns,
            srtt_us: info.rtt_us?,
            min_rtt_us: info.min_rtt_us?,
            segs_in: info.received_segments?,
            delivered: info.delivered_segments?,
            mss: info.send_mss_bytes?,
            unacked: info.unacked_segments?,
            sacked: info.sacked_segments?,
            lost: info.lost_segments?,
            retrans: info.retransmitted_segments?,
            total_retrans: info.retransmits_total?,
            notsent_bytes: info.notsent_bytes?,
        })
    }
}

/// A class into which a process has come by its own statement, as long as it runs as the same user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    pub uid: u32,
    /// Index in the policy.
    pub class: usize,
}

#[derive(Debug)]
pub struct Discovery {
    interface: String,
    sampler: FlowSampler,
    owners: SocketOwners,
    /// Whether a peer is reached through the bottleneck, and until when that is taken for known.
    routes: HashMap<IpAddr, (bool, Deadline)>,
    users: HashMap<u32, Option<String>>,
    /// Paths of control groups whose processes belong to a class, whatever it matches.
    groups: Vec<(String, usize)>,
    /// Port of the coordinator of several hosts.
    coordinator_port: Option<u16>,
    /// Cookies of all sockets of programs at the last reading; `None` before the first.
    existing: Option<Cookies>,
}

impl Discovery {
    pub fn open(bottleneck: &Bottleneck, groups: Vec<(String, usize)>) -> io::Result<Self> {
        Ok(Self {
            interface: bottleneck.interface.clone(),
            coordinator_port: bottleneck.coordinator.as_deref().and_then(port_of),
            groups,
            sampler: FlowSampler::open(None)?,
            owners: SocketOwners::new(),
            routes: HashMap::new(),
            users: HashMap::new(),
            existing: None,
        })
    }

    /// Fills `found` with the sockets of the policy's classes. `joined`: classes that processes have stated.
    pub fn look(
        &mut self,
        policy: &Policy,
        joined: &HashMap<i32, Joined>,
        found: &mut Vec<Found>,
    ) -> io::Result<()> {
        let mut flows: Vec<(u64, Flow)> = Vec::new();
        self.sampler.read(&mut |flow| {
            // UDP sockets need no peer to send.
            if flow.peer.port() != 0 || flow.tcp.is_none() {
                flows.push((monotonic_ns(), flow.clone()));
            }
        })?;
        // Without an inode, its program has closed it, or has not accepted it yet: nothing can be changed.
        let mut existing = Cookies::with_capacity_and_hasher(flows.len(), Default::default());
        existing.extend(flows.iter().filter(|(_, flow)| flow.inode != 0).map(|(_, flow)| flow.cookie));
        let before = self.existing.replace(existing);
        self.routes.retain(|_, (_, known)| !known.passed());
        let number = interface_number(&self.interface);
        flows.retain(|(_, flow)| match flow.peer.port() {
            0 => may_leave_through(flow, number),
            _ => self.is_through_bottleneck(flow.peer),
        });
        self.owners.update(flows.iter().map(|(_, flow)| flow.inode), SEARCH_WITHIN);
        found.clear();
        for (time_ns, flow) in flows {
            let Some(holder) = self.owners.holder(flow.inode) else { continue };
            if self.is_control(&flow, holder.pid) {
                continue;
            }
            if let Some(class) = self.class_of(policy, joined, &flow, holder.pid) {
                let is_new = before.as_ref().is_some_and(|before| !before.contains(&flow.cookie));
                found.push(Found { flow, time_ns, holder, class, is_new, set_since: None });
            }
        }
        Ok(())
    }

    /// Sockets of the host at the last reading.
    pub fn sockets(&self) -> usize {
        self.existing.as_ref().map_or(0, Cookies::len)
    }

    /// Whether the socket existed at the last reading, of whatever class.
    pub fn exists(&self, cookie: u64) -> bool {
        self.existing.as_ref().is_some_and(|existing| existing.contains(&cookie))
    }

    /// A socket turned out not to be where it was found.
    pub fn forget(&mut self, inode: u64) {
        self.owners.forget(inode);
    }

    pub fn process(&self, found: &Found) -> Option<&ForeignProcess> {
        self.owners.process(found.holder.pid)
    }

    pub fn program(&self, found: &Found) -> Option<&Program> {
        self.owners.program(found.holder.pid)
    }

    /// Whether the socket carries the reports and grants of several hosts, which no class may slow: this
    /// program's own, and those of root's coordinator on this host.
    fn is_control(&self, flow: &Flow, pid: i32) -> bool {
        let is_coordinator = || {
            let program = self.owners.program(pid);
            program.is_some_and(|program| program.uid == 0 && program.name == COORDINATOR)
        };
        pid == std::process::id().cast_signed()
            || (flow.tcp.is_some() && Some(flow.local.port()) == self.coordinator_port && is_coordinator())
    }

    fn is_through_bottleneck(&mut self, peer: SocketAddr) -> bool {
        let known = self.routes.entry(peer.ip()).or_insert_with(|| {
            // A peer without a route is reached through no interface.
            let is_through = interface_to(peer).is_ok_and(|name| name == self.interface);
            (is_through, Deadline::after(ROUTE_FOR))
        });
        known.0
    }

    fn class_of(
        &mut self,
        policy: &Policy,
        joined: &HashMap<i32, Joined>,
        flow: &Flow,
        pid: i32,
    ) -> Option<usize> {
        let program = self.owners.program(pid)?;
        if let Some(joined) = joined.get(&pid).filter(|joined| joined.uid == program.uid) {
            return Some(joined.class);
        }
        if let Some(class) = self.groups.iter().find(|(group, _)| is_in(program, group)) {
            return Some(class.1);
        }
        let user = self.users.entry(program.uid).or_insert_with(|| user_name(program.uid));
        let facts = |cgroup| SocketFacts {
            process: &program.name,
            command: &program.command,
            cgroup,
            user_id: program.uid,
            user_name: user.as_deref(),
            local_port: flow.local.port(),
            peer_port: flow.peer.port(),
            peer: flow.peer.ip(),
        };
        // With version 1, a process has a group in each hierarchy.
        let groups = program.cgroups.iter().map(String::as_str).chain(std::iter::once("/"));
        groups.filter_map(|group| policy.class_of(&facts(group))).min()
    }
}

/// Port of an endpoint such as `tls/desk.example:7448`.
fn port_of(endpoint: &str) -> Option<u16> {
    endpoint.rsplit_once(':')?.1.parse().ok()
}

/// Whether a UDP socket without a peer may send through the interface of this number.
fn may_leave_through(flow: &Flow, interface: Option<u32>) -> bool {
    !flow.local.ip().is_loopback() && (flow.interface == 0 || Some(flow.interface) == interface)
}

/// Whether a program runs in this control group of version 2, or below it.
fn is_in(program: &Program, group: &str) -> bool {
    let is_below =
        |path: &String| path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    program.cgroups.first().is_some_and(is_below)
}
