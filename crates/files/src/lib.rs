//! The `files` workload: how much file work does a storage carry, and what limits it?
//!
//! A program in WML, filebench's language (crate `wml`), describes files, threads and operations. Two parts:
//! [`parts::folder`] has a folder of kagiri's own in the directory under test for as long as a variant is
//! measured; [`parts::workers`] makes the files ([`tree`]) and runs the threads ([`engine`]) of one trial.
//! [`judge`] derives numbers and a verdict from their reports.

mod account;
pub mod engine;
mod judge;
mod limit;
pub mod metrics;
pub mod parts;
pub mod personalities;
pub mod presentation;
pub mod program;
pub mod report;
pub mod settings;
mod totals;
pub mod tree;

use std::path::PathBuf;
use std::time::Duration;

use base::metric::MetricSpec;
use base::part::{PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::LoadPlan;
use base::workload::{Judgement, Presentation, TrialContext};
use workload::Workload;
use workload::part::{self, Peers, Reports};

use self::parts::folder::FolderPart;
use self::parts::workers::{WorkersPart, WorkersTask};
use self::settings::FilesSettings;
use self::totals::Totals;

pub struct Files;

/// The role of the hosts whose threads work on the files, and the name of that part.
pub const WORKERS: &str = "workers";
const FOLDER: &str = "folder";

/// Files that have to be made first, and calls under way at the end.
const OVERTIME: Duration = Duration::from_secs(3600);

impl Workload for Files {
    const NAME: &'static str = "files";
    type Settings = FilesSettings;

    fn load_unit(&self, _: &FilesSettings) -> &'static str {
        "threads"
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    fn headline_metrics(&self, settings: &FilesSettings) -> &'static [&'static str] {
        if settings.search.is_some() { &[] } else { metrics::HEADLINE }
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
        const { &[part::kind::<FolderPart>(), part::kind::<WorkersPart>()] }
    }

    fn load_plan(&self, settings: &FilesSettings) -> LoadPlan {
        settings.load_plan()
    }

    fn max_overtime(&self, settings: &FilesSettings) -> Duration {
        OVERTIME + settings.omit.duration() + settings.durable_within.duration()
    }

    /// What was done until then was done. A load that is searched is judged by its whole hold.
    fn keeps_interrupted(&self, settings: &FilesSettings) -> bool {
        settings.search.is_none()
    }

    fn standing(&self, settings: &FilesSettings, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        let dir = settings.dir.as_ref().ok_or_else(|| {
            PartError::usage(
                "files.dir: give the directory to be measured; kagiri works in a folder of its own in it",
            )
        })?;
        let hosts = placement.hosts(WORKERS);
        let folder = |host: &&str| {
            part::spec::<FolderPart>(part::name(FOLDER, host, hosts.len() == 1), host, &PathBuf::from(dir))
        };
        hosts.iter().map(folder).collect()
    }

    fn offering(
        &self,
        settings: &FilesSettings,
        trial: &TrialContext,
        _: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let source = settings.source().map_err(PartError::usage)?;
        let hosts = placement.hosts(WORKERS);
        let is_only_host = hosts.len() == 1;
        let workers = |host: &&str| {
            let task = WorkersTask {
                folder: part::name(FOLDER, host, is_only_host),
                source: source.clone(),
                set: settings.set.clone(),
                // Without a search the load is what the program says.
                threads: settings.search.as_ref().map(|_| trial.load).or(settings.threads),
                is_strict: settings.strict,
                is_cold: settings.cold,
                omit: settings.omit,
                hold: trial.hold,
                rate_per_s: settings.rate.map(|rate| rate / hosts.len().max(1) as f64),
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
        _: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError> {
        let reports = reports.of_role::<WorkersPart>(WORKERS)?.into_iter().map(|(_, report)| report);
        let reports: Vec<_> = reports.collect();
        if reports.is_empty() {
            return Err(PartError::new("no host reported"));
        }
        Ok(judge::judge(settings, &Totals::of(reports)))
    }
}
