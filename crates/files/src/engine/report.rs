//! What a run counted.

use std::collections::BTreeMap;

use base::histogram::Histogram;
use serde::{Deserialize, Serialize};
use wml::Kind;

use super::recorder::RowCounts;

/// Why a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Its time was over.
    Time,
    /// Its threads had nothing more to do.
    Done,
    /// A thread found no file that fits.
    Exhausted(String),
    /// The storage, or the program, could not go on.
    Failed(String),
    /// The user stopped it.
    Stopped,
}

/// One flowop, all threads together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    pub name: String,
    pub kind: String,
    /// Whether it counts in the sums of the run.
    pub is_counted: bool,
    pub reads: bool,
    pub writes: bool,
    pub count: u64,
    pub bytes: u64,
    pub sum_ns: u64,
    pub times: Histogram,
    /// From the start on, also before the judged time.
    pub all_count: u64,
    /// Failed calls, by their message.
    pub errors: BTreeMap<String, u64>,
}

impl RowReport {
    pub(crate) fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.word().to_owned(),
            is_counted: kind.is_counted(),
            reads: kind.reads(),
            writes: kind.writes(),
            count: 0,
            bytes: 0,
            sum_ns: 0,
            times: Histogram::default(),
            all_count: 0,
            errors: BTreeMap::new(),
        }
    }
}

impl RowReport {
    /// A kind of request to an object store.
    pub(crate) fn of_requests(name: &str, method: &str) -> Self {
        let mut row = Self::new(name, Kind::StatFile);
        method.clone_into(&mut row.kind);
        (row.reads, row.writes) = (name.ends_with("get"), name.ends_with("put"));
        row
    }

    pub(crate) fn add(&mut self, counts: &RowCounts) {
        self.count += counts.count;
        self.bytes += counts.bytes;
        self.sum_ns += counts.sum_ns;
        self.all_count += counts.all_count;
        counts.times.add_to(&mut self.times);
        for (message, count) in &counts.errors {
            *self.errors.entry(message.clone()).or_default() += count;
        }
    }
}

/// The threads' CPU time and waits within the judged time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuReport {
    pub user_s: f64,
    pub system_s: f64,
    /// Ready to run, without a CPU; `None`: the kernel does not say.
    pub ready_s: Option<f64>,
    /// How often threads waited in the kernel, and how often they had to leave their CPU.
    pub waits: u64,
    pub preemptions: u64,
}

/// Where threads waited in the kernel, as single looks at some of them found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitSamples {
    pub looks: u64,
    /// Looks that found a thread waiting, by the kernel's function.
    pub by_function: BTreeMap<String, u64>,
}

/// One host's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    pub threads: u64,
    /// Threads that did not end, and whose counts are missing.
    pub hanging: u64,
    pub ended: Ended,
    /// The judged time, in seconds after the start.
    pub from_s: f64,
    pub to_s: f64,
    pub rows: Vec<RowReport>,
    pub cpu: CpuReport,
    /// CPUs that the threads may use.
    pub cpus: u64,
    /// Operations in each interval from the start of the judged time on.
    pub intervals: Vec<u64>,
    pub interval_s: f64,
    /// Rounds that began late, of an open loop.
    pub late_rounds: u64,
    pub rounds: u64,
    pub rate_per_s: Option<f64>,
    #[serde(default)]
    pub waits: WaitSamples,
    pub durable: Durable,
    /// How long this program or the machine did not run within the judged time (stopped, suspended).
    #[serde(default)]
    pub paused_s: f64,
    /// Bytes that this program read from storage within the judged time; `None`: unknown.
    #[serde(default)]
    pub storage_read_bytes: Option<u64>,
}

/// When everything that was written was durable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durable {
    /// So long after the end of the run.
    After {
        s: f64,
    },
    /// Not within the time that it was given; `left`: what is missing, as far as it is known.
    NotWithin {
        s: f64,
        #[serde(default)]
        left: Option<String>,
    },
    /// A program serves the mount, and only it could say when its backend has everything.
    BehindMount {
        file_system: String,
    },
    Failed {
        why: String,
    },
    #[default]
    Unknown,
}
