//! Makes everything in a lab file, and removes it again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sys::cgroup::Cgroup;
use sys::child::Spawn;
use sys::file::OwnedFolder;
use sys::journal::Journal;
use sys::stop::StopSignal;

use super::initial_state::state;
use super::network::Network;
use super::processes::Processes;
use super::{SupervisorOptions, control, disk, link_counters, mount, steps};
use crate::error::{Error, Result};
use crate::file::{Host, Lab};
use crate::layout::{End, Layout, Wire};
use crate::line::{self, LineEnd, LineSpec, LinesSpec};
use crate::state::{STATE_FILE, State, Status};

const READY_WITHIN: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(1);
/// Bytes in a delay line with a rate: this much longer than the delay. Without a rate: [`LINE_BYTES`].
const LINE_SLACK_MS: u64 = 100;
const LINE_BYTES: u64 = 64 << 20;
const POLICY_FILE: &str = "policy.toml";

#[derive(Debug)]
pub(super) struct RunningLab {
    processes: Processes,
    mounts: Vec<mount::HostMount>,
    disks: Vec<disk::HostDisk>,
    groups: Vec<Option<Cgroup>>,
    network: Network,
    /// Kept until the end.
    _data: OwnedFolder,
    folder: OwnedFolder,
    state: State,
    lines: Option<PathBuf>,
    steps: steps::Steps,
}

impl RunningLab {
    /// Makes everything. Undoes all of it on an error.
    pub(super) fn build(
        journal: &Journal,
        lab: &Lab,
        folder: OwnedFolder,
        options: &SupervisorOptions,
        stop: StopSignal,
    ) -> Result<Self> {
        let began = Instant::now();
        lab.subnet.refuse_if_used()?;
        let layout = Layout::of(lab)?;
        let data_path = options.folders.lab_data(&lab.name);
        let data = OwnedFolder::create(journal, &data_path)?.ok_or_else(|| {
            Error::Refused(format!(
                "{} exists but belongs to no lab that is up; remove it, or set another $KAGIRI_DATA",
                data_path.display()
            ))
        })?;
        let network = Network::create(journal, lab, &layout)?;
        network.link(lab, &layout)?;
        let mut this = Self {
            processes: Processes::default(),
            mounts: Vec::new(),
            disks: Vec::new(),
            groups: Vec::new(),
            network,
            _data: data,
            state: state(lab, &layout, options, folder.path())?,
            folder,
            lines: None,
            steps: steps::Steps::default(),
        };
        this.start_lines(journal, lab, &layout, options)?;
        this.network.configure(lab, &layout)?;
        this.network.shape(&layout)?;
        this.create_disks(journal, lab, &data_path, options, stop)?;
        let policy_path = this.folder.path().join(POLICY_FILE);
        std::fs::write(&policy_path, policy(lab)).map_err(|error| Error::io("write", policy_path, error))?;
        this.make_mount_points(journal, lab, &data_path)?;
        for (index, host) in lab.hosts.iter().enumerate() {
            this.start_host(journal, index, host, lab.agents, &data_path, options)?;
        }
        // Their servers may be programs of other hosts.
        this.mount(journal, lab)?;
        this.state.up_s = began.elapsed().as_secs_f64();
        this.write_state()?;
        Ok(this)
    }

    fn start_lines(
        &mut self,
        journal: &Journal,
        lab: &Lab,
        layout: &Layout,
        options: &SupervisorOptions,
    ) -> Result<()> {
        let lines: Vec<LineSpec> = layout
            .wires
            .iter()
            .filter(|wire| wire.link.has_line())
            .map(|wire| line_spec(lab, wire))
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        let folder = self.folder.path();
        let (socket, path) = (folder.join("lines.sock"), folder.join("lines.json"));
        let spec = LinesSpec { socket: socket.clone(), lines };
        write_json(&path, &spec)?;
        let program = &options.program;
        let mut child = Spawn::new(&program.path)
            .args(&program.arguments)
            .args(["lab", "line"])
            .arg(&path)
            .start(journal)?;
        child.wait_line(READY_WITHIN, |said| said == line::READY)?;
        self.processes.add("delay lines", child);
        self.lines = Some(socket);
        Ok(())
    }

