//! Plans: what is to be measured, as people write it in TOML.
//!
//! ```toml
//! schema = 1
//! name = "two servers"
//! workload = "stream"
//! repeats = 5
//! require = ["capacity>=4"]
//!
//! [stream]                     # the workload's settings, for every variant
//! bitrate = "25Mbit/s"
//!
//! [place]                      # on which hosts; here, unless said
//! server = "nas"
//!
//! [qos]                        # the policy of `kagiri qos` that is in force meanwhile; none, unless said
//! policy = "qos/robots.toml"
//! hosts = ["robots"]
//!
//! [tune]                       # kernel settings meanwhile, and hosts that are watched; none, unless said
//! hosts = ["nas"]
//!
//! [[variant]]
//! name = "nginx"
//! stream.server.kind = "nginx"    # what differs
//! place.server = "nas-2"
//! tune.settings.tcp_slow_start_after_idle = 0
//! ```

mod policy;
mod tuning;
mod variant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::variant::{Shared, variant, wishes};

pub use self::policy::PolicyWish;
pub use self::tuning::TuningWish;
use crate::near;
use crate::objective::Objective;
use crate::placement::Wishes;
pub use crate::plan_error::PlanError;
use crate::units::Span;

/// The plan schema that this version reads.
pub const SCHEMA: u32 = 1;
/// More repetitions than this are a typing error.
const REPEATS_MAX: u32 = 1000;
/// More variants make no report that a person can read.
const VARIANTS_MAX: usize = 1000;
/// Longer texts are not plans.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    pub name: String,
    /// Its complete settings: the workload's, with what differs laid over them.
    pub settings: Value,
    /// On which hosts its parts run; those that are left out run here.
    #[serde(default, skip_serializing_if = "Wishes::is_empty")]
    pub place: Wishes,
    /// The policy of `kagiri qos` that is in force while it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<PolicyWish>,
    /// Settings of the kernel's network that it is measured with, and the hosts that are watched meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune: Option<TuningWish>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: u32,
    pub name: String,
    pub workload: String,
    /// How often every variant's search is repeated, the variants interleaved.
    pub repeats: u32,
    pub seed: u64,
    /// What must hold, checked at the end of the run.
    pub require: Vec<String>,
    /// The file of the lab that it runs in, relative to its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lab: Option<String>,
    /// What is compared; at least one.
    pub variants: Vec<Variant>,
}

/// How loads are to be searched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadPlan {
    /// The first load of a search.
    pub load_first: u64,
    /// The largest load to offer.
    pub load_max: u64,
    /// Offer only this load, without a search.
    pub fixed: Option<u64>,
    /// Hold of a confirming trial.
    pub hold: Span,
    /// Hold of a searching trial, at most `hold`.
    pub search_hold: Span,
    /// How often the capacity must pass.
    pub confirmations: u32,
    /// Whether to go down again afterwards.
    pub ramp_down: bool,
    /// Resolution of loads above 16, as a share of the load.
    pub resolution: f64,
}

impl LoadPlan {
    /// Search from 1 to `load_max`, hold every load equally long, and confirm the capacity twice.
    pub fn search(load_max: u64, hold: Span) -> Self {
        Self {
            load_first: 1,
            load_max,
            fixed: None,
            hold,
            search_hold: hold,
            confirmations: 2,
            ramp_down: false,
            resolution: 0.02,
        }
    }
}

/// What is known of a trial's length before it begins, for the announced time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TrialTime {
    pub hold: HoldTime,
    /// Warm-up, which is no part of the hold.
    pub warm_up: Span,
    /// The longest wait for others (people, programs) before the hold begins.
    pub wait_max: Span,
    /// Start-up and judging, where the workload knows how long they take.
    pub beyond: Option<Span>,
}

/// How long a trial holds its load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum HoldTime {
    /// As long as the [`LoadPlan`] says.
    #[default]
    OfPlan,
    /// This long, s.
    S(f64),
    /// A number of operations, at the load a second.
    AtLoad(f64),
    /// A number of operations, at a rate that only the trial shows.
    Unknown,
}

/// The plan as it is written; unknown keys are refused.
#[derive(Deserialize)]
struct Head {
    schema: Option<u32>,
    name: Option<String>,
    workload: String,
    #[serde(default = "one")]
    repeats: u32,
    #[serde(default = "one")]
    seed: u64,
    #[serde(default)]
    require: Vec<String>,
    lab: Option<String>,
    #[serde(default)]
    place: Map<String, Value>,
    #[serde(default)]
    qos: Map<String, Value>,
    #[serde(default)]
    tune: Map<String, Value>,
    #[serde(default)]
    variant: Vec<Map<String, Value>>,
}

const HEAD_KEYS: [&str; 11] =
    ["schema", "name", "workload", "repeats", "seed", "require", "lab", "place", "qos", "tune", "variant"];

fn one<T: From<u8>>() -> T {
    1.into()
}

impl Plan {
    /// A plan of one variant with these (resolved) settings, measured once, with nothing required.
    pub fn of_one(workload: &str, name: impl Into<String>, variant: &str, settings: Value) -> Self {
        let place = Wishes::new();
        Self {
            schema: SCHEMA,
            name: name.into(),
            workload: workload.to_owned(),
            repeats: one(),
            seed: one(),
            require: Vec::new(),
            lab: None,
            variants: vec![Variant { name: variant.to_owned(), settings, place, qos: None, tune: None }],
        }
    }

