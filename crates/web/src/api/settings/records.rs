//! What was set from here: kept in files, so that a restarted server knows it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::detached;
use crate::error::{ApiError, ApiResult};
use crate::jobs::{Process, read_json, write_json};

/// How long settings that were restored are listed.
const ENDED_KEPT: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Change {
    pub name: String,
    /// `None`: it could not be read.
    pub before: Option<String>,
    pub value: String,
}

/// Settings that one process has set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setting {
    pub id: String,
    pub process: Process,
    pub began: Timestamp,
    pub until: Option<Timestamp>,
    pub changes: Vec<Change>,
    /// Settings that were kept last until the next boot.
    #[serde(default)]
    pub boot_id: String,
    /// They are about to be set to stay; without `kept` it is not known whether they were.
    #[serde(default)]
    pub is_keeping: bool,
    /// The document of the process that has set them to stay.
    pub kept: Option<Value>,
    /// What became of those that stayed, in the form of such a document.
    #[serde(default)]
    pub put_back: Option<Value>,
}

impl Setting {
    /// Changes that stay, or may stay, and whose values before are known.
    pub fn to_put_back(&self) -> impl Iterator<Item = &Change> {
        let stays = |name: &str| match &self.kept {
            Some(document) => of_name(document, name).is_some_and(|one| one["outcome"] == "kept"),
            None => self.is_keeping,
        };
        self.changes.iter().filter(move |one| one.before.is_some() && stays(&one.name))
    }

    pub fn can_be_put_back(&self) -> bool {
        self.put_back.is_none()
            && self.to_put_back().next().is_some()
            && self.boot_id == sys::proc::boot_id()
            && !self.process.is_running()
    }
}

pub struct Records {
    folder: PathBuf,
}

impl Records {
    pub fn new(console: &Path) -> Self {
        Self { folder: console.join("settings") }
    }

