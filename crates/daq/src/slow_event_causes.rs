//! Why events took long, with what both sides know.

use std::collections::{BTreeMap, BTreeSet};

use super::recorder::refine_cause;
use super::report::{BuilderReport, Cause, STALLS_MAX, SlowEvent, SourceSent, SourcesReport, Stall};
use super::trial_reports::TrialReports;

/// All slow events by cause: the builders' counts, of those that they list with what the sources' TCP said.
pub fn all(reports: &TrialReports) -> BTreeMap<Cause, u64> {
    let mut counts: BTreeMap<Cause, u64> = BTreeMap::new();
    for builder in reports.builders() {
        for (cause, count) in &builder.causes {
            *counts.entry(*cause).or_default() += count;
        }
    }
    for (slow, cause) in listed(reports) {
        if let Some(count) = counts.get_mut(&slow.cause).filter(|count| **count > 0 && cause != slow.cause) {
            *count -= 1;
            *counts.entry(cause).or_default() += 1;
        }
    }
    if no_order_was_lost(reports)
        && let Some(orders) = counts.remove(&Cause::Order)
    {
        *counts.entry(Cause::Host).or_default() += orders;
    }
    if let Some(most) = lost_most(reports) {
        no_more_losses_than(most.saturating_mul(outstanding(reports)), &mut counts);
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// Whether the sources received every trigger the first time: then a repeated order means a slow source.
/// Unknown for grants.
fn no_order_was_lost(reports: &TrialReports) -> bool {
    let is_push = reports.builders().iter().all(|builder| builder.credit.is_none());
    let sent: BTreeSet<u32> = reports.sent().map(|source| source.source).collect();
    let has_counters = !reports.sources.is_empty()
        && reports.sent().all(|source| source.retransmits.is_some())
        && seen(reports).is_subset(&sent);
    let missed =
        |host: &SourcesReport| host.orders_missed + host.orders_dropped + host.orders_overflowed.unwrap_or(1);
    is_push && has_counters && reports.sources.iter().map(missed).sum::<u64>() == 0
}

/// Every source that a builder waited for, front ends included.
fn seen(reports: &TrialReports) -> BTreeSet<u32> {
    let builders = reports.builders();
    builders.iter().flat_map(|builder| &builder.sources_seen).map(|seen| seen.source).collect()
}

/// The most fragments that can have been lost: the needed retransmissions, if known for every source.
fn lost_most(reports: &TrialReports) -> Option<u64> {
    let needed = |sent: &SourceSent| {
        let again = sent.retransmits?.saturating_sub(sent.dsacks.unwrap_or(0));
        Some((sent.source, again))
    };
    let retransmits: BTreeMap<u32, u64> = reports.sent().map(needed).collect::<Option<_>>()?;
    (!retransmits.is_empty() && seen(reports).iter().all(|source| retransmits.contains_key(source)))
        .then(|| retransmits.values().sum())
}

/// Limits the events with a lost fragment to `most`; the others had a fragment in a queue. Counters of single
/// sources do not decide this, because builders list only the slowest events.
fn no_more_losses_than(most: u64, counts: &mut BTreeMap<Cause, u64>) {
    let mut left = most;
    for cause in [Cause::RetransmissionTimeout, Cause::TailLossProbe, Cause::Loss] {
        let Some(count) = counts.get_mut(&cause) else { continue };
        let kept = (*count).min(left);
        left -= kept;
        let waited = *count - kept;
        *count = kept;
        *counts.entry(Cause::Queueing).or_default() += waited;
    }
}

/// The slowest events of all builders, the slowest first, with their causes.
pub fn listed(reports: &TrialReports) -> Vec<(SlowEvent, Cause)> {
    let stalls = by_source(reports);
    let builders = reports.builders();
    // Retransmissions are unknown with datagrams and for front ends.
    let retransmitting: BTreeSet<u32> =
        reports.sent().filter(|source| source.retransmits.is_some()).map(|source| source.source).collect();
    let reported: BTreeSet<u32> = reports.sent().map(|source| source.source).collect();
    let all_heard = no_order_was_lost(reports);
    let window = window(reports);
    let is_whole = reports.sources.iter().all(|host| host.stalls.len() < STALLS_MAX);
    let of = |builder: &BuilderReport, slow: &SlowEvent| {
        let own = stalls.get(&(builder.builder, slow.source)).map_or(&[][..], Vec::as_slice);
        let is_guess = matches!(slow.cause, Cause::TailLossProbe | Cause::RetransmissionTimeout);
        let cause = match () {
            () if retransmitting.contains(&slow.source) => refine_cause(slow, own, window, is_whole),
            () if reported.contains(&slow.source) || !is_guess => slow.cause,
            () if slow.complete => Cause::Unknown,
            () => Cause::Silent,
        };
        let cause = if all_heard && cause == Cause::Order { Cause::Host } else { cause };
        (slow.clone(), cause)
    };
    let mut all: Vec<_> =
        builders.iter().flat_map(|builder| builder.slow.iter().map(|slow| of(builder, slow))).collect();
    all.sort_by_key(|(slow, _)| std::cmp::Reverse(slow.took_ns));
    all
}

/// The most events in progress at a builder: all of them may wait for one lost fragment, because a connection
/// delivers in order.
fn outstanding(reports: &TrialReports) -> u64 {
    let builders = reports.builders();
    builders.iter().map(|builder| builder.outstanding_max.max(1)).max().unwrap_or(1).into()
}

/// The largest distance between the numbers of two events in progress at once: builders take turns.
fn window(reports: &TrialReports) -> u64 {
    outstanding(reports) * reports.builders().len() as u64
}

fn by_source(reports: &TrialReports) -> BTreeMap<(u16, u32), Vec<Stall>> {
    let mut all: BTreeMap<(u16, u32), Vec<Stall>> = BTreeMap::new();
    for stall in reports.sources.iter().flat_map(|host| &host.stalls) {
        all.entry((stall.builder, stall.source)).or_default().push(*stall);
    }
    all
}

/// A cause as a row's name.
pub fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Host => "sent late",
        Cause::Order => "order lost",
        Cause::Queueing => "queueing",
        Cause::TailLossProbe => "lost, tail-loss probe",
        Cause::RetransmissionTimeout => "lost, retransmission timeout",
        Cause::Loss => "lost, sent again quickly",
        Cause::Builder => "builder late",
        Cause::Gone => "source gone",
        Cause::Silent => "source silent",
        Cause::Unknown => "unknown",
    }
}

