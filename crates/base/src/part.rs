//! Parts: the sides of a workload, driven through the same phases by whichever bus carries them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::part_error::PartError;
use crate::permit::Permit;
use crate::resource::{Ceiling, Resource};

/// The name of this host on every bus.
pub const HERE: &str = "here";

/// What to build: plain data, so that it can cross a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartSpec {
    /// Which kind, as in the registry: `stream.server`.
    pub kind: String,
    /// Its name within the run, unique: `server`, `viewers`, `viewers@pc-3`.
    pub name: String,
    /// The host it runs on: [`HERE`], or a fleet's.
    pub host: String,
    pub settings: Value,
    /// How many streams, flows or sources its report lists one by one: an answer may be that much longer.
    #[serde(default)]
    pub report_items: u64,
}

/// What prepared parts publish to their peers, by part name: addresses, process ids, facts.
pub type Endpoints = BTreeMap<String, Value>;

pub type Live = BTreeMap<String, f64>;

/// How far a started part is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// Still at work; the share of its work that is done, where it knows.
    Running {
        /// 0..1, `None` for a part that runs until it is stopped.
        done: Option<f64>,
    },
    /// It has nothing more to do; [`AnyPart::stop`] brings its report.
    Finished,
    Failed(PartError),
}

/// Takes a line for the user.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// What the host offers to the parts that run on it.
#[derive(Clone)]
pub struct HostContext {
    pub name: String,
    /// Where parts on other hosts reach this one; absent where there are no other hosts, so that loopback
    /// will do.
    pub address: Option<IpAddr>,
    /// What the host's owner lets parts do.
    pub permit: Arc<dyn Permit>,
    /// The control group (its name below each hierarchy's top) that programs under test are started in.
    pub program_group: Option<String>,
    /// What the host's owner says about the most there is of a resource.
    pub ceilings: BTreeMap<Resource, Ceiling>,
    /// Where this host keeps what outlives a run: made content, results.
    pub data_dir: PathBuf,
    /// The storage that is measured where a plan names no directory: a lab host's mount, or else its disk.
    pub storage: Option<PathBuf>,
    /// Where changes to the system are written down before they are made.
    pub journal_dir: PathBuf,
    /// The kagiri program itself, for parts that run as processes of their own.
    pub program: PathBuf,
    /// Folder of this host's own credentials in a fleet; `None`: it has none.
    pub credentials: Option<PathBuf>,
    /// Raised when the run is to end early.
    pub stop: Arc<AtomicBool>,
    /// Takes one line about what is being done now.
    pub say: Say,
    /// Takes a line that the user needs in order to go on, even if he asked for quiet; absent: `say` does.
    pub announce: Option<Say>,
}

impl HostContext {
    /// This host, where everything is permitted: for the bus of one process.
    pub fn here(data_dir: PathBuf, journal_dir: PathBuf, program: PathBuf) -> Self {
        Self {
            name: HERE.to_owned(),
            address: None,
            permit: Arc::new(crate::permit::Everything),
            program_group: None,
            ceilings: BTreeMap::new(),
            data_dir,
            storage: None,
            journal_dir,
            program,
            credentials: None,
            stop: Arc::default(),
            say: Arc::new(|_| {}),
            announce: None,
        }
    }

    /// Whether the run is to end early.
    pub fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Show the user what is being done now.
    pub fn say(&self, line: impl AsRef<str>) {
        (self.say)(line.as_ref());
    }

    /// Show the user what he needs in order to go on.
    pub fn announce(&self, line: impl AsRef<str>) {
        self.announce.as_ref().unwrap_or(&self.say)(line.as_ref());
    }
}

/// One side of a workload on one host, as a bus carries it: task, endpoint and report are JSON.
///
/// The phases come in order: `prepare`, `start`, `progress` any number of times, `stop`. Dropping a part at
/// any moment releases everything it holds. Only `prepare` may take long: it reports through
/// [`HostContext::say`] and returns soon after [`HostContext::stop_requested`].
pub trait AnyPart: Send {
    /// Acquire what is needed (ports, files, peers' facts) and say what peers need to know.
    fn prepare(&mut self, peers: &Endpoints, host: &HostContext) -> Result<Value, PartError>;

    /// Begin at a moment of this host's monotonic clock; returns at once.
    ///
    /// # Errors
    /// The moment has passed, or the part was not prepared.
    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError>;

    /// How far it is. Never blocks.
    fn progress(&mut self) -> Progress;

    /// Current values for a live display, by name with the unit last; a sampler has some.
    /// Never blocks.
    fn live(&mut self) -> Live {
        Live::new()
    }

    /// End, release everything, and give the report.
    fn stop(&mut self) -> Result<Value, PartError>;
}

#[derive(Clone, Copy)]
pub struct PartKind {
    /// Its name, `workload.part`.
    pub name: &'static str,
    /// Makes one from its settings, acquiring nothing yet.
    pub build: fn(&PartSpec) -> Result<Box<dyn AnyPart>, PartError>,
}

/// What a sampler is to watch on its host; a server's endpoint carries one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Watch {
    /// Processes of the target; their descendants are found by the sampler. Empty: they cannot be seen.
    pub pids: Vec<u32>,
    /// The address of a target that runs on another host. What is said of this host says nothing of the
    /// target then.
    pub elsewhere: Option<String>,
    /// The TCP port that the target's clients connect to.
    pub tcp_port: Option<u16>,
    /// Directories with the CPU accounting file `cpu.stat` of the target's cgroup.
    pub cgroup_cpu: Option<String>,
    /// Block device that holds the content, as `major:minor`.
    pub block_device: Option<String>,
    /// Network device that carries the load.
    pub network_device: Option<String>,
    /// A process in whose network namespace that device and port are; absent for this host's own.
    pub network_namespace_pid: Option<u32>,
    /// Processes of the measuring side, so that they are not taken for neighbours.
    pub own_pids: Vec<u32>,
    /// What is known of the ceilings, and from where.
    pub ceilings: BTreeMap<Resource, Ceiling>,
}
