//! What passes between the engine and a workload: the trial to make, and the judgement of it.

use crate::doubt::Doubt;
use crate::metric::Metrics;
use crate::outcome::{Account, Phase};
use crate::series::Series;
use crate::units::Span;
use crate::verdict::Verdict;

/// The facts of one trial that a workload needs in order to offer it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialContext {
    /// The load to offer.
    pub load: u64,
    /// Where in the search.
    pub phase: Phase,
    /// How long to hold it.
    pub hold: Span,
    /// The same for all loads of a repetition, so that N and N + 1 differ by one stream only.
    pub seed: u64,
}

/// What a workload makes of the reports of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is not a pass.
    pub reasons: Vec<String>,
    /// Whether it failed for what no busy neighbour explains, such as a broken connection or wrong bytes.
    pub is_definite: bool,
    /// The workload's own numbers.
    pub metrics: Metrics,
    /// The workload's own series.
    pub series: Vec<Series>,
    /// What weakens the trial.
    pub doubts: Vec<Doubt>,
    /// What came of it in the workload's own words.
    pub account: Account,
    /// The hold, in seconds after the start: what is sampled is averaged over it.
    pub hold_s: (f64, f64),
}

impl Judgement {
    /// A verdict alone.
    pub fn new(verdict: Verdict, hold_s: (f64, f64)) -> Self {
        Self {
            verdict,
            reasons: Vec::new(),
            is_definite: false,
            metrics: Metrics::new(),
            series: Vec::new(),
            doubts: Vec::new(),
            account: Account::default(),
            hold_s,
        }
    }
}
