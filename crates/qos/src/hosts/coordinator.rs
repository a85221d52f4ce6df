//! The law for all hosts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::share::{HostUse, shares};
use super::urgent_share::{UrgentUse, urgent_shares};
use super::wire::{self, ClassReport, Grant, Report};
use super::{HOSTS_MAX, LEASE, STALE};
use crate::law::{ClassSeen, ClassSettings, Control, Law, Observation, Settings, State, Tick};
use crate::need::KAPPA;
use crate::policy::{Policy, SIZE_MAX};

/// Hosts continue on their own for this time after the first one has come, so that the law begins with the
/// rates of all.
const GATHER_NS: u64 = 1_000_000_000;
/// A queue that was seen longer ago says nothing of now.
const QUEUE_FRESH_NS: u64 = 150_000_000;
/// Number of reports from which the use of a host is computed: a socket that is read between two messages has
/// not become idle.
const RECENT: usize = 4;
/// Grants whose time of sending is remembered.
const SENT_MAX: usize = 64;

/// A host: the name by which it authenticated, or that it gives itself on this machine, and its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId {
    pub name: String,
    pub id: u64,
}

/// A host as the coordinator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSeen {
    pub name: String,
    /// What its bulk may send, in bit/s.
    pub bulk_bit_per_s: f64,
    /// What its classes sent, in bit/s.
    pub delivered_bit_per_s: f64,
    /// From the sending of a grant to the report that answers it.
    pub round_trip: Option<Duration>,
    /// Its reports come too late to follow.
    pub is_stale: bool,
}

/// What the coordinator sees. Rates in bit/s.
#[derive(Debug, Clone, PartialEq)]
pub struct CoordinatorView {
    pub state: Option<State>,
    pub capacity_bit_per_s: Option<f64>,
    pub bulk_bit_per_s: Option<f64>,
    pub queue_s: Option<f64>,
    /// Steps of the law, and those that came too late to measure.
    pub steps: u64,
    pub late_steps: u64,
    pub hosts: Vec<HostSeen>,
}

/// Runs the law of a policy for several hosts. Times are of the coordinator's monotonic clock.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    /// `None`: the hosts gather.
    law: Option<Law>,
    /// When the first host came.
    since_ns: Option<u64>,
    last_tick_ns: Option<u64>,
    hosts: BTreeMap<HostId, Host>,
    control: Option<Control>,
    steps: u64,
    late_steps: u64,
}

#[derive(Debug, Default)]
struct Host {
    /// The last ones, newest last.
    reports: VecDeque<Report>,
    received_ns: u64,
    /// To be answered at the next tick.
    is_new: bool,
    is_stale: bool,
    round_trip: Option<Duration>,
    /// Segments of reports since the last tick: delivered, retransmitted.
    segments: (u64, u64),
    /// When the last queue was seen, and its delay in seconds.
    queue: Option<(u64, f64)>,
    sequence: u32,
    sent: VecDeque<(u32, u64)>,
    bulk_bit_per_s: f64,
}

impl Coordinator {
    pub fn new(policy: &Policy) -> Self {
        Self {
            settings: Settings::from_policy(policy),
            law: None,
            since_ns: None,
            last_tick_ns: None,
            hosts: BTreeMap::new(),
            control: None,
            steps: 0,
            late_steps: 0,
        }
    }

    /// Whether another host is taken.
    pub fn has_place(&self, id: &HostId) -> bool {
        self.hosts.len() < HOSTS_MAX || self.hosts.contains_key(id)
    }

    /// A host has connected, anew or again: it knows no grant of before.
    pub fn connected(&mut self, id: &HostId) {
        if let Some(host) = self.hosts.get_mut(id) {
            host.sent.clear();
        }
    }

    /// Takes a report. Returns whether it can be one of this policy.
    pub fn report(&mut self, now_ns: u64, id: &HostId, report: Report) -> bool {
        if report.classes.len() != self.settings.classes.len() || !self.has_place(id) {
            return false;
        }
        self.since_ns.get_or_insert(now_ns);
        self.hosts.entry(id.clone()).or_default().take(now_ns, report);
        true
    }

