//! Settings of this host's kernel: listed, set for a time, kept, undone. `kagiri tune set` does it, with its
//! journal, its guardian and its timer; this server may end meanwhile.

mod records;

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::records::{Change, Records, Setting};
use crate::app::{App, Shared, blocking, change};
use crate::detached;
use crate::error::{ApiError, ApiResult, read};
use crate::jobs::Process;
use crate::json::Json;
use crate::program::words;

const LIST_WITHIN: Duration = Duration::from_secs(20);
const SET_WITHIN: Duration = Duration::from_secs(15);
const END_WITHIN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
const LENGTH_S_MAX: u64 = 7 * 24 * 3600;
/// The longest time that [`advise`] watches.
pub const ADVICE_S_MAX: u64 = 60;
const SETTINGS_MAX: usize = 50;

/// What `kagiri tune list --json` says.
async fn listed(app: &App) -> ApiResult<Value> {
    app.program.json(&words!["tune", "list", "--full", "--json"], LIST_WITHIN).await
}

pub async fn list(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    Ok(Json(listed(&app).await?["settings"].take()))
}

pub async fn applied(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    let running = listed(&app).await?["set"].take();
    let records = Records::new(&app.folder);
    let all = blocking(move || Ok(records.views(&running))).await?;
    Ok(Json(all.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    settings: Map<String, Value>,
    for_s: u64,
    /// Although a job measures on this machine.
    #[serde(default)]
    while_measuring: bool,
}

impl Asked {
    /// `NAME=VALUE` for the command line.
    fn assignments(&self) -> ApiResult<Vec<String>> {
        if self.settings.is_empty() || self.settings.len() > SETTINGS_MAX {
            return Err(ApiError::invalid(format!("name 1 to {SETTINGS_MAX} settings"), Some("settings")));
        }
        if self.for_s == 0 || self.for_s > LENGTH_S_MAX {
            return Err(ApiError::invalid("write 1 s to 7 days (604800)", Some("for_s")));
        }
        let one = |(name, value): (&String, &Value)| match value {
            _ if name.contains(char::is_control) => {
                Err(ApiError::invalid(format!("there is no setting {name:?}"), Some("settings")))
            }
            Value::String(text) if text.contains(|c: char| c.is_control() && c != '\t') => {
                Err(ApiError::invalid("write a text without control characters", Some(name)))
            }
            Value::String(text) => Ok(format!("{name}={text}")),
            Value::Number(number) => Ok(format!("{name}={number}")),
            _ => Err(ApiError::invalid("write a text or a number", Some(name))),
        };
        self.settings.iter().map(one).collect()
    }
}

pub async fn set(State(app): State<Shared>, body: Bytes) -> ApiResult<Response> {
    let asked: Asked = read(&body)?;
    let assignments = asked.assignments()?;
    let mut words = words!["tune", "set", "--json", format!("--for={}s", asked.for_s)].to_vec();
    // A name that begins with '-' is a wrong setting, not an option.
    if let Some(wrong) = assignments.iter().find(|one| one.starts_with('-')) {
        return Err(ApiError::invalid(format!("there is no setting {wrong}"), Some("settings")));
    }
    words.extend(assignments.iter().map(std::ffi::OsString::from));
    let set = change(app, move |app| async move {
        app.check_not_measuring(asked.while_measuring)?;
        set_for(&app, asked.for_s, words).await
    });
    let set = set.await?;
    Ok((StatusCode::CREATED, Json(set)).into_response())
}

/// Sets what the words of a command say, and notes it.
async fn set_for(app: &App, for_s: u64, words: Vec<std::ffi::OsString>) -> ApiResult<Value> {
    let before = listed(app).await?;
    let records = Records::new(&app.folder);
    let id = store::new_run_id(Timestamp::now(), sys::random::number());
    let (program, folder) = (app.program.clone(), records.folder_of(&id));
    let process = {
        let folder = folder.clone();
        blocking(move || detached::start(&program, &words, &folder)).await?
    };
    let record = match until_set(app, process).await {
        Ok(Some(record)) => record,
        Ok(None) => {
            let problem = detached::problem(&folder);
            records.remove(&id);
            return Err(problem);
        }
        Err(error) => return Err(revert_set(&records, &id, process, error).await),
    };
    let began = Timestamp::now();
    let value_before = |name: &str| value_of(&before["settings"], name).map(str::to_owned);
    let noted = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let name = text("name");
        Change { before: value_before(&name), name, value: text("value") }
    };
    let length = SignedDuration::from_secs(i64::try_from(for_s).unwrap_or(0));
    let setting = Setting {
        id,
        process,
        began,
        until: began.checked_add(length).ok(),
        changes: record["settings"].as_array().into_iter().flatten().map(noted).collect(),
        boot_id: sys::proc::boot_id(),
        is_keeping: false,
        kept: None,
        put_back: None,
    };
    // What is not noted could be neither kept nor undone from here.
    if let Err(error) = records.write(&setting) {
        return Err(revert_set(&records, &setting.id, process, error).await);
    }
    Ok(records.view(&setting, Some(&record)))
}

/// Restores what a process has set, or is about to set. Returns the error that is the reason.
async fn revert_set(records: &Records, id: &str, process: Process, mut reason: ApiError) -> ApiError {
    match blocking(move || detached::end(process, END_WITHIN)).await {
        Ok(()) => {
            reason.message += "; nothing stays set";
            records.remove(id);
        }
        Err(error) => reason.message += &format!("; {}", error.message),
    }
    reason
}

/// Waits until a process has set its settings, and returns its record; `None`: it has ended without.
async fn until_set(app: &App, process: Process) -> ApiResult<Option<Value>> {
    let deadline = tokio::time::Instant::now() + SET_WITHIN;
    while tokio::time::Instant::now() < deadline {
        let is_running = process.is_running();
        let running = listed(app).await?["set"].take();
        if let Some(own) = records::of_process(&running, process) {
            return Ok(Some(own.clone()));
        }
        if !is_running {
            return Ok(None);
        }
        tokio::time::sleep(POLL).await;
    }
    let message = format!("the settings were not set within {} s", SET_WITHIN.as_secs());
    Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, message))
}

