//! One host: numbers its reports, and takes grants.

use std::collections::VecDeque;
use std::time::Duration;

use super::wire::{self, ClassReport, Grant, Report};
use super::{HostFacts, LEASE};
use crate::law::Lease;

/// Reports whose time of sending is remembered: more than are sent within a lease.
const SENT_MAX: usize = 64;

/// What a host knows of its place among others.
#[derive(Debug, Clone)]
pub struct Member {
    sequence: u32,
    /// Number and time of sending of reports; monotonic clock, as all times here.
    sent: VecDeque<(u32, u64)>,
    /// Number of the last grant, and when it came.
    grant: Option<(u32, u64)>,
    lease_until_ns: u64,
    /// Since when the lease has held, or has not.
    since_ns: u64,
    was_leased: bool,
    hosts: u32,
    bulk_bit_per_s: f64,
    /// From the sending of a report to its grant.
    round_trip: Option<Duration>,
}

/// What a host knows of its lease at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemberState {
    pub is_leased: bool,
    /// Since when.
    pub since: Duration,
    /// Of the last grant.
    pub hosts: u32,
    pub bulk_bit_per_s: f64,
    /// From the sending of a report to its grant.
    pub round_trip: Option<Duration>,
}

impl Member {
    pub fn new(now_ns: u64) -> Self {
        Self {
            sequence: 0,
            sent: VecDeque::new(),
            grant: None,
            lease_until_ns: 0,
            since_ns: now_ns,
            was_leased: false,
            hosts: 0,
            bulk_bit_per_s: 0.0,
            round_trip: None,
        }
    }

    /// A new connection: another coordinator may answer, which numbers its grants anew. The lease holds on.
    pub fn connected(&mut self) {
        self.sent.clear();
        self.grant = None;
    }

    /// The report of a tick, to be sent now.
    pub fn report(&mut self, now_ns: u64, facts: &HostFacts) -> Report {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((self.sequence, now_ns));
        let seen = &facts.observation;
        let class = |(at, datagrams): (usize, &f64)| {
            let class = seen.classes.get(at).copied().unwrap_or_default();
            ClassReport {
                delivered_bit_per_s: wire::rate(class.delivered_bit_per_s),
                datagrams_bit_per_s: wire::rate(*datagrams),
                active_need_bit_per_s: wire::rate(class.active_need),
                active: u16::try_from(class.active).unwrap_or(u16::MAX),
                backlogged: u16::try_from(class.backlogged).unwrap_or(u16::MAX),
            }
        };
        let us = |s: f64| (s * 1e6).clamp(0.0, f64::from(u32::MAX - 1)) as u32;
        let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Report {
            sequence: self.sequence,
            grant: self.grant.map_or(0, |(sequence, _)| sequence),
            since_grant_us: self.grant.map_or(0, |(_, at)| whole(now_ns.saturating_sub(at) / 1000)),
            is_late: facts.is_late,
            queue_us: seen.queue_s.map(us),
            base_us: us(seen.base_s),
            target_us: us(facts.target_s),
            inflight_bytes: whole((seen.inflight_bits / 8.0) as u64),
            slack_bytes: whole((seen.slack_bits / 8.0) as u64),
            delivered_segments: whole(seen.tick.delivered_segments),
            retransmitted_segments: whole(seen.tick.retransmitted_segments),
            bulk_bit_per_s: wire::rate(facts.bulk_bit_per_s),
            message_need_bit_per_s: wire::rate(facts.message_need_bit_per_s),
            classes: facts.datagrams.iter().enumerate().map(class).collect(),
        }
    }

