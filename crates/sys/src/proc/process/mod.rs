//! One process of a [`crate::proc::ProcessSet`]: its threads' scheduler times and its memory, on kept
//! descriptors.

pub mod set;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::proc::parse::{after_name, decimal, word_decimal, words};

/// More threads than this are not watched one by one: their waiting time is then `None`.
const THREADS_MOST: usize = 2048;

/// CPU time of a set of processes, including threads and processes of it that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessCpuReading {
    /// CPU time used, nanoseconds. Lags behind by at most one scheduler tick (1..10 ms) per running thread.
    pub cpu_ns: u64,
    /// Time threads were ready to run but had no CPU, nanoseconds. `None` without `/proc/PID/schedstat` or
    /// with more than 2048 threads in one process.
    pub run_wait_ns: Option<u64>,
    pub processes: usize,
    pub threads: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemoryReading {
    /// Sum of the resident set sizes, bytes; shared memory is counted once per process.
    pub rss_bytes: u64,
    /// The part of it that is neither file content nor shared memory, bytes.
    pub anonymous_bytes: u64,
}

/// A small file of `/proc`, read into the caller's stack.
#[derive(Debug)]
struct SmallFile(File);

impl SmallFile {
    fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// The file's start, as much as fits.
    fn read<'a>(&self, into: &'a mut [u8; 192]) -> io::Result<&'a [u8]> {
        loop {
            match self.0.read_at(into, 0) {
                // An ended task's file reads as nothing on some kernels and fails with ESRCH on others.
                Ok(0) => return Err(io::ErrorKind::NotFound.into()),
                Ok(read) => return Ok(&into[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Debug)]
struct Task {
    id: i32,
    schedstat: SmallFile,
    run_ns: u64,
    wait_ns: u64,
    seen: bool,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    start_ticks: u64,
    folder: PathBuf,
    statm: SmallFile,
    tasks: Vec<Task>,
    ended_run_ns: u64,
    ended_wait_ns: u64,
    /// The process's own CPU clock, which also knows threads that lived between two scans; not below a test
    /// root.
    clock: Option<libc::clockid_t>,
    cpu_ns: u64,
    wait_known: bool,
}

impl Process {
    pub(super) fn open(root: &Path, pid: i32) -> io::Result<Self> {
        let folder = root.join("proc").join(pid.to_string());
        let start_ticks = start_ticks(root, pid)?;
        let clock = (root == Path::new("/")).then(|| cpu_clock(pid)).flatten();
        let statm = SmallFile::open(&folder.join("statm"))?;
        let mut this = Self {
            pid,
            start_ticks,
            folder,
            statm,
            tasks: Vec::new(),
            ended_run_ns: 0,
            ended_wait_ns: 0,
            clock,
            cpu_ns: 0,
            wait_known: true,
        };
        this.scan_tasks()?;
        this.read_cpu();
        Ok(this)
    }

    /// Whether the process still exists and is the one that was opened, not a later one with its number.
    pub(super) fn is_alive(&self, root: &Path) -> bool {
        start_ticks(root, self.pid).is_ok_and(|ticks| ticks == self.start_ticks)
    }

    /// Finds threads that are new and drops those that have ended.
    pub(super) fn scan_tasks(&mut self) -> io::Result<()> {
        for task in &mut self.tasks {
            task.seen = false;
        }
        let folder = self.folder.join("task");
        let mut offered = true;
        for entry in std::fs::read_dir(&folder)? {
            let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
                task.seen = true;
            } else if self.tasks.len() < THREADS_MOST {
                let path = folder.join(id.to_string());
                match SmallFile::open(&path.join("schedstat")) {
                    Ok(schedstat) => {
                        self.tasks.push(Task { id, schedstat, run_ns: 0, wait_ns: 0, seen: true })
                    }
                    // A thread may have ended since it was listed; if it lives and has no such file, the
                    // kernel does not offer it.
                    Err(_) => offered &= !path.exists(),
                }
            } else {
                offered = false;
            }
        }
        let mut at = 0;
        while at < self.tasks.len() {
            if self.tasks[at].seen { at += 1 } else { self.end_task(at) }
        }
        self.wait_known = offered;
        Ok(())
    }

    /// Keeps the last known times of a thread that has ended: totals never go back.
    fn end_task(&mut self, at: usize) {
        let task = self.tasks.swap_remove(at);
        self.ended_run_ns = self.ended_run_ns.saturating_add(task.run_ns);
        self.ended_wait_ns = self.ended_wait_ns.saturating_add(task.wait_ns);
    }

    /// Reads all threads and adds up. What cannot be read any more keeps its last value.
    pub(super) fn read_cpu(&mut self) {
        let mut buffer = [0; 192];
        let mut at = 0;
        while at < self.tasks.len() {
            let task = &mut self.tasks[at];
            match task.schedstat.read(&mut buffer).map(parse_schedstat) {
                Ok(Some((run_ns, wait_ns))) => {
                    task.run_ns = run_ns.max(task.run_ns);
                    task.wait_ns = wait_ns.max(task.wait_ns);
                    at += 1;
                }
                Ok(None) => at += 1,
                Err(_) => self.end_task(at),
            }
        }
        let by_threads =
            self.tasks.iter().fold(self.ended_run_ns, |sum, task| sum.saturating_add(task.run_ns));
        let by_clock = self.clock.and_then(crate::clock::try_read_ns);
        self.cpu_ns = self.cpu_ns.max(by_clock.unwrap_or(by_threads));
    }

    /// CPU time at the last reading.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Waiting time at the last reading.
    pub(super) fn run_wait_ns(&self) -> Option<u64> {
        let sum = || self.tasks.iter().fold(self.ended_wait_ns, |sum, task| sum.saturating_add(task.wait_ns));
        self.wait_known.then(sum)
    }

    pub(super) fn thread_count(&self) -> usize {
        self.tasks.len()
    }

    /// The ids of its threads, whose `children` files name the processes each has started.
    pub(super) fn thread_ids(&self) -> impl Iterator<Item = i32> {
        self.tasks.iter().map(|task| task.id)
    }

    /// Resident and shared pages now; `None` when the process has ended.
    pub(super) fn read_memory_pages(&self) -> Option<(u64, u64)> {
        let mut buffer = [0; 192];
        let text = self.statm.read(&mut buffer).ok()?;
        Some((word_decimal(text, 1)?, word_decimal(text, 2)?))
    }
}

/// `run wait slices`: nanoseconds on a CPU, nanoseconds ready to run, times it got a CPU
/// (Documentation/scheduler/sched-stats.rst).
pub(super) fn parse_schedstat(text: &[u8]) -> Option<(u64, u64)> {
    let mut numbers = words(text).map(decimal);
    Some((numbers.next()??, numbers.next()??))
}

/// When process `pid` was started, in ticks since boot: with the pid it names one process for as long as the
/// machine is up (field 22 of `/proc/PID/stat`, proc_pid_stat(5)). A zombie still has it.
pub fn start_ticks(root: &Path, pid: i32) -> io::Result<u64> {
    let path = root.join("proc").join(pid.to_string()).join("stat");
    let text = std::fs::read(&path)?;
    after_name(&text)
        .and_then(|rest| word_decimal(rest, 19))
        .ok_or_else(|| crate::proc::proc_file::malformed(&path, "22 fields"))
}

/// Whether process `pid` was killed and still exists: SIGKILL is pending (`SigPnd`, `ShdPnd` in
/// `/proc/PID/status`), or the kernel is ending it (`PF_EXITING` in the flags of `/proc/PID/stat`).
/// Errors: there is no such process.
pub fn is_ending(pid: i32) -> io::Result<bool> {
    const PF_EXITING: u64 = 4;
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    let flags = std::fs::read(format!("/proc/{pid}/stat"))?;
    let flags = after_name(&flags).and_then(|rest| word_decimal(rest, 6)).unwrap_or_default();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let is_pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & SIGKILL != 0)
    };
    Ok(flags & PF_EXITING != 0 || status.lines().any(is_pending))
}

/// The CPU clock of another process (`clock_getcpuclockid(3)`); needs no rights on Linux.
fn cpu_clock(pid: i32) -> Option<libc::clockid_t> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is valid for a write of one clock id.
    let code = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    (code == 0).then_some(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_sample_is_parsed() {
        assert_eq!(parse_schedstat(b"133273 17 1\n"), Some((133_273, 17)));
        assert_eq!(parse_schedstat(b"133273\n"), None);
        assert_eq!(parse_schedstat(b"0 x 0\n"), None);
    }

    #[test]
    fn own_start_is_stable_and_names_differ() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let root = Path::new("/");
        assert_eq!(start_ticks(root, pid).unwrap(), start_ticks(root, pid).unwrap());
        assert!(start_ticks(root, 1).unwrap() <= start_ticks(root, pid).unwrap());
        assert!(start_ticks(root, i32::MAX).is_err());
    }
}
