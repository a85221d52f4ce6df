//! The sockets that leave through the bottleneck, with the class of each.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::netlink::{ByCookie, Flow, FlowSampler};
use sys::proc::{interface_number, interface_to};
use sys::process::{ForeignProcess, PacingRate, Program, SocketHolder, SocketOwners, user_name};

use super::Rates;
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
    /// It did not exist at the first reading, and has a holder for the first time.
    pub is_new: bool,
    /// What had been asked for and set when it was read; `None`: nothing.
    pub(super) at_reading: Option<Rates>,
    /// The rate that was set since it was read.
    pub set_since: Option<PacingRate>,
}

impl Found {
    /// Of a socket whose holder and class are to be found.
    fn unplaced(flow: Flow, time_ns: u64) -> Self {
        let holder = SocketHolder { pid: 0, fd: -1 };
        Self { flow, time_ns, holder, class: 0, is_new: false, at_reading: None, set_since: None }
    }

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
    /// All sockets of programs at the last reading.
    existing: ByCookie<Existing>,
    /// Number of readings of all sockets.
    readings: u64,
    /// Whether a socket that existed at the reading before is gone.
    has_lost: bool,
    placing: Placing,
}

/// A socket of a program, of whatever class.
#[derive(Debug)]
struct Existing {
    /// Reading at which it was new, and the last one.
    first: u64,
    last: u64,
    placed: Option<Placed>,
}

/// The class of a socket, and what it follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placed {
    class: Option<usize>,
    pid: i32,
    ends: [SocketAddr; 2],
    placing: u64,
}

/// What the classes of sockets follow from, beside the policy, the process and the ends of each. As long as
/// the version is the same, so are the classes.
#[derive(Debug, Default)]
struct Placing {
    version: u64,
    programs_version: u64,
    joined: HashMap<i32, Joined>,
}

impl Placing {
    fn update(&mut self, programs_version: u64, joined: &HashMap<i32, Joined>) {
        if self.programs_version != programs_version || self.joined != *joined {
            self.version += 1;
            self.programs_version = programs_version;
            self.joined.clone_from(joined);
        }
    }
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
            existing: ByCookie::default(),
            readings: 0,
            has_lost: false,
            placing: Placing::default(),
        })
    }

    /// Fills `found` with the sockets of the policy's classes. `joined`: classes that processes have stated.
    pub fn look(
        &mut self,
        policy: &Policy,
        joined: &HashMap<i32, Joined>,
        found: &mut Vec<Found>,
    ) -> io::Result<()> {
        self.read(found)?;
        self.owners.update(found.iter().map(|found| found.flow.inode), SEARCH_WITHIN);
        self.placing.update(self.owners.programs_version(), joined);
        found.retain_mut(|found| self.place(policy, joined, found).is_some());
        Ok(())
    }

    /// Reads all sockets: notes those that exist, and fills `found` with those that may leave through the
    /// bottleneck.
    fn read(&mut self, found: &mut Vec<Found>) -> io::Result<()> {
        self.routes.retain(|_, (_, known)| !known.passed());
        let Self { interface, sampler, routes, existing, .. } = self;
        // Counted even if it fails: the next one must not take for listed what this one has listed.
        self.readings += 1;
        let reading = self.readings;
        let mut number = None;
        let (mut count, mut is_route_missing) = (0, false);
        found.clear();
        sampler.read(&mut |flow| {
            let time_ns = monotonic_ns();
            // UDP sockets need no peer to send.
            if flow.peer.port() == 0 && flow.tcp.is_some() {
                return;
            }
            // Without an inode, its program has closed it, or has not accepted it yet: nothing can be set.
            if flow.inode == 0 {
                return;
            }
            let known =
                existing.entry(flow.cookie).or_insert(Existing { first: reading, last: 0, placed: None });
            if std::mem::replace(&mut known.last, reading) == reading {
                // The kernel lists a socket twice if others come into its chain meanwhile.
                return;
            }
            count += 1;
            let may_leave = match flow.peer.port() {
                0 => may_leave_through(&flow, *number.get_or_insert_with(|| interface_number(interface))),
                // To look for a route now would delay the times of those that follow.
                _ => routes.get(&flow.peer.ip()).map_or_else(
                    || {
                        is_route_missing = true;
                        true
                    },
                    |(is_through, _)| *is_through,
                ),
            };
            if may_leave {
                found.push(Found::unplaced(flow, time_ns));
            }
        })?;
        if is_route_missing {
            found.retain(|Found { flow: Flow { peer, .. }, .. }| {
                peer.port() == 0 || is_through(interface, routes, *peer)
            });
        }
        self.has_lost = count < existing.len();
        if self.has_lost {
            existing.retain(|_, existing| existing.last == reading);
        }
        Ok(())
    }

    /// Sockets of the host at the last reading.
    pub fn sockets(&self) -> usize {
        self.existing.len()
    }

    /// Whether a socket that existed at the reading before is gone.
    pub fn has_lost_sockets(&self) -> bool {
        self.has_lost
    }

    /// Whether the socket existed at the last reading, of whatever class.
    pub fn exists(&self, cookie: u64) -> bool {
        self.existing.contains_key(&cookie)
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

    /// Finds holder and class of a socket; `None`: it has none.
    fn place(&mut self, policy: &Policy, joined: &HashMap<i32, Joined>, found: &mut Found) -> Option<()> {
        let flow = &found.flow;
        let holder = self.owners.holder(flow.inode)?;
        let existing = self.existing.get(&flow.cookie)?;
        // Its holder may be found some readings after the socket itself.
        let is_first_placing = existing.placed.is_none() || existing.first == self.readings;
        found.is_new = existing.first > 1 && is_first_placing;
        found.holder = holder;
        let (pid, placing, ends) = (holder.pid, self.placing.version, [flow.local, flow.peer]);
        let is_same = |placed: &Placed| placed.placing == placing && placed.pid == pid && placed.ends == ends;
        if let Some(placed) = existing.placed.as_ref().filter(|placed| is_same(placed)) {
            found.class = placed.class?;
            return Some(());
        }
        let class = match self.is_control(flow, pid) {
            true => None,
            false => self.class_of(policy, joined, flow, pid),
        };
        self.existing.get_mut(&flow.cookie)?.placed = Some(Placed { class, pid, ends, placing });
        found.class = class?;
        Some(())
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

/// Whether a peer is reached through the interface.
fn is_through(interface: &str, routes: &mut HashMap<IpAddr, (bool, Deadline)>, peer: SocketAddr) -> bool {
    let known = routes.entry(peer.ip()).or_insert_with(|| {
        // A peer without a route is reached through no interface.
        let is_through = interface_to(peer).is_ok_and(|name| name == interface);
        (is_through, Deadline::after(ROUTE_FOR))
    });
    known.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_looked_up_anew_when_a_program_or_a_statement_changes() {
        let mut placing = Placing::default();
        let mut versions = vec![];
        let none = HashMap::new();
        let stated = |class| HashMap::from([(7, Joined { uid: 0, class })]);
        for (programs_version, joined) in [
            (0, none.clone()),
            (1, none.clone()),
            (1, none.clone()),
            (1, stated(0)),
            (1, stated(0)),
            (1, stated(1)),
            (2, stated(1)),
            (2, none),
        ] {
            placing.update(programs_version, &joined);
            versions.push(placing.version);
        }
        assert_eq!(versions, [0, 1, 1, 2, 2, 3, 4, 5]);
    }
}