    fn create_disks(
        &mut self,
        journal: &Journal,
        lab: &Lab,
        data: &Path,
        options: &SupervisorOptions,
        stop: StopSignal,
    ) -> Result<()> {
        let ageing = disk::Ageing { seed: lab.seed, stop };
        for (index, host) in lab.hosts.iter().enumerate() {
            let group = match Cgroup::create(journal, &format!("{}-{}", lab.name, host.name)) {
                Ok(group) => Some(group),
                // Without control groups, a lab without limits still works.
                Err(sys::Error::Refused(_)) if host.cpu_quota_percent.is_none() && host.disk.is_none() => {
                    None
                }
                Err(error) => return Err(error.into()),
            };
            if let (Some(group), Some(quota)) = (&group, host.cpu_quota_percent) {
                group.set_cpu_quota_percent(quota)?;
            }
            let state = &mut self.state.hosts[index];
            state.cgroup = group.as_ref().map(Cgroup::folders).unwrap_or_default();
            if let Some(wanted) = &host.disk {
                let host_disk =
                    disk::HostDisk::make(journal, &host.name, wanted, data, &options.program, ageing)?;
                if let Some(group) = &group {
                    host_disk.limit(group, wanted)?;
                }
                state.disk = Some(host_disk.target().to_path_buf());
                self.disks.push(host_disk);
            }
            self.groups.push(group);
        }
        Ok(())
    }

    fn start_host(
        &mut self,
        journal: &Journal,
        index: usize,
        host: &Host,
        agents: bool,
        data: &Path,
        options: &SupervisorOptions,
    ) -> Result<()> {
        let namespace = self.network.of(&self.state.hosts[index].namespace)?;
        if agents {
            let mut spawn = agent(&self.state, index, data, options)?.namespace(namespace);
            for (name, value) in &host.environment {
                spawn = spawn.env(name, value);
            }
            let child = spawn.start(journal)?;
            self.state.hosts[index].agent_pid = Some(child.pid());
            self.processes.add(format!("agent of {}", host.name), child);
        }
        for command in &host.run {
            let child = self.program(index, host, command)?.start(journal)?;
            self.processes.add(format!("{command} on {}", host.name), child);
        }
        Ok(())
    }

    /// How to start a program on a host.
    fn program(&self, index: usize, host: &Host, command: &str) -> Result<Spawn> {
        let namespace = self.network.of(&self.state.hosts[index].namespace)?;
        let mut spawn = Spawn::new("/bin/sh").arg("-c").arg(command).namespace(namespace);
        if let Some(Some(group)) = self.groups.get(index) {
            spawn = spawn.cgroup(group);
        }
        for (name, value) in &host.environment {
            spawn = spawn.env(name, value);
        }
        for (name, value) in variables(&self.state, index) {
            spawn = spawn.env(name, value);
        }
        if let Some(disk) = &self.state.hosts[index].disk {
            spawn = spawn.current_dir(disk);
        }
        Ok(spawn)
    }

    fn make_mount_points(&mut self, journal: &Journal, lab: &Lab, data: &Path) -> Result<()> {
        for (index, host) in lab.hosts.iter().enumerate().filter(|(_, host)| host.mount.is_some()) {
            let state = &mut self.state.hosts[index];
            let cache_in = state.disk.as_deref().unwrap_or(data);
            let mount = mount::HostMount::make_folders(journal, &host.name, data, cache_in)?;
            state.mount = Some(mount.point().to_path_buf());
            self.mounts.push(mount);
        }
        Ok(())
    }

    fn mount(&mut self, journal: &Journal, lab: &Lab) -> Result<()> {
        let mut mounts = std::mem::take(&mut self.mounts);
        let hosts =
            || lab.hosts.iter().enumerate().filter_map(|(at, host)| Some((at, host, host.mount.as_ref()?)));
        let all = |mounts: &mut Vec<mount::HostMount>| -> Result<()> {
            // All at once, then one after the other waited for.
            for (mount, (index, host, how)) in mounts.iter_mut().zip(hosts()) {
                mount.start(journal, self.program(index, host, &how.command)?)?;
            }
            for (mount, (index, host, how)) in mounts.iter_mut().zip(hosts()) {
                mount.wait(journal, how, &|| self.program(index, host, &how.command))?;
            }
            Ok(())
        };
        let mounted = all(&mut mounts);
        self.mounts = mounts;
        mounted
    }

