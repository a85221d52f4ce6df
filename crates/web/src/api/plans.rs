//! Workloads, ready plans, and the check of a plan.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use base::metric::MetricSpec;
use run::registry::BUILT_IN;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::{App, Shared, blocking};
use crate::config::{CheckedPlan, PlanProblem};
use crate::error::{ApiError, ApiResult, read};
use crate::plans;

pub async fn workloads(State(app): State<Shared>) -> Json<Value> {
    let metric = |spec: &MetricSpec| {
        let MetricSpec { name, unit, better, meaning } = spec;
        json!({ "name": name, "unit": unit, "better": better, "help": meaning })
    };
    let one = |workload: &&dyn workload::AnyWorkload| {
        let schema = workload.schema();
        let metrics: Vec<Value> = workload.metrics().iter().map(metric).collect();
        // Its unit may depend on the settings; this is that of the defaults.
        let unit =
            workload.resolve(&json!({})).and_then(|settings| Ok(workload.configure(&settings)?.load_unit()));
        json!({
            "name": workload.name(),
            "command": workload.command(),
            "summary": app.commands.summary(workload.command()),
            "load_unit": unit.ok(),
            "roles": workload.roles(),
            "metrics": metrics,
            "objectives": objectives(workload.metrics()),
            "schema": schema,
        })
    };
    Json(BUILT_IN.workloads().iter().map(one).collect())
}

/// Names that `require` of a plan takes: capacity, and every metric that can be better or worse.
fn objectives(metrics: &[MetricSpec]) -> Vec<&'static str> {
    let judged = metrics.iter().filter(|spec| spec.better != base::metric::Better::Neither);
    std::iter::once("capacity").chain(judged.map(|spec| spec.name)).collect()
}

pub async fn list() -> Json<Value> {
    let one = |plan: plans::ReadyPlan| {
        let has = |key: &str| plan.toml.lines().any(|line| line.trim_start().starts_with(key));
        json!({
            "name": plan.name,
            "title": plan.table.get("name").and_then(Value::as_str).unwrap_or(plan.name),
            "workload": plan.table["workload"],
            "about": plans::about(plan.toml),
            "needs_root": has("lab") || has("[qos") || has("[tune"),
            "toml": plan.toml,
        })
    };
    Json(plans::ready().map(one).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    toml: Option<String>,
    plan: Option<Map<String, Value>>,
}

pub async fn check(State(app): State<Shared>, body: Bytes) -> ApiResult<Json<Value>> {
    let text = match read(&body)? {
        Written { toml: Some(text), plan: None } => text,
        Written { toml: None, plan: Some(plan) } => plans::to_toml(&Value::Object(plan))
            .map_err(|problem| ApiError::invalid(problem, Some("plan")))?,
        _ => return Err(ApiError::invalid("write either 'toml' or 'plan'", None)),
    };
    let (checked, text) = checked(&app, text).await?;
    Ok(Json(answer(&app, &text, &checked)))
}

/// The check of a plan, and its text again.
pub async fn checked(app: &Shared, text: String) -> ApiResult<(Result<CheckedPlan, PlanProblem>, String)> {
    let (commands, folder) = (app.commands.clone(), app.folder.join("plans"));
    blocking(move || Ok((commands.check_plan(&text, &folder), text))).await
}

/// What the check says.
pub fn answer(app: &App, text: &str, checked: &Result<CheckedPlan, PlanProblem>) -> Value {
    let plan: Option<Value> = toml::from_str(text).ok();
    let (valid, errors) = match checked {
        Ok(_) => (true, Vec::new()),
        Err(problem) => (false, vec![error(problem)]),
    };
    let checked = checked.as_ref().ok();
    json!({
        "valid": valid,
        "errors": errors,
        "toml": text,
        "plan": plan,
        "name": checked.map(|plan| &plan.name),
        "workload": checked.map(|plan| &plan.workload),
        "cost_s": checked.and_then(|plan| plan.cost_s),
        "cost_words": checked.map(|plan| &plan.cost_words),
        "needs_root": checked.map(|plan| plan.needs_root),
        "targets": checked.map(|plan| plan.targets.names(&app.host_name)),
    })
}

fn error(problem: &PlanProblem) -> Value {
    json!({ "message": problem.message, "field": problem.field, "line": problem.line })
}
