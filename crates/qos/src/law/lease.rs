//! The law of one of several hosts: what a coordinator grants it, and what it does without.

use super::{ClassSeen, ClassSettings, Control, Law, Observation, Ranking, Settings, State};
use crate::SOCKET_RATE_MIN;

/// Additive growth beside other hosts, per tick at one percent: in bit/s, and as a share of what the
/// bottleneck carries if that is known. The second is of all hosts together; each takes the same part of it.
const ADDITIVE: f64 = 0.1e6;
const ADDITIVE_SHARE: f64 = 0.004;
/// How much slower or faster it is for a host with more or less than an even share.
const LEAD: [f64; 2] = [0.25, 4.0];

/// What a coordinator of several hosts grants this host ([`crate::hosts`]). Rates in bit/s.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lease {
    /// Aggregate rate of this host's bulk.
    pub bulk_bit_per_s: f64,
    /// Parts of the classes of the policy; empty: by weight. Of urgent classes the most that they may
    /// send; 0: no limit.
    pub class_bit_per_s: Vec<f64>,
    /// What the bottleneck carries of all hosts; `None`: not known yet.
    pub capacity_bit_per_s: Option<f64>,
    /// Hosts that share the bottleneck.
    pub hosts: u32,
    /// End, on the monotonic clock.
    pub until_ns: u64,
}

impl Law {
    /// Other hosts share the bottleneck: this one takes less after a queue stood, and grows additively.
    /// Proportional growth would let one host starve the others. A capacity that the policy gives is a bound
    /// only: what the others take of it is not known.
    pub fn set_beside_others(&mut self) {
        self.is_beside_others = true;
        self.urgent.set_watched(Vec::new());
    }

    /// Follows a coordinator until the lease ends. After that, this host continues on its own beside others.
    pub fn set_lease(&mut self, lease: Lease) {
        self.set_beside_others();
        // Floors and ceilings are of all hosts together: each keeps an even part of them on its own. Those of
        // urgent classes are divided where they are ranked: they hold as they are during a lease.
        let hosts = lease.hosts.max(1);
        let change = f64::from(self.hosts) / f64::from(hosts);
        for class in &mut self.settings.classes {
            if let ClassSettings::Bulk { floor, ceiling, .. } = class {
                (*floor, *ceiling) = (*floor * change, *ceiling * change);
            }
        }
        self.hosts = hosts;
        self.lease = Some(lease);
    }

    /// Sets the time by which rates act later than the samples, in seconds: bulk grows more slowly.
    pub fn set_delay_s(&mut self, delay_s: f64) {
        self.settings.delay_s = delay_s;
    }

    /// What the last tick saw.
    pub fn observation(&self) -> &Observation {
        &self.seen
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Rate of bulk that is enforced now, in bit/s.
    pub fn applied_bit_per_s(&self) -> f64 {
        self.applied
    }

    /// One step on what several hosts have seen together. The result has no rates of sockets. Also returns
    /// the most that each class may send on all hosts, in bit/s; `None`: no limit, or bulk.
    pub fn tick_of_hosts(&mut self, now_ns: u64, seen: &Observation) -> (Control, Vec<Option<f64>>) {
        let elapsed_s = self.elapsed_s(now_ns);
        let (control, ranking) = self.decide(now_ns, elapsed_s, seen);
        (control, ranking.limits)
    }

    /// Growth beside other hosts, in bit/s per tick at one percent. A host with less than an even share grows
    /// faster than one with more: which of them sees a short queue, and lowers its rate, is chance.
    pub(super) fn additive(&self) -> f64 {
        let leased = self.lease.as_ref().and_then(|lease| lease.capacity_bit_per_s);
        let Some(capacity) = leased.or(self.settings.given_bit_per_s) else { return ADDITIVE };
        let even = capacity / f64::from(self.hosts.max(2));
        let lead = (even / self.bulk).powi(2).clamp(LEAD[0], LEAD[1]);
        ADDITIVE_SHARE * even * lead
    }

    /// Ranks the classes. Without a lease, floors and ceilings are this host's even part.
    pub(super) fn ranking(&self, now_ns: u64, allocatable: Option<f64>, seen: &[ClassSeen]) -> Ranking {
        let hosts = if self.lease(now_ns).is_some() { 1 } else { self.hosts };
        self.urgent.ranking(now_ns, allocatable, &self.settings, seen, &self.datagrams, hosts.into())
    }

    pub(super) fn lease(&self, now_ns: u64) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| now_ns < lease.until_ns)
    }

    /// What the TCP sockets of each class get of the lease; `None`: by weight.
    pub(super) fn leased_parts(&self, now_ns: u64) -> Option<Vec<f64>> {
        let parts = &self.lease(now_ns)?.class_bit_per_s;
        // With a given capacity, UDP is in the part of its class.
        let sent = |at: usize| match self.settings.given_bit_per_s {
            Some(_) => self.datagrams.get(at).copied().unwrap_or(0.0),
            None => 0.0,
        };
        // A class that UDP fills keeps a part: without one, it would count as not decided yet.
        let left = |(at, part): (usize, &f64)| match self.settings.classes.get(at) {
            Some(ClassSettings::Bulk { .. }) => (part - sent(at)).max(part.min(SOCKET_RATE_MIN)),
            _ => 0.0,
        };
        (!parts.is_empty()).then(|| parts.iter().enumerate().map(left).collect())
    }

    /// The most that each class may send: as this host ranks its own classes, and no more than the
    /// coordinator leaves it beside more urgent classes of other hosts.
    pub(super) fn leased_limits(&self, now_ns: u64, own: &[Option<f64>]) -> Vec<Option<f64>> {
        let lease = self.lease(now_ns);
        let leased = |at: usize| {
            let is_urgent = matches!(self.settings.classes.get(at), Some(ClassSettings::Urgent { .. }));
            let rate = lease.and_then(|lease| lease.class_bit_per_s.get(at)).copied();
            rate.filter(|rate| is_urgent && *rate > 0.0)
        };
        let least = |(at, own): (usize, &Option<f64>)| own.iter().copied().chain(leased(at)).reduce(f64::min);
        own.iter().enumerate().map(least).collect()
    }

    /// What the bottleneck carries of managed traffic, as far as it is known.
    pub(super) fn known_capacity(&self, state: State) -> Option<f64> {
        if state == State::Leased {
            return self.lease.as_ref()?.capacity_bit_per_s;
        }
        let is_given = self.settings.given_bit_per_s.is_some() && !self.is_beside_others;
        (is_given || self.confirmed.is_some()).then_some(self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rank;
    use super::*;

    #[test]
    fn urgent_class_keeps_to_what_the_coordinator_leaves_it_while_the_lease_holds() {
        let urgent = |ceiling| ClassSettings::Urgent {
            target_s: 1.0,
            message_bytes: 150e3,
            rank: Rank { ceiling, ..Rank::default() },
        };
        let settings = Settings {
            period_s: Settings::PERIOD_S,
            delay_s: 0.0,
            start_bit_per_s: 5e6,
            given_bit_per_s: Some(18e6),
            classes: vec![urgent(f64::INFINITY), urgent(3e6)],
        };
        let mut law = Law::new(settings);
        law.set_lease(Lease {
            bulk_bit_per_s: 5e6,
            class_bit_per_s: vec![4e6, 4e6],
            hosts: 2,
            until_ns: 100,
            ..Lease::default()
        });
        assert_eq!(law.tick(0, &[]).class_rates, [Some(4e6), Some(3e6)]);
        assert_eq!(law.tick(100, &[]).class_rates, [None, Some(1.5e6)], "the lease has ended");
    }
}
