//! The threads that work on the files in one trial: kind `files.workers`.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::part::{HostContext, Live, PartError, Progress};
use base::units::Span;
use serde::{Deserialize, Serialize};
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::proc::mounts::{mount_of, mounts};
use sys::proc::{BlockDeviceReader, HostMemory, block_device_of_path};
use workload::part::{Part, Peers};

use super::folder::FolderPart;
use crate::engine::report::Durable;
use crate::engine::{Content, Run, RunSettings, Watched, sync_file_system};
use crate::program::{Ready, SetValue, Source};
use crate::report::{Surroundings, WorkersReport};
use crate::tree::{FileTree, Filling, OPEN_DIRS_MAX, PopulateError, Population, remove_tree};

/// Descriptors of this process beside those of the threads.
const OTHER_FILES: u64 = 512;
/// Files of which is looked how much the page cache has of them.
const SAMPLE: u32 = 64;
/// Rates of this moment are those over so long.
const LIVE_NS: u64 = 500_000_000;
/// A stopped run ends within this time, or is abandoned.
const LEAVE: Duration = Duration::from_secs(40);

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
    pub durable_within: Span,
    pub seed: u64,
}

pub struct WorkersPart {
    task: WorkersTask,
    prepared: Option<Prepared>,
    under_way: Option<UnderWay>,
    stop: Arc<AtomicBool>,
}

struct Prepared {
    run: Run,
    folder: PathBuf,
    population: Population,
    populate_s: f64,
    surroundings: Surroundings,
    notes: Vec<String>,
}

struct UnderWay {
    thread: JoinHandle<WorkersReport>,
    watched: Watched,
    start_ns: u64,
    /// The operations at the last look, when that was, and the rate that came of it.
    seen: (u64, u64),
    rate_per_s: Option<f64>,
}

impl WorkersPart {
    fn make_files(
        &self,
        ready: &Ready,
        folder: &Path,
        content: &[u8],
        open_dirs: usize,
        host: &HostContext,
    ) -> Result<(Vec<FileTree>, Population), PartError> {
        let own = folder.join(tree_name(ready, self.task.seed));
        let others = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for other in others.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if other.path() != own {
                remove_tree(&other.path());
            }
        }
        let (mut trees, mut all) = (Vec::new(), Population::default());
        for (number, set) in (0u64..).zip(&ready.program.filesets) {
            let filling = Filling {
                folder: &own,
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

fn size_note(bytes: u64) -> String {
    match bytes >> 20 {
        0 => String::new(),
        mib => format!(", up to {mib} MiB"),
    }
}

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
        let folder = peers.get::<FolderPart>(&task.folder)?.path;
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
        let began = Instant::now();
        let (trees, population) = self.make_files(&ready, &folder, content.all(), open_dirs, host)?;
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
        self.prepared = Some(Prepared { run, folder, population, populate_s, surroundings, notes });
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let prepared = self.prepared.take().ok_or_else(|| PartError::new("the workers were not prepared"))?;
        if monotonic_ns() > at_monotonic_ns {
            return Err(PartError::new("the workers' start time has passed"));
        }
        let watched = prepared.run.watch();
        let (stop, within) = (self.stop.clone(), self.task.durable_within.duration());
        let work = move || prepared.run(at_monotonic_ns, within, &stop);
        let thread = std::thread::Builder::new().name("files-run".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| PartError::new(format!("cannot start the run's thread: {error}")))?;
        let seen = (at_monotonic_ns, 0);
        self.under_way =
            Some(UnderWay { thread, watched, start_ns: at_monotonic_ns, seen, rate_per_s: None });
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        let Some(under_way) = &self.under_way else { return Progress::Running { done: Some(0.0) } };
        if under_way.thread.is_finished() {
            return Progress::Finished;
        }
        let whole_ns = self.task.omit.ns().saturating_add(self.task.hold.ns()).max(1);
        let done = monotonic_ns().saturating_sub(under_way.start_ns) as f64 / whole_ns as f64;
        Progress::Running { done: Some(done.min(1.0)) }
    }

    fn live(&mut self) -> Live {
        let Some(under_way) = &mut self.under_way else { return Live::new() };
        let now_ns = monotonic_ns();
        let (then_ns, before) = under_way.seen;
        if now_ns.saturating_sub(then_ns) >= LIVE_NS {
            let operations = under_way.watched.operations();
            let s = now_ns.saturating_sub(then_ns) as f64 / 1e9;
            under_way.rate_per_s = Some(operations.saturating_sub(before) as f64 / s);
            under_way.seen = (now_ns, operations);
        }
        under_way.rate_per_s.map(|rate| ("ops_per_s".to_owned(), rate)).into_iter().collect()
    }

    fn stop(&mut self) -> Result<WorkersReport, PartError> {
        let Some(under_way) = self.under_way.take() else {
            return Err(PartError::new("the workers were not started, so there is no report"));
        };
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + LEAVE;
        while !under_way.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !under_way.thread.is_finished() {
            return Err(PartError::new("the run did not end after its stop; please report this"));
        }
        under_way.thread.join().map_err(|_| PartError::new("the run panicked; please report this"))
    }
}

impl Drop for WorkersPart {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Prepared {
    fn run(self, start_ns: u64, durable_within: Duration, stop: &Arc<AtomicBool>) -> WorkersReport {
        let dir = File::open(&self.folder).map(OwnedFd::from);
        let mut device = block_device_of_path(Path::new("/"), &self.folder)
            .ok()
            .flatten()
            .and_then(|device| BlockDeviceReader::open(&device).ok());
        let mut busy_ns = || device.as_mut()?.read().ok().map(|reading| (reading.busy_ns, monotonic_ns()));
        self.run.begin(start_ns);
        sleep_until_ns(start_ns);
        let before = busy_ns();
        let mut run = self.run.wait(stop);
        let busy = before.zip(busy_ns()).map(|((busy, from), (busy_after, to))| {
            100.0 * busy_after.saturating_sub(busy) as f64 / to.saturating_sub(from).max(1) as f64
        });
        let mut surroundings = self.surroundings;
        surroundings.disk_busy_percent = busy.map(|percent| percent.min(100.0));
        let memory = HostMemory::open(Path::new("/")).and_then(|mut memory| memory.read()).ok();
        surroundings.dirty_bytes = memory.and_then(|memory| memory.dirty_bytes);
        run.durable = match dir {
            Ok(dir) if !stop.load(Ordering::Relaxed) => sync_file_system(dir, durable_within, stop),
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
        }
    }
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
