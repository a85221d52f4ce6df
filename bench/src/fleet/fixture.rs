//! What the cases share: labs, programs on their hosts, and the programs' output.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::client;
use lab::state::{Folders, State};
use lab::supervisor::{Program, SupervisorOptions};
use sys::child::{Child, Spawn};
use sys::journal::Journal;
use sys::proc::{NetDevice, ProcessSet};

use super::helper_process::Event;

pub struct Fixture {
    /// Lab files, credentials, results.
    pub dir: PathBuf,
    pub kagiri: PathBuf,
    /// What is to be put back.
    pub journal: Journal,
    /// Where labs keep themselves.
    pub folders: Folders,
}

impl Fixture {
    pub fn open(dir: PathBuf, kagiri: PathBuf) -> anyhow::Result<Self> {
        let folder = sys::journal::default_folder(None);
        let journal = Journal::open(&folder)?;
        let folders = Folders { journal: folder, data: dir.join("data") };
        Ok(Self { kagiri, journal, folders, dir })
    }

    /// Brings up the lab that `text` describes.
    pub fn lab(&self, name: &str, text: &str) -> anyhow::Result<Lab<'_>> {
        let file = self.dir.join(format!("{name}.toml"));
        std::fs::write(&file, format!("name = \"{name}\"\nsubnet = \"10.78.0.0/16\"\n{text}"))?;
        self.lab_of(&file)
    }

    pub fn lab_of(&self, file: &Path) -> anyhow::Result<Lab<'_>> {
        let options = SupervisorOptions {
            file: file.to_owned(),
            folders: self.folders.clone(),
            program: Program { path: self.kagiri.clone(), arguments: Vec::new() },
            owner: i32::try_from(std::process::id()).ok(),
        };
        let began = Instant::now();
        let state = client::up(&options)?;
        Ok(Lab { fixture: self, state, up_s: began.elapsed().as_secs_f64(), is_up: true })
    }
}

pub struct Lab<'a> {
    fixture: &'a Fixture,
    pub state: State,
    /// How long that took, from asking for it, s.
    pub up_s: f64,
    is_up: bool,
}

impl Lab<'_> {
    pub fn on(&self, host: &str, program: &Path) -> Spawn {
        let exec = ["lab", "exec", host, "--lab", &self.state.lab, "--"];
        Spawn::new(&self.fixture.kagiri).args(exec).arg(program)
    }

    pub fn helper(&self, host: &str, helper: &str) -> anyhow::Result<Spawn> {
        Ok(self.on(host, &std::env::current_exe()?).args(["fleet", helper]))
    }

    pub fn kagiri(&self) -> &Path {
        &self.fixture.kagiri
    }

    /// What is to be put back.
    pub fn journal(&self) -> &Journal {
        &self.fixture.journal
    }

    pub fn address(&self, host: &str) -> anyhow::Result<String> {
        let host = self.host(host)?;
        let way = host.interfaces.first().context("it has no interface")?;
        Ok(way.address.to_string())
    }

    pub fn host(&self, name: &str) -> anyhow::Result<&lab::state::HostState> {
        let found = self.state.hosts.iter().find(|host| host.name == name);
        found.with_context(|| format!("the lab has no host {name}"))
    }

    /// Does `work` on a thread in the network of a host.
    pub fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let namespace = self.host(host)?.namespace.clone();
        let enter = move || {
            // This thread only, which ends with `work`.
            sys::netns::enter(&namespace)?;
            Ok(work())
        };
        std::thread::scope(|scope| match scope.spawn(enter).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Takes it down; how long that took, in s, and what was left.
    pub fn down(mut self) -> anyhow::Result<(f64, Vec<String>)> {
        let began = Instant::now();
        let left = client::down(&self.fixture.folders, &self.state.lab)?;
        self.is_up = false;
        Ok((began.elapsed().as_secs_f64(), left))
    }

    /// It was taken down by other means.
    pub fn forget(mut self) {
        self.is_up = false;
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        if self.is_up {
            // Its keeper ends with this process at the latest.
            let _ = client::down(&self.fixture.folders, &self.state.lab);
        }
    }
}

/// Waits for an event that a coordinator prints.
pub fn event<T>(child: &mut Child, within: Duration, pick: impl Fn(Event) -> Option<T>) -> anyhow::Result<T> {
    let read = |line: &str| serde_json::from_str(line).ok().and_then(&pick);
    let line = child.wait_line(within, |line| read(line).is_some())?;
    read(&line).context("the line that was just read")
}

/// Processes, and the traffic of their hosts.
pub struct Watched {
    processes: ProcessSet,
    devices: Vec<NetDevice>,
}

#[derive(Clone, Copy, Default)]
pub struct Used {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Bytes received and sent, with Ethernet headers.
    pub bytes: u64,
}

impl Watched {
    /// Each child, and `eth0` of the host that it is on.
    pub fn open(children: &[&Child]) -> anyhow::Result<Self> {
        let root = Path::new("/");
        let pids: Vec<i32> = children.iter().map(|child| child.pid()).collect();
        let devices = pids.iter().map(|pid| NetDevice::open_of_pid(root, *pid, "eth0"));
        Ok(Self { processes: ProcessSet::open(root, &pids)?, devices: devices.collect::<Result<_, _>>()? })
    }

    pub fn read(&mut self) -> anyhow::Result<Used> {
        let mut bytes = 0;
        for device in &mut self.devices {
            let reading = device.read()?;
            bytes += reading.rx_bytes + reading.tx_bytes;
        }
        Ok(Used { cpu_ns: self.processes.read_cpu().cpu_ns, bytes })
    }

    /// Memory that is theirs alone or their share of what is common, bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.processes.proportional_bytes()
    }
}
