//! The standing-queue law: the aggregate rate of bulk traffic at a bottleneck of unknown capacity.
//!
//! A sender sees the queue in its round-trip times and the capacity in what is delivered while a queue
//! stands. Each tick, the law grows bulk while there is no queue, and makes room when one stands
//! (docs/qos.md explains the steps, and compares laws). It is a state machine over plain data: the caller
//! reads the sockets and the clock, and sets the rates.

mod enforcement;
mod episode;
mod growth;
mod lease;
mod observer;
mod queue_target;
mod settings;
mod urgent;
mod watch;

pub use lease::Lease;
pub use observer::{ClassSeen, Observation, SocketSample, Tick};
pub use settings::{
    CHANGE_MIN, ClassSettings, Control, PAYLOAD_SHARE, Rank, START_BIT_PER_S, Settings, SocketRate, State,
    WATCH_S, transfer_s,
};
pub use watch::Reaction;

use enforcement::{Allocation, Rates};
use episode::{Episode, ForeignQueue};
use growth::{GROWTH_START, Hold};
use observer::{History, Observer};
use queue_target::QueueTarget;
use urgent::{Activities, Ranking};

use crate::SOCKET_RATE_MIN;
use crate::policy::Policy;

/// Share of the capacity that is used after a queue stood: alone at the bottleneck, and beside other hosts
/// whose shares are unknown.
const BETA: [f64; 2] = [0.97, 0.9];
/// Retransmitted segments in three ticks that mean an overflow: more than this number and this share.
const LOSS_SEGMENTS: u64 = 4;
const LOSS_SHARE: f64 = 0.02;
const IDLE_NS: u64 = 2_000_000_000;
/// A tick that is later than this number of periods says nothing.
const LATE_PERIODS: f64 = 3.0;

/// What a tick in time decides on.
struct Step<'a> {
    now_ns: u64,
    dt_s: f64,
    seen: &'a Observation,
    ranking: &'a Ranking,
    /// Delay by the queue, and the delay from which on it is too long, in seconds.
    queue_s: f64,
    limit_s: f64,
}

/// The law's state. Rates are in bit/s.
#[derive(Debug, Clone)]
pub struct Law {
    settings: Settings,
    /// Classes of the policy; those of programs follow.
    policy_classes: usize,
    observer: Observer,
    history: History,
    queue_target: QueueTarget,
    urgent: Activities,
    hold: Hold,
    last_ns: Option<u64>,
    bulk: f64,
    applied: f64,
    capacity: f64,
    /// The capacity that a queue confirmed last; `None`: none stood yet.
    confirmed: Option<f64>,
    growth: f64,
    episode: Option<Episode>,
    foreign: Option<ForeignQueue>,
    idle_since_ns: Option<u64>,
    has_halved: bool,
    lease: Option<Lease>,
    is_beside_others: bool,
    /// Hosts that the floors and ceilings of the policy are divided by.
    hosts: u32,
    /// What UDP sockets send, by class.
    datagrams: Vec<f64>,
    /// Of the last tick, with what was seen of messages since.
    seen: Observation,
    samples: Vec<SocketSample>,
    /// Rate that bulk would have without messages on their way, and when these last left it less.
    without_messages: f64,
    cut_ns: Option<u64>,
    /// What bulk might send since the last tick, in bits, and when `applied` was set.
    applied_bits: f64,
    applied_ns: u64,
}

impl Law {
    pub fn new(settings: Settings) -> Self {
        let bulk = settings.start_bit_per_s;
        Self {
            policy_classes: settings.classes.len(),
            settings,
            observer: Observer::default(),
            history: History::default(),
            queue_target: QueueTarget::default(),
            urgent: Activities::default(),
            hold: Hold::default(),
            last_ns: None,
            bulk,
            applied: bulk,
            capacity: bulk,
            confirmed: None,
            growth: GROWTH_START,
            episode: None,
            foreign: None,
            idle_since_ns: None,
            has_halved: false,
            lease: None,
            is_beside_others: false,
            hosts: 1,
            datagrams: Vec::new(),
            seen: Observation::default(),
            samples: Vec::new(),
            without_messages: bulk,
            cut_ns: None,
            applied_bits: 0.0,
            applied_ns: 0,
        }
    }