    pub fn folder_of(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    fn file_of(&self, id: &str) -> PathBuf {
        self.folder_of(id).join("setting.json")
    }

    pub fn read(&self, id: &str) -> Option<Setting> {
        // An id from a request must not lead elsewhere.
        let is_id = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_id.then(|| read_json(&self.file_of(id)))?
    }

    pub fn write(&self, setting: &Setting) -> ApiResult<()> {
        write_json(&self.file_of(&setting.id), setting)
            .map_err(|error| ApiError::not_written("the change of settings cannot be noted", &error))
    }

    pub fn remove(&self, id: &str) {
        // It may be there no more.
        let _ = fs::remove_dir_all(self.folder_of(id));
    }

    /// The process that has set something, from here or elsewhere, if it still runs.
    /// `running`: what `kagiri tune list` says is set.
    pub fn process(&self, id: &str, running: &Value) -> Option<Process> {
        let own = self.read(id).map(|setting| setting.process);
        let elsewhere = || processes(running).find(|process| foreign_id(*process) == id);
        own.or_else(elsewhere).filter(|process| process.is_running())
    }

    /// Everything that is set, or was until lately; newest first.
    pub fn views(&self, running: &Value) -> Vec<Value> {
        let mut own = self.all();
        own.sort_by_key(|setting| std::cmp::Reverse(setting.began));
        let of_others = running
            .as_array()
            .into_iter()
            .flatten()
            .filter(|record| !own.iter().any(|setting| process_of(record) == Some(setting.process)));
        let others: Vec<Value> = of_others.filter_map(view_of_other).collect();
        let view = |setting: &Setting| self.view(setting, of_process(running, setting.process));
        own.iter().map(view).chain(others).collect()
    }

    /// All records; those that ended long ago are removed, unless they can still be put back.
    fn all(&self) -> Vec<Setting> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut all = Vec::new();
        for id in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let Some(setting) = self.read(&id) else { continue };
            let age = fs::metadata(self.folder_of(&id).join("stdout")).and_then(|found| found.modified());
            let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ENDED_KEPT));
            match setting.process.is_running() {
                false if is_old && !setting.can_be_put_back() => self.remove(&id),
                _ => all.push(setting),
            }
        }
        all
    }

    /// `record`: what `kagiri tune list` says of it; `None`: it is not set any more.
    pub fn view(&self, setting: &Setting, record: Option<&Value>) -> Value {
        let is_applied = setting.process.is_running();
        // What became of a change lately, and before that.
        let documents = [setting.put_back.clone(), setting.kept.clone()];
        let is_unknown = setting.is_keeping && documents.iter().all(Option::is_none);
        let ended = detached::document(&self.folder_of(&setting.id)).filter(|_| !is_unknown);
        let documents: Vec<Value> = documents.into_iter().chain([ended]).flatten().collect();
        let outcome = |name: &str| documents.iter().find_map(|document| of_name(document, name));
        let change = |one: &Change| {
            let ended = outcome(&one.name).filter(|_| !is_applied);
            json!({
                "name": one.name,
                "before": one.before,
                "value": one.value,
                "outcome": ended.map(|ended| &ended["outcome"]),
                "note": ended.map(|ended| &ended["note"]),
            })
        };
        let until_words = match (is_applied, setting.until) {
            (true, Some(until)) => format!("until {until}"),
            (true, None) => "until it is undone".to_owned(),
            (false, _) => "ended".to_owned(),
        };
        let now = Timestamp::now();
        let left = |until: Timestamp| until.duration_since(now).as_secs_f64().max(0.0);
        let left_s = setting.until.filter(|_| is_applied).map(left);
        json!({
            "id": setting.id,
            "from_console": true,
            "state": if is_applied { "applied" } else { "ended" },
            "began": setting.began.to_string(),
            "until": setting.until.map(|at| at.to_string()),
            "until_words": until_words,
            "left_s": left_s,
            "can_be_put_back": setting.can_be_put_back(),
            "changes": setting.changes.iter().map(change).collect::<Vec<_>>(),
            "record": record,
        })
    }
}

/// What a document of `kagiri tune set` says of a setting.
fn of_name<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    document["settings"].as_array()?.iter().find(|one| one["name"] == name)
}

/// Whether the process that had set a setting ended with its value before: what another program has set is
/// not overwritten. `document`: what this process printed at its end.
pub fn has_value_before(document: Option<&Value>, name: &str) -> bool {
    let outcome = document.and_then(|document| of_name(document, name)).map(|one| &one["outcome"]);
    outcome.is_some_and(|outcome| outcome == "restored" || outcome == "unchanged")
}

/// What a process has set, among what `kagiri tune list` says is set.
pub fn of_process(running: &Value, process: Process) -> Option<&Value> {
    running.as_array()?.iter().find(|record| process_of(record) == Some(process))
}

fn process_of(record: &Value) -> Option<Process> {
    let pid = i32::try_from(record["pid"].as_i64()?).ok()?;
    Some(Process { pid, start_ticks: record["start_ticks"].as_u64()? })
}

fn processes(running: &Value) -> impl Iterator<Item = Process> {
    running.as_array().into_iter().flatten().filter_map(process_of)
}

fn foreign_id(process: Process) -> String {
    format!("{}-{}", process.pid, process.start_ticks)
}

fn view_of_other(record: &Value) -> Option<Value> {
    let change = |one: &Value| {
        let (name, value) = (&one["name"], &one["value"]);
        json!({ "name": name, "before": null, "value": value, "outcome": null, "note": null })
    };
    Some(json!({
        "id": foreign_id(process_of(record)?),
        "from_console": false,
        "state": "applied",
        "began": null,
        "until": null,
        "until_words": record["until"],
        "left_s": null,
        "can_be_put_back": false,
        "changes": record["settings"].as_array()?.iter().map(change).collect::<Vec<_>>(),
        "record": record,
    }))
}
