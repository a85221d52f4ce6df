//! The reports of both sides of a trial, put together.

use std::collections::{BTreeMap, BTreeSet};

use base::histogram::Histogram;
use base::part::PartError;
use workload::part::Reports;

use super::builder::part::BuilderPart;
use super::report::{BuilderReport, BuildersReport, EventCounts, Ledger, SourceSent, SourcesReport};
use super::settings::{DaqSettings, Pattern, Size};
use super::source::part::SourcesPart;
use super::{BUILDER, SOURCES, theory};

/// Refusals of what is no fragment of this trial, even over a source's connection: no source counted it.
const NO_FRAGMENTS: [&str; 7] = [
    "wrong_run",
    "wrong_version",
    "bad_header",
    "header_checksum",
    "duplicate_source",
    "unknown_source",
    "wrong_kind",
];

/// Percentile of the send skew for the predicted cliff: events wait so long for lost fragments that a few
/// events with a short skew are enough to lower the rate.
const SKEW_PERCENT: f64 = 10.0;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialReports {
    pub hosts: Vec<BuildersReport>,
    pub sources: Vec<SourcesReport>,
}

/// Sent and received fragments of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// Fragments that sources handed to their kernels.
    pub sent: u64,
    /// Of these, seen by a builder.
    pub seen: u64,
    /// Requests for bytes that sources answered, which may cause duplicates.
    pub again: u64,
    /// Whether the trial was ended while events were under way, so that what is missing may be as well.
    pub is_cut: bool,
}

impl Balance {
    /// Lost fragments; unknown if the trial was ended while some were in flight.
    pub fn lost(&self) -> Option<u64> {
        (!self.is_cut).then(|| self.sent.saturating_sub(self.seen))
    }

    /// Received fragments that no source counted.
    pub fn unexplained(&self) -> u64 {
        self.seen.saturating_sub(self.sent).saturating_sub(self.again)
    }
}

impl TrialReports {
    #[cfg(test)]
    pub(crate) fn of_one(builder: BuilderReport, sources: Vec<SourcesReport>) -> Self {
        Self { hosts: vec![BuildersReport { builders: vec![builder] }], sources }
    }

    /// From the reports of a trial's parts.
    pub fn new(reports: &Reports) -> Result<Self, PartError> {
        let builders = reports.of_role::<BuilderPart>(BUILDER)?;
        let sources = reports.of_role::<SourcesPart>(SOURCES)?;
        let on_host = |(host, report): (Option<&str>, SourcesReport)| SourcesReport {
            host: host.map(str::to_owned),
            ..report
        };
        Ok(Self {
            hosts: builders.into_iter().map(|(_, report)| report).collect(),
            sources: sources.into_iter().map(on_host).collect(),
        })
    }

    /// All builders, in the order of their numbers.
    pub fn builders(&self) -> Vec<&BuilderReport> {
        let mut all: Vec<_> = self.hosts.iter().flat_map(|host| &host.builders).collect();
        all.sort_by_key(|builder| builder.builder);
        all
    }

    pub fn events(&self) -> EventCounts {
        self.builders().iter().map(|builder| &builder.events).fold(EventCounts::default(), |sum, one| {
            EventCounts {
                offered: sum.offered + one.offered,
                vetoed: sum.vetoed + one.vetoed,
                triggered: sum.triggered + one.triggered,
                complete: sum.complete + one.complete,
                incomplete: sum.incomplete + one.incomplete,
                unfinished: sum.unfinished + one.unfinished,
            }
        })
    }

    pub fn ledger(&self) -> Ledger {
        let mut sum = Ledger::default();
        for one in self.builders().iter().map(|builder| &builder.ledger) {
            sum.built += one.built;
            sum.in_incomplete += one.in_incomplete;
            sum.late += one.late;
            sum.duplicate += one.duplicate;
            sum.broken_connections += one.broken_connections;
            sum.reconnected += one.reconnected;
            for (of_one, of_all) in
                [(&one.refused, &mut sum.refused), (&one.turned_away, &mut sum.turned_away)]
            {
                for (reason, count) in of_one {
                    *of_all.entry(reason.clone()).or_default() += count;
                }
            }
        }
        sum
    }

