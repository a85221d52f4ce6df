//! The folder of a job: its plan, its events, what its process printed, and `job.json`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::job::Job;

/// A larger file is no job's.
const JOB_BYTES_MAX: u64 = 64 << 20;

pub fn plan_file(folder: &Path) -> PathBuf {
    folder.join("plan.toml")
}

pub fn events_file(folder: &Path) -> PathBuf {
    folder.join("events.jsonl")
}

pub fn stdout_file(folder: &Path) -> PathBuf {
    folder.join("stdout")
}

pub fn stderr_file(folder: &Path) -> PathBuf {
    folder.join("stderr")
}

/// Makes a folder that only its user can read.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes the folder of a new job. Returns the job's id, which sorts by time, and its time.
pub fn make_job_folder(jobs: &Path, now: Timestamp) -> io::Result<(String, Timestamp)> {
    let mut now = now;
    loop {
        let id = now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S-%6f").to_string();
        match fs::DirBuilder::new().mode(0o700).create(jobs.join(&id)) {
            Ok(()) => return Ok((id, now)),
            // Another job of the same microsecond.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                now = now.checked_add(SignedDuration::from_micros(1)).map_err(io::Error::other)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes a file completely or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Whether a small file finds no space in a folder.
pub fn is_disk_full(folder: &Path) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    let probe = || tempfile::tempfile_in(folder)?.write_all(&[0; 4096]);
    probe().is_err_and(|error| full.contains(&error.kind()))
}

pub fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write(path, &serde_json::to_vec_pretty(value)?)
}

pub fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&sys::file::read_text(path, JOB_BYTES_MAX).ok()?).ok()
}

pub fn write_job(folder: &Path, job: &Job) -> io::Result<()> {
    write_json(&folder.join("job.json"), job)
}

/// The jobs in a folder of folders. What is no job is left alone.
pub fn read_jobs(folder: &Path) -> io::Result<Vec<Job>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let job: Option<Job> = read_json(&path.join("job.json"));
        all.extend(job.filter(|job| path.file_name().is_some_and(|name| name == job.id.as_str())));
    }
    Ok(all)
}

/// The end of a text file.
pub fn tail(path: &Path, bytes_max: u64) -> String {
    let read = || {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = File::open(path)?;
        let begin = file.metadata()?.len().saturating_sub(bytes_max);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_jobs_sort_by_time_and_are_used_once() {
        let folder = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-11-27T22:00:09.000099Z".parse().unwrap();
        let ids: Vec<String> = (0..3).map(|_| make_job_folder(folder.path(), now).unwrap().0).collect();
        assert_eq!(ids, ["20261127-220009-000099", "20261127-220009-000100", "20261127-220009-000101"]);
    }
}
