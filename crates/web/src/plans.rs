//! The ready plans, with the labs and policies that they name.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

include!(concat!(env!("OUT_DIR"), "/plans.rs"));

/// A ready plan: a file of the folder itself that names a workload.
pub struct ReadyPlan {
    pub name: &'static str,
    pub toml: &'static str,
    pub table: Map<String, Value>,
}

pub fn ready() -> impl Iterator<Item = ReadyPlan> {
    FILES.iter().filter(|(name, _)| !name.contains('/')).filter_map(|(name, toml)| {
        let table: Map<String, Value> = toml::from_str(toml).ok()?;
        table.contains_key("workload").then_some(())?;
        Some(ReadyPlan { name: name.strip_suffix(".toml")?, toml, table })
    })
}

/// The comment at the top of a plan, as one line.
pub fn about(toml: &str) -> String {
    let comment = toml.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    comment.collect::<Vec<_>>().join(" ")
}

/// Writes the labs and policies that a plan names by their paths among the ready plans into its folder.
pub fn write_companions(text: &str, folder: &Path) -> io::Result<()> {
    for (name, content) in FILES.iter().filter(|(name, _)| name.contains('/') && text.contains(name)) {
        let path = folder.join(name);
        if !path.exists() {
            std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
            std::fs::write(path, content)?;
        }
    }
    Ok(())
}

/// Every companion, for plans that are only checked.
pub fn write_all_companions(folder: &Path) -> io::Result<()> {
    let all: String = FILES.iter().map(|(name, _)| *name).collect();
    write_companions(&all, folder)
}

/// A plan's keys as TOML. What is `null` is left out: TOML has no null.
/// Errors: it cannot be written as TOML.
pub fn to_toml(plan: &Value) -> Result<String, String> {
    toml::to_string(&without_nulls(plan))
        .map_err(|error| format!("the plan cannot be written as TOML: {error}"))
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(all) => all.iter().filter(|one| !one.is_null()).map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ready_plans_have_names_and_their_companions() {
        let names: Vec<&str> = ready().map(|plan| plan.name).collect();
        assert!(names.contains(&"exchange-cliff") && names.len() > 10, "{names:?}");
        let folder = tempfile::tempdir().unwrap();
        let plan = ready().find(|plan| plan.name == "exchange-cliff").unwrap();
        assert!(about(plan.toml).starts_with("How many robots"), "{}", about(plan.toml));
        write_companions(plan.toml, folder.path()).unwrap();
        assert!(folder.path().join("labs/robots.toml").is_file());
        assert!(!folder.path().join("labs/two-pcs.toml").exists());
    }

    #[test]
    fn plan_becomes_toml_and_back() {
        let plan = json!({"name": "n", "workload": "transfer", "transfer": {"time": "1s", "host": null},
            "variant": [{"name": "a", "transfer": {"flows": 2}}], "repeats": 3});
        let text = to_toml(&plan).unwrap();
        let back: Value = toml::from_str(&text).unwrap();
        assert_eq!(back, without_nulls(&plan), "{text}");
    }
}
