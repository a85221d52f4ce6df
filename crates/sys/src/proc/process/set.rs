//! A server as a set of processes: the given ones and all they have started.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Process, ProcessCpuReading, ProcessMemoryReading};
use crate::clock::Deadline;
use crate::proc::parse::{after_name, decimal, keyed_decimal, word_decimal, words};

/// Interval of scans for new threads and child processes.
const SCAN_EVERY: Duration = Duration::from_secs(1);

/// Reads CPU time, run-queue wait and memory of several processes and their descendants.
///
/// Threads and children are scanned once a second during [`ProcessSet::read_cpu`]. A child process
/// that starts and ends between two scans is missed; a thread is not. (Exact for both is the group's own
/// counter, see [`crate::proc::CgroupCpu`].)
#[derive(Debug)]
pub struct ProcessSet {
    root: PathBuf,
    processes: Vec<Process>,
    /// CPU and waiting time of processes that have ended.
    ended_cpu_ns: u64,
    ended_wait_ns: u64,
    wait_known: bool,
    scan_due: Deadline,
    page_bytes: u64,
}

impl ProcessSet {
    /// Opens `pids` and their descendants below `root`. Errors when none of `pids` exists.
    pub fn open(root: &Path, pids: &[i32]) -> io::Result<Self> {
        let mut this = Self {
            root: root.to_path_buf(),
            processes: Vec::new(),
            ended_cpu_ns: 0,
            ended_wait_ns: 0,
            wait_known: true,
            scan_due: Deadline::after(SCAN_EVERY),
            page_bytes: crate::proc::memory::page_bytes(),
        };
        let mut first_error = None;
        for pid in pids {
            if let Err(error) = this.add(*pid) {
                first_error.get_or_insert(error);
            }
        }
        if this.processes.is_empty() {
            return Err(first_error.unwrap_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "no process given to be watched")
            }));
        }
        this.find_descendants();
        Ok(this)
    }

    /// The processes watched now, oldest known first.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.processes.iter().map(|process| process.pid)
    }

    /// CPU time and waiting time now. With no process left, the reading holds the totals of those that were.
    pub fn read_cpu(&mut self) -> ProcessCpuReading {
        if self.scan_due.passed() {
            self.scan();
        }
        let mut reading = ProcessCpuReading {
            cpu_ns: self.ended_cpu_ns,
            run_wait_ns: self.wait_known.then_some(self.ended_wait_ns),
            processes: self.processes.len(),
            threads: 0,
        };
        for process in &mut self.processes {
            process.read_cpu();
            reading.cpu_ns = reading.cpu_ns.saturating_add(process.cpu_ns());
            reading.run_wait_ns =
                reading.run_wait_ns.zip(process.run_wait_ns()).map(|(a, b)| a.saturating_add(b));
            reading.threads += process.thread_count();
        }
        reading
    }

    /// Memory now; `None` when no process is left.
    pub fn read_memory(&mut self) -> Option<ProcessMemoryReading> {
        let mut sum: Option<ProcessMemoryReading> = None;
        for process in &self.processes {
            if let Some((resident, shared)) = process.read_memory_pages() {
                let sum = sum.get_or_insert_default();
                let anonymous = resident.saturating_sub(shared);
                sum.rss_bytes = sum.rss_bytes.saturating_add(resident.saturating_mul(self.page_bytes));
                sum.anonymous_bytes =
                    sum.anonymous_bytes.saturating_add(anonymous.saturating_mul(self.page_bytes));
            }
        }
        sum
    }

    /// Memory with what is shared divided among its users (PSS), bytes: exact for a server of several
    /// processes, but the kernel walks all their pages for it, so not for the hot loop. `None` when none
    /// allows it.
    pub fn proportional_bytes(&self) -> Option<u64> {
        let mut sum = None;
        for pid in self.pids() {
            let path = self.root.join("proc").join(pid.to_string()).join("smaps_rollup");
            let kib = std::fs::read(path).ok().and_then(|text| keyed_decimal(&text, b"Pss:"));
            if let Some(kib) = kib {
                sum = Some(sum.unwrap_or(0u64).saturating_add(kib.saturating_mul(1024)));
            }
        }
        sum
    }

    /// Scans for new threads and children now, and closes processes that have ended.
    pub fn scan(&mut self) {
        self.scan_due = Deadline::after(SCAN_EVERY);
        let mut at = 0;
        while at < self.processes.len() {
            let process = &mut self.processes[at];
            if process.is_alive(&self.root) && process.scan_tasks().is_ok() {
                at += 1;
                continue;
            }
            let ended = self.processes.swap_remove(at);
            self.ended_cpu_ns = self.ended_cpu_ns.saturating_add(ended.cpu_ns());
            match ended.run_wait_ns() {
                Some(wait_ns) => self.ended_wait_ns = self.ended_wait_ns.saturating_add(wait_ns),
                None => self.wait_known = false,
            }
        }
        self.find_descendants();
    }

    /// Watches `pid` as well; does nothing when it is already watched.
    pub fn add(&mut self, pid: i32) -> io::Result<()> {
        if !self.pids().any(|known| known == pid) {
            self.processes.push(Process::open(&self.root, pid)?);
        }
        Ok(())
    }

    fn find_descendants(&mut self) {
        // Processes found are appended and visited in turn, so grandchildren are found too.
        let mut at = 0;
        while at < self.processes.len() {
            for child in children(&self.root, &self.processes[at]) {
                // A child that has ended meanwhile cannot be opened.
                let _ = self.add(child);
            }
            at += 1;
        }
    }
}

/// The processes that `process` has started: from `children` of each of its threads (`CONFIG_PROC_CHILDREN`),
/// else by asking every process for its parent.
fn children(root: &Path, process: &Process) -> Vec<i32> {
    let tasks = root.join("proc").join(process.pid.to_string()).join("task");
    let mut found = Vec::new();
    let mut offered = false;
    for thread in process.thread_ids() {
        if let Ok(text) = std::fs::read(tasks.join(thread.to_string()).join("children")) {
            offered = true;
            found.extend(words(&text).filter_map(decimal).filter_map(|pid| i32::try_from(pid).ok()));
        }
    }
    if offered { found } else { children_by_parent(root, process.pid) }
}

fn children_by_parent(root: &Path, parent: i32) -> Vec<i32> {
    all_pids(root).into_iter().filter(|pid| parent_of(root, *pid).is_some_and(|of| of == parent)).collect()
}

/// The parent of `pid`, from field 4 of `/proc/PID/stat`.
pub(crate) fn parent_of(root: &Path, pid: i32) -> Option<i32> {
    stat_field(root, pid, 1)
}

/// The process group of `pid`, from field 5 of `/proc/PID/stat`.
pub(crate) fn group_of(root: &Path, pid: i32) -> Option<i32> {
    stat_field(root, pid, 2)
}

fn stat_field(root: &Path, pid: i32, after_name_index: usize) -> Option<i32> {
    let text = std::fs::read(root.join("proc").join(pid.to_string()).join("stat")).ok()?;
    i32::try_from(word_decimal(after_name(&text)?, after_name_index)?).ok()
}

/// The ids of all processes, in ascending order.
pub(crate) fn all_pids(root: &Path) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(root.join("proc")) else { return Vec::new() };
    let mut pids: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid > 0)
        .collect();
    pids.sort_unstable();
    pids
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
