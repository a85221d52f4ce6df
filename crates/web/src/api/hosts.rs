//! This machine, and the agents that join where the server was told.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::error::ApiResult;
use crate::jobs::State as JobState;
use crate::program::words;

/// A list that is not older is not made again.
const FRESH: Duration = Duration::from_secs(10);
/// How long agents have to join.
const WAIT_S: u64 = 5;
const LIST_WITHIN: Duration = Duration::from_secs(30);

/// The agents that were seen.
#[derive(Default)]
pub struct Agents {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    listed: Option<Instant>,
    /// Descriptions by `kagiri fleet list`, and whether the last list had them.
    agents: Vec<(Value, bool)>,
    problem: Option<String>,
}

impl Agents {
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.lock().agents.iter().filter(|(_, is_present)| *is_present).count()
    }

    /// This machine and the agents, as they were last seen.
    pub fn known(&self, app: &App) -> Value {
        let jobs = app.jobs.snapshot();
        let active: Vec<_> = jobs.iter().filter(|job| job.state.is_active()).collect();
        let own = active.iter().find(|job| job.targets.is_here).map(|job| &job.id);
        let host = sys::environment::describe(Path::new("/"));
        let state = |is_present: bool, is_busy: bool| match (is_present, is_busy) {
            (false, _) => "lost",
            (true, true) => "busy",
            (true, false) => "free",
        };
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
        let known = self.lock();
        all.extend(known.agents.iter().map(|(agent, is_present)| {
            let running = active.iter().find(|job| {
                job.targets.is_any || job.targets.hosts.iter().any(|name| agent["name"] == name.as_str())
            });
            json!({
                "name": agent["name"],
                "is_this": false,
                "address": agent["address"],
                "state": state(
                    *is_present || running.is_some(),
                    running.is_some() || !agent["busy"].is_null(),
                ),
                "version": agent["kagiri"],
                "cores": null,
                "kernel": agent["kernel"],
                "clock_offset_us": agent["clock_offset_ns"].as_f64().map(|ns| ns / 1e3),
                "clock_bound_us": agent["clock_bound_us"],
                "running": running.map(|job| &job.id),
            })
        }));
        Value::Array(all)
    }

    /// Lists the agents, unless they were listed just now, or a run uses them.
    async fn refresh(&self, app: &App) {
        let is_fresh = self.lock().listed.is_some_and(|at| at.elapsed() < FRESH);
        if app.fleet.is_empty() || is_fresh {
            return;
        }
        // Only one process can listen for them.
        let Some(_lock) = app.jobs.lock_fleet() else { return };
        let mut words = words!["fleet", "list", "--json", format!("--wait={WAIT_S}s")].to_vec();
        words.extend(app.fleet.iter().cloned());
        let listed = app.program.json(&words, LIST_WITHIN).await;
        let mut known = self.lock();
        known.listed = Some(Instant::now());
        match listed {
            Ok(document) => {
                known.problem = None;
                let present = document["agents"].as_array().cloned().unwrap_or_default();
                let is_there = |name: &Value| present.iter().any(|agent| agent["name"] == *name);
                let before = std::mem::take(&mut known.agents).into_iter().map(|(agent, _)| agent);
                let lost = before.filter(|agent| !is_there(&agent["name"])).map(|agent| (agent, false));
                let lost: Vec<_> = lost.collect();
                known.agents = present.into_iter().map(|agent| (agent, true)).chain(lost).collect();
            }
            Err(error) => known.problem = Some(error.message),
        }
    }
}

pub async fn list(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    app.agents.refresh(&app).await;
    // What keeps the list from being made is an error only of who asks for it.
    if let Some(problem) = app.agents.lock().problem.clone() {
        let busy =
            app.jobs.snapshot().iter().any(|job| job.state == JobState::Running && job.targets.uses_fleet());
        if !busy {
            return Err(crate::error::ApiError::new(
                http::StatusCode::BAD_GATEWAY,
                format!("the agents cannot be listed: {problem}"),
            ));
        }
    }
    Ok(Json(app.agents.known(&app)))
}