    /// One step, every [`Settings::PERIOD_S`]. Returns the grants of hosts that have reported since the last.
    pub fn tick(&mut self, now_ns: u64) -> Vec<(HostId, Grant)> {
        // The lease of a host that is silent has ended.
        let lease_ns = LEASE.as_nanos() as u64;
        self.hosts.retain(|_, host| now_ns.saturating_sub(host.received_ns) <= lease_ns);
        let last_ns = self.last_tick_ns.replace(now_ns);
        let (Some(since_ns), false) = (self.since_ns, self.hosts.is_empty()) else {
            (self.law, self.since_ns, self.control) = (None, None, None);
            return Vec::new();
        };
        if self.law.is_none() {
            if now_ns.saturating_sub(since_ns) < GATHER_NS {
                return Vec::new();
            }
            self.law = Some(Law::new(self.start()));
        }
        let duration_s = last_ns.map_or(Settings::PERIOD_S, |last| now_ns.saturating_sub(last) as f64 * 1e-9);
        let seen = self.observation(now_ns, duration_s);
        let datagrams = self.datagrams();
        let programs = self.largest_message();
        let delay_s = self.delay_s();
        let Some(law) = &mut self.law else { return Vec::new() };
        law.set_delay_s(delay_s);
        law.set_programs(programs);
        law.set_datagrams(datagrams);
        let (control, limits) = law.tick_of_hosts(now_ns, &seen);
        self.steps += 1;
        self.late_steps += u64::from(control.state == State::Late);
        let grants = self.grants(now_ns, &control, &limits);
        self.control = Some(control);
        grants
    }

    pub fn seen(&self) -> CoordinatorView {
        let control = self.control.as_ref();
        let host = |(id, host): (&HostId, &Host)| HostSeen {
            name: id.name.clone(),
            bulk_bit_per_s: host.bulk_bit_per_s,
            delivered_bit_per_s: host.last().map_or(0.0, delivered),
            round_trip: host.round_trip,
            is_stale: host.is_stale,
        };
        CoordinatorView {
            state: control.map(|control| control.state),
            capacity_bit_per_s: control.filter(|control| control.is_known).map(|c| c.capacity_bit_per_s),
            bulk_bit_per_s: control.map(|control| control.bulk_bit_per_s),
            queue_s: control.and_then(|control| control.queue_s),
            steps: self.steps,
            late_steps: self.late_steps,
            hosts: self.hosts.iter().map(host).collect(),
        }
    }

    /// The law begins with what the hosts send on their own.
    fn start(&self) -> Settings {
        let bulk: f64 = self.hosts.values().filter_map(Host::last).map(|r| f64::from(r.bulk_bit_per_s)).sum();
        Settings { start_bit_per_s: bulk.max(crate::SOCKET_RATE_MIN), ..self.settings.clone() }
    }

