//! What a struct of settings has to be, and what its schema declares of each setting.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use base::plan::PlanError;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a struct of settings has to be.
pub trait Settings:
    Serialize + DeserializeOwned + JsonSchema + Default + Clone + PartialEq + Send + Sync + 'static
{
    /// Checks what concerns several settings; ranges of single settings are checked from the schema.
    /// The error names the key; a further key in its message stands in backticks.
    fn check(&self) -> Result<(), PlanError> {
        Ok(())
    }

    /// What to do about a key that is not one of these settings, where more can be said than that it is
    /// unknown.
    fn advice(_unknown_key: &str) -> Option<&'static str> {
        None
    }
}

/// How a setting is given on the command line. Everything is optional.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flag {
    /// Its name; the key with dashes unless given.
    pub name: String,
    pub short: Option<char>,
    /// Further names, not shown in the help.
    pub aliases: Vec<String>,
    /// The name of its value in the help.
    pub value: Option<String>,
    /// The heading it stands under; a table's is that of its keys.
    pub group: Option<String>,
    /// Keys that cannot be given together with this one.
    pub conflicts: Vec<String>,
    /// A key without which this one has no meaning.
    pub requires: Option<String>,
    /// Whether it is an argument without a name.
    pub positional: bool,
    /// The value of a flag that is given without one.
    pub missing: Option<String>,
    /// Flags without a value that set this one: name (or letter) and value.
    pub switches: BTreeMap<String, String>,
    /// Whether the value is a file on this host.
    pub file: bool,
    /// Whether only `--help` shows it, not `-h`.
    pub rare: bool,
    /// Whether its bare values are read as iperf3 reads them: `128K`, `1G`, 0 for "not limited".
    pub iperf3: bool,
    /// Whether an argument that the command shares with others sets it.
    pub shared: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub name: String,
    pub help: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Switch,
    /// A whole number; `or_text`: or a text that the setting's type reads.
    Integer {
        or_text: bool,
    },
    Number,
    Percent,
    /// A text that the setting's type reads.
    Text,
    /// A quantity with a unit, by the `format` of its schema.
    Quantity(String),
    Choice(Vec<Choice>),
}

/// One setting, as its field in the struct declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Its path in the workload's table of a plan: `player.start`.
    pub key: String,
    pub help: String,
    pub kind: Kind,
    /// Its value where none is given; `null` where it is optional.
    pub default: Value,
    /// What is done when an optional setting is left out.
    pub unset: Option<String>,
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub flag: Option<Flag>,
}

impl Declaration {
    /// The default as text; what is done without a value where there is none.
    pub fn default_text(&self) -> Option<String> {
        match (&self.unset, &self.default) {
            (Some(unset), _) => Some(unset.clone()),
            (None, Value::String(text)) => Some(text.clone()),
            (None, Value::Number(number)) => Some(plain(number)),
            (None, Value::Bool(true)) if self.kind == Kind::Switch => Some("true".to_owned()),
            _ => None,
        }
    }

    /// The range of values, where there is one that says more than the type.
    pub fn range_text(&self) -> Option<String> {
        let text = |value: &Value| match value {
            Value::Number(number) => plain(number),
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        match (self.min.as_ref().map(text), self.max.as_ref().map(text)) {
            (Some(min), Some(max)) => Some(format!("{min} to {max}")),
            (Some(min), None) if min != "0" => Some(format!("{min} or more")),
            (None, Some(max)) => Some(format!("at most {max}")),
            _ => None,
        }
    }
}

/// A number without a needless `.0`.
pub(super) fn plain(number: &serde_json::Number) -> String {
    match (number.is_f64(), number.as_f64()) {
        (true, Some(number)) => number.to_string(),
        _ => number.to_string(),
    }
}

/// Every setting, in the order of the struct.
pub fn declarations<S: Settings>() -> &'static [Declaration] {
    &declared::<S>().settings
}

pub fn schema<S: Settings>() -> &'static Value {
    &declared::<S>().schema
}

struct Declared {
    schema: Value,
    settings: Vec<Declaration>,
}

/// Built once for each struct: a command line with its plan asks for it hundreds of times.
fn declared<S: Settings>() -> &'static Declared {
    static ALL: Mutex<BTreeMap<TypeId, &'static Declared>> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(TypeId::of::<S>()).or_insert_with(|| {
        let schema = generate_schema::<S>();
        let mut settings = Vec::new();
        let parent = Parent { key: String::new(), flag: Some(Flag::default()) };
        table(&schema, &parent, &mut settings);
        Box::leak(Box::new(Declared { schema, settings }))
    })
}

fn generate_schema<S: Settings>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<S>().to_value()
}

struct Parent {
    key: String,
    flag: Option<Flag>,
}

fn table(schema: &Value, parent: &Parent, found: &mut Vec<Declaration>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, schema) in properties {
        let key = if parent.key.is_empty() { name.clone() } else { format!("{}.{name}", parent.key) };
        let flag = flag(&key, schema, parent);
        match schema.get("properties") {
            Some(_) => table(schema, &Parent { key, flag }, found),
            None => found.push(setting(key, schema, flag)),
        }
    }
}

fn flag(key: &str, schema: &Value, parent: &Parent) -> Option<Flag> {
    let parent = parent.flag.as_ref()?;
    let mut flag = match schema.get("x-flag") {
        None => Flag::default(),
        Some(Value::Bool(false)) => return None,
        Some(declared) => serde_json::from_value(declared.clone())
            .unwrap_or_else(|error| panic!("the flag of {key} is declared wrongly: {error}")),
    };
    if flag.name.is_empty() {
        flag.name = key.replace(['_', '.'], "-");
    }
    flag.group = flag.group.or_else(|| parent.group.clone());
    flag.rare |= parent.rare;
    flag.conflicts.extend(parent.conflicts.iter().cloned());
    Some(flag)
}

fn setting(key: String, schema: &Value, flag: Option<Flag>) -> Declaration {
    let bound = |json: &str, text: &str| schema.get(json).or_else(|| schema.get(text)).cloned();
    Declaration {
        help: sentence(schema),
        kind: kind(&key, schema),
        default: schema.get("default").cloned().unwrap_or(Value::Null),
        unset: schema["x-unset"].as_str().map(str::to_owned),
        min: bound("minimum", "x-min"),
        max: bound("maximum", "x-max"),
        flag,
        key,
    }
}

/// The doc comment in one line, without its last period.
fn sentence(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.trim_end_matches('.').split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kind(key: &str, schema: &Value) -> Kind {
    let choices = choices(schema);
    if !choices.is_empty() {
        return Kind::Choice(choices);
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect::<Vec<_>>(),
    };
    let has = |name: &str| types.contains(&name);
    match schema["format"].as_str() {
        _ if has("boolean") => Kind::Switch,
        _ if has("integer") => Kind::Integer { or_text: has("string") },
        _ if has("number") && key.contains("_percent") => Kind::Percent,
        _ if has("number") => Kind::Number,
        Some(format) => Kind::Quantity(format.to_owned()),
        None => Kind::Text,
    }
}

/// The values of an enum: with a description each they stand in `oneOf`, of an optional one in an `anyOf`
/// around that.
fn choices(schema: &Value) -> Vec<Choice> {
    let alternatives = ["oneOf", "anyOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    alternatives
        .flat_map(|one| match one["const"].as_str() {
            Some(name) => vec![Choice { name: name.to_owned(), help: sentence(one) }],
            None => choices(one),
        })
        .collect()
}
