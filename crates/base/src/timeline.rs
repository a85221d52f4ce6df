//! A program's timeline: how long its system calls took, and the picture of them. Plain data.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Whether a thread kept its CPU during a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallState {
    /// It did: the call was carried out at once.
    Ready,
    /// It was switched out inside the call, nearly always because it waited.
    Blocked,
    /// This system does not report it.
    #[default]
    Unknown,
}

impl CallState {
    /// Its name: `ready`, `blocked`, `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRow {
    /// The kernel's name of the call (syscalls(2)), or of the span.
    pub name: String,
    /// Whether the thread was switched out inside.
    pub state: CallState,
    pub count: u64,
    /// The time that half of them took at most, us.
    pub p50_us: f64,
    pub mean_us: f64,
    /// The time that 99 of 100 took at most, us.
    pub p99_us: f64,
    pub max_us: f64,
    /// All their time over the time watched. Several threads that are in calls at once can exceed 1.
    pub wall_share: f64,
    /// How many of the blocked calls were only preempted, and did not wait; `None`: unknown.
    pub preempted: Option<u64>,
    /// The sum of what they returned where it was positive: bytes, for calls that move bytes.
    pub returned: u64,
}

/// One kind of network softirq on one CPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SoftirqRow {
    /// `NET_RX` (receiving) or `NET_TX` (what is left of sending).
    pub name: String,
    pub cpu: u32,
    pub count: u64,
    /// From the beginning of one to that of the next, us; `None` for a single one.
    pub period_p50_us: Option<f64>,
    pub period_mean_us: Option<f64>,
    /// 99th percentile of the same, us.
    pub period_p99_us: Option<f64>,
    pub run_p50_us: f64,
    pub run_mean_us: f64,
    /// 99th percentile of the same, us.
    pub run_p99_us: f64,
    /// Its time over the time watched.
    pub wall_share: f64,
}

/// Calls that had not ended when the watching did, or in which their thread was ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnfinishedRow {
    /// The kernel's name of the call.
    pub name: String,
    pub count: u64,
    /// The longest of them so far, s; counted from the beginning of the watching for those that began
    /// before.
    pub longest_s: f64,
    /// How many of them began before the watching, and so last longer than it.
    pub began_before: u64,
    /// All their time while it was watched, over the time watched.
    #[serde(default)]
    pub wall_share: f64,
}

/// What tracing costs a call, found by tracing a call that does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TraceCost {
    /// CPU time of that call untraced, ns, median.
    pub untraced_ns: f64,
    /// Traced, ns, median.
    pub traced_ns: f64,
    /// How many batches of calls each median is of.
    pub batches: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallTimes {
    /// What was watched: a command line, `pid N (NAME)`, or one of our own parts.
    pub target: String,
    pub ended: Option<String>,
    /// How long it was watched, s.
    pub wall_s: f64,
    pub processes: u64,
    pub threads: u64,
    /// By time, the most first.
    pub calls: Vec<CallRow>,
    /// By kind and CPU.
    pub softirqs: Vec<SoftirqRow>,
    /// Calls without an end.
    pub unfinished: Vec<UnfinishedRow>,
    /// Which way: `bpf` or `perf` through the kernel, or [`IN_PROCESS`].
    pub backend: String,
    /// Why it was not a better one.
    pub backend_because: Option<String>,
    /// Events that the kernel counted: those delivered and those lost.
    pub events_counted: u64,
    pub events: u64,
    /// Events that found no room.
    pub events_lost: u64,
    /// Calls that are missing in the table because of that, by the kernel's count of calls.
    pub calls_lost: u64,
    /// What tracing added to each call, ns; `None` if it could not be distinguished from noise.
    pub cost_ns_per_call: Option<f64>,
    pub cost: Option<TraceCost>,
    pub doubts: Vec<String>,
}

/// Calls with less than this share of the elapsed time do not explain it.
pub const LITTLE: f64 = 0.5;

impl CallTimes {
    /// The time of all calls together, also of the unfinished ones, over the time watched.
    pub fn wall_share(&self) -> f64 {
        let unfinished = self.unfinished.iter().map(|row| row.wall_share);
        self.calls.iter().map(|row| row.wall_share).chain(unfinished).sum()
    }
}

/// The name of the backend that times a program's own spans from within.
pub const IN_PROCESS: &str = "in-process";

