//! The queue: jobs begin in their order, and never beside another measurement on one of their hosts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use store::Store;

use super::job::{Job, Kind, Process, Resume, State};
use super::{Jobs, files, follow, not_stored};
use crate::error::{ApiError, ApiResult};

/// How often it is looked whether a measurement of a terminal has ended, while a job waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A run that was not started here, and its process.
type Foreign = (String, u32);

/// Starts the thread that begins jobs. It sleeps while none waits.
pub fn start(jobs: &Arc<Jobs>) -> io::Result<()> {
    let jobs = Arc::clone(jobs);
    std::thread::Builder::new().name("queue".into()).spawn(move || {
        loop {
            let (begun, changed) = begin(&jobs);
            for (id, child) in begun {
                follow::start(&jobs, &id, child);
            }
            changed.iter().for_each(|id| jobs.changed(id));
            let all = jobs.lock();
            let waits = all.values().any(|job| job.state == State::Queued);
            let length = if waits { LOOK_EVERY } else { Duration::from_secs(3600) };
            drop(jobs.wake.wait_timeout(all, length).unwrap_or_else(PoisonError::into_inner));
        }
    })?;
    Ok(())
}

type Begun = Vec<(String, Option<std::process::Child>)>;

/// Begins what can begin. Returns these jobs, and all that changed.
fn begin(jobs: &Jobs) -> (Begun, Vec<String>) {
    let (mut begun, mut changed) = (Begun::new(), Vec::new());
    if !jobs.lock().values().any(|job| job.state == State::Queued) {
        return (begun, changed);
    }
    let foreign = foreign(jobs);
    let mut all = jobs.lock();
    let waiting: Vec<String> =
        all.values().filter(|job| job.state == State::Queued).map(|job| job.id.clone()).collect();
    for id in waiting {
        let reason =
            reason_to_wait(&all, &id, foreign.as_ref(), jobs.is_fleet_listed.load(Ordering::Relaxed));
        let Some(job) = all.get_mut(&id) else { continue };
        if reason.is_none() {
            match spawn(jobs, job) {
                Ok(child) => begun.push((id.clone(), Some(child))),
                Err(error) => {
                    (job.state, job.began, job.ended) = (State::Failed, None, Some(Timestamp::now()));
                    job.message = Some(format!("it cannot be started: {}", error.message));
                    jobs.keep(job);
                }
            }
            changed.push(id);
        } else if job.message != reason {
            job.message = reason;
            changed.push(id);
        }
    }
    (begun, changed)
}

/// Why a job cannot begin now, in words.
fn reason_to_wait(
    all: &BTreeMap<String, Job>,
    id: &str,
    foreign: Option<&Foreign>,
    is_fleet_listed: bool,
) -> Option<String> {
    let job = all.get(id)?;
    if let Some((run, pid)) = foreign {
        return Some(format!("waits for run {run}, which process {pid} measures (it was not started here)"));
    }
    let before = all.values().filter(|other| other.state.is_active() || other.state == State::Queued);
    let mut before = before.filter(|other| other.id != id && (other.state.is_active() || *other.id < *id));
    if let Some(other) = before.find(|other| other.targets.conflict(&job.targets)) {
        return Some(format!("waits for '{}' on the same host", other.name));
    }
    (is_fleet_listed && job.targets.uses_fleet()).then(|| "waits while the agents are listed".to_owned())
}

/// A run of another process, such as one that was started in a terminal.
fn foreign(jobs: &Jobs) -> Option<Foreign> {
    // A store that cannot be read fails the job itself, with the reason.
    let measured = Store::open_to_read(&jobs.data_dir).and_then(|store| store.measured_now()).ok()?;
    let own: Vec<u32> = {
        let all = jobs.lock();
        all.values()
            .filter(|job| job.state.is_active())
            .filter_map(|job| Some(job.process?.pid as u32))
            .collect()
    };
    measured.into_iter().find(|(_, pid)| !own.contains(pid))
}

/// Starts the process of a job.
/// Errors: it cannot be started, or the disk is full.
fn spawn(jobs: &Jobs, job: &mut Job) -> ApiResult<std::process::Child> {
    let folder = jobs.folder_of(&job.id);
    (job.state, job.began, job.message) = (State::Running, Some(Timestamp::now()), None);
    // Before it begins: one that is stored as waiting would be measured again after a restart of the server.
    files::write_job(&folder, job).map_err(|error| not_stored(&folder, &error))?;
    let mut command = jobs.program.command(arguments(jobs, job));
    // Its temporary files and relative paths are not this server's.
    command.current_dir(work_folder(jobs, job));
    let start = || -> io::Result<_> {
        command.stdout(File::create(files::stdout_file(&folder))?);
        command.stderr(File::create(files::stderr_file(&folder))?);
        let child = sys::child::spawn_in_own_session(command).map_err(io::Error::other)?;
        let pid = child.id() as i32;
        let start_ticks = sys::proc::start_ticks(std::path::Path::new("/"), pid)?;
        Ok((child, Process { pid, start_ticks }))
    };
    let (child, process) =
        start().map_err(|error| ApiError::not_written("cannot start its process", &error))?;
    job.process = Some(process);
    jobs.keep(job);
    Ok(child)
}

/// The folder that relative paths of the plan are in.
fn work_folder(jobs: &Jobs, job: &Job) -> PathBuf {
    let begun_by = match &job.kind {
        Kind::Resume(Resume { begun_by: Some(id), .. }) => Some(jobs.folder_of(id)),
        _ => None,
    };
    // The job may have been removed since.
    begun_by.filter(|folder| folder.is_dir()).unwrap_or_else(|| jobs.folder_of(&job.id))
}

fn arguments(jobs: &Jobs, job: &Job) -> Vec<OsString> {
    let folder = jobs.folder_of(&job.id);
    let plan = files::plan_file(&folder).into();
    let mut words: Vec<OsString> = match &job.kind {
        Kind::Run => vec!["run".into(), plan],
        Kind::Tune(_) => vec!["tune".into(), "auto".into(), "--json".into(), plan],
        Kind::Resume(Resume { run, .. }) => vec!["run".into(), format!("--resume={run}").into()],
    };
    let mut lines = OsString::from("--json-lines=");
    lines.push(files::events_file(&folder));
    words.extend([lines, "--progress-every=100ms".into()]);
    if let Kind::Tune(options) = &job.kind {
        words.extend(options.settings.iter().map(|setting| format!("--try={setting}").into()));
        words.extend(options.metric.iter().map(|metric| format!("--goal={metric}").into()));
        words.extend(options.blocks.iter().map(|blocks| format!("--blocks={blocks}").into()));
    }
    if job.targets.uses_fleet() {
        words.extend(jobs.fleet.iter().cloned());
    }
    words
}
