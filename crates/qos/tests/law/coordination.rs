//! A coordinator between simulated hosts: messages as on the wire, which take a time, and clocks that differ.

use std::collections::VecDeque;

use qos::hosts::wire::{Grant, Message, Report};
use qos::hosts::{Coordinator, HostFacts, HostId, Member};
use qos::law::{Control, Law, SocketSample};
use qos::policy::Policy;

/// The coordinator's step comes between those of the hosts.
const TICK_US: u64 = 50_000;
const OFFSET_US: u64 = 17_000;
/// Classes as the simulator has them: bulk, then urgent.
const POLICY: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = 'estimate'\n\
    [[class]]\nname = 'bulk'\nmatch = { process = 'b' }\npriority = 5\n\
    [[class]]\nname = 'alarm'\nmatch = { process = 'a' }\npriority = 1\ntarget = '50ms'\nsize = '10kB'\n";

pub struct Coordination {
    coordinator: Coordinator,
    members: Vec<Member>,
    /// One way, in microseconds.
    pub delay_us: u64,
    /// Hosts whose messages do not arrive.
    pub cut: Vec<usize>,
    /// Arrival, host, and bytes.
    reports: VecDeque<(u64, usize, Vec<u8>)>,
    grants: VecDeque<(u64, usize, Vec<u8>)>,
    pub is_running: bool,
}

/// Clocks of hosts begin at different times.
fn clock_ns(host: usize, now_us: u64) -> u64 {
    now_us * 1000 + (host as u64 + 1) * 1_000_000_000_000
}

fn id(host: usize) -> HostId {
    HostId { name: format!("host-{host}"), id: host as u64 }
}

fn coordinator() -> Coordinator {
    Coordinator::new(&Policy::parse(POLICY).expect("a policy"))
}

impl Coordination {
    pub fn new(hosts: usize, delay_us: u64) -> Self {
        Self {
            coordinator: coordinator(),
            members: (0..hosts).map(|host| Member::new(clock_ns(host, 0))).collect(),
            delay_us,
            cut: Vec::new(),
            reports: VecDeque::new(),
            grants: VecDeque::new(),
            is_running: true,
        }
    }

    /// Another process takes the place of the coordinator: it knows nothing of before.
    pub fn restart(&mut self) {
        self.coordinator = coordinator();
        self.members.iter_mut().for_each(Member::connected);
        self.grants.clear();
        self.is_running = true;
    }

    /// The coordinator's side.
    pub fn step(&mut self, now_us: u64) {
        while self.reports.front().is_some_and(|(at, ..)| *at <= now_us) {
            let Some((_, host, bytes)) = self.reports.pop_front() else { break };
            let Ok(Message::Report(report)) = Message::decode(&bytes) else { panic!("no report") };
            if self.is_running {
                assert!(self.coordinator.report(now_us * 1000, &id(host), report));
            }
        }
        if !self.is_running || now_us % TICK_US != OFFSET_US {
            return;
        }
        for (to, grant) in self.coordinator.tick(now_us * 1000) {
            let host = (0..self.members.len()).find(|host| id(*host) == to).expect("a host");
            self.grants.push_back((now_us + self.delay_us, host, Message::Grant(grant).encode()));
        }
    }

    /// A host's side: takes grants, makes a step of its law, and reports.
    pub fn tick(&mut self, host: usize, law: &mut Law, now_us: u64, samples: &[SocketSample]) -> Control {
        let now_ns = clock_ns(host, now_us);
        for grant in self.arrived(host, now_us) {
            self.members[host].take(now_ns, &grant).into_iter().for_each(|lease| law.set_lease(lease));
        }
        let control = law.tick(now_ns, samples);
        let facts = HostFacts {
            observation: law.observation().clone(),
            bulk_bit_per_s: law.applied_bit_per_s(),
            datagrams: vec![0.0; 2],
            message_need_bit_per_s: law.settings().message_need(),
            target_s: law.settings().target_s(),
            is_late: false,
        };
        let report: Report = self.members[host].report(now_ns, &facts);
        if !self.cut.contains(&host) {
            self.reports.push_back((now_us + self.delay_us, host, Message::Report(report).encode()));
        }
        control
    }

    fn arrived(&mut self, host: usize, now_us: u64) -> Vec<Grant> {
        let is_here = |(at, to, _): &(u64, usize, Vec<u8>)| *at <= now_us && *to == host;
        let here: Vec<Vec<u8>> =
            self.grants.iter().filter(|one| is_here(one)).map(|(.., bytes)| bytes.clone()).collect();
        self.grants.retain(|one| !is_here(one));
        let read = |bytes: Vec<u8>| match Message::decode(&bytes) {
            Ok(Message::Grant(grant)) => grant,
            other => panic!("no grant: {other:?}"),
        };
        here.into_iter().map(read).collect()
    }
}