    /// What all hosts have seen together.
    fn observation(&mut self, now_ns: u64, duration_s: f64) -> Observation {
        let mut seen = Observation { tick: Tick { duration_s, ..Tick::default() }, ..Observation::default() };
        seen.classes.resize(self.settings.classes.len(), ClassSeen::default());
        for host in self.hosts.values_mut() {
            let (delivered, retransmitted) = std::mem::take(&mut host.segments);
            seen.tick.delivered_segments += delivered;
            seen.tick.retransmitted_segments += retransmitted;
            let is_fresh = |at: u64| now_ns.saturating_sub(at) <= QUEUE_FRESH_NS;
            let queue = host.queue.filter(|(at, _)| is_fresh(*at)).map(|(_, queue_s)| queue_s);
            // Noise only adds.
            seen.queue_s = seen.queue_s.into_iter().chain(queue).reduce(f64::min);
            let Some(report) = host.reports.back() else { continue };
            seen.base_s = seen.base_s.max(f64::from(report.base_us) * 1e-6);
            seen.inflight_bits += 8.0 * f64::from(report.inflight_bytes);
            seen.slack_bits += 8.0 * f64::from(report.slack_bytes);
            let classes = report.classes.iter().zip(&self.settings.classes).zip(&mut seen.classes);
            for ((class, settings), sum) in classes {
                let rate = f64::from(class.delivered_bit_per_s);
                sum.delivered_bit_per_s += rate;
                sum.active_need += f64::from(class.active_need_bit_per_s);
                sum.active += usize::from(class.active);
                sum.backlogged += usize::from(class.backlogged);
                sum.base_s = sum.base_s.max(f64::from(report.base_us) * 1e-6);
                match settings {
                    ClassSettings::Urgent { .. } | ClassSettings::Program { .. } => {
                        seen.tick.urgent_bit_per_s += rate
                    }
                    ClassSettings::Bulk { .. } => {
                        seen.tick.bulk_bit_per_s += rate;
                        seen.bulk_active += usize::from(class.active);
                        seen.bulk_backlogged += usize::from(class.backlogged);
                    }
                }
            }
        }
        seen
    }

    /// The largest need of one message of a host within the shortest target, as the law takes it: of the most
    /// urgent class.
    fn largest_message(&self) -> Option<ClassSettings> {
        let urgent = self.settings.classes.iter().enumerate().filter_map(|(at, class)| match class {
            ClassSettings::Urgent { rank, .. } => Some((rank.priority, at)),
            _ => None,
        });
        let (_, class) = urgent.min()?;
        let reports = || self.hosts.values().filter_map(Host::last).filter(|report| report.target_us > 0);
        let target_s = reports().map(|report| f64::from(report.target_us) * 1e-6).reduce(f64::min)?;
        let need = reports().map(|report| f64::from(report.message_need_bit_per_s)).fold(0.0, f64::max);
        let message_bytes = (need * KAPPA * target_s / 8.0).min(SIZE_MAX.bytes() as f64);
        Some(ClassSettings::Program { class, target_s, message_bytes })
    }

    /// From when a host sees something to when its rates follow: both ways, and on average half a step of the
    /// coordinator and half of the host.
    fn delay_s(&self) -> f64 {
        let fresh = self.hosts.values().filter(|host| !host.is_stale);
        let ways_s =
            fresh.filter_map(|host| host.round_trip).map(|took| took.as_secs_f64()).fold(0.0, f64::max);
        ways_s + Settings::PERIOD_S
    }

    /// What the UDP sockets of each class send on all hosts, in bit/s.
    fn datagrams(&self) -> Vec<f64> {
        let of_class = |at: usize| {
            let reports = self.hosts.values().filter_map(Host::last);
            reports.map(|report| f64::from(report.classes[at].datagrams_bit_per_s)).sum()
        };
        (0..self.settings.classes.len()).map(of_class).collect()
    }

