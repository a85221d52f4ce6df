//! The files in which policies in force say what they do: one per process, beside the undo journals.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use qos::daemon::{SocketStatus, Status};
use serde::{Deserialize, Serialize};
use sys::netlink::NamespaceId;

use crate::process_records::{ProcessRecords, RecordLock};

/// Larger files are no records.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Records are written every second.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// The kernel counts whole bytes per second.
const SAME: f64 = 0.001;

/// A policy in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub pid: i32,
    /// When the process was started; with the pid, it names one process only.
    pub start_ticks: u64,
    pub policy: String,
    /// Number of the network namespace.
    pub namespace: u64,
    /// Time that the policy has been in force, in seconds.
    pub age_s: f64,
    pub status: Status,
}

impl Record {
    /// Writes it, completely or not at all.
    pub fn write(&self) -> anyhow::Result<()> {
        records().write(self.pid, self)
    }

    /// Folder that its metrics are served from.
    pub fn metrics_folder(&self) -> PathBuf {
        metrics_folder_of(self.pid)
    }

    pub fn remove(&self) {
        let _ = fs::remove_dir_all(self.metrics_folder());
        records().remove(self.pid);
    }
}

/// All records, in the order of their process ids; those whose process has ended are removed.
/// Errors: The folder cannot be read.
pub fn in_force() -> anyhow::Result<Vec<Record>> {
    let remove_metrics = |record: &Record| {
        let _ = fs::remove_dir_all(record.metrics_folder());
    };
    records().of_running(read, |record| (record.pid, record.start_ticks), remove_metrics)
}

/// Keeps other processes from enforcing a policy at an interface, until it is dropped or this process ends.
pub struct InterfaceLock {
    _lock: RecordLock,
}

impl InterfaceLock {
    /// `None`: another process has it.
    /// Errors: the file of the lock cannot be made.
    pub fn try_take(namespace: u64, interface_number: u32) -> anyhow::Result<Option<Self>> {
        let lock = records().try_lock(&format!("{namespace}-{interface_number}"))?;
        Ok(lock.map(|lock| Self { _lock: lock }))
    }
}

/// Whether the kernel paces a socket as was asked.
pub fn is_same_rate(socket: &SocketStatus) -> bool {
    match (socket.asked_bit_per_s, socket.verified_bit_per_s) {
        (Some(asked), Some(found)) => (found / asked - 1.0).abs() <= SAME,
        _ => false,
    }
}

/// Number of this process's network namespace.
pub fn own_namespace() -> anyhow::Result<u64> {
    Ok(NamespaceId::of_this_thread().context("cannot name the network namespace")?.inode())
}

fn read(path: &Path) -> Option<Record> {
    let text = sys::file::read_text(path, RECORD_BYTES_MAX).ok()?;
    let mut record: Record = serde_json::from_str(&text).ok()?;
    let written = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    if let Some(age) = written.elapsed().ok().filter(|age| *age > STALE_AFTER) {
        let problem = format!(
            "This is {} s old: process {} is stopped, or cannot write its record.",
            age.as_secs(),
            record.pid
        );
        record.status.problems.insert(0, problem);
    }
    Some(record)
}

fn records() -> ProcessRecords {
    ProcessRecords::new("qos")
}

fn metrics_folder_of(pid: i32) -> PathBuf {
    records().folder().join(format!("{pid}.metrics"))
}
