//! A workload as it is written, with typed settings, and as the engine uses it, without.

use std::collections::BTreeMap;
use std::time::Duration;

use base::metric::MetricSpec;
use base::outcome::{Figure, Resource, Trial};
use base::part::{Endpoints, PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{LoadPlan, PlanError, TrialTime};
use base::workload::{Judgement, Presentation, TrialContext};
use serde_json::Value;

use crate::part::{Peers, Reports};
use crate::settings::{self, Settings};

/// What a trial may take beyond its hold unless a workload knows better.
const MAX_OVERTIME: Duration = Duration::from_secs(150);

/// A kind of measurement: what load is, which parts offer it, and how their reports are judged.
pub trait Workload: Sync + 'static {
    /// Its name in plans: `stream`.
    const NAME: &'static str;
    /// The words of its command after `kagiri`.
    const COMMAND: &'static str = Self::NAME;
    type Settings: Settings;

    /// Every number of its trials, the sampled ones included.
    fn metrics(&self) -> &'static [MetricSpec];

    /// What is shown of it beside its metrics, and its own resources.
    fn presentation(&self) -> &'static Presentation {
        &Presentation::DEFAULT
    }

    /// The sides that a plan can place on hosts.
    fn roles(&self) -> &'static [Role];

    fn part_kinds(&self) -> &'static [PartKind];

    /// What a load counts: "streams".
    fn load_unit(&self, settings: &Self::Settings) -> &'static str;

    /// The metrics that answer a run of a single load, the main one first; none where the capacity is the
    /// answer.
    fn headline_metrics(&self, _settings: &Self::Settings) -> &'static [&'static str] {
        &[]
    }

    /// The roles whose hosts reach each other over the network: either all of them are in a lab or none.
    fn networked_roles(&self, _settings: &Self::Settings) -> &'static [&'static str] {
        &[]
    }

    /// The keys of its settings that give the ceilings of resources.
    fn ceiling_keys(&self) -> &'static [(Resource, &'static str)] {
        &[]
    }

    fn load_plan(&self, settings: &Self::Settings) -> LoadPlan;

    /// The time that each search may take, from the preparation on: it ends with what is known then.
    fn time_budget(&self, _settings: &Self::Settings) -> Option<Duration> {
        None
    }

    /// What is known of a trial's length, beside its load plan.
    fn trial_time(&self, _settings: &Self::Settings) -> TrialTime {
        TrialTime::default()
    }

    /// The longest time that a trial may take beyond its hold (start-up, warm-up, a stalled end) before it is
    /// given up.
    fn max_overtime(&self, _settings: &Self::Settings) -> Duration {
        MAX_OVERTIME
    }

    /// Whether a trial that the user interrupts is kept. A load that is judged by its whole hold cannot be
    /// judged by half of it.
    fn keeps_interrupted(&self, _settings: &Self::Settings) -> bool {
        false
    }

    /// The parts that stand for as long as the variant is measured (a server).
    fn standing(&self, settings: &Self::Settings, placement: &Placement) -> Result<Vec<PartSpec>, PartError>;

    /// The parts that offer the load of one trial (the viewers). They are prepared in this order, those of
    /// one kind at the same time.
    fn offering(
        &self,
        settings: &Self::Settings,
        trial: &TrialContext,
        peers: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError>;

    /// Judge a trial by the reports of its offering parts.
    fn judge(
        &self,
        settings: &Self::Settings,
        trial: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError>;

    /// Charts of all trials of a variant together.
    fn figures(&self, _settings: &Self::Settings, _trials: &[&Trial]) -> Vec<Figure> {
        Vec::new()
    }
}

pub trait AnyWorkload: Sync {
    fn name(&self) -> &'static str;
    fn command(&self) -> &'static str;
    fn metrics(&self) -> &'static [MetricSpec];
    fn presentation(&self) -> &'static Presentation;
    fn roles(&self) -> &'static [Role];
    fn part_kinds(&self) -> &'static [PartKind];
    fn schema(&self) -> Value;
    /// The reference page of its settings, as Markdown.
    fn settings_page(&self) -> String;
    /// Check settings and fill in defaults.
    fn resolve(&self, settings: &Value) -> Result<Value, PlanError>;
    /// Read the settings of a variant, once.
    fn configure(&self, settings: &Value) -> Result<Box<dyn ConfiguredWorkload + '_>, PlanError>;
}

/// A workload with the settings of one variant. The methods are those of [`Workload`].
pub trait ConfiguredWorkload {
    fn metrics(&self) -> &'static [MetricSpec];
    fn roles(&self) -> &'static [Role];
    fn load_unit(&self) -> &'static str;
    fn headline_metrics(&self) -> &'static [&'static str];
    fn networked_roles(&self) -> &'static [&'static str];
    fn ceiling_keys(&self) -> &'static [(Resource, &'static str)];
    fn load_plan(&self) -> LoadPlan;
    fn time_budget(&self) -> Option<Duration>;
    fn trial_time(&self) -> TrialTime;
    fn max_overtime(&self) -> Duration;
    fn keeps_interrupted(&self) -> bool;
    fn standing(&self, placement: &Placement) -> Result<Vec<PartSpec>, PartError>;
    fn offering(
        &self,
        trial: &TrialContext,
        peers: &Endpoints,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError>;
    fn judge(&self, trial: &TrialContext, reports: BTreeMap<String, Value>) -> Result<Judgement, PartError>;
    fn figures(&self, trials: &[&Trial]) -> Vec<Figure>;
}

