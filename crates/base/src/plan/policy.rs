//! The policy of `kagiri qos` that a variant is measured under.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::part::HERE;
use crate::placement::Wish;
use crate::plan_error::PlanError;

/// A policy, and where it is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyWish {
    /// Its file; in a plan relative to the plan's.
    pub policy: String,
    /// Names or patterns of hosts, each of which enforces it; empty: this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl PolicyWish {
    pub fn hosts(&self) -> Wish {
        let hosts = if self.hosts.is_empty() { HERE.to_owned() } else { self.hosts.join(", ") };
        Wish { hosts, count: None, at_least: None }
    }
}

/// Reads the table `qos`. Without `policy` none is in force, whatever the hosts.
pub(super) fn wish(table: Map<String, Value>) -> Result<Option<PolicyWish>, PlanError> {
    if let Some(unknown) = table.keys().find(|key| !["policy", "hosts"].contains(&key.as_str())) {
        return Err(PlanError::of_key(&format!("qos.{unknown}"), "unknown key; expected policy or hosts"));
    }
    let wrong = |key: &str, expected: &str| PlanError::of_key(&format!("qos.{key}"), expected);
    let hosts = match table.get("hosts").cloned() {
        None => Vec::new(),
        Some(Value::String(host)) => vec![host],
        Some(hosts) => serde_json::from_value(hosts)
            .map_err(|_| wrong("hosts", "expected a list of hosts, as in [\"robot-*\", \"background\"]"))?,
    };
    if hosts.iter().any(|host: &String| host.trim().is_empty()) {
        return Err(wrong("hosts", "a host has no name"));
    }
    match table.get("policy") {
        None => Ok(None),
        Some(Value::String(policy)) if !policy.trim().is_empty() => {
            Ok(Some(PolicyWish { policy: policy.clone(), hosts }))
        }
        Some(_) => Err(wrong("policy", "expected the file of a policy, as in \"qos/robots.toml\"")),
    }
}
