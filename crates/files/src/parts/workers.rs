//! The threads that work on the files in one trial: kind `files.workers`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::part::{HostContext, Live, PartError, Progress};
use base::units::Span;
use serde::{Deserialize, Serialize};
use sys::clock::sleep_until_ns;
use sys::proc::HostMemory;
use sys::proc::mounts::{Mount, mount_of, mounts};
use workload::part::{Part, Peers};

use super::disk_watch::DiskWatch;
use super::folder::{FolderEndpoint, FolderPart};
use super::open_folder::{OpenFolder, lost, lost_soon};
use crate::backend::Backend;
use crate::engine::report::{Durable, Ended, RunReport};
use crate::engine::{Content, Run, RunSettings, durable, sync_file_system};
use crate::objects::access::address::Address;
use crate::objects::access::client::{Access, Client};
use crate::objects::access::prefix;
use crate::program::{Ready, SetValue, Source};
use crate::report::{Surroundings, WorkersReport};
use crate::tree::{FileTree, Filling, OPEN_DIRS_MAX, PopulateError, Population};
use crate::under_way::{UnderWay, Watched};

/// Descriptors of this process beside those of the threads.
const OTHER_FILES: u64 = 512;
/// Files of which is looked how much the page cache has of them.
const SAMPLE: u32 = 64;
/// Longest time of one request to a backend.
const BACKEND_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkersTask {
    /// Name of the part that has the folder.
    pub folder: String,
    pub source: Source,
    pub set: BTreeMap<String, SetValue>,
    /// In place of the program's number of threads.
    pub threads: Option<u64>,
    pub is_strict: bool,
    pub is_cold: bool,
    pub omit: Span,
    pub hold: Span,
    pub rate_per_s: Option<f64>,
    /// The backend's view of the measured directory.
    #[serde(default)]
    pub durable_at: Option<Address>,
    #[serde(default)]
    pub allows_http: bool,
    pub durable_within: Span,
    pub seed: u64,
}

pub struct WorkersPart {
    task: WorkersTask,
    prepared: Option<Prepared>,
    under_way: Option<UnderWay<WorkersReport>>,
    stop: Arc<AtomicBool>,
}

struct Prepared {
    run: Run,
    folder: PathBuf,
    open: OpenFolder,
    backend: Option<Backend>,
    population: Population,
    populate_s: f64,
    surroundings: Surroundings,
    notes: Vec<String>,
}

impl WorkersPart {
    fn make_files(
        &self,
        ready: &Ready,
        folder: &OpenFolder,
        content: &[u8],
        open_dirs: usize,
        host: &HostContext,
    ) -> Result<(Vec<FileTree>, Population), PartError> {
        let (own, opened) = (&folder.tree_path, folder.tree.as_fd());
        let (mut trees, mut all) = (Vec::new(), Population::default());
        for (number, set) in (0u64..).zip(&ready.program.filesets) {
            let filling = Filling {
                folder: own,
                opened,
                seed: self.task.seed.wrapping_add(number),
                content,
                open_dirs: open_dirs / ready.program.filesets.len().max(1),
                is_cold: self.task.is_cold,
                stop: &host.stop,
            };
            let bytes = set.size.constant().unwrap_or(0).saturating_mul(set.entries);
            host.say(format!("making {} files of {}{}", set.entries, set.name, size_note(bytes)));
            let (tree, made) = FileTree::populate(set, &filling).map_err(|error| match error {
                PopulateError::Stopped => PartError::new("interrupted while files were made"),
                other => PartError::new(other),
            })?;
            all.dirs += made.dirs;
            all.files += made.files;
            all.bytes += made.bytes;
            trees.push(tree);
        }
        Ok((trees, all))
    }
}

impl WorkersPart {
    fn backend(&self, at: &Address, folder: &Path, host: &HostContext) -> Result<Backend, PartError> {
        let of_setting = |why: String| PartError::new(format!("files.durable_at: {why}"));
        let access = Access {
            endpoint: None,
            keys: None,
            allows_http: self.task.allows_http,
            within: BACKEND_WITHIN,
            connections: 1,
        };
        let client = Client::connect(&at.bucket, &access).map_err(of_setting)?;
        prefix::permit(&client, host)?;
        let dir = folder.parent().unwrap_or(folder).to_owned();
        let backend = Backend { client, at: at.clone(), dir };
        backend.check().map_err(of_setting)?;
        Ok(backend)
    }
}