    /// `limits`: of urgent classes on all hosts together, in bit/s.
    fn grants(&mut self, now_ns: u64, control: &Control, limits: &[Option<f64>]) -> Vec<(HostId, Grant)> {
        // With a given capacity, the share is that of TCP and UDP together.
        let bulk = match self.settings.given_bit_per_s {
            Some(_) => control.bulk_bit_per_s,
            None => control.applied_bit_per_s,
        };
        let classes = self.settings.classes.len();
        let uses: Vec<Vec<HostUse>> =
            self.hosts.values().map(|host| (0..classes).map(|at| host.uses(at)).collect()).collect();
        let shares = shares(bulk, &self.settings.classes, &uses);
        let urgent: Vec<Vec<UrgentUse>> =
            self.hosts.values().map(|host| (0..classes).map(|at| host.urgent_use(at)).collect()).collect();
        let urgent = urgent_shares(limits, &urgent);
        let hosts = u16::try_from(self.hosts.len()).unwrap_or(u16::MAX);
        let mut grants = Vec::new();
        for (((id, host), share), urgent) in self.hosts.iter_mut().zip(shares).zip(urgent) {
            let Some(report) = host.take_unanswered() else { continue };
            host.bulk_bit_per_s = share.bulk_bit_per_s;
            let grant = Grant {
                sequence: host.next_sequence(now_ns),
                report,
                lease_ms: LEASE.as_millis() as u16,
                hosts,
                capacity_bit_per_s: control.is_known.then(|| wire::rate(control.capacity_bit_per_s)),
                bulk_bit_per_s: wire::rate(share.bulk_bit_per_s),
                // A class is bulk or urgent: one of the two is 0.
                classes: share
                    .classes
                    .iter()
                    .zip(urgent)
                    .map(|(bulk, most)| wire::rate(bulk + most))
                    .collect(),
            };
            grants.push((id.clone(), grant));
        }
        grants
    }
}

impl Host {
    fn take(&mut self, now_ns: u64, report: Report) {
        let sent = self.sent.iter().find(|(sequence, _)| *sequence == report.grant);
        let since_ns = u64::from(report.since_grant_us) * 1000;
        self.round_trip = sent
            .map(|(_, at)| Duration::from_nanos(now_ns.saturating_sub(*at).saturating_sub(since_ns)))
            .or(self.round_trip);
        self.is_stale = sent.is_some() && self.round_trip.is_some_and(|took| took > STALE);
        self.received_ns = now_ns;
        self.segments.0 += u64::from(report.delivered_segments);
        self.segments.1 += u64::from(report.retransmitted_segments);
        self.is_new = true;
        if self.is_stale || report.is_late {
            self.queue = None;
        } else if let Some(queue_us) = report.queue_us {
            self.queue = Some((now_ns, f64::from(queue_us) * 1e-6));
        }
        if report.is_late
            && let Some(last) = self.reports.back_mut()
        {
            // What came during a stall is no rate.
            (last.sequence, last.bulk_bit_per_s) = (report.sequence, report.bulk_bit_per_s);
            return;
        }
        if self.reports.len() == RECENT {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
    }

    fn last(&self) -> Option<&Report> {
        self.reports.back()
    }

    /// The report that the next grant answers. A host whose reports come too late is to continue on its own,
    /// which is faster.
    fn take_unanswered(&mut self) -> Option<u32> {
        let is_new = std::mem::take(&mut self.is_new);
        self.last().map(|report| report.sequence).filter(|_| is_new && !self.is_stale)
    }

    fn next_sequence(&mut self, now_ns: u64) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((self.sequence, now_ns));
        self.sequence
    }

    fn uses(&self, class: usize) -> HostUse {
        let recent = || self.reports.iter().map(move |report: &Report| report.classes[class]);
        let mean = |rate: fn(&ClassReport) -> f32| {
            recent().map(|class| f64::from(rate(&class))).sum::<f64>() / self.reports.len().max(1) as f64
        };
        HostUse {
            active: recent().map(|class| usize::from(class.active)).max().unwrap_or(0),
            tcp_bit_per_s: mean(|class| class.delivered_bit_per_s),
            is_tcp_backlogged: recent().any(|class| class.backlogged > 0),
            is_udp_active: mean(|class| class.datagrams_bit_per_s) > 0.0,
        }
    }

    fn urgent_use(&self, class: usize) -> UrgentUse {
        self.last().map_or(UrgentUse::default(), |report| UrgentUse {
            active: usize::from(report.classes[class].active),
            need: f64::from(report.classes[class].active_need_bit_per_s),
        })
    }
}

/// Of all classes, TCP and UDP.
fn delivered(report: &Report) -> f64 {
    let of_class = |class: &ClassReport| f64::from(class.delivered_bit_per_s + class.datagrams_bit_per_s);
    report.classes.iter().map(of_class).sum()
}