/// What a cause means.
pub fn meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::Host => "the last source's host was busy, or received the order late",
        Cause::Order => "an order was lost and had to be repeated",
        Cause::Queueing => "the last fragment waited in a queue on its way",
        Cause::TailLossProbe => {
            "a lone fragment was lost; TCP noticed after 2 round trips and rto_min (RFC 8985)"
        }
        Cause::RetransmissionTimeout => "a fragment was lost and TCP waited for its timeout, perhaps doubled",
        Cause::Loss => "a fragment was lost and retransmitted at once, or requested again",
        Cause::Builder => "the builder read late, or sent this trigger or the one before it late",
        Cause::Gone => "the source's connection had ended",
        Cause::Silent => "no fragment of a connected source arrived before the timeout",
        Cause::Unknown => "no counter and no send time shows where the fragment was",
    }
}

/// "... events {this}".
pub fn predicate(cause: Cause, count: u64) -> &'static str {
    match (cause, count) {
        (Cause::Host, _) => "had a source that sent late",
        (Cause::Order, _) => "had a lost order",
        (Cause::Queueing, _) => "waited in a queue",
        (Cause::TailLossProbe, 1) => "waited for a tail-loss probe after a loss",
        (Cause::TailLossProbe, _) => "waited for tail-loss probes after losses",
        (Cause::RetransmissionTimeout, _) => "waited for a retransmission timeout after a loss",
        (Cause::Loss, _) => "waited for a lost fragment that was sent again quickly",
        (Cause::Builder, _) => "waited for the builder",
        (Cause::Gone, _) => "waited for a disconnected source",
        (Cause::Silent, _) => "waited for a connected source that sent nothing",
        (Cause::Unknown, _) => "have an unknown cause",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(builder: BuilderReport, stalls: Vec<Stall>, sources: Vec<SourceSent>) -> TrialReports {
        TrialReports::of_one(builder, vec![SourcesReport { stalls, sources, ..Default::default() }])
    }

    fn slow(event: u64, source: u32, cause: Cause) -> SlowEvent {
        SlowEvent {
            event,
            took_ns: 200_000_000 + event,
            complete: true,
            source,
            sent_after_ns: Some(1000),
            arrived_after_ns: Some(200_000_000),
            cause,
            ..SlowEvent::default()
        }
    }

    #[test]
    fn source_counters_correct_the_builders_causes() {
        let slow = vec![
            slow(2, 7, Cause::TailLossProbe),
            slow(3, 8, Cause::TailLossProbe),
            slow(4, 9, Cause::Host),
            slow(5, 99, Cause::TailLossProbe),
        ];
        let stall = |source, event, timeouts, dsacks| Stall {
            source,
            event,
            timeouts,
            dsacks,
            retransmits: 1,
            ..Stall::default()
        };
        let sent = |source| SourceSent { source, retransmits: Some(4), ..SourceSent::default() };
        let causes = [(Cause::TailLossProbe, 11), (Cause::Host, 1)].into();
        let builder = BuilderReport { slow, causes, outstanding_max: 1, ..Default::default() };
        let stalls = vec![stall(7, 2, 1, 0), stall(8, 3, 0, 1), stall(9, 4, 1, 0)];
        let reports = reports(builder, stalls, vec![sent(7), sent(8), sent(9)]);
        let found: Vec<_> = listed(&reports).iter().map(|(slow, cause)| (slow.event, *cause)).collect();
        let expected =
            [(5, Cause::Unknown), (4, Cause::Host), (3, Cause::Queueing), (2, Cause::RetransmissionTimeout)];
        assert_eq!(found, expected, "the retransmissions of front end 99 are unknown");
        let all = all(&reports);
        assert_eq!((all[&Cause::TailLossProbe], all[&Cause::Unknown]), (8, 1), "{all:?}");
        assert_eq!((all[&Cause::Queueing], all[&Cause::RetransmissionTimeout], all[&Cause::Host]), (1, 1, 1));
    }

    #[test]
    fn losses_are_bounded_by_needed_retransmissions() {
        let causes = [(Cause::Loss, 76), (Cause::TailLossProbe, 3)].into();
        let builder = BuilderReport { causes, ..Default::default() };
        let source = SourceSent { retransmits: Some(5), dsacks: Some(1), ..SourceSent::default() };
        let mut reports = reports(builder, Vec::new(), vec![source]);
        let expected = [(Cause::Queueing, 75), (Cause::TailLossProbe, 3), (Cause::Loss, 1)].into();
        assert_eq!(all(&reports), expected);
        // Datagrams are asked for again by the builder itself: TCP says nothing of them.
        reports.sources[0].sources[0].retransmits = None;
        assert_eq!(all(&reports)[&Cause::Loss], 76);
    }

    #[test]
    fn tcp_counters_do_not_change_causes_of_datagrams() {
        let listed = vec![slow(2, 7, Cause::Loss), SlowEvent { complete: false, ..slow(3, 8, Cause::Loss) }];
        let causes = [(Cause::Loss, 2), (Cause::Queueing, 1)].into();
        let builder = BuilderReport { slow: listed, causes, ..Default::default() };
        let sent = |source| SourceSent { source, ..SourceSent::default() };
        // An order was sent again over a connection, and for nothing.
        let stall = Stall { source: 7, event: 2, retransmits: 1, dsacks: 1, ..Stall::default() };
        let reports = reports(builder, vec![stall], vec![sent(7), sent(8)]);
        let found: Vec<_> =
            super::listed(&reports).iter().map(|(slow, cause)| (slow.event, *cause)).collect();
        assert_eq!(found, [(3, Cause::Loss), (2, Cause::Loss)]);
        assert_eq!(all(&reports), [(Cause::Loss, 2), (Cause::Queueing, 1)].into());
    }
}
