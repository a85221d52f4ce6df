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
    /// The host that coordinates them; `None`: each enforces it on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<String>,
}

impl PolicyWish {
    pub fn hosts(&self) -> Wish {
        let hosts = if self.hosts.is_empty() { HERE.to_owned() } else { self.hosts.join(", ") };
        Wish { hosts, count: None, at_least: None }
    }

    pub fn coordinator(&self) -> Option<Wish> {
        let wish = |host: &String| Wish { hosts: host.clone(), count: None, at_least: None };
        self.coordinator.as_ref().map(wish)
    }
}

/// Reads the table `qos`. Without `policy` none is in force, whatever the hosts.
pub(super) fn wish(table: Map<String, Value>) -> Result<Option<PolicyWish>, PlanError> {
    let known = ["policy", "hosts", "coordinator"];
    if let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) {
        let expected = "unknown key; expected policy, hosts or coordinator";
        return Err(PlanError::of_key(&format!("qos.{unknown}"), expected));
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
    let coordinator = match table.get("coordinator") {
        None => None,
        Some(Value::String(host)) if !host.trim().is_empty() => Some(host.trim().to_owned()),
        Some(_) => return Err(wrong("coordinator", "expected the name of one host, as in \"server\"")),
    };
    match table.get("policy") {
        None => Ok(None),
        Some(Value::String(policy)) if !policy.trim().is_empty() => {
            Ok(Some(PolicyWish { policy: policy.clone(), hosts, coordinator }))
        }
        Some(_) => Err(wrong("policy", "expected the file of a policy, as in \"qos/robots.toml\"")),
    }
}
