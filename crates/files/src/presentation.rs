//! What is shown of a trial, the resource that only file calls have, and the doubts.

use base::doubt::WorkloadDoubt;
use base::format::number;
use base::limit_rules::WAITING;
use base::outcome::ResourceSpec;
use base::workload::{Panel, Presentation};
use serde::Serialize;

/// Waits within file calls: locks of the file system, or the storage behind it.
pub static FILE_CALLS: ResourceSpec = ResourceSpec {
    name: "file_calls",
    label: "the file system's waits",
    unit: "",
    unit_suffix: "share",
    remedy: "fewer threads in one directory, or a faster disk or server behind the mount",
    rule: WAITING,
};

pub static PRESENTATION: Presentation = Presentation {
    target: "file system",
    live_rates: &[("ops_per_s", "operations")],
    panels_above: &[Panel { title: "operations per second", series: &["ops_per_s"], has_stalls: false }],
    resources: &[&FILE_CALLS],
    columns_note: "",
    ..Presentation::DEFAULT
};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum FilesDoubt {
    /// The files fit into memory, so that reads come from the page cache.
    FilesInMemory { data_ram_percent: f64 },
    /// What was written was not durable when the wait for it ended.
    NotDurable { waited_s: f64 },
    /// The time until everything is durable could not be measured.
    DurableUnknown { why: String },
    /// Rounds of an open loop began late.
    RoundsLate { late_percent: f64 },
    /// Threads did not end, and their counts are missing.
    ThreadsHang { threads: u64 },
    /// What of the program has no effect.
    ProgramNote { note: String },
}

impl WorkloadDoubt for FilesDoubt {
    fn message(&self) -> String {
        match self {
            Self::FilesInMemory { data_ram_percent } => format!(
                "the files take {} % of the memory, so that the page cache can hold them",
                number(*data_ram_percent)
            ),
            Self::NotDurable { waited_s } => {
                format!("{} s after the run not everything that was written was durable", number(*waited_s))
            }
            Self::DurableUnknown { why } => format!("the time until all is durable is unknown: {why}"),
            Self::RoundsLate { late_percent } => {
                format!("{} % of the rounds began later than intended", number(*late_percent))
            }
            Self::ThreadsHang { threads } => {
                format!("{threads} threads hang in a file call, and their counts are missing")
            }
            Self::ProgramNote { note } => note.clone(),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::FilesInMemory { .. } => {
                "use more or larger files (--set nfiles=...), or --cold for the first read"
            }
            Self::NotDurable { .. } => {
                "wait longer (--durable-within), and compare storage by the durable rate"
            }
            Self::DurableUnknown { .. } => "see the file system's log (dmesg)",
            Self::RoundsLate { .. } => "use a lower --rate or more threads; latency includes the delay",
            Self::ThreadsHang { .. } => {
                "see whether the storage answers; a stale mount has to be mounted again"
            }
            Self::ProgramNote { .. } => "leave it out, or do it before the run",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::RoundsLate { late_percent } => *late_percent,
            Self::NotDurable { waited_s } => *waited_s,
            _ => 0.0,
        }
    }
}
