//! Policies of `kagiri qos`: judged, applied, shown, ended.

mod folders;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sys::netlink::NamespaceId;

use crate::app::{App, Shared, blocking, change};
use crate::detached;
use crate::error::{ApiError, ApiResult, read};
use crate::jobs::{Process, make_folder, write};
use crate::json::Json;
use crate::program::words;

const WITHIN: Duration = Duration::from_secs(20);
const APPLY_WITHIN: Duration = Duration::from_secs(15);
const END_WITHIN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
const LENGTH_S_MAX: u64 = 7 * 24 * 3600;

async fn status(app: &App) -> ApiResult<Value> {
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
    judged(&app, policy.toml).await.map(Json)
}

/// The document of `kagiri qos check`.
async fn judged(app: &App, toml: String) -> ApiResult<Value> {
    let folder = app.folder.clone();
    let file = blocking(move || {
        let write = || {
            let mut file = tempfile::Builder::new().prefix("policy-").suffix(".toml").tempfile_in(&folder)?;
            file.write_all(toml.as_bytes())?;
            Ok(file)
        };
        write().map_err(|error: std::io::Error| ApiError::not_written("cannot write the policy", &error))
    })
    .await?;
    let judged = app.program.json(&words!["qos", "check", "--json", file.path()], WITHIN).await;
    judged.map_err(|error| of_text(error, file.path()))
}

/// An error about a policy's file, for a user who wrote a text and not this file.
fn of_text(mut error: ApiError, file: &Path) -> ApiError {
    let name = file.display();
    // `FILE:LINE: what is wrong`, or `FILE: KEY: what is wrong`.
    error.message = error.message.replace(&format!("{name}: "), "").replace(&format!("{name}:"), "line ");
    error.field = Some("toml".to_owned());
    error
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Applied {
    toml: String,
    for_s: Option<u64>,
    /// End the policy that is in force on the same interface.
    #[serde(default)]
    replace: bool,
    /// The process of the policy that the caller knows to be in force there, and replaces.
    replaces: Option<i64>,
    /// Although a job measures on this machine.
    #[serde(default)]
    while_measuring: bool,
}

pub async fn apply(State(app): State<Shared>, body: Bytes) -> ApiResult<Response> {
    let asked: Applied = read(&body)?;
    if asked.for_s.is_some_and(|s| s == 0 || s > LENGTH_S_MAX) {
        return Err(ApiError::invalid("write 1 s to 7 days (604800), or null", Some("for_s")));
    }
    let started = change(app, |app| replace(app, asked)).await?;
    Ok((StatusCode::CREATED, Json(started)).into_response())
}

async fn replace(app: Shared, asked: Applied) -> ApiResult<Value> {
    app.check_not_measuring(asked.while_measuring)?;
    // Without root it fails here, before anything is made.
    let all = status(&app).await?;
    let checked = judged(&app, asked.toml.clone()).await?;
    let interface = checked["bottleneck"]["interface"].as_str().unwrap_or_default();
    let before = in_force(&all, interface, None)?;
    if before.is_some() && !asked.replace {
        return Err(ApiError::conflict(format!(
            "a policy is in force on {interface}; end it first, or replace it (\"replace\": true)"
        )));
    }
    if let Some((known, found)) = asked.replaces.zip(before)
        && known != i64::from(found.pid)
    {
        return Err(ApiError::conflict(format!(
            "another policy was put in force on {interface} meanwhile; look at it before you replace it"
        )));
    }
    if let Some(process) = before {
        blocking(move || detached::end(process, END_WITHIN)).await?;
    }
    start(&app, asked).await.map_err(|mut error| {
        if before.is_some() {
            error.message += "; the policy that was in force has ended";
        }
        error
    })
}

/// Starts the process that enforces a policy. Returns once it is in force.
async fn start(app: &App, asked: Applied) -> ApiResult<Value> {
    let id = store::new_run_id(Timestamp::now(), sys::random::number());
    let all = app.folder.join("qos");
    let folder = all.join(&id);
    let file = folder.join("policy.toml");
    let mut words = words!["qos", "run", "--json", &file].to_vec();
    words.extend(asked.for_s.map(|s| format!("--for={s}s").into()));
    let (program, own) = (app.program.clone(), folder.clone());
    let started = blocking(move || {
        folders::remove_ended(&all);
        make_folder(&own)
            .and_then(|()| write(&own.join("policy.toml"), asked.toml.as_bytes()))
            .map_err(|error| ApiError::not_written("cannot write the policy", &error))?;
        let process = detached::start(&program, &words, &own)?;
        folders::note(&own, process).map(|()| process).inspect_err(|_| {
            // Its folder would look like that of an ended policy.
            let _ = detached::end(process, END_WITHIN);
        })
    });
    let in_force = match started.await {
        Ok(process) => until_in_force(app, process).await,
        Err(error) => Err(error),
    };
    match in_force {
        Ok(Some(interface)) => Ok(json!({ "id": id, "interface": interface })),
        Ok(None) => {
            let problem = of_text(detached::problem(&folder), &file);
            folders::remove(&folder);
            Err(problem)
        }
        Err(error) => {
            folders::remove(&folder);
            Err(error)
        }
    }
}

/// Waits until a process enforces its policy. `None`: it has ended without.
/// Errors: it takes too long; then the process is ended.
async fn until_in_force(app: &App, process: Process) -> ApiResult<Option<Value>> {
    let deadline = tokio::time::Instant::now() + APPLY_WITHIN;
    let mut problem = format!("the policy was not in force within {} s", APPLY_WITHIN.as_secs());
    while tokio::time::Instant::now() < deadline {
        let is_running = process.is_running();
        match status(app).await {
            Ok(all) => {
                let mut policies = all["policies"].as_array().into_iter().flatten();
                if let Some(own) = policies.find(|one| one["pid"] == process.pid) {
                    return Ok(Some(own["status"]["interface"].clone()));
                }
            }
            Err(error) => problem = error.message,
        }
        if !is_running {
            return Ok(None);
        }
        tokio::time::sleep(POLL).await;
    }
    blocking(move || detached::end(process, END_WITHIN)).await?;
    Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, problem))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cleared {
    interface: String,
    /// The process that enforces it; hosts of labs have interfaces of the same name.
    pid: Option<i64>,
}

