//! Facts about this host and its user.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::exit::Failure;

/// The user's name from the environment.
pub fn user_name() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".to_owned())
}

pub fn host_name() -> Result<String, Failure> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim().to_lowercase();
    match name.is_empty() {
        true => Err(Failure::usage("this machine has no host name; choose one with --name")),
        false => Ok(name),
    }
}

/// Facts about this host, for stored runs.
pub fn environment() -> BTreeMap<String, Value> {
    let facts = serde_json::to_value(sys::environment::describe(Path::new("/")));
    facts.and_then(serde_json::from_value).expect("a host's facts are plain data")
}