    /// Beside other hosts, a given capacity is not this host's own: it begins with little.
    pub fn of_policy(policy: &Policy) -> Self {
        let mut settings = Settings::from_policy(policy);
        if policy.bottleneck.coordinator.is_none() {
            return Self::new(settings);
        }
        settings.start_bit_per_s = settings.start_bit_per_s.min(START_BIT_PER_S);
        let mut law = Self::new(settings);
        law.set_beside_others();
        law
    }

    /// Sets the size of a class's messages, in bytes, once it is learned.
    pub fn set_message_bytes(&mut self, class: usize, bytes: f64) {
        if let Some(ClassSettings::Urgent { message_bytes, .. }) = self.settings.classes.get_mut(class) {
            *message_bytes = bytes;
        }
    }

    /// Sets the classes of single programs, which follow those of the policy: the first has the number of
    /// classes of the policy.
    pub fn set_programs(&mut self, programs: impl IntoIterator<Item = ClassSettings>) {
        self.settings.classes.truncate(self.policy_classes);
        self.settings.classes.extend(programs);
    }

    /// What urgent and bulk classes share at the moment, in bit/s; `None`: not known. An estimate is not
    /// known before a queue has shown it, nor when bulk has been idle, because the link may have changed.
    /// Beside other hosts, a capacity that the policy gives is not this host's own, but for what a
    /// coordinator knows.
    fn allocatable(&self, now_ns: u64) -> Option<f64> {
        if let Some(lease) = self.lease(now_ns) {
            return self.settings.given_bit_per_s.or(lease.capacity_bit_per_s.map(|known| BETA[0] * known));
        }
        let estimated = || self.confirmed.filter(|_| !self.has_halved).map(|_| self.beta() * self.capacity);
        self.settings.given_bit_per_s.filter(|_| !self.is_beside_others).or_else(estimated)
    }

    /// Sets the time until the next tick, in seconds.
    pub fn set_period_s(&mut self, period_s: f64) {
        self.settings.period_s = period_s;
    }

    /// Sets what the UDP sockets of each class send, in bit/s. It counts against a capacity that is given and
    /// against ceilings; an estimate is of what TCP can have beside it.
    pub fn set_datagrams(&mut self, bit_per_s: Vec<f64>) {
        self.datagrams = bit_per_s;
    }

    /// What UDP sockets of urgent or of bulk classes send.
    fn datagrams(&self, is_bulk: bool) -> f64 {
        let of = |class: &ClassSettings| class.message().is_none() == is_bulk;
        let classes = self.settings.classes.iter().zip(&self.datagrams);
        classes.filter(|(class, _)| of(class)).map(|(_, rate)| rate).sum()
    }

    /// One step of the law, once per period. The samples are of all managed sockets.
    pub fn tick(&mut self, now_ns: u64, samples: &[SocketSample]) -> Control {
        let elapsed_s = self.elapsed_s(now_ns);
        let dt_s = elapsed_s.unwrap_or(self.settings.period_s);
        let capacity = self.lease(now_ns).and_then(|lease| lease.capacity_bit_per_s).unwrap_or(self.capacity);
        let seen = self.observer.observe(now_ns, dt_s, capacity, &self.settings, samples);
        let (mut control, ranking) = self.decide(now_ns, elapsed_s, &seen);
        self.hold.forget_messages();
        self.seen = seen;
        self.samples.clear();
        self.samples.extend_from_slice(samples);
        let rates = self.rates(now_ns, &ranking);
        (control.rates, control.class_rates) = (rates.changed, rates.of_class);
        control
    }

