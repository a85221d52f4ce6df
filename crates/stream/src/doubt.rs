//! Doubts of streaming.

use base::doubt::WorkloadDoubt;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StreamDoubt {
    /// The busiest player thread was close to its limit, in % of its core.
    GeneratorNearSaturation { cpu_percent: f64 },
    /// The players read later than intended.
    GeneratorLate { late_ms_max: f64 },
    /// The content was partly in memory although a cold trial was requested; `None` where the kernel does not
    /// tell this user.
    CacheNotCold { resident_percent: Option<f64> },
    /// Streams read the same part of the file, so that one's reading warms the cache for another.
    RegionsOverlap { streams: u64, content_s: f64 },
    /// A hold of this length cannot distinguish neighbouring loads by stalls alone.
    HoldTooShort { hold_s: f64, resolves_load: f64 },
    /// The content had no index and was read once to make one.
    IndexMadeByReading,
    /// The search held loads for a short time and went in large steps.
    CoarseSearch { hold_s: f64, resolution_percent: f64 },
}

impl WorkloadDoubt for StreamDoubt {
    fn message(&self) -> String {
        match self {
            Self::GeneratorNearSaturation { cpu_percent } => {
                format!("the busiest player thread used {cpu_percent:.0} % of its core")
            }
            Self::GeneratorLate { late_ms_max } => {
                format!("the players were up to {late_ms_max:.1} ms late")
            }
            Self::CacheNotCold { resident_percent: Some(percent) } => {
                format!("{percent:.0} % of the content was in memory at the start of a cold trial")
            }
            Self::CacheNotCold { resident_percent: None } => {
                "how much of the content was in memory at the start of a cold trial is unknown".to_owned()
            }
            Self::RegionsOverlap { streams, content_s } => {
                format!("{streams} streams share {content_s:.0} s of content, so some read cached parts")
            }
            Self::HoldTooShort { hold_s, resolves_load } => format!(
                "within {hold_s:.0} s, an overload of up to {resolves_load:.1} streams may not stall any \
                 player"
            ),
            Self::IndexMadeByReading => "the content had no index and was read once to make one".to_owned(),
            Self::CoarseSearch { hold_s, resolution_percent } => format!(
                "a quick search: trials of {hold_s:.0} s, steps of {resolution_percent:.0} % above 16 streams"
            ),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::GeneratorNearSaturation { .. } | Self::GeneratorLate { .. } => {
                "use --depth discard, a smaller --player-parsing, or viewers on another host"
            }
            Self::CacheNotCold { .. } => "close other users of the file, or run as root",
            Self::RegionsOverlap { .. } => "make longer content with 'kagiri content make --duration'",
            Self::HoldTooShort { .. } => "use longer trials (--time, --search-time)",
            Self::CoarseSearch { .. } => {
                "use longer trials and smaller steps ('kagiri stream' without --quick)"
            }
            Self::IndexMadeByReading => "keep the index beside the content with 'kagiri content index'",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::GeneratorNearSaturation { cpu_percent: degree }
            | Self::GeneratorLate { late_ms_max: degree }
            | Self::CacheNotCold { resident_percent: Some(degree) }
            | Self::HoldTooShort { resolves_load: degree, .. } => *degree,
            Self::CacheNotCold { resident_percent: None }
            | Self::RegionsOverlap { .. }
            | Self::IndexMadeByReading
            | Self::CoarseSearch { .. } => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cache_is_not_told_as_cold() {
        let unknown = StreamDoubt::CacheNotCold { resident_percent: None };
        assert!(unknown.message().ends_with("is unknown"), "{}", unknown.message());
    }

    #[test]
    fn gravity_grows_with_the_degree_of_each_kind() {
        for (lighter, graver) in [
            (
                StreamDoubt::GeneratorNearSaturation { cpu_percent: 91.0 },
                StreamDoubt::GeneratorNearSaturation { cpu_percent: 97.0 },
            ),
            (
                StreamDoubt::GeneratorLate { late_ms_max: 20.0 },
                StreamDoubt::GeneratorLate { late_ms_max: 80.0 },
            ),
            (
                StreamDoubt::CacheNotCold { resident_percent: Some(2.0) },
                StreamDoubt::CacheNotCold { resident_percent: Some(50.0) },
            ),
            (
                StreamDoubt::HoldTooShort { hold_s: 2.0, resolves_load: 2.2 },
                StreamDoubt::HoldTooShort { hold_s: 2.0, resolves_load: 5.4 },
            ),
        ] {
            assert!(lighter.gravity() < graver.gravity(), "{lighter:?} {graver:?}");
        }
    }
}