    /// What was sent against what was seen; unknown where others' front ends send, or no source reported.
    pub fn balance(&self, settings: &DaqSettings) -> Option<Balance> {
        if settings.front_ends > 0 || self.sources.is_empty() || self.hosts.is_empty() {
            return None;
        }
        let ledger = self.ledger();
        let ours = |(reason, _): &(&String, &u64)| !NO_FRAGMENTS.contains(&reason.as_str());
        let refused: u64 = ledger.refused.iter().filter(ours).map(|(_, count)| count).sum();
        Some(Balance {
            sent: self.sent().map(|source| source.sent).sum(),
            seen: ledger.built + ledger.in_incomplete + ledger.late + ledger.duplicate + refused,
            again: self.sources.iter().map(|host| host.nacks).sum(),
            is_cut: self.is_ended_early() || self.broke_off().is_some(),
        })
    }

    pub fn sent(&self) -> impl Iterator<Item = &SourceSent> {
        self.sources.iter().flat_map(|host| &host.sources)
    }

    /// A count of TCP over all sources; unknown if it is so of all of them.
    pub fn sum_of_sources(&self, of: fn(&SourceSent) -> Option<u64>) -> Option<u64> {
        self.sent().filter_map(of).reduce(|sum, count| sum + count)
    }

    pub fn merged(&self, of: fn(&BuilderReport) -> &Histogram) -> Histogram {
        let mut all = Histogram::default();
        for builder in self.builders() {
            all.merge(of(builder));
        }
        all
    }

    /// From the beginning of the first builder's hold to the end of the last one's, s after the start.
    pub fn hold_s(&self) -> (f64, f64) {
        let builders = self.builders();
        let from = builders.iter().map(|builder| builder.hold_from_s).min_by(f64::total_cmp);
        let to = builders.iter().map(|builder| builder.hold_to_s).max_by(f64::total_cmp);
        let from = from.unwrap_or(0.0);
        (from, to.unwrap_or(0.0).max(from))
    }

    /// The length of the hold, s; `None` where nothing was held.
    pub fn held_s(&self) -> Option<f64> {
        let (from, to) = self.hold_s();
        Some(to - from).filter(|s| *s > 0.0)
    }

    /// The rate of all builders together: `of` is each one's count in its hold. If triggers follow the ends
    /// of events and all holds are complete, over the time for which the window was full.
    pub fn per_s(&self, of: fn(&BuilderReport) -> u64) -> Option<f64> {
        let (held_s, builders) = (self.held_s()?, self.builders());
        let flowed = |builder: &&BuilderReport| {
            let is_whole = !builder.ended_early && builder.broke_off.is_none();
            Some(of(builder) as f64 / builder.flowed_s.filter(|_| is_whole)?)
        };
        let flowed: Option<Vec<f64>> = builders.iter().map(flowed).collect();
        let all = builders.iter().map(|builder| of(builder)).sum::<u64>() as f64;
        Some(flowed.map_or(all / held_s, |flowed| flowed.iter().sum()))
    }