/// Ends what has set settings, which restores them. Settings that were kept get their values before.
pub async fn undo(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<Json<Value>> {
    change(app, |app| undo_one(app, id)).await
}

async fn undo_one(app: Shared, id: String) -> ApiResult<Json<Value>> {
    let records = Records::new(&app.folder);
    if let Some(kept) = records.read(&id).filter(Setting::can_be_put_back) {
        return put_back(&app, &records, kept).await;
    }
    let running = listed(&app).await?["set"].take();
    let process = records.process(&id, &running).ok_or_else(|| unknown(&id))?;
    blocking(move || detached::end(process, END_WITHIN)).await?;
    view(&records, &id)
}

/// Leaves the settings until the next boot, except those that another program has changed. They are restored
/// for a moment: whoever has set them ends first.
pub async fn keep(State(app): State<Shared>, Path(id): Path<String>) -> ApiResult<Json<Value>> {
    change(app, |app| keep_one(app, id)).await
}

async fn keep_one(app: Shared, id: String) -> ApiResult<Json<Value>> {
    let records = Records::new(&app.folder);
    let mut setting = records.read(&id).ok_or_else(|| unknown(&id))?;
    if !setting.process.is_running() {
        return Err(ApiError::conflict("these settings were restored already; set them again"));
    }
    // Noted first: whatever fails from here on, they can be put back.
    setting.is_keeping = true;
    records.write(&setting)?;
    let process = setting.process;
    if let Err(error) = blocking(move || detached::end(process, END_WITHIN)).await {
        // It restores them when its time is over.
        setting.is_keeping = false;
        records.write(&setting)?;
        return Err(error);
    }
    let ended = detached::document(&records.folder_of(&id));
    let own = setting.changes.iter().filter(|one| records::has_value_before(ended.as_ref(), &one.name));
    let mut words = words!["tune", "set", "--keep", "--json"].to_vec();
    let options = words.len();
    words.extend(own.map(|one| format!("{}={}", one.name, one.value).into()));
    let kept = match words.len() > options {
        true => app.program.json(&words, SET_WITHIN).await,
        false => Ok(json!({ "settings": [] })),
    };
    let noted = kept.and_then(|document| {
        setting.kept = Some(document);
        records.write(&setting)
    });
    match noted {
        Ok(()) => view(&records, &id),
        Err(error) => Err(revert_kept(&app, &records, setting, error).await),
    }
}

/// Puts back what was set to stay, or may have been. Returns the error that is the reason.
async fn revert_kept(app: &App, records: &Records, mut setting: Setting, mut reason: ApiError) -> ApiError {
    match with_values_before(app, &setting).await {
        Ok(document) => {
            reason.message += "; the values before are back";
            setting.put_back = Some(document);
            // Without it they can be put back again, which changes nothing.
            let _ = records.write(&setting);
        }
        Err(error) => reason.message += &format!("; they may still be set: {}", error.message),
    }
    reason
}

/// Gives settings that were kept their values before, except those that another program has changed since.
async fn put_back(app: &App, records: &Records, mut setting: Setting) -> ApiResult<Json<Value>> {
    setting.put_back = Some(with_values_before(app, &setting).await?);
    records.write(&setting)?;
    view(records, &setting.id)
}

/// See [`put_back`]. Returns what became of each.
async fn with_values_before(app: &App, setting: &Setting) -> ApiResult<Value> {
    let now = listed(app).await?["settings"].take();
    let (own, changed): (Vec<&Change>, Vec<&Change>) =
        setting.to_put_back().partition(|one| value_of(&now, &one.name) == Some(one.value.as_str()));
    let mut words = words!["tune", "set", "--keep", "--json"].to_vec();
    let before = |one: &&Change| Some(format!("{}={}", one.name, one.before.as_ref()?).into());
    words.extend(own.iter().filter_map(before));
    if !own.is_empty() {
        app.program.json(&words, SET_WITHIN).await?;
    }
    let after = listed(app).await?["settings"].take();
    let outcome_of = |one: &Change, otherwise: &str| {
        let (now, outcome) = match value_of(&after, &one.name) {
            now if now == one.before.as_deref() => (None, "restored"),
            Some(now) => (Some(format!("it is {now} now")), otherwise),
            None => (Some("its value cannot be read now".to_owned()), "not_restored"),
        };
        json!({ "name": one.name, "outcome": outcome, "note": now })
    };
    let own = own.into_iter().map(|one| outcome_of(one, "not_restored"));
    let changed = changed.into_iter().map(|one| outcome_of(one, "left_alone"));
    let settings: Vec<Value> = own.chain(changed).collect();
    Ok(json!({ "settings": settings }))
}

/// The value of a setting in the list that `kagiri tune list` prints.
fn value_of<'a>(all: &'a Value, name: &str) -> Option<&'a str> {
    all.as_array()?.iter().find(|one| one["name"] == name)?["value"].as_str()
}

fn view(records: &Records, id: &str) -> ApiResult<Json<Value>> {
    match records.read(id) {
        Some(setting) => Ok(Json(records.view(&setting, None))),
        // It was set elsewhere: what became of it is said there.
        None => Ok(Json(json!({
            "id": id,
            "from_console": false,
            "state": "ended",
            "began": null,
            "until": null,
            "until_words": "ended",
            "left_s": null,
            "can_be_put_back": false,
            "changes": [],
            "record": null,
        }))),
    }
}

fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("no settings are set under {id}; the time may be over"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedAdvice {
    for_s: u64,
}

pub async fn advise(State(app): State<Shared>, body: Bytes) -> ApiResult<Json<Value>> {
    let asked: AskedAdvice = read(&body)?;
    if asked.for_s == 0 || asked.for_s > ADVICE_S_MAX {
        return Err(ApiError::invalid(format!("write 1 to {ADVICE_S_MAX} s"), Some("for_s")));
    }
    let words = words!["tune", "advise", "--json", format!("--for={}s", asked.for_s)];
    app.program.json_of_long(&words, Duration::from_secs(asked.for_s) + LIST_WITHIN).await.map(Json)
}
