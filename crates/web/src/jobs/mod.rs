//! Jobs: measurements that were asked for here. Each is a process of its own, so that this server does not
//! disturb it, and its end, or a new start of the server, does not end it.

mod events;
mod files;
mod follow;
mod job;
mod queue;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::broadcast;

pub use self::events::{Chunk, JobStream, frame, replay};
pub use self::files::{events_file, make_folder, read_json, tail, write, write_json};
pub use self::job::{Job, Kind, LiveState, Process, Resume, State};
use crate::config::{Targets, TuneOptions};
use crate::error::{ApiError, ApiResult};
use crate::plans;
use crate::program::Program;

/// Ended jobs that are kept, with their events.
const ENDED_KEPT: usize = 200;
/// More do not wait.
const QUEUED_MAX: usize = 100;
const EVENTS_KEPT: usize = 256;

pub struct Jobs {
    folder: PathBuf,
    program: Arc<Program>,
    /// Arguments that say where agents join.
    fleet: Vec<OsString>,
    data_dir: PathBuf,
    host_name: String,
    all: Mutex<BTreeMap<String, Job>>,
    streams: Mutex<HashMap<String, Arc<JobStream>>>,
    /// Changes of all jobs, as events.
    changes: broadcast::Sender<Bytes>,
    /// Something may begin.
    wake: Condvar,
    /// The agents are being listed: no run can listen for them.
    is_fleet_listed: AtomicBool,
}

/// What is asked for.
pub struct NewJob {
    pub kind: Kind,
    pub name: String,
    pub workload: String,
    pub tags: Vec<String>,
    pub targets: Targets,
    /// The plan; `None`: the stored run has it.
    pub toml: Option<String>,
}

/// Where the plan of a job is.
pub enum PlanOf {
    /// Its text, as it was asked for.
    Job(String),
    /// The id of the stored run that the job continues.
    Run(String),
}

impl Jobs {
    /// The jobs in a folder; those whose processes still run are followed again.
    /// Errors: the folder cannot be made or read.
    pub fn open(
        folder: &Path,
        program: Arc<Program>,
        fleet: Vec<OsString>,
        data_dir: &Path,
        host_name: &str,
    ) -> anyhow::Result<Arc<Self>> {
        let what = || format!("cannot use the folder of jobs {}", folder.display());
        make_folder(folder).with_context(what)?;
        let found = files::read_jobs(folder).with_context(what)?;
        let jobs = Arc::new(Self {
            folder: folder.to_owned(),
            program,
            fleet,
            data_dir: data_dir.to_owned(),
            host_name: host_name.to_owned(),
            all: Mutex::new(found.into_iter().map(|job| (job.id.clone(), job)).collect()),
            streams: Mutex::default(),
            changes: broadcast::channel(EVENTS_KEPT).0,
            wake: Condvar::new(),
            is_fleet_listed: AtomicBool::new(false),
        });
        let active: Vec<String> =
            jobs.lock().values().filter(|job| job.state.is_active()).map(|job| job.id.clone()).collect();
        for id in active {
            follow::start(&jobs, &id, None);
        }
        jobs.remove_old();
        queue::start(&jobs).context("cannot start the thread of the queue")?;
        Ok(jobs)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Job>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn folder_of(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    /// Adds a job to the queue.
    /// Errors: the queue is full, or the disk; another job continues the same run.
    pub fn create(&self, new: NewJob) -> ApiResult<Value> {
        let waiting = self.lock().values().filter(|job| job.state == State::Queued).count();
        if waiting >= QUEUED_MAX {
            return Err(ApiError::conflict(format!("{waiting} jobs wait already; remove some of them")));
        }
        is_continued_by_no_other(&self.lock(), &new.kind)?;
        let (id, now) = files::make_job_folder(&self.folder, Timestamp::now())
            .map_err(|error| not_stored(&self.folder, &error))?;
        let job = Job {
            id,
            kind: new.kind,
            name: new.name,
            workload: new.workload,
            state: State::Queued,
            created: now,
            began: None,
            ended: None,
            run: None,
            message: None,
            tags: new.tags,
            targets: new.targets,
            process: None,
            answer: None,
            exit_code: None,
            live: LiveState::default(),
        };
        let (id, folder) = (job.id.clone(), self.folder_of(&job.id));
        let write_plan = |toml: &String| {
            write(&files::plan_file(&folder), toml.as_bytes())?;
            plans::write_companions(toml, &folder)
        };
        let written =
            new.toml.as_ref().map_or(Ok(()), write_plan).and_then(|()| files::write_job(&folder, &job));
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&folder);
            return Err(not_stored(&folder, &error));
        }
        {
            let mut all = self.lock();
            // Another may have been asked for meanwhile.
            if let Err(error) = is_continued_by_no_other(&all, &job.kind) {
                let _ = fs::remove_dir_all(&folder);
                return Err(error);
            }
            all.insert(id.clone(), job);
        }
        self.changed(&id);
        self.wake.notify_all();
        self.remove_old();
        self.view(&id)
    }

