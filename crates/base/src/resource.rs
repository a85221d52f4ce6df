//! Resources that can set a capacity: the general ones, and those that a workload brings with it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limit_rules::{CEILING, LimitRule, THREAD};

/// A resource that can set a capacity. JSON holds its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// CPU time of the target, in % of one core.
    Cpu,
    /// The device that holds the content, in bit/s.
    Disk,
    /// The link, in bit/s.
    Network,
    /// In bytes.
    Memory,
    Workload(&'static ResourceSpec),
    /// The measuring side: nothing was learnt about the target beyond this load.
    Player,
    /// No limit was met within the loads that were offered.
    None,
}

/// A resource that a workload brings with it. Two are equal if their names are.
#[derive(Debug)]
pub struct ResourceSpec {
    /// In JSON and in lists: `send_buffer`.
    pub name: &'static str,
    /// In a sentence, with its article: "the sender's buffer".
    pub label: &'static str,
    /// As printed: `B`.
    pub unit: &'static str,
    /// The unit as the end of a name: `bytes`.
    pub unit_suffix: &'static str,
    /// What helps where it is the limit; empty where that is unknown.
    pub remedy: &'static str,
    pub rule: LimitRule,
}

impl PartialEq for ResourceSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ResourceSpec {}

impl PartialOrd for ResourceSpec {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceSpec {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

/// Resources of workloads by which stored runs are read.
static OF_WORKLOADS: RwLock<Vec<&'static ResourceSpec>> = RwLock::new(Vec::new());

/// Longer names are not resources; this also bounds what a foreign document can make this process keep.
const NAME_LENGTH_MAX: usize = 40;
const UNKNOWN_NAMES_MAX: usize = 100;

impl Resource {
    const GENERAL: [Self; 6] = [Self::Cpu, Self::Disk, Self::Network, Self::Memory, Self::Player, Self::None];

    /// Makes a workload's resources known, so that stored runs are read with their labels.
    pub fn register(specs: &[&'static ResourceSpec]) {
        let mut known = OF_WORKLOADS.write().unwrap_or_else(PoisonError::into_inner);
        for spec in specs {
            known.retain(|other| other.name != spec.name);
            known.push(spec);
        }
    }

    /// The resource of that name. An unregistered name is kept: a later version or another program may have
    /// stored it.
    fn from_name(name: &str) -> Option<Self> {
        if let Some(general) = Self::GENERAL.into_iter().find(|resource| resource.word() == name) {
            return Some(general);
        }
        let mut known = OF_WORKLOADS.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(spec) = known.iter().find(|spec| spec.name == name) {
            return Some(Self::Workload(spec));
        }
        let is_name = (1..=NAME_LENGTH_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !is_name || known.len() >= UNKNOWN_NAMES_MAX {
            return None;
        }
        let name: &'static str = Box::leak(name.into());
        let spec = Box::leak(Box::new(ResourceSpec {
            name,
            label: name,
            unit: "",
            unit_suffix: "",
            remedy: "",
            rule: CEILING,
        }));
        known.push(spec);
        Some(Self::Workload(spec))
    }

    /// Name, unit, the unit as the end of a name, rule, and the metric of its usage.
    const fn facts(self) -> (&'static str, &'static str, &'static str, LimitRule, Option<&'static str>) {
        match self {
            Self::Cpu => ("cpu", "%", "percent", CEILING, Some("server_cpu_percent")),
            Self::Disk => ("disk", "bit/s", "bit_per_s", CEILING, Some("disk_bit_per_s")),
            Self::Network => ("network", "bit/s", "bit_per_s", CEILING, Some("network_bit_per_s")),
            Self::Memory => ("memory", "B", "bytes", CEILING, Some("server_memory_bytes")),
            Self::Workload(spec) => (spec.name, spec.unit, spec.unit_suffix, spec.rule, None),
            Self::Player => ("player", "%", "percent", THREAD, Some("player_cpu_percent")),
            Self::None => ("none", "", "", CEILING, None),
        }
    }

    /// The name in JSON.
    pub const fn word(self) -> &'static str {
        self.facts().0
    }

    /// The name in tables and sentences.
    pub fn label(self) -> &'static str {
        match self {
            Self::Player => "measuring side",
            Self::Workload(spec) => spec.label.strip_prefix("the ").unwrap_or(spec.label),
            general => general.word(),
        }
    }

    /// The unit of its usage as printed.
    pub const fn unit(self) -> &'static str {
        self.facts().1
    }

    /// The unit as the end of a name: `bit_per_s`.
    pub const fn unit_suffix(self) -> &'static str {
        self.facts().2
    }

    /// From which share on it counts as used up.
    pub const fn rule(self) -> LimitRule {
        self.facts().3
    }

    /// The metric of a trial that holds its usage.
    pub const fn metric(self) -> Option<&'static str> {
        self.facts().4
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Resource {
    type Err = String;
    /// Reads the name of a resource that a ceiling can be given for.
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Cpu, Self::Disk, Self::Network, Self::Memory, Self::Player]
            .into_iter()
            .find(|resource| resource.word().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| format!("'{text}' is not a resource; use cpu, disk, network, memory or player"))
    }
}

impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        Self::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("'{name}' is not the name of a resource")))
    }
}

impl JsonSchema for Resource {
    fn schema_name() -> Cow<'static, str> {
        "Resource".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A resource that can set a capacity: cpu, disk, network, memory, player (the \
                measuring side), none, or one of the workload's own.",
            "type": "string"
        })
    }
}

/// The most of a resource that there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// In the resource's unit.
    pub value: f64,
    /// Where the number comes from: "given", "cgroup quota", "2 cores", "calibrated", "link speed".
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit_rules::WAITING;

    static QUEUE: ResourceSpec = ResourceSpec {
        name: "queue",
        label: "the server's queue",
        unit: "",
        unit_suffix: "requests",
        remedy: "a longer queue",
        rule: WAITING,
    };

    #[test]
    fn general_resource_has_its_threshold() {
        for (resource, share, is_used_up) in [
            (Resource::Network, 0.94, false),
            (Resource::Network, 0.95, true),
            (Resource::Network, 1.09, false),
            (Resource::Cpu, 0.96, true),
            (Resource::Player, 0.9, true),
            (Resource::Workload(&QUEUE), 0.4, false),
        ] {
            assert_eq!(resource.rule().is_used_up(share), is_used_up, "{resource} {share}");
        }
        assert!(Resource::Network.rule().is_refuted(1.09));
    }

    #[test]
    fn workload_resource_is_stored_by_name_and_read_with_its_label() {
        Resource::register(&[&QUEUE]);
        let json = serde_json::to_value(Resource::Workload(&QUEUE)).unwrap();
        assert_eq!(json, "queue");
        let Resource::Workload(read) = serde_json::from_value(json).unwrap() else { panic!("it is general") };
        assert_eq!(read.label, "the server's queue");
    }

    #[test]
    fn unregistered_name_is_kept_and_text_refused() {
        let read: Resource = serde_json::from_str("\"lock\"").unwrap();
        assert_eq!((read.word(), read), ("lock", serde_json::from_str("\"lock\"").unwrap()));
        for text in ["", "two words", "<b>", &"x".repeat(41)] {
            serde_json::from_value::<Resource>(text.into()).unwrap_err();
        }
    }
}
