//! Enforces a policy on running programs of one network namespace: finds their sockets, asks the law, paces
//! the TCP sockets of bulk and of less urgent classes, and holds UDP sockets to a rate in front of the
//! interface.

mod change;
mod clients;
mod congestion;
mod datagrams;
mod discovery;
mod groups;
mod messages;
mod problems;
mod sizes;
mod statement;
mod status;
mod watch;

use std::collections::HashMap;

use base::format::quantity;
use sys::clock::monotonic_ns;
use sys::journal::Journal;
use sys::net::CongestionControl;
use sys::netlink::{ByCookie, Cookies};
use sys::process::{PacingRate, SocketChange};
use sys::shaping::{ManagedSockets, SocketTarget};

pub use status::{
    ClassStatus, CongestionStatus, DatagramStatus, HostsStatus, LeaseState, ProgramStatus, SocketStatus,
    Status,
};

use crate::SOCKET_RATE_MIN;
use crate::hosts::HostFacts;
use crate::law::{Control, Law, Lease, Settings, SocketRate, SocketSample, State};
use crate::policy::Policy;
use change::{is_wanted, pacing, priority, target};
use clients::{Clients, TickView};
use congestion::{is_beside_datagrams, may_be_late_by};
use datagrams::Datagrams;
use discovery::{Discovery, Found};
use groups::ClassGroup;
use messages::Messages;
use problems::Problems;
use watch::Watch;

/// State of a connection that is not made yet (`net/tcp_states.h`).
const STATE_SYN_SENT: u8 = 2;
/// With more sockets than this, the period is twice as long: each costs some 2 us.
const SOCKETS_FAST: usize = 500;

/// A policy in force. When it is dropped, all sockets get back what they had before.
#[derive(Debug)]
pub struct Daemon {
    policy: Policy,
    discovery: Discovery,
    watch: Watch,
    law: Law,
    messages: Messages,
    clients: Clients,
    /// Dropped before the discipline that their priorities mean.
    sockets: ManagedSockets,
    datagrams: Datagrams,
    /// By class; empty if they could not be made.
    groups: Vec<ClassGroup>,
    /// Why there are none.
    groups_problem: Option<String>,
    journal: Journal,
    /// Rates of sockets, by their cookies.
    asked: ByCookie<Asked>,
    /// Of the last tick.
    found: Vec<Found>,
    control: Option<Control>,
    readings: Readings,
    problems: Problems,
}

/// TCP sockets with a rate that was asked for, each counted at every reading.
#[derive(Debug, Clone, Copy, Default)]
struct Readings {
    all: u64,
    /// Those with the rate that was set, as the kernel reports it.
    verified: u64,
}

/// What a socket is to have, in bit/s.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// What the law wants.
    bit_per_s: f64,
    /// What its program has set itself; infinite: nothing.
    own_bit_per_s: f64,
}

impl Asked {
    /// A program that limits itself is never sped up.
    fn least(self) -> f64 {
        self.bit_per_s.min(self.own_bit_per_s)
    }
}

/// Rates of a socket, in bit/s.
#[derive(Debug, Clone, Copy)]
struct Rates {
    asked: f64,
    /// What was set last; `None`: it could not be.
    enforced: Option<f64>,
}

/// Why a step of a policy in force failed.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    #[error("cannot list the sockets of this host: {0}")]
    List(std::io::Error),
    #[error(transparent)]
    Change(#[from] sys::Error),
}

