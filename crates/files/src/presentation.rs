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

/// Locks that the kernel takes of a file, a directory or the whole file system.
pub static LOCKS: ResourceSpec = ResourceSpec {
    name: "locks",
    label: "locks of the file system",
    unit: "",
    unit_suffix: "share",
    remedy: "files and directories of their own for the threads, or fewer threads",
    rule: WAITING,
};

pub static JOURNAL: ResourceSpec = ResourceSpec {
    name: "journal",
    label: "the file system's journal",
    unit: "",
    unit_suffix: "share",
    remedy: "fewer fsyncs, a journal on a faster device, or another file system",
    rule: WAITING,
};

/// A FUSE server, and what it waits for itself.
pub static MOUNT_PROGRAM: ResourceSpec = ResourceSpec {
    name: "mount_program",
    label: "the program that serves the mount",
    unit: "",
    unit_suffix: "share",
    remedy: "more threads of that program, or a faster backend behind it",
    rule: WAITING,
};

/// Time until the object store answers.
pub static RESPONSES: ResourceSpec = ResourceSpec {
    name: "responses",
    label: "the server's response time",
    unit: "",
    unit_suffix: "share",
    remedy: "more workers, as long as the rate grows with them, or a faster server",
    rule: WAITING,
};

pub static PRESENTATION: Presentation = Presentation {
    target: "file system",
    live_rates: &[("ops_per_s", "operations")],
    panels_above: &[Panel { title: "operations per second", series: &["ops_per_s"], has_stalls: false }],
    resources: &[&FILE_CALLS, &LOCKS, &JOURNAL, &MOUNT_PROGRAM, &RESPONSES],
    is_brief: true,
    ..Presentation::DEFAULT
};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum FilesDoubt {
    /// The files fit into memory, so that reads come from the page cache.
    FilesInMemory {
        data_ram_percent: f64,
        /// Share of the bytes read; `None`: unknown.
        cached_percent: Option<f64>,
        /// The page cache had forgotten them before the run.
        was_cold: bool,
    },
    /// This program or the machine did not run for a time.
    Paused { paused_s: f64, paused_percent: f64 },
    /// What was written was not durable when the wait for it ended.
    NotDurable { waited_s: f64, left: Option<String> },
    /// It is not known on this host when the storage behind the mount has everything.
    DurableBehindMount { file_system: String },
    /// The time until everything is durable could not be measured.
    DurableUnknown { why: String },
    /// Rounds of an open loop began late.
    RoundsLate { late_percent: f64 },
    /// Threads did not end, and their counts are missing.
    ThreadsHang { threads: u64 },
    /// The server refused requests because there were too many.
    SlowedDown { percent: f64 },
    /// What of the program has no effect.
    ProgramNote { note: String },
}

impl WorkloadDoubt for FilesDoubt {
    fn message(&self) -> String {
        match self {
            Self::FilesInMemory { data_ram_percent, cached_percent, .. } => {
                let memory = number(*data_ram_percent);
                match cached_percent {
                    Some(percent) => format!(
                        "the page cache served {} % of the bytes read: the files take {memory} % of the \
                         memory",
                        number(*percent)
                    ),
                    None => format!(
                        "the files take {memory} % of the memory, so that the page cache can hold them; \
                         what share of the reads it served is unknown"
                    ),
                }
            }
            Self::Paused { paused_s, paused_percent } => format!(
                "kagiri did not run for {} s, {} % of the measured time: it was stopped, or the machine \
                 paused",
                number(*paused_s),
                number(*paused_percent)
            ),
            Self::NotDurable { waited_s, left } => format!(
                "{} s after the run not everything that was written was durable{}",
                number(*waited_s),
                left.as_ref().map(|left| format!(": {left}")).unwrap_or_default()
            ),
            Self::DurableBehindMount { file_system } => format!(
                "when all is durable behind the mount ({file_system}) is unknown: syncfs does not reach its \
                 backend"
            ),
            Self::DurableUnknown { why } => format!("the time until all is durable is unknown: {why}"),
            Self::RoundsLate { late_percent } => {
                format!("{} % of the rounds began later than intended", number(*late_percent))
            }
            Self::ThreadsHang { threads } => {
                format!("{threads} threads hang in a file call, and their counts are missing")
            }
            Self::SlowedDown { percent } => format!(
                "the server refused {} % of the requests (503): the others show its limit on requests",
                number(*percent)
            ),
            Self::ProgramNote { note } => note.clone(),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::FilesInMemory { was_cold: true, .. } => {
                "use more or larger files (--set nfiles=...), so that each is read once"
            }
            Self::Paused { .. } => "measure again without a pause; rates are lower by that share",
            Self::FilesInMemory { .. } => {
                "use more or larger files (--set nfiles=...), or --cold for the first read"
            }
            Self::NotDurable { .. } => {
                "wait longer (--durable-within), and compare storage by the durable rate"
            }
            Self::DurableBehindMount { .. } => {
                "name the backend's view of DIR, s3://BUCKET/PREFIX (--durable-at), which is then listed"
            }
            Self::DurableUnknown { .. } => "see the file system's log (dmesg)",
            Self::RoundsLate { .. } => "use a lower --rate or more threads; latency includes the delay",
            Self::ThreadsHang { .. } => {
                "see whether the storage answers; a stale mount has to be mounted again"
            }
            Self::SlowedDown { .. } => "use fewer threads or a lower --rate, or raise the server's limit",
            Self::ProgramNote { .. } => "leave it out, or do it before the run",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::RoundsLate { late_percent } => *late_percent,
            Self::Paused { paused_percent, .. } => *paused_percent,
            Self::NotDurable { waited_s, .. } => *waited_s,
            Self::SlowedDown { percent } => *percent,
            _ => 0.0,
        }
    }
}