/// One call in the picture. Times are ns from the picture's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSpan {
    pub from_ns: u64,
    /// When it ended, or the picture did.
    pub to_ns: u64,
    /// Which call: an index into [`Picture::names`].
    pub name: u16,
    /// Whether the thread was switched out inside.
    pub state: CallState,
    /// Whether its end was not seen.
    pub unfinished: bool,
    /// What it returned; an error is negative.
    pub returned: i64,
}

/// One thread's calls, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadLane {
    pub thread: u32,
    pub process: u32,
    /// Its last name; empty if unknown.
    pub name: String,
    /// In order of time, none overlapping.
    pub calls: Vec<CallSpan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSpan {
    /// When it began, ns from the picture's beginning.
    pub from_ns: u64,
    pub to_ns: u64,
    /// The thread, as an index into [`Picture::threads`]; or the softirq: 2 NET_TX, 3 NET_RX.
    pub what: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuLane {
    pub cpu: u32,
    /// The followed threads that ran on it, in order of time, none overlapping.
    pub runs: Vec<CpuSpan>,
    pub softirqs: Vec<CpuSpan>,
}

/// A stretch in which events were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// From when, ns from the picture's beginning.
    pub from_ns: u64,
    pub to_ns: u64,
    pub cpu: u32,
    pub events: u64,
}

/// A number of bytes over time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counter {
    pub name: String,
    /// When it was so much: ns from the picture's beginning, bytes.
    pub points: Vec<(u64, u64)>,
}

/// Everything in order of time: what is drawn and exported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Picture {
    /// How long it is, ns.
    pub length_ns: u64,
    pub names: Vec<String>,
    /// Every thread that was followed, in order of process and start.
    pub threads: Vec<ThreadLane>,
    pub cpus: Vec<CpuLane>,
    pub counters: Vec<Counter>,
    pub losses: Vec<Loss>,
    /// Spans that were not kept because there were too many, and from when on.
    pub left_out: Option<(u64, u64)>,
}

impl Picture {
    pub fn spans(&self) -> usize {
        let of_cpus = self.cpus.iter().map(|cpu| cpu.runs.len() + cpu.softirqs.len());
        self.threads.iter().map(|thread| thread.calls.len()).chain(of_cpus).sum()
    }
}

pub fn softirq_name(vector: u32) -> &'static str {
    if vector == 2 { "NET_TX" } else { "NET_RX" }
}

/// How long calls of one kind took.
#[derive(Debug, Clone, Default)]
pub struct Times {
    histogram: Histogram,
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

impl Times {
    pub fn add(&mut self, ns: u64) {
        self.histogram.record_ns(ns);
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds durations that were counted elsewhere: each in ns with its number, and the exact sum and maximum
    /// of all.
    pub fn add_counted(&mut self, durations: &[(u64, u64)], total_ns: u64, max_ns: u64) {
        for &(ns, count) in durations {
            self.histogram.record_ns_times(ns, count);
            self.count += count;
        }
        self.total_ns += total_ns;
        self.max_ns = self.max_ns.max(max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// A percentile of the times, us.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        // The exact maximum bounds what the histogram's steps round up.
        self.histogram.percentile_ns(percent).unwrap_or(0).min(self.max_ns) as f64 / 1e3
    }

    /// Mean, us; 0 of none.
    pub fn mean_us(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64 / 1e3
    }

    /// Their time over the time watched.
    pub fn share_of(&self, wall_ns: u64) -> f64 {
        if wall_ns == 0 { 0.0 } else { self.total_ns as f64 / wall_ns as f64 }
    }

    /// As a row of the table; what they returned and how many were preempted is not known here.
    pub fn row(&self, name: String, state: CallState, wall_ns: u64) -> CallRow {
        CallRow {
            name,
            state,
            count: self.count,
            p50_us: self.percentile_us(50.0),
            mean_us: self.mean_us(),
            p99_us: self.percentile_us(99.0),
            max_us: self.max_ns as f64 / 1e3,
            wall_share: self.share_of(wall_ns),
            ..CallRow::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_counts_are_added_to_own() {
        let mut times = Times::default();
        times.add(1000);
        times.add_counted(&[(2000, 3)], 6010, 2010);
        assert_eq!((times.count(), times.mean_us()), (4, 7.01 / 4.0));
        let row = times.row("send".into(), CallState::Ready, 14_020);
        assert_eq!((row.max_us, row.wall_share, row.preempted), (2.01, 0.5, None));
        assert!(row.p50_us <= row.p99_us && row.p99_us <= row.max_us);
        assert_eq!(Times::default().share_of(0), 0.0);
    }
}
