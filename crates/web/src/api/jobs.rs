//! Jobs: asked for, listed, stopped, removed.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::Annotation;

use super::plans::{answer, checked};
use crate::app::{Shared, blocking};
use crate::config::TuneOptions;
use crate::error::{ApiError, ApiResult, read};
use crate::jobs::{Kind, NewJob};
use crate::json::Json;
use crate::plans::to_toml;

const NAME_BYTES_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    toml: Option<String>,
    /// Instead of the plan's own.
    name: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    tune: Option<AskedTune>,
}

#[derive(Deserialize)]
struct AskedTune {
    toml: String,
    #[serde(flatten)]
    options: TuneOptions,
}

pub async fn list(State(app): State<Shared>) -> Json<Value> {
    Json(app.jobs.views().into())
}

pub async fn show(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<Json<Value>> {
    app.jobs.view(&id).map(Json)
}

pub async fn create(State(app): State<Shared>, body: Bytes) -> ApiResult<Response> {
    let Asked { toml, name, tags, tune } = read(&body)?;
    let (text, kind) = match (toml, tune) {
        (Some(text), None) => (text, Kind::Run),
        (None, Some(tune)) => (tune.toml, Kind::Tune(tune.options)),
        _ => return Err(ApiError::invalid("write either 'toml' or 'tune'", None)),
    };
    let annotation = Annotation::checked(&tags, "").map_err(|why| ApiError::invalid(why, Some("tags")))?;
    let text = match name.as_deref().map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => renamed(&text, name)?,
        None => text,
    };
    let (checked, text) = checked(&app, text).await?;
    let plan = match checked {
        Ok(plan) => plan,
        Err(problem) => {
            let mut body = answer(&app, &text, &Err(problem.clone()));
            body["error"] = json!({ "message": problem.message, "field": problem.field });
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response());
        }
    };
    if let Kind::Tune(options) = &kind {
        app.commands.check_tune(&text, options).map_err(|problem| {
            let field = problem.field.map(|field| format!("tune.{field}"));
            ApiError::invalid(problem.message, field.as_deref())
        })?;
    }
    if plan.targets.uses_fleet() && app.fleet.is_empty() {
        return Err(ApiError::invalid(
            "the plan uses other hosts, and this server does not know where they join; start it with --fleet \
             ENDPOINT (and --credentials DIR)",
            Some("place"),
        ));
    }
    let jobs = app.jobs.clone();
    let new = NewJob {
        kind,
        name: plan.name,
        workload: plan.workload,
        tags: annotation.tags,
        targets: plan.targets,
        toml: text,
    };
    let view = blocking(move || jobs.create(new)).await?;
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

/// A plan with another name. Its comments are lost if it has another one.
fn renamed(text: &str, name: &str) -> ApiResult<String> {
    if name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        let why = format!("write at most {NAME_BYTES_MAX} bytes, without line breaks");
        return Err(ApiError::invalid(why, Some("name")));
    }
    // What is no plan fails its check, with the line.
    let Ok(mut table) = toml::from_str::<Map<String, Value>>(text) else { return Ok(text.to_owned()) };
    if table.get("name").and_then(Value::as_str) == Some(name) {
        return Ok(text.to_owned());
    }
    table.insert("name".to_owned(), name.into());
    to_toml(&Value::Object(table)).map_err(|why| ApiError::invalid(why, Some("name")))
}

pub async fn stop(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<Response> {
    let jobs = app.jobs.clone();
    let view = blocking(move || jobs.stop(&id)).await?;
    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

pub async fn remove(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<StatusCode> {
    let jobs = app.jobs.clone();
    blocking(move || jobs.remove(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
