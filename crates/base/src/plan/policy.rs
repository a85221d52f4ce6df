//! The policy of `kagiri qos` that a variant is measured under.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::near;
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
        wish_of(&self.hosts)
    }

    pub fn coordinator(&self) -> Option<Wish> {
        let wish = |host: &String| Wish { hosts: host.clone(), count: None, at_least: None };
        self.coordinator.as_ref().map(wish)
    }
}

/// These hosts, or this one.
pub(super) fn wish_of(hosts: &[String]) -> Wish {
    let hosts = if hosts.is_empty() { HERE.to_owned() } else { hosts.join(", ") };
    Wish { hosts, count: None, at_least: None }
}

/// Reads a host or a list of hosts; `key` is for messages.
pub(super) fn read_hosts(key: &str, value: Option<&Value>) -> Result<Vec<String>, PlanError> {
    let hosts: Vec<String> = match value.cloned() {
        None => Vec::new(),
        Some(Value::String(host)) => vec![host],
        Some(hosts) => serde_json::from_value(hosts).map_err(|_| {
            PlanError::of_key(key, "expected a list of hosts, as in [\"robot-*\", \"background\"]")
        })?,
    };
    if hosts.iter().any(|host| host.trim().is_empty()) {
        return Err(PlanError::of_key(key, "a host has no name"));
    }
    Ok(hosts)
}

/// Reads the table `qos`. Without `policy` none is in force, whatever the hosts.
pub(super) fn wish(table: Map<String, Value>) -> Result<Option<PolicyWish>, PlanError> {
    let known = ["policy", "hosts", "coordinator"];
    if let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(PlanError::of_key(&format!("qos.{unknown}"), near::unknown_key(unknown, &known, "")));
    }
    let hosts = read_hosts("qos.hosts", table.get("hosts"))?;
    let coordinator = match table.get("coordinator") {
        None => None,
        Some(Value::String(host)) if !host.trim().is_empty() => Some(host.trim().to_owned()),
        Some(_) => {
            let expected = "expected the name of one host, as in \"server\"";
            return Err(PlanError::of_key("qos.coordinator", expected));
        }
    };
    match table.get("policy") {
        None => Ok(None),
        Some(Value::String(policy)) if !policy.trim().is_empty() => {
            Ok(Some(PolicyWish { policy: policy.clone(), hosts, coordinator }))
        }
        Some(_) => {
            let expected = "expected the file of a policy, as in \"qos/robots.toml\"";
            Err(PlanError::of_key("qos.policy", expected))
        }
    }
}