fn size_note(bytes: u64) -> String {
    match bytes >> 20 {
        0 => String::new(),
        mib => format!(", up to {mib} MiB"),
    }
}

/// The names of all trees: a prefix and a hash.
pub(crate) const TREES: &str = "tree-*";

/// The same for the same files.
fn tree_name(ready: &Ready, seed: u64) -> String {
    let mut hasher = DefaultHasher::new();
    for set in &ready.program.filesets {
        format!("{set:?}").hash(&mut hasher);
    }
    seed.hash(&mut hasher);
    format!("tree-{:016x}", hasher.finish())
}

impl Part for WorkersPart {
    const KIND: &'static str = "files.workers";
    type Task = WorkersTask;
    type Endpoint = ();
    type Report = WorkersReport;

    fn report_items(task: &WorkersTask) -> u64 {
        // Each flowop has its times.
        task.source.text.matches("flowop").count() as u64
    }

    fn new(task: WorkersTask) -> Result<Self, PartError> {
        Ok(Self { task, prepared: None, under_way: None, stop: Arc::default() })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let task = &self.task;
        let FolderEndpoint { path: folder, identity, own, .. } = peers.get::<FolderPart>(&task.folder)?;
        host.permit.directory(&folder)?;
        let ready = task.source.evaluate(task.set.iter(), task.threads).map_err(PartError::usage)?;
        let threads = ready.program.threads();
        let files = ready.compiled.files_max();
        let limit = sys::thread::raise_file_limit(files + OPEN_DIRS_MAX as u64 + OTHER_FILES);
        let limit =
            limit.map_err(|error| PartError::new(format!("raise the limit of open files: {error}")))?;
        if limit < files + OTHER_FILES {
            return Err(PartError::new(format!(
                "{threads} threads need up to {files} open files, and this process may have {limit}; raise \
                 the limit (ulimit -n)"
            )));
        }
        // filebench writes zeros.
        let seed = (!task.is_strict).then_some(task.seed);
        let content = Content::new(ready.compiled.io_bytes_max, seed);
        let open_dirs = usize::try_from(limit - files - OTHER_FILES).unwrap_or(0).min(OPEN_DIRS_MAX);
        let backend = task.durable_at.as_ref().map(|at| self.backend(at, &folder, host)).transpose()?;
        let open = OpenFolder::prepare(&folder, identity, &own, tree_name(&ready, self.task.seed))
            .map_err(PartError::new)?;
        let began = Instant::now();
        let made = self.make_files(&ready, &open, content.all(), open_dirs, host);
        let (trees, population) = made.map_err(|error| {
            let lost = || lost(&folder, &open.folder, &open.tree);
            lost_soon(!host.stop_requested(), &lost).map_or(error, PartError::new)
        })?;
        let populate_s = began.elapsed().as_secs_f64();
        let surroundings = look_around(&folder, &trees);
        let notes = ready.program.notes.iter().map(|(line, note)| format!("line {line}: {note}")).collect();
        let settings = RunSettings {
            is_strict: task.is_strict,
            quit: ready.program.quit,
            omit_ns: task.omit.ns(),
            hold_ns: task.hold.ns(),
            rate_per_s: task.rate_per_s,
            event_rate: ready.program.event_rate,
            seed: task.seed,
        };
        let run = Run::prepare(settings, ready.compiled, trees, content).map_err(PartError::new)?;
        self.prepared =
            Some(Prepared { run, folder, open, backend, population, populate_s, surroundings, notes });
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let prepared = self.prepared.take().ok_or_else(|| PartError::new("the workers were not prepared"))?;
        let watched = prepared.run.watch();
        let (stop, within) = (self.stop.clone(), self.task.durable_within.duration());
        let work = move || prepared.run(at_monotonic_ns, within, &stop);
        let whole_ns = self.task.omit.ns().saturating_add(self.task.hold.ns());
        let operations = move || watched.operations();
        let watched = Watched::timed(at_monotonic_ns, whole_ns, operations);
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

impl Drop for WorkersPart {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Prepared {
    fn run(mut self, start_ns: u64, durable_within: Duration, stop: &Arc<AtomicBool>) -> WorkersReport {
        let OpenFolder { folder: dir, tree, tree_path } = self.open;
        let mut disk = DiskWatch::open(&self.folder);
        self.run.begin(start_ns);
        sleep_until_ns(start_ns);
        disk.begin();
        let lost = || lost(&self.folder, &dir, &tree);
        let mut run = self.run.wait(stop, &lost);
        if let Some(why) = lost_soon(matches!(run.ended, Ended::Failed(_)), &lost) {
            run.ended = Ended::Failed(why);
        }
        let mount = mount_at(&self.folder);
        if mount.as_ref().is_some_and(Mount::is_in_memory) {
            run.storage_read_bytes = Some(0);
        } else if !disk.has_device() {
            // The kernel counts reads of block devices only.
            run.storage_read_bytes = None;
        }
        let mut surroundings = self.surroundings;
        disk.end(&mut surroundings);
        let memory = HostMemory::open(Path::new("/")).and_then(|mut memory| memory.read()).ok();
        surroundings.dirty_bytes = memory.and_then(|memory| memory.dirty_bytes);
        let ended_ns = start_ns + (run.to_s * 1e9) as u64;
        let is_whole = is_whole(&run) && !stop.load(Ordering::Relaxed);
        run.durable = match (self.backend, mount) {
            (Some(backend), _) if is_whole => {
                let (tree, stop_too) = (tree_path, stop.clone());
                let wait = move |began| backend.wait(&dir, &tree, began, durable_within, &stop_too);
                // It ends by itself at the deadline and says what is missing, unless a call hangs.
                durable::within(durable_within + BACKEND_WITHIN, ended_ns, stop, wait)
            }
            (None, Some(mount)) if is_whole && mount.is_fuse() => {
                Durable::BehindMount { file_system: mount.fs_type }
            }
            (None, Some(mount)) if is_whole && mount.is_in_memory() => Durable::Failed {
                why: format!("{} keeps files in memory, where nothing is durable", mount.fs_type),
            },
            (None, _) if is_whole => {
                durable::within(durable_within, ended_ns, stop, move |began| sync_file_system(&dir, began))
            }
            _ => Durable::Unknown,
        };
        WorkersReport {
            run,
            files: self.population.files,
            dirs: self.population.dirs,
            data_bytes: self.population.bytes,
            populate_s: self.populate_s,
            surroundings,
            notes: self.notes,
            objects: None,
        }
    }
}

/// Whether it did its work, so that it can be asked when that is durable.
fn is_whole(run: &RunReport) -> bool {
    run.hanging == 0 && !matches!(run.ended, Ended::Failed(_) | Ended::Stopped)
}

fn mount_at(folder: &Path) -> Option<Mount> {
    let mounts = mounts(Path::new("/")).unwrap_or_default();
    mount_of(&mounts, folder).cloned()
}

fn look_around(folder: &Path, trees: &[FileTree]) -> Surroundings {
    let mounts = mounts(Path::new("/")).unwrap_or_default();
    let memory = HostMemory::open(Path::new("/")).and_then(|mut memory| memory.read()).ok();
    let (mut cached, mut all) = (0, 0);
    for tree in trees {
        let count = tree.slots.count();
        let step = (count / SAMPLE).max(1);
        for slot in (0..count).step_by(step as usize).filter(|slot| tree.slots.exists(*slot)) {
            let path = tree.file_path(slot);
            let (Ok(facts), Ok(Some(resident))) = (path.metadata(), sys::disk::resident_bytes(&path)) else {
                continue;
            };
            all += facts.len();
            cached += resident.min(facts.len());
        }
    }
    Surroundings {
        file_system: mount_of(&mounts, folder).map(|mount| mount.fs_type.clone()),
        memory_bytes: memory.and_then(|memory| memory.total_bytes),
        cached_percent: (all > 0).then(|| 100.0 * cached as f64 / all as f64),
        ..Surroundings::default()
    }
}
