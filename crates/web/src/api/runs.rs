//! Stored runs.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use report::terminal::Entry;
use run::registry::BUILT_IN;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Annotation, Filter, RunSummary, StoreError};

use crate::app::{Shared, failed};
use crate::error::{ApiError, ApiResult, read};
use crate::json::Json;
use crate::program::words;
use crate::report_answer;

const LIMIT: usize = 50;
const LIMIT_MAX: usize = 500;
const WORDS_BYTES_MAX: usize = 200;
const DOCUMENT_WITHIN: Duration = Duration::from_secs(120);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Wanted {
    q: Option<String>,
    tag: Option<String>,
    workload: Option<String>,
    limit: Option<usize>,
    before: Option<String>,
}

impl Wanted {
    fn matches(&self, run: &RunSummary, annotation: &Annotation) -> bool {
        let has_tag = |tag: &String| annotation.tags.contains(tag);
        let is_meant = |word: &str| {
            let texts = [&run.run, &run.name, &annotation.note].into_iter().chain(&annotation.tags);
            texts.into_iter().any(|text| text.to_lowercase().contains(word))
        };
        let q = self.q.as_deref().unwrap_or_default().to_lowercase();
        let is_named = |workload: &String| *workload == run.workload;
        self.tag.as_ref().filter(|tag| !tag.is_empty()).is_none_or(has_tag)
            && self.workload.as_ref().filter(|name| !name.is_empty()).is_none_or(is_named)
            && q.split_whitespace().all(is_meant)
    }
}

/// The last run of a page. It may have been deleted when the next page is asked for.
struct Before {
    began: Timestamp,
    id: String,
}

impl Before {
    fn text(last: &RunSummary) -> String {
        format!("{}@{}", last.started_at.as_microsecond(), last.run)
    }

    fn read(text: &str) -> ApiResult<Self> {
        let parts = text.split_once('@').and_then(|(at, id)| {
            let began = Timestamp::from_microsecond(at.parse().ok()?).ok()?;
            Some(Self { began, id: id.to_owned() })
        });
        parts.ok_or_else(|| {
            ApiError::invalid("write the 'next' of another page, or leave it out", Some("before"))
        })
    }

    /// In the order of the list: newest first.
    fn is_after(&self, run: &RunSummary) -> bool {
        (run.started_at, &run.run) < (self.began, &self.id)
    }
}

pub async fn list(State(app): State<Shared>, Query(wanted): Query<Wanted>) -> ApiResult<Json<Value>> {
    if wanted.q.as_ref().is_some_and(|q| q.len() > WORDS_BYTES_MAX) {
        return Err(ApiError::invalid(format!("write at most {WORDS_BYTES_MAX} bytes"), Some("q")));
    }
    let limit = wanted.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    let before = wanted.before.as_deref().map(Before::read).transpose()?;
    let listed = app.with_store(move |store| {
        let annotations = store.annotations()?;
        let none = Annotation::default();
        let of = |run: &RunSummary| annotations.get(&run.run).unwrap_or(&none);
        let all = store.list(&Filter::default())?;
        let is_older = |run: &RunSummary| before.as_ref().is_none_or(|before| before.is_after(run));
        let is_wanted = |run: &&RunSummary| is_older(run) && wanted.matches(run, of(run));
        let mut found = all.iter().filter(is_wanted).cloned();
        let mut page: Vec<RunSummary> = found.by_ref().take(limit).collect();
        let next = found.next().and(page.last().map(Before::text));
        for run in &mut page {
            run::recover::complete_summary(store, run, &BUILT_IN)?;
        }
        let runs: Vec<Value> = page.iter().map(|run| entry(run, of(run))).collect();
        Ok(json!({ "runs": runs, "next": next }))
    });
    listed.await.map(Json)
}

fn entry(run: &RunSummary, annotation: &Annotation) -> Value {
    let shown = Entry::from(run);
    json!({
        "id": run.run,
        "name": run.name,
        "workload": run.workload,
        "began": run.started_at.to_string(),
        "ended": run.ended_at.map(|at| at.to_string()),
        "state": run.state,
        "answer": shown.result,
        "limit": shown.limit,
        "trials": run.trials,
        "tags": annotation.tags,
        "note": annotation.note,
        "summary": run,
    })
}

/// All tags that runs have.
pub async fn tags(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let tags = app.with_store(|store| {
        let all = store.annotations()?;
        let tags: BTreeSet<String> = all.into_values().flat_map(|annotation| annotation.tags).collect();
        Ok(json!(tags))
    });
    tags.await.map(Json)
}

/// The id of a stored run; nothing else names one here: `last` would mean another run soon.
async fn known(app: &Shared, id: String) -> ApiResult<String> {
    app.with_store(move |store| {
        store.check_known(&id)?;
        Ok(id)
    })
    .await
}

