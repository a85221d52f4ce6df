//! Doubts of event building.

use base::doubt::WorkloadDoubt;
use base::format::number;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum DaqDoubt {
    /// The busiest source thread was close to its limit, in % of its core.
    SourcesNearSaturation {
        cpu_percent: f64,
    },
    /// The sources sent one after the other so slowly that they paced the burst themselves.
    BurstPaced {
        offered_bit_per_s: f64,
        link_bit_per_s: f64,
    },
    ClocksNotCompared {
        sources: u64,
    },
    /// Send times of these sources are before the trigger or after the arrival.
    SendTimesImplausible {
        sources: String,
        fragments: u64,
    },
    /// The clock answers of these sources contradict each other.
    ClocksContradictory {
        sources: String,
    },
    CpusShared,
    /// Fragments were received that no source has counted.
    CountsDisagree {
        more: u64,
    },
    /// Orders were not sent as configured, with the reason.
    OrdersAnotherWay {
        why: String,
    },
}

impl DaqDoubt {
    /// What is doubted, and what to do about it.
    fn texts(&self) -> (String, &'static str) {
        match self {
            Self::SourcesNearSaturation { cpu_percent } => (
                format!(
                    "the busiest source thread used {cpu_percent:.0} % of its core in its busiest second"
                ),
                "place sources on more hosts (--place sources=...), or use more --threads",
            ),
            Self::BurstPaced { offered_bit_per_s, link_bit_per_s } => (
                format!(
                    "the sources send their burst at {} times the rate of the port, so they pace the burst",
                    number(offered_bit_per_s / link_bit_per_s)
                ),
                "place sources on more hosts, or use a scale model: a slower link and a buffer with the same \
                 ratio of burst to buffer",
            ),
            Self::ClocksNotCompared { sources } => (
                format!("the clocks of {sources} sources could not be compared with the builder's clock"),
                "allow UDP between sources and builder, and make front ends answer clock probes",
            ),
            Self::SendTimesImplausible { sources, fragments } => (
                format!(
                    "the send times of {sources} cannot be right ({fragments} before the trigger or after \
                     the arrival): they count as unknown, and send skew and causes leave them out"
                ),
                "correct the send time (offset 40) that they write: ns of the clock that answers the probes",
            ),
            Self::ClocksContradictory { sources } => (
                format!("the clock answers of {sources} contradict each other: their send times are unknown"),
                "correct the answers to clock probes (offsets 32 and 40), or keep the host's clock steady",
            ),
            Self::CpusShared => (
                "builder and sources shared the CPUs of one machine".to_owned(),
                "place sources on other machines (--place) before you quote a rate",
            ),
            Self::CountsDisagree { more } => (
                format!("{more} received fragments were not counted by any source"),
                "check for other senders at the builder's port, and for fragments that front ends send twice",
            ),
            Self::OrdersAnotherWay { why } => (
                why.trim_end_matches('.').to_owned(),
                "check IGMP snooping and multicast routes, or use --orders tcp for all sources",
            ),
        }
    }
}

impl WorkloadDoubt for DaqDoubt {
    fn message(&self) -> String {
        self.texts().0
    }

    fn advice(&self) -> &'static str {
        self.texts().1
    }

    fn gravity(&self) -> f64 {
        if let Self::SourcesNearSaturation { cpu_percent } = self { *cpu_percent } else { 0.0 }
    }
}