    /// The rate of all builders' ports together, bit/s: as given, else of their devices.
    pub fn link_bit_per_s(&self, settings: &DaqSettings) -> Option<f64> {
        let given = settings.link.map(|rate| rate.bit_per_s() as f64);
        let of_host = |host: &BuildersReport| {
            given.or_else(|| host.builders.iter().find_map(|builder| builder.link_bit_per_s))
        };
        let all: Option<Vec<f64>> = self.hosts.iter().map(of_host).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.iter().sum())
    }

    /// What a fragment takes on the wire on average, bytes.
    pub fn fragment_wire_bytes(&self, settings: &DaqSettings) -> Option<f64> {
        match (&settings.size, self.mean_of_fragments(|builder| builder.wire_bytes)) {
            (_, Some(bytes)) => Some(bytes),
            (Size::Fixed(size), None) => {
                let bytes = u32::try_from(size.bytes()).ok()?;
                Some(theory::fragment_wire_bytes(bytes, settings.protocol) as f64)
            }
            _ => None,
        }
    }

    /// What the builders counted of all fragments, for one of them; `None` without any.
    fn mean_of_fragments(&self, of: impl Fn(&BuilderReport) -> u64) -> Option<f64> {
        let builders = self.builders();
        let fragments: u64 = builders.iter().map(|builder| builder.fragments).sum();
        let all: u64 = builders.iter().map(|builder| of(builder)).sum();
        (fragments > 0).then(|| all as f64 / fragments as f64)
    }

    /// Events a second that the builders' ports could carry, small fragments packed as well as their sources
    /// may.
    pub fn ideal_events_per_s(&self, settings: &DaqSettings) -> Option<f64> {
        let alone_bytes = self.fragment_wire_bytes(settings)?;
        let payload_bytes = self.mean_of_fragments(|builder| builder.payload_bytes);
        // Granted and pulled fragments of an event are not sent with those of another.
        let together = if settings.pattern == Pattern::Push { settings.together_max().into() } else { 1 };
        let shared = |mean: f64| theory::shared_wire_bytes(mean as u64, together, settings.protocol);
        let bytes = alone_bytes - payload_bytes.map_or(0.0, shared);
        theory::ideal_events_per_s(self.link_bit_per_s(settings)?, settings.sources, bytes)
    }

    /// The predicted cliff: the number of sources whose fragments the port's buffer holds at once. With push
    /// the port sends some of them while the burst arrives; with grant and pull the credit is the number.
    pub fn cliff_sources(&self, settings: &DaqSettings) -> Option<f64> {
        let buffer_bytes = settings.buffer?.bytes();
        let bytes = self.fragment_wire_bytes(settings)?;
        if settings.pattern != Pattern::Push {
            return theory::cliff_sources(buffer_bytes, 0.0, 0.0, bytes);
        }
        let link_bit_per_s = self.link_bit_per_s(settings)? / self.hosts.len().max(1) as f64;
        let skew_ns = self.merged(|builder| &builder.skew).percentile_ns(SKEW_PERCENT).unwrap_or(0);
        theory::cliff_sources(buffer_bytes, link_bit_per_s, skew_ns as f64 / 1e9, bytes)
    }

    /// Mean delay of each source that sent anything in the hold, us, over all builders.
    pub fn delays_us(&self) -> BTreeMap<u32, f64> {
        let mut sums: BTreeMap<u32, (f64, u64)> = BTreeMap::new();
        for seen in self.builders().iter().flat_map(|builder| &builder.sources_seen) {
            if let Some(mean) = seen.delay_mean_us.filter(|_| seen.fragments > 0) {
                let sum = sums.entry(seen.source).or_default();
                sum.0 += mean * seen.fragments as f64;
                sum.1 += seen.fragments;
            }
        }
        sums.into_iter().map(|(source, (sum, count))| (source, sum / count as f64)).collect()
    }

    /// The busiest second of the busiest thread of sources, share of a CPU.
    pub fn sources_busiest(&self) -> Option<f64> {
        self.sources.iter().filter_map(|host| host.busiest).max_by(f64::total_cmp)
    }

    /// The share of its hold that the busiest builder worked or waited for a CPU, and the CPU time alone.
    pub fn builder_busiest(&self) -> Option<(f64, f64)> {
        let share = |builder: &&BuilderReport| {
            let held_s = Some(builder.hold_to_s - builder.hold_from_s).filter(|s| *s > 0.0)?;
            let worked = builder.cpu_s / held_s;
            Some((worked + builder.ready_s.unwrap_or(0.0) / held_s, worked))
        };
        self.builders().iter().filter_map(share).max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Whether the trial was ended before its time.
    pub fn is_ended_early(&self) -> bool {
        self.builders().iter().any(|builder| builder.ended_early || builder.events.unfinished > 0)
    }

    /// Why a part broke off, where one did.
    pub fn broke_off(&self) -> Option<String> {
        let builders = self.builders();
        let of_builders = builders.iter().filter_map(|builder| {
            Some(format!("builder {} broke off: {}", builder.builder, builder.broke_off.as_ref()?))
        });
        let of_sources = self.sources.iter().filter_map(|host| {
            let at = host.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
            Some(format!("the sources{at} broke off: {}", host.broke_off.as_ref()?))
        });
        let all: BTreeSet<String> = of_builders.chain(of_sources).collect();
        (!all.is_empty()).then(|| all.into_iter().collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cliff_uses_the_10th_percentile_of_skew() {
        let settings = |text: serde_json::Value| DaqSettings::read(text).unwrap();
        let mut builder = BuilderReport { fragments: 1, wire_bytes: 1154, ..BuilderReport::default() };
        builder.skew.record_ns_times(1_000_000, 20);
        builder.skew.record_ns_times(90_000_000, 80);
        let reports = TrialReports::of_one(builder, Vec::new());
        let given = json!({ "buffer": "64KiB", "link": "80Mbit/s" });
        let cliff = reports.cliff_sources(&settings(given.clone())).unwrap();
        assert!((cliff - (65_536.0 + 10_000.0) / 1154.0).abs() < 0.1, "{cliff}");
        let mut grant = given;
        grant["pattern"] = json!("grant");
        let credit = reports.cliff_sources(&settings(grant)).unwrap();
        assert!((credit - 65_536.0 / 1154.0).abs() < 0.1, "{credit}");
        assert_eq!(reports.cliff_sources(&settings(json!({ "link": "80Mbit/s" }))), None);
    }
}
