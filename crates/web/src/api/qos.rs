//! Policies of `kagiri qos`: judged, applied, shown, ended.

use std::io::Write;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{Shared, blocking};
use crate::detached;
use crate::error::{ApiError, ApiResult, read};
use crate::jobs::{Process, make_folder, write};
use crate::program::words;

const WITHIN: Duration = Duration::from_secs(20);
const APPLY_WITHIN: Duration = Duration::from_secs(15);
const END_WITHIN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
const LENGTH_S_MAX: u64 = 7 * 24 * 3600;

async fn status(app: &Shared) -> ApiResult<Value> {
    app.program.json(&words!["qos", "status", "--json"], WITHIN).await
}

pub async fn show(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    status(&app).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    toml: String,
}

pub async fn check(State(app): State<Shared>, body: Bytes) -> ApiResult<Json<Value>> {
    let policy: Policy = read(&body)?;
    let folder = app.folder.clone();
    let file = blocking(move || {
        let write = || {
            let mut file = tempfile::Builder::new().prefix("policy-").suffix(".toml").tempfile_in(&folder)?;
            file.write_all(policy.toml.as_bytes())?;
            Ok(file)
        };
        write()
            .map_err(|error: std::io::Error| ApiError::internal(format!("cannot write the policy: {error}")))
    })
    .await?;
    let judged = app.program.json(&words!["qos", "check", "--json", file.path()], WITHIN).await;
    judged.map(Json).map_err(|mut error| {
        // Its user wrote a text, not this file.
        error.message = error.message.replace(&format!("{}:", file.path().display()), "line ");
        error.field = Some("toml".to_owned());
        error
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Applied {
    toml: String,
    for_s: Option<u64>,
}

pub async fn apply(State(app): State<Shared>, body: Bytes) -> ApiResult<Response> {
    let asked: Applied = read(&body)?;
    if asked.for_s.is_some_and(|s| s == 0 || s > LENGTH_S_MAX) {
        return Err(ApiError::invalid("write 1 s to 7 days (604800), or null", Some("for_s")));
    }
    // Without root it fails here, before anything is made.
    status(&app).await?;
    let id = store::new_run_id(Timestamp::now(), sys::random::number());
    let folder = app.folder.join("qos").join(&id);
    let (file, program) = (folder.join("policy.toml"), app.program.clone());
    let mut words = words!["qos", "run", "--json", &file].to_vec();
    words.extend(asked.for_s.map(|s| format!("--for={s}s").into()));
    let process = {
        let folder = folder.clone();
        blocking(move || {
            make_folder(&folder)
                .and_then(|()| write(&file, asked.toml.as_bytes()))
                .map_err(|error| ApiError::internal(format!("cannot write the policy: {error}")))?;
            detached::start(&program, &words, &folder)
        })
        .await?
    };
    match until_in_force(&app, process).await? {
        Some(interface) => {
            Ok((StatusCode::CREATED, Json(json!({ "id": id, "interface": interface }))).into_response())
        }
        None => {
            let mut problem = detached::problem(&folder);
            let file = format!("{}:", folder.join("policy.toml").display());
            problem.message = problem.message.replace(&file, "line ");
            // It may be there no more.
            let _ = std::fs::remove_dir_all(&folder);
            Err(problem)
        }
    }
}

/// Waits until a process enforces its policy. `None`: it has ended without.
async fn until_in_force(app: &Shared, process: Process) -> ApiResult<Option<Value>> {
    let deadline = tokio::time::Instant::now() + APPLY_WITHIN;
    while tokio::time::Instant::now() < deadline {
        let is_running = process.is_running();
        let all = status(app).await?;
        let own = all["policies"].as_array().into_iter().flatten().find(|one| one["pid"] == process.pid);
        if let Some(own) = own {
            return Ok(Some(own["status"]["interface"].clone()));
        }
        if !is_running {
            return Ok(None);
        }
        tokio::time::sleep(POLL).await;
    }
    let message = format!("the policy was not in force within {} s", APPLY_WITHIN.as_secs());
    Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, message))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cleared {
    interface: String,
}

pub async fn clear(State(app): State<Shared>, body: Bytes) -> ApiResult<Json<Value>> {
    let asked: Cleared = read(&body)?;
    let all = status(&app).await?;
    let mut policies = all["policies"].as_array().into_iter().flatten();
    let found = policies.find(|one| one["status"]["interface"] == asked.interface.as_str());
    let process = found.and_then(|record| {
        let pid = i32::try_from(record["pid"].as_i64()?).ok()?;
        Some(Process { pid, start_ticks: record["start_ticks"].as_u64()? })
    });
    let Some(process) = process else {
        return Err(ApiError::not_found(format!("no policy is in force on {}", asked.interface)));
    };
    blocking(move || detached::end(process, END_WITHIN)).await?;
    Ok(Json(json!({ "interface": asked.interface })))
}
