//! The sockets that leave through the bottleneck, with the class of each.
//!
//! A list of all TCP sockets walks the kernel's table of connections, which costs up to 1 ms however few
//! there are. So one is made only if there may be a new socket, and every 300 ms; in between, those that send
//! are looked up one by one, and the others stay as they were read.

mod found;
mod placing;
mod routes;

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::netlink::{ByCookie, Flow, FlowSampler, SocketProbe};
use sys::proc::OpenedConnections;
use sys::process::{ForeignProcess, Program, SocketOwners, user_name};

use crate::policy::{Bottleneck, Policy, SocketFacts, is_within};
pub use found::Found;
use placing::{Placed, Placing};
use routes::{Routes, may_leave_through};

/// How long one tick may search for the holders of new sockets; the next tick continues.
const SEARCH_WITHIN: Duration = Duration::from_millis(10);
/// Name of the process of `kagiri qos coordinate`.
const COORDINATOR: &str = "kagiri";
/// How long a list of all sockets is used.
const LIST_FOR: Duration = Duration::from_millis(300);
/// More sockets than this are listed, not looked up one by one, at 2 us each.
const LOOKED_UP_MAX: usize = 128;
/// States of connections (`net/tcp_states.h`) that wait to be accepted if no program holds them:
/// ESTABLISHED, CLOSE_WAIT.
const STATES_OPEN: [u8; 2] = [1, 8];

/// A class into which a process has come by its own statement, as long as it runs as the same user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    pub uid: u32,
    /// Index in the policy.
    pub class: usize,
}

#[derive(Debug)]
pub struct Discovery {
    sampler: FlowSampler,
    probe: SocketProbe,
    opened: OpenedConnections,
    owners: SocketOwners,
    routes: Routes,
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
    /// What was found before the last list, kept for its room.
    before: Vec<Found>,
    placing: Placing,
    /// `None`: the next step makes a list of all sockets.
    list: Option<List>,
    /// When the last step began, on the monotonic clock.
    began_ns: u64,
}

/// A list of all sockets, of which the holders are known as far as they can be.
#[derive(Debug)]
struct List {
    /// Connections that had been opened before it was made.
    opened: u64,
    until: Deadline,
}

/// A socket of a program, of whatever class.
#[derive(Debug)]
struct Existing {
    /// Reading at which it was new, and the last one.
    first: u64,
    last: u64,
    /// The last list lacks it, and it is UDP: it is gone if the next one does, too.
    is_kept: bool,
    placed: Option<Placed>,
}

impl Discovery {
    pub fn open(bottleneck: &Bottleneck, groups: Vec<(String, usize)>) -> io::Result<Self> {
        Ok(Self {
            coordinator_port: bottleneck.coordinator.as_deref().and_then(port_of),
            groups,
            sampler: FlowSampler::open(None)?,
            probe: SocketProbe::open()?,
            opened: OpenedConnections::open_of_thread()?,
            owners: SocketOwners::new(),
            routes: Routes::through(&bottleneck.interface),
            users: HashMap::new(),
            existing: ByCookie::default(),
            readings: 0,
            has_lost: false,
            before: Vec::new(),
            placing: Placing::default(),
            list: None,
            began_ns: 0,
        })
    }

    /// Brings `found` up to date, the sockets of the policy's classes at the step before. `joined`: classes
    /// that processes have stated.
    pub fn look(
        &mut self,
        policy: &Policy,
        joined: &HashMap<i32, Joined>,
        found: &mut Vec<Found>,
    ) -> io::Result<()> {
        self.began_ns = monotonic_ns();
        // Before the list is made: what is opened meanwhile may be missing in it.
        let opened = self.opened.read().ok().flatten();
        let is_valid = |list: &List| Some(list.opened) == opened && !list.until.passed();
        let is_listed = self.list.as_ref().is_some_and(is_valid) && self.placing.is_of(joined);
        // A list needs less of the socket's buffer than many answers at once.
        if is_listed && self.look_up(policy, found).unwrap_or(false) {
            self.has_lost = false;
            return Ok(());
        }
        self.list = None;
        let has_unaccepted = self.read(found)?;
        let is_complete =
            self.owners.update(found.iter().map(|found| found.flow.inode), SEARCH_WITHIN) && !has_unaccepted;
        self.placing.update(self.owners.programs_version(), joined);
        found.retain_mut(|found| self.place(policy, joined, found).is_some());
        let opened = opened.filter(|_| is_complete);
        self.list = opened.map(|opened| List { opened, until: Deadline::after(LIST_FOR) });
        Ok(())
    }

    /// Makes a list of all sockets with the next step.
    pub fn list_next(&mut self) {
        self.list = None;
    }

    /// Whether the socket was read in the last step.
    pub fn is_fresh(&self, found: &Found) -> bool {
        found.time_ns >= self.began_ns
    }