    fn write_state(&self) -> Result<()> {
        write_json(&self.folder.path().join(STATE_FILE), &self.state)
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn status(&mut self) -> Status {
        // In parallel: each server of a disk or a mount may hang.
        let (disks, mounts) = std::thread::scope(|scope| {
            let counts: Vec<_> = self.disks.iter_mut().map(|disk| scope.spawn(|| disk.count())).collect();
            let looks: Vec<_> = self.mounts.iter().map(|mount| scope.spawn(|| mount.state())).collect();
            let disks = counts.into_iter().filter_map(|count| count.join().ok()?).collect();
            (disks, looks.into_iter().filter_map(|look| look.join().ok()).collect())
        });
        let mut processes = self.processes.states();
        processes.extend(self.mounts.iter_mut().filter_map(mount::HostMount::process_state));
        Status {
            state: self.state.clone(),
            processes,
            // If they do not respond, their process is shown as ended.
            lines: self.lines.as_ref().and_then(|socket| line::query_counters(socket).ok()),
            traffic: link_counters::count(&self.network, &self.state.links),
            disks,
            mounts,
        }
    }

    pub(super) fn start_steps(&self, at_ns: u64, client: control::Client) {
        self.steps.start(&self.state.lab, &self.network, &self.state.links, at_ns, client);
    }

    pub(super) fn take_down(self) {
        // What is not stored yet is not needed any more; no process is to wait for a server that hangs or
        // ends first.
        self.mounts.iter().for_each(|mount| sys::disk::cut_off(mount.point()));
        self.processes.end(GRACE);
        drop(self.mounts);
        drop(self.disks);
        drop(self.groups);
        drop(self.network);
        drop(self._data);
        drop(self.folder);
    }
}

pub(crate) fn variables(state: &State, host: usize) -> Vec<(&'static str, std::ffi::OsString)> {
    let host = &state.hosts[host];
    let mut variables =
        vec![("KAGIRI_LAB", state.lab.clone().into()), ("KAGIRI_LAB_HOST", host.name.clone().into())];
    if let Some(disk) = &host.disk {
        variables.push(("KAGIRI_LAB_DISK", disk.clone().into()));
    }
    if let Some(mount) = &host.mount {
        variables.push(("KAGIRI_LAB_MOUNT", mount.clone().into()));
    }
    variables
}

/// How to start a host's agent. It runs outside the host's control group, which is for programs under test.
fn agent(state: &State, index: usize, data: &Path, options: &SupervisorOptions) -> Result<Spawn> {
    let host = &state.hosts[index];
    // Content is generated on the host's disk.
    let folder = host.disk.clone().unwrap_or_else(|| data.join(&host.name));
    std::fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, error))?;
    let program = &options.program;
    let join = format!("unixsock-stream/{}", state.bus.display());
    let mut spawn = Spawn::new(&program.path).args(&program.arguments);
    spawn = spawn.args(["agent", "--join", &join, "--name", &host.name, "--data"]).arg(folder);
    spawn = spawn.arg("--policy").arg(state.folder.join(POLICY_FILE));
    if let Some(way) = host.interfaces.first() {
        spawn = spawn.arg("--address").arg(way.address.to_string());
    }
    // The group has the same name in every hierarchy.
    if let Some(name) = host.cgroup.first().and_then(|group| group.file_name()) {
        spawn = spawn.arg("--group").arg(name);
    }
    for (name, value) in variables(state, index) {
        spawn = spawn.env(name, value);
    }
    Ok(spawn)
}

/// Policy of the lab's agents: everything on this machine, but no traffic outside the lab.
fn policy(lab: &Lab) -> String {
    format!(
        "[[allow]]\nparts = [\"*\"]\npeers = [\"loopback\", \"{}\"]\ndirectories = [\"/\"]\nsystem_changes = \
         true\n\
         programs = [\"any\"]\n",
        lab.subnet
    )
}

fn line_spec(lab: &Lab, wire: &Wire) -> LineSpec {
    let end = |end: &End| LineEnd { namespace: end.namespace.clone(), device: end.device.clone() };
    let delay_ns = wire.link.delay.ns();
    // Both directions have room for the faster one.
    let rate = wire.link.rate_up.zip(wire.link.rate_down).map(|(up, down)| up.max(down));
    let on_the_way = |byte_per_s: u64| {
        let ns = u128::from(delay_ns) + u128::from(LINE_SLACK_MS) * 1_000_000;
        u64::try_from(u128::from(byte_per_s) * ns / 1_000_000_000).unwrap_or(u64::MAX)
    };
    let bytes_max = rate.map_or(LINE_BYTES, |rate| on_the_way(rate.byte_per_s()).max(1 << 20));
    LineSpec {
        link: wire.number,
        ends: [end(&wire.ends[0]), end(&wire.ends[1])],
        delay_ns,
        loss: wire.link.loss,
        seed: lab.seed,
        bytes_max,
    }
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let draft = path.with_extension("draft");
    let write = || -> std::io::Result<()> {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        std::fs::write(&draft, text)?;
        std::fs::rename(&draft, path)
    };
    write().map_err(|error| Error::io("write", path, error))
}
