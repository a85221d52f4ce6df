//! Workloads, ready plans, and the check of a plan.

use axum::body::Bytes;
use axum::extract::State;
use base::format;
use base::metric::MetricSpec;
use run::registry::BUILT_IN;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::{App, Shared, blocking};
use crate::config::{CheckedPlan, PlanProblem};
use crate::error::{ApiError, ApiResult, read};
use crate::json::Json;
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

/// The ready plans never change, so that they are listed once.
pub async fn list(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let known = app.clone();
    let all = blocking(move || Ok(known.ready_plans.get_or_init(|| ready_plans(&known)).clone()));
    all.await.map(Json)
}

fn ready_plans(app: &App) -> Value {
    let one = |plan: plans::ReadyPlan| {
        let has = |key: &str| plan.toml.lines().any(|line| line.trim_start().starts_with(key));
        let length = app.commands.plan_length(plan.toml).ok();
        json!({
            "name": plan.name,
            "title": plan.table.get("name").and_then(Value::as_str).unwrap_or(plan.name),
            "workload": plan.table["workload"],
            "about": plans::about(plan.toml),
            "needs_root": has("lab") || has("[qos") || has("[tune"),
            "cost_s": length.as_ref().and_then(|length| length.s),
            "cost_short": length.as_ref().and_then(|length| length.s).map(format::duration_rounded_up),
            "cost_words": length.as_ref().map(|length| &length.words),
            "toml": plan.toml,
        })
    };
    plans::ready().map(one).collect()
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
    let check = move || {
        let checked = commands.check_plan(&text, &folder).and_then(|plan| match is_title(&plan.name) {
            true => Ok(plan),
            false => {
                Err(PlanProblem { message: NO_TITLE.to_owned(), field: Some("name".to_owned()), line: None })
            }
        });
        Ok((checked, text))
    };
    blocking(check).await
}

pub const NO_TITLE: &str = "write at most 200 bytes, without line breaks";

/// Whether a name fits into lists and headings.
pub fn is_title(name: &str) -> bool {
    name.len() <= 200 && !name.contains(char::is_control)
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
        "cost_s": checked.and_then(|plan| plan.length.s),
        "cost_words": checked.map(|plan| &plan.length.words),
        "needs_root": checked.map(|plan| plan.needs_root),
        "targets": checked.map(|plan| plan.targets.names(&app.host_name)),
    })
}

fn error(problem: &PlanProblem) -> Value {
    json!({ "message": problem.message, "field": problem.field, "line": problem.line })
}