    /// Read a plan. `resolve` is the workload's own check of settings, found by the workload's name.
    ///
    /// # Errors
    /// Not TOML, an unknown key, an impossible value: with the line.
    pub fn from_toml(
        text: &str,
        resolve: impl Fn(&str, Value) -> Result<Value, PlanError>,
    ) -> Result<Self, PlanError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PlanError::new("the plan is longer than 1 MiB"));
        }
        let table: Map<String, Value> = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        Self::from_table(table, resolve).map_err(|error| error.located(text))
    }

    /// The plan as a file that [`Self::from_toml`] reads again, every variant with its complete settings.
    pub fn to_toml(&self) -> Result<String, PlanError> {
        let variants: Vec<Value> = self
            .variants
            .iter()
            .map(|variant| {
                let settings = without_nulls(&variant.settings);
                let place = &variant.place;
                let mut table = json!({ "name": variant.name, &self.workload: settings, "place": place });
                if let Some(qos) = &variant.qos {
                    table["qos"] = json!(qos);
                }
                if let Some(tune) = &variant.tune {
                    table["tune"] = json!(tune);
                }
                table
            })
            .collect();
        let mut table = json!({
            "schema": self.schema,
            "name": self.name,
            "workload": self.workload,
            "repeats": self.repeats,
            "seed": self.seed,
            "require": self.require,
            "variant": variants,
        });
        if let Some(lab) = &self.lab {
            table["lab"] = json!(lab);
        }
        toml::to_string(&table).map_err(|error| PlanError::new(error.to_string()))
    }

    fn from_table(
        mut table: Map<String, Value>,
        resolve: impl Fn(&str, Value) -> Result<Value, PlanError>,
    ) -> Result<Self, PlanError> {
        let head: Head = serde_json::from_value(Value::Object(table.clone()))
            .map_err(|error| blamed(&table).unwrap_or_else(|| PlanError::new(error.to_string())))?;
        check_head(&head)?;
        let shared = table.shift_remove(&head.workload).unwrap_or_else(|| Value::Object(Map::new()));
        // The tables of an unknown workload are unknown keys, too: its name is the better message.
        let is_of_workload = |error: &PlanError| error.key.as_deref() == Some("workload");
        if let Some(error) = resolve(&head.workload, json!({})).err().filter(is_of_workload) {
            return Err(error);
        }
        if let Some(unknown) = table.keys().find(|key| !HEAD_KEYS.contains(&key.as_str())) {
            let known = [&HEAD_KEYS[..], &[&head.workload]].concat();
            return Err(PlanError::of_key(unknown, near::unknown_key(unknown, &known, "")));
        }
        let mut variants = Vec::new();
        for overlay in head.variant {
            let below = Shared { settings: &shared, place: &head.place, qos: &head.qos, tune: &head.tune };
            variants.push(variant(overlay, below, &head.workload, variants.len())?);
        }
        if variants.is_empty() {
            let (place, qos) = (wishes(head.place)?, policy::wish(head.qos)?);
            let tune = tuning::wish(head.tune)?;
            variants.push(Variant { name: "default".into(), settings: shared, place, qos, tune });
        }
        for variant in &mut variants {
            let resolved = resolve(&head.workload, variant.settings.take());
            variant.settings = resolved.map_err(|error| error.in_table(&head.workload))?;
        }
        let mut names: Vec<_> = variants.iter().map(|variant| variant.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PlanError::of_key("variant", format!("two variants have the name '{}'", twice[0])));
        }
        let name = head.name.unwrap_or_else(|| head.workload.clone());
        let Head { workload, repeats, seed, require, lab, .. } = head;
        Ok(Self { schema: SCHEMA, name, workload, repeats, seed, require, lab, variants })
    }
}

fn check_head(head: &Head) -> Result<(), PlanError> {
    match head.schema {
        Some(schema) if schema > SCHEMA => {
            let problem =
                format!("the plan has schema {schema}, this kagiri reads up to {SCHEMA}; update kagiri");
            return Err(PlanError::of_key("schema", problem));
        }
        Some(0) => return Err(PlanError::of_key("schema", format!("write {SCHEMA}"))),
        _ => {}
    }
    if head.repeats == 0 || head.repeats > REPEATS_MAX {
        return Err(PlanError::of_key("repeats", format!("{} is not within 1..{REPEATS_MAX}", head.repeats)));
    }
    if head.variant.len() > VARIANTS_MAX {
        let problem =
            format!("the plan has {} variants, and at most {VARIANTS_MAX} are possible", head.variant.len());
        return Err(PlanError::of_key("variant", problem));
    }
    for text in &head.require {
        text.parse::<Objective>().map_err(|error| PlanError::of_key("require", error))?;
    }
    Ok(())
}

/// Lay one tree of settings over another: tables merge key by key, everything else is replaced.
pub fn lay_over(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                lay_over(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

/// The same tree without what is not set: TOML has no null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect()
        }
        other => other.clone(),
    }
}

/// The first of the plan's keys whose value is of the wrong kind, found by reading each alone: serde does not
/// name it.
fn blamed(table: &Map<String, Value>) -> Option<PlanError> {
    let mut keys = table.iter().filter(|(key, _)| HEAD_KEYS.contains(&key.as_str()));
    keys.find_map(|(key, value)| {
        let mut alone = Map::from_iter([("workload".to_owned(), Value::String(String::new()))]);
        alone.insert(key.clone(), value.clone());
        let error = serde_json::from_value::<Head>(Value::Object(alone)).err()?;
        Some(PlanError::of_key(key, error))
    })
}

/// A TOML error with its line and without the library's picture of it.
fn syntax(text: &str, error: &toml::de::Error) -> PlanError {
    let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    PlanError { line, ..PlanError::new(error.message().to_owned()) }
}

#[cfg(test)]
mod tests;
