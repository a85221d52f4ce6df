//! The part `stream.cache`: before a cold trial it drops the content from the memory of the server's host.

use std::path::{Path, PathBuf};

use base::doubt::Doubt;
use base::part::{Endpoints, HostContext, Part, PartError, PartSpec, Progress};
use base::permit::SystemChange;
use serde_json::{Value, json};
use sys::disk;

/// A page or two are read back by whoever looks at the file; more than this is a warm cache.
const RESIDENT_PERCENT_MAX: f64 = 2.0;

struct Cache {
    path: PathBuf,
    resident_percent: Option<f64>,
}

/// Make the part from `{"path": ...}`.
///
/// # Errors
/// No path.
pub fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
    let path = spec.settings["path"].as_str().ok_or_else(|| {
        PartError::usage(
            "cold trials need the content's file on this host; give --content, or leave --cold out",
        )
    })?;
    Ok(Box::new(Cache { path: path.into(), resident_percent: None }))
}

/// The settings of the part for content at `path` (JSON null where it is not known).
pub fn settings(path: &Value) -> Value {
    json!({ "path": path })
}

/// The doubt about a cold trial, from the part's report.
pub fn doubt(report: &Value) -> Option<Doubt> {
    let resident_percent = report["resident_percent"].as_f64()?;
    (resident_percent > RESIDENT_PERCENT_MAX).then_some(Doubt::CacheNotCold { resident_percent })
}

fn resident_percent(path: &Path) -> Option<f64> {
    let bytes = std::fs::metadata(path).ok()?.len();
    let resident = disk::resident_bytes(path).ok()?;
    (bytes > 0).then(|| resident as f64 * 100.0 / bytes as f64)
}

impl Part for Cache {
    fn prepare(&mut self, _: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        host.permit.directory(&self.path)?;
        host.permit.system_change(SystemChange::Cache)?;
        disk::drop_file_cache(&self.path).map_err(PartError::new)?;
        self.resident_percent = resident_percent(&self.path);
        Ok(Value::Null)
    }

    fn start(&mut self, _: u64) -> Result<(), PartError> {
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        Progress::Finished
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        Ok(json!({ "resident_percent": self.resident_percent }))
    }
}
