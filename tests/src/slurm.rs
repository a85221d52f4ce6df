//! A Slurm of the test's own: the real daemons of Debian's packages, several nodes on this one machine.
//!
//! Nothing of the system's Slurm or munge is read or changed: key, socket, configuration, state and logs lie
//! in one temporary folder, which `SLURM_CONF` names, and every port is a free one on the loopback interface.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::wait_until;

/// What a daemon needs to be there, or to end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of nodes `node1`, `node2`, ... on this machine. Its jobs, its daemons and its files are gone
/// when dropped; the daemons also when the thread that started it dies. Needs root, and Debian's packages
/// slurmctld, slurmd, slurm-client and munge.
pub struct Slurm {
    /// In the order in which they end: nodes, controller, munge.
    daemons: Vec<Daemon>,
    dir: TempDir,
}

struct Daemon {
    name: String,
    child: Child,
}

impl Slurm {
    /// Start a cluster of `nodes` nodes, and wait until all of them are idle.
    pub fn start(nodes: usize) -> Self {
        let dir = tempfile::Builder::new().prefix("kagiri-slurm-").tempdir().expect("a folder");
        // Munge wants that every user may pass to its socket.
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).expect("chmod");
        let mut slurm = Self { daemons: Vec::new(), dir };
        slurm.configure(nodes);
        slurm.daemon("munged", &slurm.munge_arguments());
        let socket = slurm.path("munge.sock");
        slurm.wait("munge has its socket", || socket.exists());
        let controller = ["-D", "-c"].map(str::to_owned);
        slurm.daemon("slurmctld", &controller);
        for node in (1..=nodes).map(|k| format!("node{k}")) {
            slurm.daemon("slurmd", &["-D".to_owned(), "-N".to_owned(), node]);
        }
        slurm.daemons.reverse();
        slurm.wait("all nodes are idle", || {
            let states = slurm.ask("sinfo", &["-h", "-N", "-o", "%T"]);
            states.lines().filter(|state| *state == "idle").count() == nodes
        });
        slurm
    }

    /// A program that works with this cluster (`srun`, `sbatch`, `scancel`, ...).
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.conf()).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// What a short question to the cluster is answered with; empty when it fails.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> String {
        self.answer(program, arguments).unwrap_or_default()
    }

    /// The same; `None` when it fails.
    fn answer(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let output = self.command(program).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// The ids of the jobs that are queued, running or ending.
    pub fn jobs(&self) -> Vec<String> {
        self.queue().expect("squeue answers")
    }

    /// The same; `None` while the cluster is too busy to answer.
    fn queue(&self) -> Option<Vec<String>> {
        let listed = self.answer("squeue", &["-h", "-o", "%A"])?;
        Some(listed.lines().map(str::to_owned).collect())
    }

    pub fn wait_until_empty(&self, within: Duration) {
        wait_until("the queue of Slurm is empty", within, || self.is_idle());
    }

    /// Whether the cluster says that no job is left.
    pub fn is_idle(&self) -> bool {
        self.queue().is_some_and(|jobs| jobs.is_empty())
    }

    /// The processes of its jobs: those that Slurm gave this cluster's configuration, other than its own
    /// daemons.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let own: Vec<u32> = self.daemons.iter().map(|daemon| daemon.child.id()).collect();
        Self::processes_of(self.dir.path())
            .into_iter()
            .filter(|(pid, name)| !own.contains(pid) && name != "slurmscriptd")
            .collect()
    }

    /// All processes of the cluster whose files lie, or lay, in this folder.
    pub fn processes_of(folder: &Path) -> Vec<(u32, String)> {
        processes_with(&format!("SLURM_CONF={}", folder.join("slurm.conf").display()))
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn conf(&self) -> PathBuf {
        self.path("slurm.conf")
    }

    fn munge_arguments(&self) -> Vec<String> {
        let file = |option: &str, name: &str| format!("--{option}={}", self.path(name).display());
        let mut arguments = vec!["--foreground".to_owned(), "--force".to_owned()];
        arguments.push(file("key-file", "munge.key"));
        arguments.push(file("socket", "munge.sock"));
        arguments.push(file("pid-file", "munge.pid"));
        arguments.push(file("log-file", "munge.log"));
        arguments.push(file("seed-file", "munge.seed"));
        arguments
    }

    fn configure(&self, nodes: usize) {
        let mut key = [0; 128];
        let random = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key));
        random.expect("random bytes");
        fs::write(self.path("munge.key"), key).expect("a key");
        fs::set_permissions(self.path("munge.key"), PermissionsExt::from_mode(0o600)).expect("chmod");
        fs::create_dir(self.path("state")).expect("a folder");
        for k in 1..=nodes {
            fs::create_dir(self.path(&format!("spool-node{k}"))).expect("a folder");
        }
        // An own, empty one: the system's may load plug-ins.
        fs::write(self.path("plugstack.conf"), "").expect("a file");
        // Slurm 22.05 loads a plug-in for control groups even if nothing uses one. This one looks only below
        // a folder that does not exist; that of version 2 would make groups of its own.
        let cgroup = format!("CgroupPlugin=cgroup/v1\nCgroupMountpoint={}\n", self.path("cgroup").display());
        fs::write(self.path("cgroup.conf"), cgroup).expect("a file");
        fs::write(self.conf(), configuration(self.dir.path(), nodes)).expect("a file");
    }

    fn daemon(&mut self, program: &str, arguments: &[String]) {
        let name = arguments.last().filter(|_| program == "slurmd").map_or(program, |node| node);
        let log = fs::File::create(self.path(&format!("{name}.out"))).expect("a log");
        // With the thread that started it a daemon dies too, even by `kill -9`: setpriv says so to the
        // kernel.
        let child = self
            .command("setpriv")
            .args(["--pdeathsig", "KILL", program])
            .args(arguments)
            .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        self.daemons.push(Daemon { name: name.to_owned(), child });
    }

    /// Wait until `condition` holds; panics with the daemons' last words if it does not.
    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}\n{}", self.last_words());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The ends of the daemons' logs.
    pub fn last_words(&self) -> String {
        let mut words = String::new();
        for Daemon { name, .. } in &self.daemons {
            let text = fs::read_to_string(self.path(&format!("{name}.out"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(15)..].join("\n");
            let _ = writeln!(words, "--- {name}\n{last}");
        }
        words
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Jobs first: their processes are not children of the nodes' daemons, and would outlive them.
        for job in self.queue().unwrap_or_default() {
            self.ask("scancel", &["--full", &job]);
        }
        let deadline = Instant::now() + PATIENCE;
        while self.queue().is_some_and(|jobs| !jobs.is_empty()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        for daemon in &mut self.daemons {
            daemon.end();
        }
        for (pid, _) in self.processes() {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }
}

impl Daemon {
    /// Ask it to end; kill it when it does not.
    fn end(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// `slurm.conf` (its man page, Slurm 22.05): every node has a port of its own on this machine (`slurmd -N`).
fn configuration(dir: &Path, nodes: usize) -> String {
    let host = nix::unistd::gethostname().expect("the machine has a name").to_string_lossy().into_owned();
    let host = host.split('.').next().unwrap_or_default();
    let own = dir.display();
    let ports = free_ports(nodes + 1);
    let mut text = format!(
        "ClusterName=kagiri
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={own}/munge.sock
StateSaveLocation={own}/state
SlurmctldPidFile={own}/slurmctld.pid
SlurmdPidFile={own}/slurmd-%n.pid
SlurmdSpoolDir={own}/spool-%n
PlugStackConfig={own}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait=5
",
        port = ports[0]
    );
    for (k, port) in ports[1..].iter().enumerate() {
        let name = format!("node{}", k + 1);
        let _ = writeln!(text, "NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=1");
    }
    text.push_str("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    text
}

/// `n` different ports that were free a moment ago.
fn free_ports(n: usize) -> Vec<u16> {
    let listeners: Vec<_> =
        (0..n).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
    listeners.iter().map(port).collect()
}

/// Living processes whose environment holds this setting: (id, name).
fn processes_with(setting: &str) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            let environment = fs::read(path.join("environ")).ok()?;
            let has = environment.split(|byte| *byte == 0).any(|one| one == setting.as_bytes());
            let name = fs::read_to_string(path.join("comm")).ok()?;
            (has && !environment.is_empty()).then(|| (pid, name.trim().to_owned()))
        })
        .collect()
}
