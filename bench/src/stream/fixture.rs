//! What the cases share: content, servers on a core of their own, the players' core.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use base::part::HostContext;
use mpegts::{ContentSpec, RateMode, load_index, make_file};
use sys::child::{Child, Signal, Spawn};
use sys::clock::Deadline;
use sys::journal::Journal;
use sys::proc::ProcessSet;

use crate::fleet::fixture::Lab;

pub const SERVER_CPU: usize = 0;
pub const PLAYER_CPU: usize = 1;

const READY_WITHIN: Duration = Duration::from_secs(10);
const END_WITHIN: Duration = Duration::from_secs(3);
const READY_MARK: &str = " at http://";

pub struct Fixture {
    /// Content, results, configurations.
    pub dir: PathBuf,
    pub kagiri: PathBuf,
    journal: Journal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `kagiri content serve`, one worker.
    Embedded,
    /// nginx, one worker, sendfile.
    Nginx,
}

pub struct Server {
    child: Child,
    address: SocketAddr,
    pub processes: ProcessSet,
}

impl Server {
    pub fn url(&self, film: &Path) -> anyhow::Result<String> {
        let name = film.file_name().and_then(|name| name.to_str()).context("the film has no name")?;
        Ok(format!("http://{}/{name}", self.address))
    }

    pub fn cpu_ns(&mut self) -> u64 {
        self.processes.read_cpu().cpu_ns
    }

    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.child.pid().unsigned_abs()
    }

    pub fn stop(self) {
        // Killed after its time, whatever it says.
        let _ = self.child.stop(END_WITHIN);
    }
}

impl Fixture {
    pub fn open(dir: PathBuf, kagiri: PathBuf) -> anyhow::Result<Self> {
        let cpus = sys::thread::online_cpus()?;
        ensure!(cpus.len() > PLAYER_CPU, "two CPUs are needed, one for the server and one for the players");
        let journal = Journal::open(&dir.join("journal"))?;
        Ok(Self { dir, kagiri, journal })
    }

    /// 25 Mbit/s of that length, made once, and read into memory.
    pub fn film(&self, duration_s: u32, mode: RateMode) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(format!("film-{duration_s}s-{}.ts", mode.to_string().to_lowercase()));
        if load_index(&path).is_err() {
            let spec = ContentSpec { duration_s: f64::from(duration_s), mode, ..ContentSpec::default() };
            make_file(&spec, &path, &mut |_| ControlFlow::Continue(()))?;
        }
        let mut file = std::fs::File::open(&path)?;
        std::io::copy(&mut file, &mut std::io::sink())?;
        Ok(path)
    }

    /// Has a server started for it alone: ours, or nginx.
    pub fn with_server<T>(
        &self,
        is_ours: bool,
        use_it: impl FnOnce(&mut Server) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut server = self.serve(if is_ours { Kind::Embedded } else { Kind::Nginx })?;
        let found = use_it(&mut server);
        server.stop();
        found
    }

    /// Starts a server of the fixture's directory on [`SERVER_CPU`].
    pub fn serve(&self, kind: Kind) -> anyhow::Result<Server> {
        match kind {
            Kind::Embedded => self.embedded(),
            Kind::Nginx => self.nginx(),
        }
    }

    fn embedded(&self) -> anyhow::Result<Server> {
        self.embedded_by(pinned().arg(&self.kagiri), "127.0.0.1:0")
    }

    /// Starts our server of the fixture's directory on a host of a lab, on any CPU.
    pub fn embedded_on(&self, lab: &Lab, host: &str) -> anyhow::Result<Server> {
        self.embedded_by(lab.on(host, &self.kagiri), &format!("{}:0", lab.address(host)?))
    }

    fn embedded_by(&self, kagiri: Spawn, listen: &str) -> anyhow::Result<Server> {
        let spawn = kagiri.args(["content", "serve"]).arg(&self.dir);
        let mut child = spawn.args(["--open", "--listen", listen]).start(&self.journal)?;
        let line = child.wait_line(READY_WITHIN, |line| line.contains(READY_MARK))?;
        let address = line.split(READY_MARK).nth(1).map(|rest| rest.trim_end_matches('/'));
        let address = address.and_then(|text| text.parse().ok()).context("no address in the ready line")?;
        server(child, address)
    }

    /// nginx with sendfile and one worker.
    fn nginx(&self) -> anyhow::Result<Server> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let own = self.dir.join("nginx");
        std::fs::create_dir_all(&own)?;
        let file = own.join(format!("{}.conf", address.port()));
        std::fs::write(&file, configuration(&own, &self.dir, address))?;
        let spawn = pinned().args(["nginx", "-e", "stderr", "-p"]).arg(&own).arg("-c").arg(&file);
        // The workers end with their master when it is asked to end, not when it is killed.
        let mut child = spawn.death_signal(Signal::SIGTERM).start(&self.journal)?;
        let deadline = Deadline::after(READY_WITHIN);
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
            let ended = child.try_wait()?.is_some() || !deadline.pause(Duration::from_millis(20));
            ensure!(!ended, "nginx did not answer; it wrote: {}", child.output_tail());
        }
        std::fs::remove_file(&file)?;
        server(child, address)
    }

    /// What parts that run in this process are given.
    pub fn host(&self) -> HostContext {
        let say = Arc::new(|line: &str| eprintln!("  {line}"));
        let journal = self.dir.join("journal");
        HostContext { say, ..HostContext::here(self.dir.clone(), journal, self.kagiri.clone()) }
    }
}

fn pinned() -> Spawn {
    Spawn::new("taskset").args(["-c", &SERVER_CPU.to_string()])
}

fn server(child: Child, address: SocketAddr) -> anyhow::Result<Server> {
    let processes = ProcessSet::open(Path::new("/"), &[child.pid()])?;
    Ok(Server { child, address, processes })
}

fn configuration(own: &Path, root: &Path, address: SocketAddr) -> String {
    let (own, root) = (own.display(), root.display());
    let mut text = String::new();
    // Workers that dropped root could not read content of a user's own directory.
    if sys::environment::is_root() {
        text.push_str("user root;\n");
    }
    let _ = write!(
        text,
        "daemon off;\nworker_processes 1;\nworker_rlimit_nofile 65535;\npid \"{own}/{}.pid\";\n\
         error_log stderr warn;\nevents {{ worker_connections 16384; }}\nhttp {{\n  access_log off;\n  \
         sendfile on;\n  default_type application/octet-stream;\n  keepalive_requests 1000000;\n",
        address.port()
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "  {kind}_temp_path \"{own}/{kind}\";");
    }
    let _ = write!(text, "  server {{ listen {address} backlog=4096; root \"{root}\"; }}\n}}\n");
    text
}
