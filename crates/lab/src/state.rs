//! State of a lab that is up (`state.json`), and messages of its supervisor.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk::Counters;
use crate::error::{Error, Result};
use crate::file::{Queue, Step};
use crate::line::LineCounters;

pub const SCHEMA: u32 = 1;

/// Directories of labs, their data and the undo journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folders {
    /// Undo journals, and the folders of labs that are up.
    pub journal: PathBuf,
    /// Disk images and data of agents.
    pub data: PathBuf,
}

impl Folders {
    pub fn labs(&self) -> PathBuf {
        self.journal.join("lab")
    }

    pub fn lab(&self, name: &str) -> PathBuf {
        self.labs().join(name)
    }

    pub fn lab_data(&self, name: &str) -> PathBuf {
        self.data.join("lab").join(name)
    }
}

pub const STATE_FILE: &str = "state.json";
pub const CONTROL_SOCKET: &str = "control.sock";
pub const BUS_SOCKET: &str = "bus.sock";
pub const LOG_FILE: &str = "keeper.log";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub schema: u32,
    pub lab: String,
    pub file: PathBuf,
    #[serde(rename = "keeper")]
    pub supervisor: ProcessId,
    pub folder: PathBuf,
    pub bus: PathBuf,
    pub switches: String,
    pub hosts: Vec<HostState>,
    pub links: Vec<LinkState>,
    /// Time to bring the lab up, in s.
    pub up_s: f64,
}

/// A process, distinct from a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    pub start_ticks: u64,
}

impl ProcessId {
    pub fn of_pid(pid: i32) -> Option<Self> {
        let start_ticks = sys::proc::start_ticks(Path::new("/"), pid).ok()?;
        Some(Self { pid, start_ticks })
    }

    pub fn own() -> Option<Self> {
        Self::of_pid(i32::try_from(std::process::id()).ok()?)
    }

    pub fn is_running(&self) -> bool {
        sys::child::is_running(self.pid, self.start_ticks)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    pub name: String,
    pub namespace: String,
    /// In the order of its links.
    pub interfaces: Vec<InterfaceState>,
    pub gateway: Option<Ipv4Addr>,
    /// One per hierarchy; none on a machine without control groups.
    pub cgroup: Vec<PathBuf>,
    /// In % of one CPU.
    pub cpu_quota_percent: Option<f64>,
    /// Where its disk is mounted.
    pub disk: Option<PathBuf>,
    /// Where a program mounts a file system.
    #[serde(default)]
    pub mount: Option<PathBuf>,
    pub agent_pid: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceState {
    pub device: String,
    pub address: Ipv4Addr,
    pub prefix_bits: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkState {
    /// From 1, in the order of the file.
    pub number: usize,
    pub ends: [EndState; 2],
    /// From the first end to the second.
    pub rate_up_bit_per_s: Option<u64>,
    /// From the second end to the first.
    pub rate_down_bit_per_s: Option<u64>,
    /// From the first end to the second, and back.
    pub buffer_bytes: [Option<u64>; 2],
    pub queue: Queue,
    /// Rates of both directions during a trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// One way.
    pub delay_s: f64,
    /// Each way.
    pub loss: f64,
}

/// A change of a link's rate during a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepDone {
    pub link: usize,
    /// From the start of the trial, when it was due.
    pub after_s: f64,
    pub bit_per_s: u64,
    /// From then until the kernel had the new rate.
    pub late_us: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndState {
    /// Name of the host or switch.
    pub place: String,
    pub namespace: String,
    pub device: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// `agent of server`, `delay lines`, or a command line.
    pub what: String,
    pub pid: i32,
    /// How it ended; `None` while it runs.
    pub ended: Option<String>,
    /// Tail of its output, once it has ended.
    #[serde(rename = "said")]
    pub output: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    pub host: String,
    /// As counted by the block device (Documentation/block/stat.rst).
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Time with at least one request in progress.
    pub busy_ns: u64,
    /// Counters of the disk model; `None` without a model, or if its server does not respond.
    pub model: Option<Counters>,
}

/// A file system that a host's program serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountState {
    pub host: String,
    pub target: PathBuf,
    /// As mounted, `fuse.s3fs`; `None`: it is not mounted (any more).
    pub file_system: Option<String>,
    /// Why it does not answer; `None`: it answers.
    pub problem: Option<String>,
}

/// Traffic sent by one end of a link since the lab is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEndCounters {
    /// As the kernel passed them on: several packets of one connection can count as one.
    pub packets: u64,
    pub bytes: u64,
    /// Packets dropped at the queue.
    pub dropped: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    pub link: usize,
    /// From the first end to the second.
    pub up: LinkEndCounters,
    /// From the second end to the first.
    pub down: LinkEndCounters,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    #[serde(flatten)]
    pub state: State,
    pub processes: Vec<ProcessState>,
    /// `None` without delay lines, or if they do not respond.
    pub lines: Option<Vec<LineCounters>>,
    /// In the order of the links, without links that cannot be read.
    #[serde(default)]
    pub traffic: Vec<LinkCounters>,
    /// In the order of the hosts, without disks that cannot be read.
    #[serde(default)]
    pub disks: Vec<DiskCounters>,
    /// In the order of the hosts.
    #[serde(default)]
    pub mounts: Vec<MountState>,
}

/// Request to a supervisor: one JSON line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    Status,
    Down,
    /// Starts the steps of all links at this moment of the monotonic clock. They last as long as the
    /// connection: when its client ends it, the links have their first rates again.
    StartSteps {
        at_ns: u64,
    },
}

/// Response of a supervisor: one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The lab is up.
    Ready(Box<State>),
    /// To a request for the status.
    Status(Box<Status>),
    /// The steps are going to start.
    StepsStart,
    /// The links have their first rates again.
    StepsEnd { done: Vec<StepDone>, problem: Option<String> },
    /// The lab is down. `left`: what could not be undone, one line each.
    Down { left: Vec<String> },
    /// `usage`: the lab file is wrong.
    Error { message: String, usage: bool },
}

impl State {
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(STATE_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path, error)),
        };
        let state = serde_json::from_slice(&text);
        state.map(Some).map_err(|error| Error::io("read", path, std::io::Error::from(error)))
    }
}
