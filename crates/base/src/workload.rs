//! What the engine knows of a workload: its registry entry, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::doubt::Doubt;
use crate::metric::{MetricSpec, Metrics};
use crate::outcome::{Account, Figure, Phase, Trial};
use crate::part::{Endpoints, PartError, PartKind, PartSpec};
use crate::placement::{Placement, Role};
use crate::plan::{LoadPlan, PlanError};
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

/// A workload: one folder, and one line in the registry.
pub trait Workload: Sync {
    /// Its verb: `stream`.
    fn name(&self) -> &'static str;
    /// What a load counts under these (resolved) settings: "streams".
    fn load_unit(&self, settings: &Value) -> &'static str;
    /// Every number that its trials carry, the sampled ones included.
    fn metrics(&self) -> &'static [MetricSpec];
    /// The metrics that tell what came of a single load under these (resolved) settings, the main one first; none where
    /// the load itself says it, so that a capacity is the answer.
    fn findings(&self, _settings: &Value) -> &'static [&'static str] {
        &[]
    }
    /// The sides that a plan can place on hosts.
    fn roles(&self) -> &'static [Role];
    /// The roles whose hosts reach each other over the network under these (resolved) settings: of these none can stay
    /// outside of a lab that others are placed in.
    fn joined(&self, _settings: &Value) -> &'static [&'static str] {
        &[]
    }
    /// Its parts.
    fn parts(&self) -> &'static [PartKind];

    /// Check settings and fill in what was left out.
    ///
    /// # Errors
    /// An unknown key, a wrong unit, an impossible range, with the key named.
    fn resolve(&self, settings: Value) -> Result<Value, PlanError>;

    /// How loads are to be searched under these (resolved) settings.
    fn load_plan(&self, settings: &Value) -> LoadPlan;

    /// How long a trial may take beyond its hold (start-up, warm-up, a stalled end) before it is given up; more than
    /// anything that these (resolved) settings allow.
    fn overtime(&self, _settings: &Value) -> Duration {
        Duration::from_secs(150)
    }

    /// Whether a trial that the user ends is kept, with what it measured until then. A load that is judged by its whole
    /// hold says nothing in half of it.
    fn keeps_interrupted(&self, _settings: &Value) -> bool {
        false
    }

    /// The parts that stand for as long as the variant is measured (a server).
    ///
    /// # Errors
    /// Settings that no part can be made from.
    fn standing(&self, settings: &Value, placement: &Placement) -> Result<Vec<PartSpec>, PartError>;

    /// The parts that offer one trial's load (the viewers). They are prepared in this order, those of one kind side by
    /// side.
    ///
    /// # Errors
    /// Settings or endpoints that no part can be made from.
    fn offering(
        &self,
        settings: &Value,
        trial: &TrialContext,
        peers: &Endpoints,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError>;

    /// What is to be seen in all trials of a variant together, under its (resolved) settings; what is to be seen in one of
    /// them is in its account.
    fn figures(&self, _settings: &Value, _trials: &[&Trial]) -> Vec<Figure> {
        Vec::new()
    }

    /// Judge a trial by its parts' reports, by part name.
    ///
    /// # Errors
    /// A report that is missing or cannot be read.
    fn judge(
        &self,
        settings: &Value,
        trial: &TrialContext,
        reports: &BTreeMap<String, Value>,
    ) -> Result<Judgement, PartError>;
}