    /// What sockets get now.
    fn rates(&mut self, now_ns: u64, ranking: &Ranking) -> Rates {
        let leased = self.leased_parts(now_ns);
        let limits = self.leased_limits(now_ns, &ranking.limits);
        let allocation = Allocation {
            bulk: self.applied,
            leased: leased.as_deref(),
            limits: &limits,
            classes: &ranking.classes,
            seen: &self.seen.classes,
            datagrams: &self.datagrams,
        };
        enforcement::rates(&allocation, &self.settings, &mut self.observer, &self.samples)
    }

    /// Since the tick before; `None` at the first.
    fn elapsed_s(&mut self, now_ns: u64) -> Option<f64> {
        let last_ns = self.last_ns.replace(now_ns)?;
        Some(now_ns.saturating_sub(last_ns) as f64 * 1e-9)
    }

    /// What classes get. The result has no rates of sockets.
    fn decide(&mut self, now_ns: u64, elapsed_s: Option<f64>, seen: &Observation) -> (Control, Ranking) {
        let dt_s = elapsed_s.unwrap_or(self.settings.period_s);
        let is_late = dt_s > LATE_PERIODS * self.settings.period_s;
        if elapsed_s.is_some() && !is_late {
            self.urgent.observe(now_ns, dt_s, &seen.classes);
        }
        self.account(now_ns);
        let allocatable = self.allocatable(now_ns);
        let ranking = self.ranking(now_ns, allocatable, &seen.classes);
        let (state, queue_s) = if elapsed_s.is_none() {
            (State::Blind, None)
        } else if is_late {
            // What arrived during a stall is no rate, and no queue.
            self.episode = None;
            self.history.clear();
            (State::Late, None)
        } else {
            self.history.push(seen.tick);
            self.follow(now_ns, dt_s, seen, &ranking)
        };
        let [floor, ceiling] = self.bounds(state, seen);
        self.bulk = self.bulk.clamp(floor, ceiling);
        self.without_messages = self.applied.clamp(floor, ceiling);
        self.make_room_for_messages(now_ns, state, queue_s, &ranking, [floor, ceiling]);
        self.applied_bits = 0.0;
        let known = self.known_capacity(state);
        let control = Control {
            state,
            bulk_bit_per_s: self.bulk,
            applied_bit_per_s: self.applied,
            capacity_bit_per_s: known.unwrap_or(self.capacity),
            is_known: known.is_some(),
            queue_s,
            rates: Vec::new(),
            class_rates: Vec::new(),
        };
        (control, ranking)
    }

    /// Least and greatest rate of all bulk.
    fn bounds(&self, state: State, seen: &Observation) -> [f64; 2] {
        let (floor, ceiling) = match state {
            // The coordinator keeps the bounds of the policy.
            State::Leased => (0.0, f64::INFINITY),
            _ => self.settings.bulk_bounds(),
        };
        let ceiling = ceiling.min(self.settings.given_bit_per_s.unwrap_or(f64::INFINITY));
        // No socket is paced at less, so that bulk as a whole is not either.
        let floor = floor.max(SOCKET_RATE_MIN * seen.bulk_active as f64);
        [floor, ceiling.max(floor)]
    }

