//! What is there of a lab that is up: the content of its `state.json`, and what its keeper answers.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk::Counters;
use crate::error::{Error, Result};
use crate::file::Queue;
use crate::line::LineCount;

/// The schema of [`State`].
pub const SCHEMA: u32 = 1;

/// Where labs, their data and the undo journal are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folders {
    /// Of the undo journals; labs that are up have theirs below it.
    pub journal: PathBuf,
    /// Of what needs a disk: images and the agents' data.
    pub data: PathBuf,
}

impl Folders {
    /// Where labs that are up have a folder each.
    pub fn labs(&self) -> PathBuf {
        self.journal.join("lab")
    }

    /// The folder of the lab called `name` while it is up.
    pub fn lab(&self, name: &str) -> PathBuf {
        self.labs().join(name)
    }

    /// What the lab called `name` keeps on a disk while it is up.
    pub fn lab_data(&self, name: &str) -> PathBuf {
        self.data.join("lab").join(name)
    }
}

/// The file in a lab's folder that holds its [`State`].
pub const STATE_FILE: &str = "state.json";
/// The socket in a lab's folder on which its keeper listens.
pub const CONTROL_SOCKET: &str = "control.sock";
/// The socket in a lab's folder on which whoever commands the agents listens.
pub const BUS_SOCKET: &str = "bus.sock";
/// The file in a lab's folder to which its keeper writes what goes wrong.
pub const LOG_FILE: &str = "keeper.log";

/// A lab that is up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Its name.
    pub lab: String,
    /// The file that describes it.
    pub file: PathBuf,
    /// Its keeper's process.
    pub keeper: ProcessId,
    /// Its folder.
    pub folder: PathBuf,
    /// The socket that its agents look for a coordinator at.
    pub bus: PathBuf,
    /// The network namespace of its switches.
    pub switches: String,
    /// Its hosts, in the order of the file.
    pub hosts: Vec<HostState>,
    /// Its links, in the order of the file.
    pub links: Vec<LinkState>,
    /// How long it took until all was there, seconds.
    pub up_s: f64,
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its id.
    pub pid: i32,
    /// When it was started, see [`sys::proc::start_ticks`].
    pub start_ticks: u64,
}

impl ProcessId {
    /// Of process `pid`, while it lives.
    pub fn of(pid: i32) -> Option<Self> {
        let start_ticks = sys::proc::start_ticks(Path::new("/"), pid).ok()?;
        Some(Self { pid, start_ticks })
    }

    /// Of this process.
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Whether it still runs.
    pub fn lives(&self) -> bool {
        sys::child::is_running(self.pid, self.start_ticks)
    }
}

/// A host that is up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// Its network namespace.
    pub namespace: String,
    /// Its interfaces, in the order of its links.
    pub interfaces: Vec<InterfaceState>,
    /// Where it sends what is not for its own networks.
    pub gateway: Option<Ipv4Addr>,
    /// Its control group's folders, one for each hierarchy; none on a machine without.
    pub cgroup: Vec<PathBuf>,
    /// How much of one CPU its programs may use, percent.
    pub cpu_quota_percent: Option<f64>,
    /// Where its disk is mounted.
    pub disk: Option<PathBuf>,
    /// Its agent's process.
    pub agent_pid: Option<i32>,
}

/// An interface of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceState {
    /// Its name.
    pub device: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// How many leading bits of it name the network.
    pub prefix_bits: u8,
}

/// A link that is up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkState {
    /// From 1, in the order of the file.
    pub number: usize,
    /// Its ends, the one named first first.
    pub ends: [EndState; 2],
    /// The rate from the first end to the second, bit/s.
    pub rate_up_bit_per_s: Option<u64>,
    /// The rate from the second end to the first, bit/s.
    pub rate_down_bit_per_s: Option<u64>,
    /// What waits for the rate before more is dropped, from the first end to the second and back, bytes.
    pub buffer_bytes: [Option<u64>; 2],
    /// How it waits.
    pub queue: Queue,
    /// How long a packet is on the way, one way, seconds.
    pub delay_s: f64,
    /// The share of packets that get lost, each way.
    pub loss: f64,
}

/// Where a link ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndState {
    /// The host or switch.
    pub place: String,
    /// The network namespace.
    pub namespace: String,
    /// The interface.
    pub device: String,
}

/// A process of a lab that its keeper started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// What it is for: `agent of server`, `lines`, a command line.
    pub what: String,
    /// Its id.
    pub pid: i32,
    /// How it ended; `None` while it runs.
    pub ended: Option<String>,
    /// The last of what it wrote, if it has ended.
    pub said: Option<String>,
}

/// What a host's disk has done since the lab is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCount {
    /// The host.
    pub host: String,
    /// Reads that its block device has done, as the kernel counts them (Documentation/block/stat.rst).
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Time with at least one of them under way, nanoseconds.
    pub busy_ns: u64,
    /// What a modelled disk says of itself, since it was made; `None` for one without a model, or when its server does
    /// not answer.
    pub model: Option<Counters>,
}

/// What one end of a link has sent to the other since the lab is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Packets, as the kernel handed them on: several of one connection may count as one.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that found no room in front of the link.
    pub dropped: u64,
}

/// What a link has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCount {
    /// The link's number.
    pub link: usize,
    /// From its first end to its second.
    pub up: Sent,
    /// Back.
    pub down: Sent,
}

/// What the keeper answers when asked how the lab is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The lab.
    #[serde(flatten)]
    pub state: State,
    /// The processes that belong to it.
    pub processes: Vec<ProcessState>,
    /// What the delay lines have counted; `None` without lines, or when they do not answer.
    pub lines: Option<Vec<LineCount>>,
    /// What the links have carried, in their order; one whose ends cannot be read is not among them.
    #[serde(default)]
    pub traffic: Vec<LinkCount>,
    /// What the disks have done, in the order of their hosts; one whose device cannot be read is not among them.
    #[serde(default)]
    pub disks: Vec<DiskCount>,
}

/// What is asked of a keeper: one JSON line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// How is the lab?
    Status,
    /// Take the lab down.
    Down,
}

/// What a keeper says: one JSON line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The lab is up.
    Ready(Box<State>),
    /// How it is.
    Status(Box<Status>),
    /// It is down; what could not be put back.
    Down {
        /// One line each.
        left: Vec<String>,
    },
    /// It could not be done.
    Error {
        /// Why, and what to do.
        message: String,
        /// Whether the lab file is at fault.
        usage: bool,
    },
}

impl State {
    /// Reads the state of the lab in `folder`. `None` when it has none yet, or none any more.
    ///
    /// # Errors
    /// It is there and cannot be read.
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