impl Daemon {
    /// # Errors
    /// The kernel does not list sockets (sock_diag(7)).
    pub fn new(policy: Policy, journal: &Journal) -> std::io::Result<Self> {
        let (clients, problem) = Clients::open(&policy, journal);
        let (groups, groups_problem) = match groups::create(&policy, journal) {
            Ok(groups) => (groups, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let paths = groups.iter().enumerate().map(|(at, group)| (group.path().to_owned(), at)).collect();
        let mut problems = Problems::default();
        problems.note(problem);
        Ok(Self {
            clients,
            discovery: Discovery::open(&policy.bottleneck, paths)?,
            watch: Watch::open(&policy)?,
            groups,
            groups_problem,
            journal: journal.clone(),
            law: Law::of_policy(&policy),
            messages: Messages::new(&policy),
            sockets: ManagedSockets::new(journal),
            datagrams: Datagrams::new(&policy, journal),
            asked: ByCookie::default(),
            found: Vec::new(),
            control: None,
            readings: Readings::default(),
            problems,
            policy,
        })
    }

    /// One step: call it every [`Self::period_s`].
    ///
    /// # Errors
    /// The sockets cannot be listed, or the journal cannot be written: nothing more is changed then.
    pub fn tick(&mut self) -> Result<(), TickError> {
        self.discovery.look(&self.policy, self.clients.joined(), &mut self.found).map_err(TickError::List)?;
        self.verify();
        self.messages.observe(&self.found);
        let problem = self.datagrams.read();
        self.note(problem);
        self.law.set_datagrams(self.datagrams.sent());
        let mut samples: Vec<SocketSample> = self.found.iter().filter_map(Found::sample).collect();
        let Self { policy, discovery, found, messages, clients, law, .. } = self;
        clients.serve(&TickView { policy, discovery, found, messages });
        clients.apply(law, &mut samples);
        let exists = |cookie| self.discovery.exists(cookie);
        self.law.set_watched(self.watch.choose(&self.policy, &self.found, exists));
        for message in self.messages.ended() {
            self.law.message_arrived(message.bytes as f64, message.transfer_s);
        }
        let control = self.law.tick(monotonic_ns(), &samples);
        self.ask(&control.rates);
        if self.discovery.has_lost_sockets() {
            self.asked.retain(|cookie, _| self.discovery.exists(*cookie));
        }
        self.read_own_limits();
        let problem = self.too_many_sockets();
        self.note(problem);
        self.law.set_period_s(self.period_s());
        let problem = self.datagrams.enforce(&self.policy, &self.found, &control, &self.messages);
        self.note(problem);
        for (group, rate) in self.groups.iter_mut().zip(&control.class_rates) {
            let new = match rate {
                Some(rate) => group.set_rate(&self.journal, *rate),
                None => {
                    group.clear_rate();
                    None
                }
            };
            new.into_iter().for_each(|new| self.sockets.assume_new_sockets_have(new));
        }
        let datagrams = self.datagrams.sent_by_bulk(&self.policy);
        let is_beside = is_beside_datagrams(datagrams, control.bulk_bit_per_s);
        self.control = Some(control);
        let problem = if is_beside { self.late_by_bbr() } else { None };
        self.note(problem);
        self.release()?;
        Ok(self.enforce()?)
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Time from one step to the next, in seconds.
    pub fn period_s(&self) -> f64 {
        match self.discovery.sockets() > SOCKETS_FAST {
            true => 2.0 * Settings::PERIOD_S,
            false => Settings::PERIOD_S,
        }
    }

    /// Follows the coordinator of several hosts until the lease ends.
    pub fn set_lease(&mut self, lease: Lease) {
        self.law.set_lease(lease);
    }

    /// What the coordinator of several hosts is to know of the last tick.
    pub fn host_facts(&self) -> HostFacts {
        let settings = self.law.settings();
        HostFacts {
            observation: self.law.observation().clone(),
            bulk_bit_per_s: self.law.applied_bit_per_s(),
            datagrams: self.datagrams.sent(),
            message_need_bit_per_s: settings.message_need(),
            target_s: if settings.has_urgent() { settings.target_s() } else { 0.0 },
            is_late: self.control.as_ref().is_none_or(|control| control.state == State::Late),
        }
    }

    /// What is in force, as of the last tick.
    pub fn status(&self) -> Status {
        status::of(self)
    }

    /// Problems that were not returned before.
    pub fn take_new_problems(&mut self) -> Vec<String> {
        self.problems.take_new()
    }

    fn seen(&self) -> TickView<'_> {
        let Self { policy, discovery, found, messages, .. } = self;
        TickView { policy, discovery, found, messages }
    }

    /// Compares what the kernel reports with what was set.
    fn verify(&mut self) {
        let Self { found, discovery, asked, sockets, readings, .. } = self;
        for found in found.iter_mut().filter(|found| discovery.is_fresh(found)) {
            let cookie = found.flow.cookie;
            let Some(asked) = asked.get(&cookie) else { continue };
            let set = sockets.applied(cookie).and_then(|change| change.pacing);
            let enforced = set.map(|rate| 8.0 * rate.bytes_per_s() as f64);
            found.at_reading = Some(Rates { asked: asked.least(), enforced });
            let reported = found.flow.tcp.as_ref().and_then(|tcp| tcp.pacing_max_bytes_per_s);
            let is_as_set = reported.zip(enforced).is_some_and(|(bytes, set)| 8.0 * bytes as f64 == set);
            readings.all += 1;
            readings.verified += u64::from(is_as_set);
        }
    }

    /// Takes rates that the law has changed.
    fn ask(&mut self, rates: &[SocketRate]) {
        for rate in rates {
            let new = Asked { bit_per_s: rate.bit_per_s, own_bit_per_s: f64::INFINITY };
            self.asked.entry(rate.id).or_insert(new).bit_per_s = rate.bit_per_s;
        }
    }

    fn read_own_limits(&mut self) {
        self.asked.values_mut().for_each(|asked| asked.own_bit_per_s = f64::INFINITY);
        for flow in self.found.iter().map(|found| &found.flow) {
            let reported = flow.tcp.as_ref().and_then(|tcp| tcp.pacing_max_bytes_per_s);
            if let Some(reported) = reported.and_then(PacingRate::from_bytes_per_s)
                && let Some(asked) = self.asked.get_mut(&flow.cookie)
            {
                let own = self.sockets.own_pacing(flow.cookie, reported);
                asked.own_bit_per_s = 8.0 * own.bytes_per_s() as f64;
            }
        }
    }

    /// Whether it is a TCP socket of a class that has a rate at the moment.
    fn is_paced(&self, found: &Found) -> bool {
        let rates = self.control.as_ref().map(|control| &control.class_rates);
        let rate = rates.and_then(|rates| rates.get(found.class).copied().flatten());
        found.flow.tcp.is_some() && rate.is_some()
    }

    /// The congestion control that a socket is to have; `None`: its own.
    fn congestion_of(&self, found: &Found) -> Option<CongestionControl> {
        found.flow.tcp.as_ref().and(self.policy.classes[found.class].congestion_control)
    }

    /// Which messages are late on sockets that use bbr.
    fn late_by_bbr(&self) -> Option<String> {
        let is_late = |found: &&Found| {
            let messages = self.messages.of_class(found.class);
            self.policy.classes[found.class].is_urgent()
                && may_be_late_by(found.flow.congestion, messages.count, messages.in_time)
        };
        let class = self.found.iter().find(is_late)?.class;
        Some(format!(
            "Messages of {} are late, and sockets use bbr (sock_diag) beside UDP of bulk classes; try \
             congestion_control = \"cubic\" in the class.",
            self.policy.classes[class].name
        ))
    }

    /// Why no target can be promised: each paced socket has a least rate.
    fn too_many_sockets(&self) -> Option<String> {
        let capacity = self.control.as_ref().filter(|control| control.is_known)?.capacity_bit_per_s;
        let paced = self.found.iter().filter(|found| self.is_paced(found)).count();
        let least = paced as f64 * SOCKET_RATE_MIN;
        (least > capacity).then(|| {
            format!(
                "The paced sockets, of {} each at least, may send more than the link carries; targets \
                 cannot be met.",
                quantity(Some(SOCKET_RATE_MIN), "bit/s")
            )
        })
    }

    /// Gives back what sockets had that belong to no class any more that is limited: their program has
    /// executed another.
    fn release(&mut self) -> sys::Result<()> {
        if self.discovery.has_lost_sockets() {
            self.sockets.retain(|cookie| self.discovery.exists(cookie))?;
        }
        let stays = |found: &&Found| {
            let Some(change) = self.sockets.applied(found.flow.cookie) else { return false };
            match found.flow.tcp {
                None => self.datagrams.priority(found.class).is_some(),
                Some(_) => is_wanted(change, self.is_paced(found), self.congestion_of(found).is_some()),
            }
        };
        // No socket is found twice.
        if self.found.iter().filter(stays).count() == self.sockets.count() {
            return Ok(());
        }
        let stay: Cookies = self.found.iter().filter(stays).map(|found| found.flow.cookie).collect();
        let left: Vec<u64> = self.sockets.cookies().filter(|cookie| !stay.contains(cookie)).collect();
        // What they were read with is not what they have.
        self.discovery.list_next();
        let paced: Cookies =
            self.found.iter().filter(|found| self.is_paced(found)).map(|found| found.flow.cookie).collect();
        for cookie in left {
            // The law does not say again what it has asked for: one that is paced all the same keeps that.
            if !paced.contains(&cookie) {
                self.asked.remove(&cookie);
            }
            self.sockets.restore(cookie);
        }
        Ok(())
    }

    /// Sets every rate and priority that the kernel does not report as it was asked: new ones, and those that
    /// a program has set itself.
    fn enforce(&mut self) -> sys::Result<()> {
        let change = |found: &Found| match found.flow.tcp {
            // If connecting fails, it leaves the kernel's list, and the program may connect it again.
            Some(_) if found.flow.state == STATE_SYN_SENT => None,
            Some(_) => {
                let asked = self.asked.get(&found.flow.cookie).filter(|_| self.is_paced(found));
                let congestion = self.congestion_of(found).filter(|own| Some(*own) != found.flow.congestion);
                let pacing = asked.and_then(|asked| pacing(found, asked.least()));
                let change = SocketChange { pacing, congestion, ..SocketChange::default() };
                (change != SocketChange::default()).then_some(change)
            }
            None => priority(found, self.datagrams.priority(found.class)?),
        };
        let of = |(at, found): (usize, &Found)| Some((at, target(found, change(found)?, &self.discovery)?));
        let (places, targets): (Vec<usize>, Vec<SocketTarget<'_>>) =
            self.found.iter().enumerate().filter_map(of).unzip();
        let results = self.sockets.apply(&targets)?;
        let set: Vec<Option<PacingRate>> = targets.iter().map(|target| target.change.pacing).collect();
        let mut failed: HashMap<String, (u64, String)> = HashMap::new();
        for ((at, pacing), result) in places.into_iter().zip(set).zip(results) {
            match result {
                Ok(()) => {
                    let found = &mut self.found[at];
                    (found.set_since, found.is_changed_since) = (pacing.or(found.set_since), true);
                }
                Err(error) if error.is_gone() => self.discovery.forget(self.found[at].flow.inode),
                Err(error) => failed.entry(error.kind()).or_insert((0, error.to_string())).0 += 1,
            }
        }
        for (kind, (count, first)) in failed {
            let more = if count > 1 { format!(" (and {} more sockets)", count - 1) } else { String::new() };
            self.problems.note_of_kind(kind, first + &more);
        }
        Ok(())
    }

    fn note(&mut self, problem: Option<String>) {
        self.problems.note(problem);
    }
}