    /// The lease of a grant; `None`: it answers no report that is known, or has ended on its way.
    pub fn take(&mut self, now_ns: u64, grant: &Grant) -> Option<Lease> {
        let (_, sent_ns) = *self.sent.iter().find(|(sequence, _)| *sequence == grant.report)?;
        self.grant = Some((grant.sequence, now_ns));
        self.round_trip = Some(Duration::from_nanos(now_ns.saturating_sub(sent_ns)));
        let lease = Duration::from_millis(grant.lease_ms.into()).min(LEASE);
        let until_ns = sent_ns + lease.as_nanos() as u64;
        // Grants of later reports hold longer.
        if until_ns <= now_ns.max(self.lease_until_ns) {
            return None;
        }
        self.update(now_ns);
        self.lease_until_ns = until_ns;
        self.update(now_ns);
        (self.hosts, self.bulk_bit_per_s) = (grant.hosts.max(1).into(), grant.bulk_bit_per_s.into());
        Some(Lease {
            bulk_bit_per_s: self.bulk_bit_per_s,
            class_bit_per_s: grant.classes.iter().map(|rate| f64::from(*rate)).collect(),
            capacity_bit_per_s: grant.capacity_bit_per_s.map(f64::from),
            hosts: self.hosts,
            until_ns,
        })
    }

    /// The state at a moment.
    pub fn state(&mut self, now_ns: u64) -> MemberState {
        self.update(now_ns);
        MemberState {
            is_leased: self.was_leased,
            since: Duration::from_nanos(now_ns.saturating_sub(self.since_ns)),
            hosts: self.hosts,
            bulk_bit_per_s: self.bulk_bit_per_s,
            round_trip: self.round_trip,
        }
    }

    fn update(&mut self, now_ns: u64) {
        let is_leased = now_ns < self.lease_until_ns;
        if is_leased != self.was_leased {
            // A lease ends when it says, not when that is seen.
            self.since_ns = if is_leased { now_ns } else { self.lease_until_ns };
            self.was_leased = is_leased;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn grant(sequence: u32, report: u32) -> Grant {
        Grant { sequence, report, lease_ms: 500, hosts: 2, bulk_bit_per_s: 8e6, ..Grant::default() }
    }

    #[test]
    fn lease_counts_from_the_report_and_a_late_grant_is_worth_nothing() {
        let mut member = Member::new(0);
        let first = member.report(1000 * MS, &HostFacts::default());
        assert_eq!((first.sequence, first.grant), (1, 0));
        let lease = member.take(1040 * MS, &grant(7, 1)).expect("a lease");
        assert_eq!((lease.until_ns, lease.bulk_bit_per_s, lease.hosts), (1500 * MS, 8e6, 2));
        let second = member.report(1050 * MS, &HostFacts::default());
        assert_eq!((second.grant, second.since_grant_us), (7, 10_000));
        assert!(member.state(1499 * MS).is_leased);
        let alone = member.state(1700 * MS);
        assert_eq!((alone.is_leased, alone.since), (false, Duration::from_millis(200)));
        assert_eq!(member.take(1700 * MS, &grant(8, 2)), None, "it ended on its way");
        assert_eq!(member.take(1700 * MS, &grant(9, 3)), None, "no such report");
        assert!(!member.state(1700 * MS).is_leased);
    }

    #[test]
    fn grant_of_an_earlier_report_does_not_shorten_the_lease() {
        let mut member = Member::new(0);
        member.report(1000 * MS, &HostFacts::default());
        member.report(1050 * MS, &HostFacts::default());
        assert_eq!(member.take(1060 * MS, &grant(2, 2)).map(|lease| lease.until_ns), Some(1550 * MS));
        assert_eq!(member.take(1070 * MS, &grant(1, 1)), None);
        // No coordinator makes a lease longer than this host believes in.
        member.report(1100 * MS, &HostFacts::default());
        let long = Grant { lease_ms: u16::MAX, ..grant(3, 3) };
        assert_eq!(member.take(1110 * MS, &long).map(|lease| lease.until_ns), Some(1600 * MS));
    }

    #[test]
    fn new_connection_forgets_the_numbers_and_keeps_the_lease() {
        let mut member = Member::new(0);
        member.report(0, &HostFacts::default());
        member.take(MS, &grant(1, 1)).expect("a lease");
        member.connected();
        let next = member.report(50 * MS, &HostFacts::default());
        assert_eq!((next.sequence, next.grant), (2, 0));
        assert_eq!(member.take(60 * MS, &grant(1, 1)), None, "it answers a report of the old connection");
        assert!(member.state(60 * MS).is_leased);
    }
}
