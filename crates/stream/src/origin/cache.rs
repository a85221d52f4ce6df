//! The part `stream.cache`: drops the content from the page cache of the server's host before a cold trial.

use std::path::PathBuf;

use base::part::{HostContext, PartError, Progress};
use base::permit::SystemChange;
use serde::{Deserialize, Serialize};
use sys::disk;
use workload::part::{Part, Peers};

use crate::doubt::StreamDoubt;

/// Checks of the file read a page or two back; more than this is a warm cache.
const RESIDENT_PERCENT_MAX: f64 = 2.0;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CacheTask {
    pub path: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CacheReport {
    /// `None` where the kernel does not tell this user.
    resident_percent: Option<f64>,
}

impl CacheReport {
    pub(crate) fn doubt(&self) -> Option<StreamDoubt> {
        let resident_percent = self.resident_percent;
        resident_percent
            .is_none_or(|percent| percent > RESIDENT_PERCENT_MAX)
            .then_some(StreamDoubt::CacheNotCold { resident_percent })
    }
}

/// The content in the page cache of the server's host.
pub struct ContentCache {
    path: PathBuf,
    resident_percent: Option<f64>,
}

impl ContentCache {
    fn resident_percent(&self) -> Result<Option<f64>, PartError> {
        let failed = |error: &dyn std::fmt::Display| {
            PartError::new(format!("cannot see how much of {} is in memory: {error}", self.path.display()))
        };
        let bytes = std::fs::metadata(&self.path).map_err(|error| failed(&error))?.len();
        let resident = disk::resident_bytes(&self.path).map_err(|error| failed(&error))?;
        Ok(resident.map(|resident| resident as f64 * 100.0 / bytes.max(1) as f64))
    }
}

impl Part for ContentCache {
    const KIND: &'static str = "stream.cache";
    type Task = CacheTask;
    type Endpoint = ();
    type Report = CacheReport;

    fn new(task: CacheTask) -> Result<Self, PartError> {
        Ok(Self { path: task.path, resident_percent: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        host.permit.directory(&self.path)?;
        host.permit.system_change(SystemChange::Cache)?;
        disk::drop_file_cache(&self.path).map_err(PartError::new)?;
        self.resident_percent = self.resident_percent()?;
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        Progress::Finished
    }

    fn stop(&mut self) -> Result<CacheReport, PartError> {
        Ok(CacheReport { resident_percent: self.resident_percent })
    }
}
