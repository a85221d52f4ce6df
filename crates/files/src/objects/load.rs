//! The workers of one host in one trial: kind `files.objects`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use base::part::{HostContext, Live, PartError, Progress};
use base::units::Span;
use serde::{Deserialize, Serialize};
use sys::cgroup::limits_of;
use workload::part::{Part, Peers};

use super::access::client::{Access, Client};
use super::access::prefix::PrefixPart;
use super::mix::Mix;
use super::run::ObjectsRun;
use super::shared::ObjectsSettings;
use super::size;
use crate::report::{Surroundings, WorkersReport};
use crate::under_way::{UnderWay, Watched};

/// Descriptors of this process beside those of the connections.
const OTHER_FILES: u64 = 512;
/// Kinds of requests, each with its times.
const ROWS: u64 = 8;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectsTask {
    /// Name of the part that has the prefix.
    pub prefix: String,
    pub threads: u64,
    pub objects: u64,
    pub object_size: String,
    /// `None`: the fileserver's round.
    pub mix: Option<String>,
    pub omit: Span,
    pub hold: Span,
    pub rate_per_s: Option<f64>,
    pub request_within: Span,
    pub allows_http: bool,
    pub seed: u64,
}

pub struct ObjectsPart {
    task: ObjectsTask,
    prepared: Option<(ObjectsRun, f64)>,
    under_way: Option<UnderWay<WorkersReport>>,
    stop: Arc<AtomicBool>,
}

impl Part for ObjectsPart {
    const KIND: &'static str = "files.objects";
    type Task = ObjectsTask;
    type Endpoint = ();
    type Report = WorkersReport;

    fn report_items(_: &ObjectsTask) -> u64 {
        ROWS
    }

    fn new(task: ObjectsTask) -> Result<Self, PartError> {
        Ok(Self { task, prepared: None, under_way: None, stop: Arc::default() })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let task = &self.task;
        let prefix = peers.get::<PrefixPart>(&task.prefix)?;
        let own = prefix.own;
        let wanted = task.threads + OTHER_FILES;
        let limit = sys::thread::raise_file_limit(wanted)
            .map_err(|error| PartError::new(format!("raise the limit of open files: {error}")))?;
        if limit < wanted {
            return Err(PartError::new(format!(
                "{} workers need as many connections, and this process may have {limit} open files; \
                 raise the limit (ulimit -n)",
                task.threads
            )));
        }
        let access = Access {
            endpoint: None,
            keys: None,
            allows_http: task.allows_http,
            within: task.request_within.duration(),
            connections: task.threads as usize,
        };
        let client = Client::connect(&own.bucket, &access).map_err(PartError::new)?;
        let settings = ObjectsSettings {
            threads: task.threads,
            objects: task.objects,
            size: size::parse(&task.object_size).map_err(PartError::usage)?,
            mix: mix(task.mix.as_deref()).map_err(PartError::usage)?,
            omit_ns: task.omit.ns(),
            hold_ns: task.hold.ns(),
            rate_per_s: task.rate_per_s,
            seed: task.seed,
        };
        host.say(format!("making {} objects below {own}", task.objects));
        let began = Instant::now();
        let mut run = ObjectsRun::prepare(settings, client, own, &host.stop).map_err(PartError::new)?;
        if let Some(server) = prefix.server {
            run.watch_network(server);
        }
        self.prepared = Some((run, began.elapsed().as_secs_f64()));
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let (run, populate_s) =
            self.prepared.take().ok_or_else(|| PartError::new("the workers were not prepared"))?;
        let (answered, stop, files) = (run.watch(), self.stop.clone(), self.task.objects);
        let work = move || {
            let data_bytes = run.data_bytes;
            let (run, objects) = run.wait(at_monotonic_ns, &stop);
            let own = i32::try_from(std::process::id()).unwrap_or(0);
            let limits = limits_of(Path::new("/"), own, None).unwrap_or_default();
            let cpu_quota_percent = limits.cpu_quota_percent;
            let surroundings = Surroundings { cpu_quota_percent, ..Surroundings::default() };
            let notes = Vec::new();
            let objects = Some(objects);
            WorkersReport { run, files, dirs: 0, data_bytes, populate_s, surroundings, notes, objects }
        };
        let whole_ns = self.task.omit.ns().saturating_add(self.task.hold.ns());
        let requests = move || answered.requests();
        let watched = Watched::timed(at_monotonic_ns, whole_ns, requests);
        self.under_way = Some(UnderWay::start(at_monotonic_ns, watched, work)?);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        self.under_way.as_ref().map_or(Progress::Running { done: Some(0.0) }, UnderWay::progress)
    }

    fn live(&mut self) -> Live {
        self.under_way.as_mut().map_or_else(Live::new, UnderWay::live)
    }

    fn stop(&mut self) -> Result<WorkersReport, PartError> {
        let under_way = self.under_way.take();
        let under_way =
            under_way.ok_or_else(|| PartError::new("the workers were not started, so there is no report"))?;
        under_way.stop(&self.stop)
    }
}

impl Drop for ObjectsPart {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The requests of a round.
///
/// # Errors
/// What is wrong with the text.
pub fn mix(text: Option<&str>) -> Result<Mix, String> {
    text.map_or_else(|| Ok(Mix::fileserver()), Mix::parse)
}
