//! What passes between the engine and a workload: the trial to make, and the judgement of it.

use crate::doubt::Doubt;
use crate::metric::Metrics;
use crate::outcome::{Account, Phase};
use crate::resource::ResourceSpec;
use crate::series::Series;
use crate::units::Span;
use crate::verdict::Verdict;

/// The facts of one trial that a workload needs in order to offer it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialContext {
    pub load: u64,
    pub phase: Phase,
    pub hold: Span,
    /// The same for all loads of a repetition, so that N and N + 1 differ by one stream only.
    pub seed: u64,
}

/// What of a workload is shown beside its metrics, and the resources that it brings with it.
#[derive(Debug, Clone, Copy)]
pub struct Presentation {
    /// What the sampled side is called: "server".
    pub target: &'static str,
    /// Rates that progress shows: the live number's name, and the word after its value.
    pub live_rates: &'static [(&'static str, &'static str)],
    /// Panels of the report's timeline above those of the target's resources.
    pub panels_above: &'static [Panel],
    pub panels_below: &'static [Panel],
    pub resources: &'static [&'static ResourceSpec],
    /// What the columns of the table of loads mean; empty where their names say it.
    pub columns_note: &'static str,
    /// Whether a run is answered in a few lines, unless everything is asked for.
    pub is_brief: bool,
}

/// A panel of the report's timeline.
#[derive(Debug, Clone, Copy)]
pub struct Panel {
    pub title: &'static str,
    /// The first of these series that a run has is drawn.
    pub series: &'static [&'static str],
    pub has_stalls: bool,
}

impl Presentation {
    /// A server, its resources and nothing else.
    pub const DEFAULT: Self = Self {
        target: "server",
        live_rates: &[],
        panels_above: &[],
        panels_below: &[],
        resources: &[],
        columns_note: "",
        is_brief: false,
    };
}

impl Default for &Presentation {
    fn default() -> Self {
        &Presentation::DEFAULT
    }
}

/// What a workload makes of the reports of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    pub reasons: Vec<String>,
    /// Whether it failed for what no busy neighbour explains, such as a broken connection or wrong bytes.
    pub is_definite: bool,
    /// Whether it passed with less than it could have carried, and no counter of its own says why.
    pub is_short: bool,
    /// The workload's own numbers.
    pub metrics: Metrics,
    pub series: Vec<Series>,
    pub doubts: Vec<Doubt>,
    /// What came of it in the workload's own words.
    pub account: Account,
    /// The hold, in seconds after the start: what is sampled is averaged over it.
    pub hold_s: (f64, f64),
}

impl Judgement {
    pub fn new(verdict: Verdict, hold_s: (f64, f64)) -> Self {
        Self {
            verdict,
            reasons: Vec::new(),
            is_definite: false,
            is_short: false,
            metrics: Metrics::new(),
            series: Vec::new(),
            doubts: Vec::new(),
            account: Account::default(),
            hold_s,
        }
    }
}