    /// The job that began a run.
    pub fn that_began(&self, run: &str) -> Option<String> {
        let all = self.lock();
        let is_resumed = |job: &Job| matches!(job.kind, Kind::Resume(_));
        let began = |job: &&Job| !is_resumed(job) && job.run.as_deref() == Some(run);
        all.values().find(began).map(|job| job.id.clone())
    }

    /// All jobs, newest first.
    pub fn views(&self) -> Vec<Value> {
        let all = self.lock();
        all.values().rev().map(|job| job.view(position(&all, job), &self.host_name)).collect()
    }

    pub fn view(&self, id: &str) -> ApiResult<Value> {
        let all = self.lock();
        let job = all.get(id).ok_or_else(|| unknown(id))?;
        Ok(job.view(position(&all, job), &self.host_name))
    }

    /// The plan of a job, and, of `tune auto`, its options.
    /// Errors: there is no such job, or its plan cannot be read.
    pub fn plan(&self, id: &str) -> ApiResult<(PlanOf, Option<TuneOptions>)> {
        let kind = self.lock().get(id).map(|job| job.kind.clone()).ok_or_else(|| unknown(id))?;
        if let Kind::Resume(Resume { run, .. }) = kind {
            return Ok((PlanOf::Run(run), None));
        }
        let path = files::plan_file(&self.folder_of(id));
        let toml = sys::file::read_text(&path, base::plan::TEXT_BYTES_MAX as u64)
            .map_err(|error| ApiError::internal(format!("cannot read {}: {error}", path.display())))?;
        let options = match kind {
            Kind::Tune(options) => Some(options),
            _ => None,
        };
        Ok((PlanOf::Job(toml), options))
    }

    /// A copy of each job.
    pub fn snapshot(&self) -> Vec<Job> {
        self.lock().values().cloned().collect()
    }

    /// Ends a job: at once if it waits; else it keeps what was measured. `at_once`: one that is stopping gets
    /// a second signal, which ends its process at once.
    /// Errors: there is none, it has ended, or it waits and cannot be stored as stopped.
    pub fn stop(&self, id: &str, at_once: bool) -> ApiResult<Value> {
        {
            let mut all = self.lock();
            let job = all.get_mut(id).ok_or_else(|| unknown(id))?;
            match (job.state, job.process) {
                (State::Queued, _) => {
                    let mut stopped = job.clone();
                    (stopped.state, stopped.ended) = (State::Interrupted, Some(Timestamp::now()));
                    stopped.message = Some("stopped before it began".to_owned());
                    // It would begin after a restart of the server.
                    let folder = self.folder_of(id);
                    files::write_job(&folder, &stopped).map_err(|error| not_stored(&folder, &error))?;
                    *job = stopped;
                }
                // Another person has stopped it.
                (State::Stopping, Some(_)) if !at_once => {}
                (State::Running | State::Stopping, Some(process)) => {
                    sys::process::interrupt(process.pid, process.start_ticks).map_err(ApiError::internal)?;
                    job.state = State::Stopping;
                }
                _ => {
                    return Err(ApiError::conflict(format!(
                        "job {id} does not run: it is {}",
                        job.state.name()
                    )));
                }
            }
            self.keep(job);
        }
        self.changed(id);
        self.wake.notify_all();
        self.view(id)
    }