    /// A tick in time: the state, and the delay by the queue in seconds.
    fn follow(
        &mut self,
        now_ns: u64,
        dt_s: f64,
        seen: &Observation,
        ranking: &Ranking,
    ) -> (State, Option<f64>) {
        let limit_s = self.queue_target.value_s(self.settings.target_s(), seen.base_s);
        let queue_s = self.queue_s(seen, limit_s);
        if let Some(queue_s) = queue_s {
            self.queue_target.observe(now_ns, queue_s, dt_s);
        }
        if let Some(bulk) = self.lease(now_ns).map(|lease| lease.bulk_bit_per_s) {
            let datagrams = self.settings.given_bit_per_s.map_or(0.0, |_| self.datagrams(true));
            (self.bulk, self.applied) = (bulk, (bulk - datagrams).max(0.0));
            (self.episode, self.foreign) = (None, None);
            // This host's own share: what it continues with when the lease ends.
            self.capacity = (self.bulk + ranking.urgent).max(SOCKET_RATE_MIN);
            self.confirmed = Some(self.capacity);
            self.hold.unchanged(now_ns);
            self.growth = GROWTH_START;
            return (State::Leased, queue_s);
        }
        if let Some(given) = self.settings.given_bit_per_s.filter(|_| !self.is_beside_others) {
            (self.capacity, self.episode) = (given, None);
            self.fill(given, ranking);
            return (State::Given, queue_s);
        }
        if seen.bulk_active == 0 && seen.tick.bulk_bit_per_s == 0.0 {
            self.idle(now_ns);
            return (State::Idle, queue_s);
        }
        (self.idle_since_ns, self.has_halved) = (None, false);
        if let Some(foreign) = &mut self.foreign {
            if !foreign.is_over(now_ns, queue_s, limit_s, self.history.delivered(1)) {
                self.applied = self.bulk;
                return (State::Foreign, queue_s);
            }
            self.foreign = None;
        }
        let Some(queue_s) = queue_s else {
            self.episode = None;
            if seen.bulk_backlogged > 0 && self.bulk < START_BIT_PER_S {
                self.bulk = (self.bulk * 1.02).min(START_BIT_PER_S);
            }
            self.applied = self.bulk;
            return (State::Blind, None);
        };
        let is_overflow = self.is_overflow() && queue_s > 0.3 * limit_s;
        if is_overflow {
            self.queue_target.overflowed();
        }
        let step = Step { now_ns, dt_s, seen, ranking, queue_s, limit_s };
        let state = if queue_s > limit_s || is_overflow { self.make_room(step) } else { self.grow(step) };
        (state, Some(queue_s))
    }

    /// Bulk gets what urgent messages leave of a capacity that is given.
    fn fill(&mut self, given: f64, ranking: &Ranking) {
        self.bulk = (given - ranking.urgent - self.datagrams(false)).max(0.0);
        self.applied = (self.bulk - self.datagrams(true)).max(0.0);
    }

    /// Delay by the queue, in seconds: by round-trip times, or by Little's law if more is on its way than
    /// the capacity explains. The latter shows a slower link 50 to 100 ms earlier.
    fn queue_s(&self, seen: &Observation, limit_s: f64) -> Option<f64> {
        let delivered = self.history.delivered(2);
        let explained = self.capacity * (seen.base_s + 2.0 * limit_s) + seen.slack_bits;
        let by_inflight_s = seen.inflight_bits / delivered - seen.base_s;
        let is_alarm = delivered > 0.0 && seen.inflight_bits > explained && by_inflight_s > 2.0 * limit_s;
        match is_alarm {
            true => Some(seen.queue_s.unwrap_or(0.0).max(by_inflight_s)),
            false => seen.queue_s,
        }
    }

    fn beta(&self) -> f64 {
        BETA[usize::from(self.is_beside_others)]
    }

    fn is_overflow(&self) -> bool {
        let (delivered, retransmitted) = self.history.segments(3);
        retransmitted > LOSS_SEGMENTS && retransmitted as f64 > LOSS_SHARE * delivered as f64
    }

    /// No bulk data: nothing can be learned. The link may be slower afterwards.
    fn idle(&mut self, now_ns: u64) {
        let since = *self.idle_since_ns.get_or_insert(now_ns);
        self.episode = None;
        if !self.has_halved && now_ns.saturating_sub(since) >= IDLE_NS {
            self.has_halved = true;
            self.bulk = (self.bulk / 2.0).max(START_BIT_PER_S.min(self.bulk));
        }
        self.applied = self.bulk;
    }
}

#[cfg(test)]
mod tests;
