//! The folders of policies that were applied from here: the policy's text, and what its process prints.

use std::fs;
use std::path::Path;

use crate::error::{ApiError, ApiResult};
use crate::jobs::{Process, read_json, write_json};

const PROCESS: &str = "process.json";

/// Notes who enforces the policy of a folder.
pub fn note(folder: &Path, process: Process) -> ApiResult<()> {
    write_json(&folder.join(PROCESS), &process)
        .map_err(|error| ApiError::not_written("the policy cannot be noted", &error))
}

/// Removes the folders of policies that have ended.
pub fn remove_ended(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else { return };
    for folder in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let process: Option<Process> = read_json(&folder.join(PROCESS));
        if process.is_some_and(|process| !process.is_running()) {
            remove(&folder);
        }
    }
}

pub fn remove(folder: &Path) {
    // It may be there no more.
    let _ = fs::remove_dir_all(folder);
}
