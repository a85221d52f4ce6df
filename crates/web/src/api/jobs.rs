//! Jobs: asked for, listed, stopped, removed.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::Annotation;

use super::plans::{NO_TITLE, answer, checked, is_title};
use super::runs;
use crate::app::{Shared, blocking};
use crate::config::{CheckedPlan, Targets, TuneOptions};
use crate::error::{ApiError, ApiResult, read};
use crate::jobs::{Kind, NewJob, PlanOf, Resume};
use crate::json::Json;
use crate::plans::to_toml;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    toml: Option<String>,
    /// Instead of the plan's own.
    name: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    tune: Option<AskedTune>,
    /// The id of a stored run that broke off.
    resume: Option<String>,
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

/// The plan of a job, also of one that failed before its run was stored.
pub async fn plan(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<Json<Value>> {
    let jobs = app.jobs.clone();
    let (plan, tune) = blocking(move || jobs.plan(&id)).await?;
    let toml = match plan {
        PlanOf::Job(toml) => toml,
        PlanOf::Run(run) => runs::plan_text(&app, run).await?,
    };
    Ok(Json(json!({ "toml": toml, "tune": tune })))
}

pub async fn create(State(app): State<Shared>, body: Bytes) -> ApiResult<Response> {
    let Asked { toml, name, tags, tune, resume } = read(&body)?;
    let tags = Annotation::checked(&tags, "").map_err(|why| ApiError::invalid(why, Some("tags")))?.tags;
    let name = name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let new = match (toml, tune, resume) {
        (Some(text), None, None) => of_plan(&app, Kind::Run, text, name, tags).await?,
        (None, Some(tune), None) => of_plan(&app, Kind::Tune(tune.options), tune.toml, name, tags).await?,
        (None, None, Some(_)) if name.is_some() => {
            return Err(ApiError::invalid(
                "a run that is continued keeps its name; leave it out",
                Some("name"),
            ));
        }
        (None, None, Some(run)) => Ok(of_broken_off(&app, run, tags).await?),
        _ => return Err(ApiError::invalid("write one of 'toml', 'tune' and 'resume'", None)),
    };
    let new = match new {
        Ok(new) => new,
        Err(refused) => return Ok((StatusCode::UNPROCESSABLE_ENTITY, Json(refused)).into_response()),
    };
    let jobs = app.jobs.clone();
    let view = blocking(move || jobs.create(new)).await?;
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

/// A job that measures a plan; the inner error is the answer about a plan that is not valid.
async fn of_plan(
    app: &Shared,
    kind: Kind,
    text: String,
    name: Option<&str>,
    tags: Vec<String>,
) -> ApiResult<Result<NewJob, Value>> {
    let text = match name {
        Some(name) => renamed(&text, name)?,
        None => text,
    };
    let (checked, text) = checked(app, text).await?;
    let plan = match checked {
        Ok(plan) => plan,
        Err(problem) => {
            let mut body = answer(app, &text, &Err(problem.clone()));
            body["error"] = json!({ "message": problem.message, "field": problem.field });
            return Ok(Err(body));
        }
    };
    if let Kind::Tune(options) = &kind {
        app.commands.check_tune(&text, options).map_err(|problem| {
            let field = problem.field.map(|field| format!("tune.{field}"));
            ApiError::invalid(problem.message, field.as_deref())
        })?;
    }
    check_fleet(app, &plan.targets)?;
    let mut new = new_job(kind, plan, tags, Some(text));
    // Settings are tried on this machine.
    new.targets.is_here |= matches!(new.kind, Kind::Tune(_));
    Ok(Ok(new))
}

/// A job that measures what is left of a stored run.
/// Errors: there is no such run, it is measured now or was to its end, or it cannot be continued here.
async fn of_broken_off(app: &Shared, run: String, tags: Vec<String>) -> ApiResult<NewJob> {
    let id = run.clone();
    let stored = app.with_store(move |store| {
        store.check_broken_off(&id)?;
        Ok(store.load_without_series(&id)?)
    });
    let stored = stored.await?;
    let commands = app.commands.clone();
    let checked = blocking(move || Ok(commands.check_stored(&stored))).await?;
    let plan = checked.map_err(|problem| ApiError::invalid(problem.message, Some("resume")))?;
    check_fleet(app, &plan.targets)?;
    let begun_by = app.jobs.that_began(&run);
    Ok(new_job(Kind::Resume(Resume { run, begun_by }), plan, tags, None))
}

fn new_job(kind: Kind, plan: CheckedPlan, tags: Vec<String>, toml: Option<String>) -> NewJob {
    NewJob { kind, name: plan.name, workload: plan.workload, tags, targets: plan.targets, toml }
}

/// Errors: other hosts take part, and it is not known where they join.
fn check_fleet(app: &Shared, targets: &Targets) -> ApiResult<()> {
    match targets.uses_fleet() && app.fleet.is_empty() {
        true => Err(ApiError::invalid(
            "the plan uses other hosts, and this server does not know where they join; start it with --fleet \
             ENDPOINT (and --credentials DIR)",
            Some("place"),
        )),
        false => Ok(()),
    }
}

/// A plan with another name. Its comments are lost if it has another one.
fn renamed(text: &str, name: &str) -> ApiResult<String> {
    if !is_title(name) {
        return Err(ApiError::invalid(NO_TITLE, Some("name")));
    }
    // What is no plan fails its check, with the line.
    let Ok(mut table) = toml::from_str::<Map<String, Value>>(text) else { return Ok(text.to_owned()) };
    if table.get("name").and_then(Value::as_str) == Some(name) {
        return Ok(text.to_owned());
    }
    table.insert("name".to_owned(), name.into());
    to_toml(&Value::Object(table)).map_err(|why| ApiError::invalid(why, Some("name")))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct AskedStop {
    /// End the process of a job that is stopping.
    #[serde(default)]
    at_once: bool,
}

pub async fn stop(State(app): State<Shared>, Path(id): Path<String>, body: Bytes) -> ApiResult<Response> {
    let asked: AskedStop = if body.is_empty() { AskedStop::default() } else { read(&body)? };
    let jobs = app.jobs.clone();
    let view = blocking(move || jobs.stop(&id, asked.at_once)).await?;
    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

pub async fn remove(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<StatusCode> {
    let jobs = app.jobs.clone();
    blocking(move || jobs.remove(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
