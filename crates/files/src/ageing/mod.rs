//! The `ageing` workload: what do years of recording and deleting do to a disk's read rate, and overwriting
//! to a flash disk's write rate?
//!
//! One part, [`disk`], fills a file system, deletes and writes on it (crate `ageing`), and reads recordings
//! back before and after; or it overwrites a file until the write rate is steady. It has no load to search: a
//! trial is one ageing.

pub mod disk;
mod flash;
mod judge;
mod metrics;
pub mod settings;

use std::time::Duration;

use ageing::Procedure;
use base::limit_rules::WAITING_SIGN;
use base::metric::MetricSpec;
use base::outcome::ResourceSpec;
use base::part::{PartError, PartKind, PartSpec};
use base::placement::{Placement, Role};
use base::plan::{HoldTime, LoadPlan, TrialTime};
use base::units::Span;
use base::workload::{Judgement, Presentation, TrialContext};
use workload::Workload;
use workload::part::{self, Peers, Reports};

use self::disk::{DiskPart, DiskReport, DiskTask, Work};
use self::settings::AgeingSettings;
use crate::FOLDER;
use crate::parts::folder::{FolderPart, FolderTask};

pub struct FileAgeing;

/// The role of the host whose disk is aged, and the name of that part.
pub const DISK: &str = "disk";

/// However slow a disk is.
const OVERTIME: Duration = Duration::from_secs(12 * 3600);

/// Seeks of a disk between the pieces of its files.
pub static SEEKS: ResourceSpec = ResourceSpec {
    name: "seeks",
    label: "seeks",
    unit: "",
    unit_suffix: "share",
    remedy: "a layout in larger pieces, such as the segment pool, or larger reads",
    rule: WAITING_SIGN,
};

static PRESENTATION: Presentation = Presentation {
    target: "disk",
    live_rates: &[("written_byte_per_s", "B written")],
    resources: &[&SEEKS],
    is_brief: true,
    ..Presentation::DEFAULT
};

impl Workload for FileAgeing {
    const NAME: &'static str = "ageing";
    const COMMAND: &'static str = "files age";
    type Settings = AgeingSettings;

    fn load_unit(&self, settings: &AgeingSettings) -> &'static str {
        match settings.procedure {
            Procedure::Files => "recordings",
            Procedure::Flash => "files",
        }
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        metrics::METRICS
    }

    fn headline_metrics(&self, settings: &AgeingSettings) -> &'static [&'static str] {
        match settings.procedure {
            Procedure::Files => metrics::HEADLINE,
            Procedure::Flash => metrics::HEADLINE_FLASH,
        }
    }

    fn presentation(&self) -> &'static Presentation {
        &PRESENTATION
    }

    fn roles(&self) -> &'static [Role] {
        &[Role { name: DISK, many: false, meaning: "Host whose file system is aged." }]
    }

    fn part_kinds(&self) -> &'static [PartKind] {
        // The folder's kind is that of `files`.
        const { &[part::kind::<DiskPart>()] }
    }

    fn load_plan(&self, settings: &AgeingSettings) -> LoadPlan {
        let load = match settings.procedure {
            Procedure::Files => u64::from(settings.recordings),
            Procedure::Flash => 1,
        };
        LoadPlan {
            load_first: load,
            load_max: load,
            fixed: Some(load),
            hold: Span::from_s(OVERTIME.as_secs()),
            search_hold: Span::from_s(OVERTIME.as_secs()),
            confirmations: 0,
            ramp_down: false,
            resolution: 0.05,
        }
    }

    fn trial_time(&self, _: &AgeingSettings) -> TrialTime {
        TrialTime { hold: HoldTime::Unknown, ..TrialTime::default() }
    }

    fn max_overtime(&self, _: &AgeingSettings) -> Duration {
        OVERTIME
    }

    fn standing(&self, settings: &AgeingSettings, placement: &Placement) -> Result<Vec<PartSpec>, PartError> {
        let dir = settings.dir.as_ref().map(Into::into);
        let task = FolderTask { dir, key: "ageing.dir".to_owned(), own: disk::own_paths() };
        Ok(vec![part::spec::<FolderPart>(FOLDER.to_owned(), placement.host(DISK), &task)?])
    }

    fn offering(
        &self,
        settings: &AgeingSettings,
        trial: &TrialContext,
        _: &Peers<'_>,
        placement: &Placement,
    ) -> Result<Vec<PartSpec>, PartError> {
        let work = match settings.procedure {
            Procedure::Files => Work::Files {
                severity: settings.severity,
                layout: settings.layout,
                recordings: settings.recordings,
                model: settings.model(),
            },
            Procedure::Flash => Work::Flash,
        };
        let task = DiskTask { folder: FOLDER.to_owned(), work, seed: trial.seed };
        Ok(vec![part::spec::<DiskPart>(DISK.to_owned(), placement.host(DISK), &task)?])
    }

    fn judge(
        &self,
        settings: &AgeingSettings,
        _: &TrialContext,
        reports: &Reports,
    ) -> Result<Judgement, PartError> {
        let report = reports.get::<DiskPart>(DISK)?;
        let report = report.ok_or_else(|| PartError::new("the host of the disk did not report"))?;
        Ok(match &report {
            DiskReport::Files(report) => judge::judge(settings, report),
            DiskReport::Flash(report) => flash::judge(report),
        })
    }
}
