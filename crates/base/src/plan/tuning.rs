//! Settings of the kernel's network that a variant is measured with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::policy;
use crate::near;
use crate::placement::Wish;
use crate::plan_error::PlanError;

/// Settings, and the hosts that have them meanwhile. The sockets of these hosts are watched; without
/// settings, that is all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TuningWish {
    /// Values by name, as `kagiri tune set` takes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Names or patterns of hosts; empty: this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl TuningWish {
    pub fn hosts(&self) -> Wish {
        policy::wish_of(&self.hosts)
    }
}

/// Reads the table `tune`; `None` for an empty one.
pub(super) fn wish(table: Map<String, Value>) -> Result<Option<TuningWish>, PlanError> {
    let known = ["settings", "hosts"];
    if let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(PlanError::of_key(&format!("tune.{unknown}"), near::unknown_key(unknown, &known, "")));
    }
    if table.is_empty() {
        return Ok(None);
    }
    let hosts = policy::read_hosts("tune.hosts", table.get("hosts"))?;
    let expected = "expected a table of names and values, as in { tcp_wmem = \"4096 16384 8MiB\" }";
    let settings = match table.get("settings") {
        None => BTreeMap::new(),
        Some(Value::Object(settings)) => settings
            .iter()
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name.clone(), text.clone())),
                Value::Number(number) => Ok((name.clone(), number.to_string())),
                // `net.ipv4.tcp_sack` without quotes is a table in a table.
                _ => Err(PlanError::of_key(
                    &format!("tune.settings.{name}"),
                    "expected a text or a number; write a name with dots in quotes, or its last part alone",
                )),
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(PlanError::of_key("tune.settings", expected)),
    };
    Ok(Some(TuningWish { settings, hosts }))
}
