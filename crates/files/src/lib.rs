//! The `files` workload: how much file work does a storage carry, and what limits it?
//!
//! A program in WML, filebench's language (crate `wml`), describes files, threads and operations. Two parts:
//! [`parts::folder`] has a folder of kagiri's own in the directory under test for as long as a variant is
//! measured; [`parts::workers`] makes the files ([`tree`]) and runs the threads ([`engine`]) of one trial.
//! For an object store, [`objects`] has the two parts. [`judge`] derives numbers and a verdict from their
//! reports.

mod account;
pub mod ageing;
mod backend;
pub mod engine;
mod judge;
mod limit;
pub mod metrics;
pub mod objects;
pub mod parts;
pub mod personalities;
pub mod presentation;
pub mod program;
pub mod report;
pub mod settings;
mod totals;
pub mod tree;
mod under_way;
mod waits;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::metric::MetricSpec;
use base::part::{PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::LoadPlan;
use base::workload::{Judgement, Presentation, TrialContext};
use sys::tree::OwnPaths;
use workload::Workload;
use workload::part::{self, Peers, Reports};

use self::objects::access::prefix::{PrefixPart, PrefixTask};
use self::objects::load::{ObjectsPart, ObjectsTask};
use self::parts::folder::{FolderPart, FolderTask};
use self::parts::workers::{WorkersPart, WorkersTask};
use self::report::WorkersReport;
use self::settings::FilesSettings;
use self::totals::Totals;

pub struct Files;

/// The role of the hosts whose threads work on the files, and the name of that part.
pub const WORKERS: &str = "workers";
const FOLDER: &str = "folder";
const PREFIX: &str = "prefix";

/// Files that have to be made first, and calls under way at the end.
const OVERTIME: Duration = Duration::from_secs(3600);

impl Workload for Files {
    const NAME: &'static str = "files";
    type Settings = FilesSettings;

    fn load_unit(&self, settings: &FilesSettings) -> &'static str {
        if settings.rate_search.is_some() { "operations per second" } else { "threads" }
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    fn headline_metrics(&self, settings: &FilesSettings) -> &'static [&'static str] {
        match () {
            () if settings.is_search() => &[],
            () if settings.object_store().is_some() => metrics::HEADLINE_OF_OBJECTS,
            () => metrics::HEADLINE,
        }
    }

    fn presentation(&self) -> &'static Presentation {
        &presentation::PRESENTATION
    }

    fn roles(&self) -> &'static [Role] {
        &[Role {
            name: WORKERS,
            many: true,
            meaning: "Hosts whose threads work on files in DIR, each with all.",
        }]
    }

    fn part_kinds(&self) -> &'static [PartKind] {
        const {
            &[
                part::kind::<FolderPart>(),
                part::kind::<WorkersPart>(),
                part::kind::<PrefixPart>(),
                part::kind::<ObjectsPart>(),
            ]
        }
    }

    fn load_plan(&self, settings: &FilesSettings) -> LoadPlan {
        settings.load_plan()
    }

    fn max_overtime(&self, settings: &FilesSettings) -> Duration {
        OVERTIME + settings.omit.duration() + settings.durable_within.duration()
    }

    /// What was done until then was done. A load that is searched is judged by its whole hold.
    fn keeps_interrupted(&self, settings: &FilesSettings) -> bool {
        !settings.is_search()
    }

    fn standing(&self, settings: &FilesSettings, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        let hosts = placement.hosts(WORKERS);
        if let Some(target) = settings.object_store() {
            let task =
                PrefixTask { under: target.map_err(PartError::usage)?, allows_http: settings.allow_http };
            let prefix = |host: &&str| {
                part::spec::<PrefixPart>(part::name(PREFIX, host, hosts.len() == 1), host, &task)
            };
            return hosts.iter().map(prefix).collect();
        }
        let dir = settings.dir.as_ref().map(PathBuf::from);
        let source = settings.source().map_err(PartError::usage)?;
        let ready = source.evaluate(settings.set.iter(), None).map_err(PartError::usage)?;
        let own = own_paths(&ready.program.filesets);
        let task = FolderTask { dir, key: "files.dir".to_owned(), own };
        let folder =
            |host: &&str| part::spec::<FolderPart>(part::name(FOLDER, host, hosts.len() == 1), host, &task);
        hosts.iter().map(folder).collect()
    }

    fn offering(
        &self,
        settings: &FilesSettings,
        trial: &TrialContext,
        _: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let hosts = placement.hosts(WORKERS);
        if settings.object_store().is_some() {
            return offering_of_objects(settings, trial, &hosts);
        }
        let source = settings.source().map_err(PartError::usage)?;
        let is_only_host = hosts.len() == 1;
        let workers = |host: &&str| {
            let task = WorkersTask {
                folder: part::name(FOLDER, host, is_only_host),
                source: source.clone(),
                set: settings.set.clone(),
                // Without a search the load is what the program says.
                threads: settings.threads_of(trial.load),
                is_strict: settings.strict,
                is_cold: settings.cold,
                omit: settings.omit,
                hold: trial.hold,
                rate_per_s: settings.rate_of(trial.load).map(|rate| rate / hosts.len().max(1) as f64),
                durable_at: settings.backend().transpose().map_err(PartError::usage)?,
                allows_http: settings.allow_http,
                durable_within: settings.durable_within,
                seed: trial.seed,
            };
            part::spec::<WorkersPart>(part::name(WORKERS, host, is_only_host), host, &task)
        };
        hosts.iter().map(workers).collect()
    }

    fn judge(
        &self,
        settings: &FilesSettings,
        trial: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError> {
        let reports: Vec<WorkersReport> = match settings.object_store() {
            Some(_) => {
                reports.of_role::<ObjectsPart>(WORKERS)?.into_iter().map(|(_, report)| report).collect()
            }
            None => reports.of_role::<WorkersPart>(WORKERS)?.into_iter().map(|(_, report)| report).collect(),
        };
        if reports.is_empty() {
            return Err(PartError::new("no host reported"));
        }
        Ok(judge::judge(settings, settings.rate_of(trial.load), &Totals::of(reports)))
    }
}

/// What the workers make in their folder.
fn own_paths(sets: &[wml::Fileset]) -> OwnPaths {
    let set = |set: &wml::Fileset| Path::new(parts::workers::TREES).join(tree::own_path(set));
    // A program may have no files.
    OwnPaths::new(sets.iter().map(set).chain([PathBuf::from(parts::workers::TREES)]))
}

fn offering_of_objects(
    settings: &FilesSettings,
    trial: &TrialContext,
    hosts: &[&str],
) -> Result<Vec<PartSpec>, PartError> {
    let is_only_host = hosts.len() == 1;
    let workers = |host: &&str| {
        let task = ObjectsTask {
            prefix: part::name(PREFIX, host, is_only_host),
            threads: settings.threads_of(trial.load).unwrap_or(settings.workers()),
            objects: settings.object_count(),
            object_size: settings.object_sizes().to_owned(),
            mix: settings.mix.clone(),
            omit: settings.omit,
            hold: trial.hold,
            rate_per_s: settings.rate_of(trial.load).map(|rate| rate / hosts.len().max(1) as f64),
            request_within: settings.request_deadline(),
            allows_http: settings.allow_http,
            seed: trial.seed,
        };
        part::spec::<ObjectsPart>(part::name(WORKERS, host, is_only_host), host, &task)
    };
    hosts.iter().map(workers).collect()
}