impl<W: Workload> AnyWorkload for W {
    fn name(&self) -> &'static str {
        W::NAME
    }
    fn command(&self) -> &'static str {
        W::COMMAND
    }
    fn metrics(&self) -> &'static [MetricSpec] {
        self.metrics()
    }
    fn presentation(&self) -> &'static Presentation {
        self.presentation()
    }
    fn roles(&self) -> &'static [Role] {
        self.roles()
    }
    fn part_kinds(&self) -> &'static [PartKind] {
        self.part_kinds()
    }
    fn schema(&self) -> Value {
        settings::schema::<W::Settings>().clone()
    }
    fn settings_page(&self) -> String {
        settings::page::<W::Settings>(W::NAME, W::COMMAND)
    }
    fn resolve(&self, settings: &Value) -> Result<Value, PlanError> {
        let settings: W::Settings = settings::read(settings)?;
        serde_json::to_value(settings).map_err(|error| PlanError::new(error.to_string()))
    }
    fn configure(&self, settings: &Value) -> Result<Box<dyn ConfiguredWorkload + '_>, PlanError> {
        Ok(Box::new(Configured { workload: self, settings: settings::read(settings)? }))
    }
}

struct Configured<'a, W: Workload> {
    workload: &'a W,
    settings: W::Settings,
}

impl<W: Workload> ConfiguredWorkload for Configured<'_, W> {
    fn metrics(&self) -> &'static [MetricSpec] {
        self.workload.metrics()
    }
    fn roles(&self) -> &'static [Role] {
        self.workload.roles()
    }
    fn load_unit(&self) -> &'static str {
        self.workload.load_unit(&self.settings)
    }
    fn headline_metrics(&self) -> &'static [&'static str] {
        self.workload.headline_metrics(&self.settings)
    }
    fn networked_roles(&self) -> &'static [&'static str] {
        self.workload.networked_roles(&self.settings)
    }
    fn ceiling_keys(&self) -> &'static [(Resource, &'static str)] {
        self.workload.ceiling_keys()
    }
    fn load_plan(&self) -> LoadPlan {
        self.workload.load_plan(&self.settings)
    }
    fn time_budget(&self) -> Option<Duration> {
        self.workload.time_budget(&self.settings)
    }
    fn trial_time(&self) -> TrialTime {
        self.workload.trial_time(&self.settings)
    }
    fn max_overtime(&self) -> Duration {
        self.workload.max_overtime(&self.settings)
    }
    fn keeps_interrupted(&self) -> bool {
        self.workload.keeps_interrupted(&self.settings)
    }
    fn standing(&self, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        self.workload.standing(&self.settings, placement)
    }
    fn offering(
        &self,
        trial: &TrialContext,
        peers: &Endpoints,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        self.workload.offering(&self.settings, trial, &Peers::new(peers), placement)
    }
    fn judge(&self, trial: &TrialContext, reports: BTreeMap<String, Value>) -> Result<Judgement, PartError> {
        self.workload.judge(&self.settings, trial, &Reports::new(reports))
    }
    fn figures(&self, trials: &[&Trial]) -> Vec<Figure> {
        self.workload.figures(&self.settings, trials)
    }
}
