//! The files in which running `kagiri tune set` describe what they have set.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sys::netlink::NamespaceId;

use super::assignment::Assignment;
use crate::exit::Failure;
use crate::process_records::{ProcessRecords, RecordLock};

/// Larger files are no records.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// What a process has set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub pid: i32,
    /// When the process was started; with the pid, it names one process only.
    pub start_ticks: u64,
    /// Number of the network namespace.
    pub namespace: u64,
    pub settings: Vec<RecordedSetting>,
    /// Until when, in words.
    pub until: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedSetting {
    pub name: String,
    pub value: String,
}

impl Record {
    pub fn new(assignments: &[Assignment], until: String) -> anyhow::Result<Self> {
        let pid = std::process::id().cast_signed();
        let start_ticks = sys::proc::start_ticks(Path::new("/"), pid).context("cannot read this process")?;
        let settings = assignments
            .iter()
            .map(|one| RecordedSetting { name: one.setting.name.to_owned(), value: one.value.clone() });
        Ok(Self { pid, start_ticks, namespace: own_namespace()?, settings: settings.collect(), until })
    }

    pub fn write(&self) -> anyhow::Result<()> {
        records().write(self.pid, self)
    }

    pub fn remove(&self) {
        records().remove(self.pid);
    }

    /// `net.ipv4.tcp_sack=0, net.ipv4.tcp_wmem=4096 16384 4194304`
    pub fn assignments(&self) -> String {
        let all: Vec<String> =
            self.settings.iter().map(|one| format!("{}={}", one.name, one.value)).collect();
        all.join(", ")
    }
}

/// All of running processes, in the order of their ids.
/// Errors: the folder cannot be read.
pub fn running() -> anyhow::Result<Vec<Record>> {
    let read = |path: &Path| {
        let text = sys::file::read_text(path, RECORD_BYTES_MAX).ok()?;
        serde_json::from_str(&text).ok()
    };
    records().of_running(read, |record: &Record| (record.pid, record.start_ticks), |_| {})
}

/// Locks the settings in this network namespace: of two processes that set one at a time, the second would
/// take the value of the first for the original.
/// Errors: another process has set one of them.
pub fn lock(assignments: &[Assignment]) -> Result<Vec<RecordLock>, Failure> {
    let namespace = own_namespace()?;
    let take = |one: &Assignment| -> Result<RecordLock, Failure> {
        let name = one.setting.name;
        match records().try_lock(&format!("{namespace}-{name}"))? {
            Some(lock) => Ok(lock),
            None => Err(set_already(namespace, name)?),
        }
    };
    assignments.iter().map(take).collect()
}

fn set_already(namespace: u64, name: &str) -> anyhow::Result<Failure> {
    let has = |record: &Record| {
        record.namespace == namespace && record.settings.iter().any(|setting| setting.name == name)
    };
    // It may have no record yet.
    let other = match running()?.into_iter().find(has) {
        Some(record) => format!("process {} ('kagiri tune set', {})", record.pid, record.until),
        None => "another 'kagiri tune set'".to_owned(),
    };
    Ok(Failure::runtime(format!("{other} has set {name} already; end it with 'kagiri tune undo'")))
}

/// Number of this process's network namespace.
pub fn own_namespace() -> anyhow::Result<u64> {
    Ok(NamespaceId::of_this_thread().context("cannot name the network namespace")?.inode())
}

fn records() -> ProcessRecords {
    ProcessRecords::new("tune")
}