    /// Reads the TCP sockets that may have sent. Returns whether all others are as they were in the list; if
    /// not, some have been read nevertheless.
    fn look_up(&mut self, policy: &Policy, found: &mut [Found]) -> io::Result<bool> {
        let Self { sampler, probe, existing, .. } = self;
        let is_tcp = |found: &Found| found.flow.tcp.is_some();
        let are_few = found.iter().filter(|found| is_tcp(found)).count() <= LOOKED_UP_MAX;
        let is_due = |found: &Found| is_tcp(found) && (are_few || found.is_busy(policy));
        let due: Vec<usize> = (0..found.len()).filter(|at| is_due(&found[*at])).collect();
        if due.len() > LOOKED_UP_MAX || found.iter().any(|found| !is_tcp(found) && found.is_changed_since) {
            return Ok(false);
        }
        // Nothing counts the UDP sockets that are opened.
        let mut has_new = false;
        sampler.read_udp(&mut |flow| has_new |= flow.inode != 0 && !existing.contains_key(&flow.cookie))?;
        if has_new {
            return Ok(false);
        }
        let mut now = Vec::with_capacity(due.len());
        let mut has_gone = false;
        probe.flows(due.iter().map(|at| &found[*at].flow), &mut |place, flow| match flow
            .filter(|flow| flow.inode != 0)
        {
            Some(flow) => now.push((due[place], flow, monotonic_ns())),
            None => has_gone = true,
        })?;
        now.into_iter().for_each(|(at, flow, time_ns)| found[at].update(flow, time_ns));
        Ok(!has_gone)
    }

    /// Reads all sockets: notes those that exist, and fills `found` with those that may leave through the
    /// bottleneck. Returns whether there are some that wait to be accepted.
    fn read(&mut self, found: &mut Vec<Found>) -> io::Result<bool> {
        self.routes.forget_old();
        let Self { sampler, routes, existing, .. } = self;
        // Counted even if it fails: the next one must not take for listed what this one has listed.
        self.readings += 1;
        let reading = self.readings;
        let mut interface = None;
        let (mut count, mut is_route_missing, mut has_unaccepted) = (0, false, false);
        self.before.clear();
        self.before.append(found);
        sampler.read(&mut |flow| {
            let time_ns = monotonic_ns();
            // UDP sockets need no peer to send.
            if flow.peer.port() == 0 && flow.tcp.is_some() {
                return;
            }
            // Without an inode, its program has closed it, or has not accepted it yet: nothing can be set.
            if flow.inode == 0 {
                has_unaccepted |= STATES_OPEN.contains(&flow.state);
                return;
            }
            let known = existing.entry(flow.cookie).or_insert(Existing {
                first: reading,
                last: 0,
                is_kept: false,
                placed: None,
            });
            if std::mem::replace(&mut known.last, reading) == reading {
                // The kernel lists a socket twice if others come into its chain meanwhile.
                return;
            }
            count += 1;
            let may_leave = match flow.peer.port() {
                0 => may_leave_through(&flow, *interface.get_or_insert_with(|| routes.interface())),
                // To look for a route now would delay the times of those that follow.
                _ => routes.known(flow.peer.ip()).unwrap_or_else(|| {
                    is_route_missing = true;
                    true
                }),
            };
            if may_leave {
                found.push(Found::unplaced(flow, time_ns));
            }
        })?;
        if is_route_missing {
            found
                .retain(|Found { flow: Flow { peer, .. }, .. }| peer.port() == 0 || routes.is_through(*peer));
        }
        self.has_lost = count < self.existing.len();
        if self.has_lost {
            self.find_missing(found);
            self.existing
                .retain(|_, existing| existing.last == reading || std::mem::take(&mut existing.is_kept));
        }
        Ok(has_unaccepted)
    }

    /// Adds to `found` what was found before, exists, and is not in the list: the kernel leaves a socket out
    /// if others leave its chain while the list is made. To take it for gone would leave it slowed for ever.
    /// What the kernel does not say stays as it was read before.
    fn find_missing(&mut self, found: &mut Vec<Found>) {
        let Self { before, existing, readings, probe, .. } = self;
        let is_missing = |found: &Found| {
            existing.get(&found.flow.cookie).is_some_and(|existing| existing.last != *readings)
        };
        let missing: Vec<Found> = before.extract_if(.., |found| is_missing(found)).collect();
        let mut answers: Vec<Option<Option<Flow>>> = missing.iter().map(|_| None).collect();
        let tcp: Vec<usize> = (0..missing.len()).filter(|at| missing[*at].flow.tcp.is_some()).collect();
        let asked = probe.flows(tcp.iter().map(|at| &missing[*at].flow), &mut |place, flow| {
            answers[tcp[place]] = Some(flow.filter(|flow| flow.inode != 0));
        });
        // Single UDP sockets cannot be asked for: one counts as gone if the next list lacks it, too.
        let is_kept = |found: &Found, last: u64| match found.flow.tcp {
            Some(_) => asked.is_err(),
            None => last + 1 == *readings,
        };
        for (found_before, answer) in missing.into_iter().zip(answers) {
            let Some(existing) = existing.get_mut(&found_before.flow.cookie) else { continue };
            let flow = match answer {
                Some(Some(flow)) => flow,
                Some(None) => continue,
                None if is_kept(&found_before, existing.last) => found_before.flow,
                None => continue,
            };
            match flow.tcp {
                Some(_) => existing.last = *readings,
                None => existing.is_kept = true,
            }
            found.push(Found::unplaced(flow, monotonic_ns()));
        }
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
        self.list_next();
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
        // The first one is of version 2.
        let of_version_2 = program.cgroups.first();
        if let Some((_, class)) =
            self.groups.iter().find(|(group, _)| of_version_2.is_some_and(|path| is_within(path, group)))
        {
            return Some(*class);
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

#[cfg(test)]
mod tests;