pub async fn show(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<Response> {
    let id = known(&app, id).await?;
    let body = app.program.stream(&words!["runs", "show", "--json", "--", id], DOCUMENT_WITHIN).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    tags: Option<Vec<String>>,
    note: Option<String>,
}

pub async fn annotate(
    State(app): State<Shared>,
    Path(id): Path<String>,
    body: Bytes,
) -> ApiResult<Json<Value>> {
    let change: Change = read(&body)?;
    let changed = app.with_store(move |store| {
        let before = store.annotations()?.remove(&id).unwrap_or_default();
        let tags = change.tags.unwrap_or(before.tags);
        let note = change.note.unwrap_or(before.note);
        let annotation = Annotation::checked(&tags, &note).map_err(|why| ApiError::invalid(why, None))?;
        store.annotate(&id, &annotation)?;
        Ok(json!(annotation))
    });
    changed.await.map(Json)
}

pub async fn remove(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<StatusCode> {
    let id = known(&app, id).await?;
    let name = id.clone();
    app.with_store(move |store| match store.measured_now()?.into_iter().find(|(run, _)| *run == name) {
        Some((run, pid)) => Err(StoreError::Measured { run, pid }.into()),
        None => Ok(()),
    })
    .await?;
    // It removes the report, too, and is done to its end even if its client leaves.
    let removed =
        tokio::spawn(async move { app.program.text(&words!["runs", "rm", "--", id], DOCUMENT_WITHIN).await });
    removed.await.unwrap_or_else(|_| Err(failed())).map(|_| StatusCode::NO_CONTENT)
}

pub async fn report(State(app): State<Shared>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let page = async {
        let id = known(&app, id).await?;
        app.program.stream(&words!["report", "--output", "-", "--", id], DOCUMENT_WITHIN).await
    };
    match page.await {
        Ok(body) => report_answer::framed(Html(body)),
        Err(error) => report_answer::problem(error, &headers),
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Form {
    format: Option<String>,
}

pub async fn export(
    State(app): State<Shared>,
    Path(id): Path<String>,
    Query(form): Query<Form>,
) -> ApiResult<Response> {
    let (format, kind, ending) = match form.format.as_deref() {
        None | Some("json") => ("json", "application/json", ".json"),
        Some("trials-csv") => ("trials-csv", "text/csv; charset=utf-8", "-trials.csv"),
        Some("series-csv") => ("series-csv", "text/csv; charset=utf-8", "-series.csv"),
        Some(_) => return Err(ApiError::invalid("write json, trials-csv or series-csv", Some("format"))),
    };
    let id = known(&app, id).await?;
    // An id has only letters, digits, '-', '_' and '.'.
    let file = format!("attachment; filename=\"{id}{ending}\"");
    let words = words!["runs", "export", "--format", format, "--", id];
    let body = app.program.stream(&words, DOCUMENT_WITHIN).await?;
    let headers = [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, file)];
    Ok((headers, body).into_response())
}

pub async fn plan(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<Json<Value>> {
    let toml = plan_text(&app, id).await?;
    Ok(Json(json!({ "toml": toml })))
}

/// The plan of a stored run as TOML.
/// Errors: there is no such run.
pub async fn plan_text(app: &Shared, id: String) -> ApiResult<String> {
    let id = known(app, id).await?;
    app.program.text(&words!["runs", "show", "--plan", "--", id], DOCUMENT_WITHIN).await
}

#[cfg(test)]
mod tests {
    use base::outcome::{Certainty, Resource, State};

    use super::*;

    fn summary(id: &str, began_s: i64) -> RunSummary {
        RunSummary {
            run: id.into(),
            name: "Two Servers".into(),
            workload: "stream".into(),
            state: State::Complete,
            started_at: Timestamp::from_second(began_s).unwrap(),
            ended_at: None,
            capacity: None,
            interval: [None; 2],
            unit: "streams".into(),
            finding: None,
            limit: Resource::None,
            certainty: Certainty::Unknown,
            trials: 1,
            is_evaluated: true,
        }
    }

    #[test]
    fn next_page_is_found_though_the_last_run_of_the_page_was_deleted() {
        let (old, deleted, young) = (summary("b", 5), summary("a", 6), summary("z", 6));
        let before = Before::read(&Before::text(&deleted)).unwrap();
        assert!(before.is_after(&old) && !before.is_after(&deleted) && !before.is_after(&young));
        for wrong in ["", "a", "x@a", "99999999999999999999@a"] {
            assert!(Before::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_of_a_search_are_all_found_in_name_id_note_or_tags() {
        let run = summary("20261127-1", 0);
        let annotation = Annotation { tags: vec!["night".into()], note: "after the Update".into() };
        let matches = |q: &str, tag: Option<&str>, workload: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            let wanted =
                Wanted { q: Some(q.into()), tag: own(tag), workload: own(workload), ..Wanted::default() };
            wanted.matches(&run, &annotation)
        };
        assert!(
            matches("", None, None) && matches("servers update NIGHT 1127", Some("night"), Some("stream"))
        );
        assert!(matches("", Some(""), Some("")));
        for (q, tag, workload) in
            [("servers other", None, None), ("", Some("nigh"), None), ("", None, Some("transfer"))]
        {
            assert!(!matches(q, tag, workload), "{q}");
        }
    }
}