    /// Removes a job that does not run; its run stays.
    /// Errors: there is none, it runs, or another one continues its run.
    pub fn remove(&self, id: &str) -> ApiResult<()> {
        let mut all = self.lock();
        let job = all.get(id).ok_or_else(|| unknown(id))?;
        if job.state.is_active() {
            return Err(ApiError::conflict(format!("job {id} runs; stop it first")));
        }
        if let Some(other) = all.values().find(|other| other.works_in_folder_of(id)) {
            return Err(ApiError::conflict(format!(
                "job {} continues its run in its folder; wait until it has ended, or stop it",
                other.id
            )));
        }
        all.remove(id);
        drop(all);
        self.say_removed(id);
        let folder = self.folder_of(id);
        fs::remove_dir_all(&folder)
            .map_err(|error| ApiError::internal(format!("cannot remove {}: {error}", folder.display())))?;
        self.wake.notify_all();
        Ok(())
    }

    /// Changes of all jobs from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Bytes> {
        self.changes.subscribe()
    }

    /// The events of a job from now on.
    pub fn stream(&self, id: &str) -> Arc<JobStream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(streams.entry(id.to_owned()).or_insert_with(|| Arc::new(JobStream::new())))
    }

    /// Keeps runs from beginning that need the agents, while they are listed. `None`: one runs.
    pub fn lock_fleet(self: &Arc<Self>) -> Option<FleetLock> {
        let all = self.lock();
        let is_used = all.values().any(|job| job.state.is_active() && job.targets.uses_fleet());
        (!is_used && !self.is_fleet_listed.swap(true, Ordering::Relaxed)).then(|| FleetLock(Arc::clone(self)))
    }

    /// Sends the job as it is now to all who watch; if it has ended, nothing follows for those who watch it
    /// alone.
    fn changed(&self, id: &str) {
        let Ok(view) = self.view(id) else { return };
        let data = view.to_string();
        // It fails only if no viewer is connected.
        let _ = self.changes.send(frame(None, "jobs", &data).into());
        let is_last = view["ended"].is_string();
        let bye = if is_last { frame(None, "bye", "{}") } else { String::new() };
        let bytes = (frame(None, "job", &data) + &bye).into();
        self.stream(id).send(Chunk { end: None, bytes, is_last });
    }

    /// Names a removed job to all who watch; nothing follows for those who watch it alone.
    fn say_removed(&self, id: &str) {
        let removed = frame(None, "removed", &json!({ "id": id }).to_string());
        // It fails only if no viewer is connected.
        let _ = self.changes.send(removed.clone().into());
        let stream = self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(stream) = stream {
            let bytes = (removed + &frame(None, "bye", "{}")).into();
            stream.send(Chunk { end: None, bytes, is_last: true });
        }
    }

    /// Stores a changed job. On a full disk, the job goes on; after a restart of the server it is then as it
    /// was before.
    fn keep(&self, job: &Job) {
        let _ = files::write_job(&self.folder_of(&job.id), job);
    }

    fn remove_old(&self) {
        let old: Vec<String> = {
            let all = self.lock();
            let ended = all.values().filter(|job| job.state.has_ended()).rev();
            ended.skip(ENDED_KEPT).map(|job| job.id.clone()).collect()
        };
        for id in old {
            let _ = self.remove(&id);
        }
    }
}

/// See [`Jobs::lock_fleet`].
pub struct FleetLock(Arc<Jobs>);

impl Drop for FleetLock {
    fn drop(&mut self) {
        self.0.is_fleet_listed.store(false, Ordering::Relaxed);
        self.0.wake.notify_all();
    }
}

/// The place of a job that waits, from 1.
fn position(all: &BTreeMap<String, Job>, job: &Job) -> Option<usize> {
    let waiting = all.values().filter(|other| other.state == State::Queued);
    let before = waiting.take_while(|other| other.id != job.id).count();
    (job.state == State::Queued).then_some(before + 1)
}

fn not_stored(folder: &Path, error: &std::io::Error) -> ApiError {
    ApiError::not_written(&format!("cannot store the job in {}", folder.display()), error)
}

/// Refuses a job that is to continue a run while another one does, or will.
fn is_continued_by_no_other(all: &BTreeMap<String, Job>, kind: &Kind) -> ApiResult<()> {
    let Kind::Resume(Resume { run, .. }) = kind else { return Ok(()) };
    match all.values().find(|job| job.continues(run)) {
        None => Ok(()),
        Some(other) => Err(ApiError::conflict(format!(
            "job {} continues run {run} already; wait until it has ended, or stop it",
            other.id
        ))),
    }
}

fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("there is no job {id}; it may have been removed"))
}
