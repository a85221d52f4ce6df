//! This machine, and the agents that join at the endpoint of `--fleet`.

use std::path::Path;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::error::{ApiError, ApiResult};
use crate::json::Json;
use crate::program::words;

/// How long agents have to join.
const WAIT_S: u64 = 5;
const LIST_WITHIN: Duration = Duration::from_secs(30);

pub async fn list(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    refresh(&app).await;
    let is_used = app.jobs.snapshot().iter().any(|job| job.state.is_active() && job.targets.uses_fleet());
    match app.agents.problem() {
        // While a run listens for them, no other process can.
        Some(problem) if !is_used => {
            Err(ApiError::new(StatusCode::BAD_GATEWAY, format!("the agents cannot be listed: {problem}")))
        }
        _ => Ok(Json(known(&app))),
    }
}

/// Lists the agents, unless they were listed just now, or a run uses them.
async fn refresh(app: &App) {
    if app.fleet.is_empty() || app.agents.are_fresh() {
        return;
    }
    // Another request may be listing them.
    let _listing = app.agents.listing.lock().await;
    if app.agents.are_fresh() {
        return;
    }
    // Only one process can listen for them.
    let Some(_lock) = app.jobs.lock_fleet() else { return };
    let mut words = words!["fleet", "list", "--json", format!("--wait={WAIT_S}s")].to_vec();
    words.extend(app.fleet.iter().cloned());
    let listed = app.program.json(&words, LIST_WITHIN).await;
    let agents = listed.map(|document| document["agents"].as_array().cloned().unwrap_or_default());
    app.agents.update(agents.map_err(|error| error.message));
}

/// This machine and the agents, as they were last seen.
fn known(app: &App) -> Value {
    let jobs = app.jobs.snapshot();
    let active: Vec<_> = jobs.iter().filter(|job| job.state.is_active()).collect();
    let own = active.iter().find(|job| job.targets.is_here).map(|job| &job.id);
    let host = sys::environment::describe(Path::new("/"));
    let mut all = vec![json!({
        "name": app.host_name,
        "is_this": true,
        "address": null,
        "state": state(true, own.is_some()),
        "version": app.version,
        "cores": host.cpus,
        "kernel": host.kernel_release,
        "clock_offset_us": 0,
        "clock_bound_us": 0,
        "running": own,
    })];
    all.extend(app.agents.all().iter().map(|agent| {
        let about = &agent.description;
        let uses = |name: &String| about["name"] == name.as_str();
        let named = active.iter().find(|job| job.targets.hosts.iter().any(uses));
        // A job of any agents uses those that are there.
        let any = active.iter().find(|job| job.targets.is_any && agent.is_present);
        let running = named.or(any);
        let is_busy = running.is_some() || !about["busy"].is_null();
        json!({
            "name": about["name"],
            "is_this": false,
            "address": about["address"],
            "state": state(agent.is_present || named.is_some(), is_busy),
            "version": about["kagiri"],
            "cores": null,
            "kernel": about["kernel"],
            "clock_offset_us": about["clock_offset_ns"].as_f64().map(|ns| ns / 1e3),
            "clock_bound_us": about["clock_bound_us"],
            "running": running.map(|job| &job.id),
        })
    }));
    Value::Array(all)
}

fn state(is_present: bool, is_busy: bool) -> &'static str {
    match (is_present, is_busy) {
        (false, _) => "lost",
        (true, true) => "busy",
        (true, false) => "free",
    }
}