pub async fn clear(State(app): State<Shared>, body: Bytes) -> ApiResult<Json<Value>> {
    let asked: Cleared = read(&body)?;
    change(app, |app| clear_one(app, asked)).await
}

async fn clear_one(app: Shared, asked: Cleared) -> ApiResult<Json<Value>> {
    let all = status(&app).await?;
    let process = in_force(&all, &asked.interface, asked.pid)?.ok_or_else(|| {
        ApiError::not_found(format!("no policy is in force on {}; it may have ended", asked.interface))
    })?;
    blocking(move || detached::end(process, END_WITHIN)).await?;
    Ok(Json(json!({ "interface": asked.interface })))
}

/// The process that enforces a policy on an interface of this network namespace; with `pid`, of any.
fn in_force(all: &Value, interface: &str, pid: Option<i64>) -> ApiResult<Option<Process>> {
    let own = NamespaceId::of_this_thread()
        .map_err(|error| ApiError::internal(format!("cannot name the network namespace: {error}")))?
        .inode();
    Ok(find(all, interface, pid, own))
}

fn find(all: &Value, interface: &str, pid: Option<i64>, namespace: u64) -> Option<Process> {
    let is_meant = |record: &&Value| match pid {
        Some(pid) => record["pid"] == pid,
        None => record["namespace"] == namespace,
    };
    let mut policies = all["policies"].as_array()?.iter();
    let record = policies.find(|one| one["status"]["interface"] == interface && is_meant(one))?;
    let pid = i32::try_from(record["pid"].as_i64()?).ok()?;
    Some(Process { pid, start_ticks: record["start_ticks"].as_u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_of_another_namespace_is_found_by_its_process_only() {
        let record = |pid: i32, namespace: u64| {
            let status = json!({ "interface": "eth0" });
            json!({ "pid": pid, "start_ticks": 7, "namespace": namespace, "status": status })
        };
        let all = json!({ "policies": [record(10, 1), record(11, 2)] });
        let pid = |interface: &str, pid: Option<i64>, namespace: u64| {
            find(&all, interface, pid, namespace).map(|process| process.pid)
        };
        assert_eq!(pid("eth0", None, 2), Some(11));
        assert_eq!(pid("eth0", None, 3), None);
        assert_eq!(pid("eth0", Some(10), 3), Some(10));
        assert_eq!(pid("eth1", Some(10), 1), None);
    }

    #[test]
    fn errors_are_about_the_text_and_not_its_file() {
        let message = |text: &str| {
            let error = ApiError::invalid(text, None);
            of_text(error, Path::new("/d/policy.toml")).message
        };
        assert_eq!(message("/d/policy.toml:8: targett: unknown"), "line 8: targett: unknown");
        let interface = "/d/policy.toml: bottleneck.interface: this host has no interface \"x\"";
        assert_eq!(message(interface), "bottleneck.interface: this host has no interface \"x\"");
    }
}
