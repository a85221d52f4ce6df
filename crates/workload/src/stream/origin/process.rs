//! The server as a process of its own, so that its load can be told from the players'.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::part::{HostContext, PartError};
use sys::cgroup::ExistingGroup;
use sys::child::{Child, LAST_WORDS_WITHIN, Spawn};
use sys::clock::Deadline;
use sys::journal::{EntryId, Journal, Undo};

use crate::stream::server::target::percent_encode;
use crate::stream::settings::{ServerKind, StreamSettings};

/// How long a server may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether the run is to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a server may take to end when asked to.
const END_WITHIN: Duration = Duration::from_secs(3);
/// What the embedded server's ready line holds before its address.
const READY_MARK: &str = " at http://";

/// nginx's configuration, in its own directory.
const CONF: &str = "nginx.conf";
/// Folders that nginx makes there.
const TEMPORARY: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];

/// A running server.
pub struct Serving {
    child: Child,
    address: SocketAddr,
    name: String,
    configuration: Option<Configuration>,
}

/// nginx's configuration and state, in a directory of its own.
struct Configuration {
    dir: PathBuf,
    journal: Journal,
    /// Everything in it, in the order in which it is made.
    entries: Vec<EntryId>,
}

/// What a server is started with.
pub struct Start<'a> {
    /// Which server.
    pub settings: &'a StreamSettings,
    /// Where it listens, on a free port.
    pub address: IpAddr,
    /// The control group that it is started in.
    pub group: Option<&'a ExistingGroup>,
    /// Where it is written down.
    pub journal: &'a Journal,
    /// Where it runs.
    pub host: &'a HostContext,
}

impl Start<'_> {
    /// Start the server of this content.
    pub fn serving(&self, film: &Path) -> Result<Serving, PartError> {
        let (Some(dir), Some(name)) = (film.parent(), film.file_name().and_then(|name| name.to_str())) else {
            return Err(PartError::usage(format!(
                "{} cannot be served: its name is not text",
                film.display()
            )));
        };
        match self.settings.server.kind {
            ServerKind::Embedded => self.embedded(dir, name.to_owned()),
            ServerKind::Nginx => self.nginx(dir, name.to_owned()),
        }
    }

    fn embedded(&self, dir: &Path, name: String) -> Result<Serving, PartError> {
        let server = &self.settings.server;
        let mut spawn = Spawn::new(&self.host.program).args(["content", "serve"]).arg(dir);
        spawn = spawn.arg("--listen").arg(SocketAddr::from((self.address, 0)).to_string());
        if !self.address.is_loopback() {
            // It is where the host's owner wants to be reached.
            spawn = spawn.arg("--open");
        }
        spawn = spawn.arg("--threads").arg(server.threads.max(1).to_string());
        spawn = spawn.arg("--cost-ns-per-byte").arg(server.cost_ns_per_byte.to_string());
        if let Some(name) = &server.congestion_control {
            spawn = spawn.arg("--congestion-control").arg(name);
        }
        let mut child = self.child(spawn)?;
        let line = ready_line(&mut child, self.host)?;
        let address = line.split(READY_MARK).nth(1).and_then(|rest| rest.trim_end_matches('/').parse().ok());
        let address = address
            .ok_or_else(|| PartError::new(format!("the server's ready line has no address: {line}")))?;
        Ok(Serving { child, address, name, configuration: None })
    }

    fn nginx(&self, dir: &Path, name: String) -> Result<Serving, PartError> {
        let address = SocketAddr::from((self.address, free_port(self.address)?));
        let configuration = Configuration::make(self.journal)?;
        let workers = self.settings.server.threads.max(1);
        let file = configuration.write(&nginx_conf(&configuration.dir, dir, address, workers))?;
        // nginx writes to its log before it has read where that is, so that is said on the command line too.
        let spawn = Spawn::new("nginx").args(["-e", "stderr", "-p"]).arg(&configuration.dir);
        // nginx's workers end with their master when it is asked to end, not when it is killed.
        let spawn = spawn.arg("-c").arg(&file).death_signal(sys::child::Signal::SIGTERM);
        let mut child = self.child(spawn)?;
        await_answer(&mut child, address, self.host)?;
        Ok(Serving { child, address, name, configuration: Some(configuration) })
    }

    fn child(&self, spawn: Spawn) -> Result<Child, PartError> {
        let spawn = match self.group {
            Some(group) => spawn.join(group),
            None => spawn,
        };
        spawn.start(self.journal).map_err(PartError::new)
    }
}

impl Serving {
    /// Where the content is.
    pub fn content_url(&self) -> String {
        format!("http://{}/{}", self.address, percent_encode(self.name.as_bytes()))
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its (first) process.
    pub fn pid(&self) -> u32 {
        self.child.pid().unsigned_abs()
    }

    /// How it ended, if it has.
    pub fn died(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!(
            "the server ended by itself ({status}); it wrote: {}",
            self.child.last_words(Deadline::after(LAST_WORDS_WITHIN))
        ))
    }

    /// End it.
    pub fn stop(self) {
        // Whatever it says at its end, it is gone: killed after its time.
        let _ = self.child.stop(END_WITHIN);
        drop(self.configuration);
    }
}

/// The line in which the embedded server says where it listens.
fn ready_line(child: &mut Child, host: &HostContext) -> Result<String, PartError> {
    let deadline = Deadline::after(READY_WITHIN);
    loop {
        match child.wait_line(deadline.left().min(LOOK_EVERY), |line| line.contains(READY_MARK)) {
            Err(sys::Error::Deadline { .. }) if !deadline.passed() => go_on(host)?,
            ended => return ended.map_err(PartError::new),
        }
    }
}

/// A server that is being waited for is not waited for when the run is to end.
fn go_on(host: &HostContext) -> Result<(), PartError> {
    match host.stop_requested() {
        true => Err(PartError::new("the run was ended before the server was ready")),
        false => Ok(()),
    }
}

/// A port that was free a moment ago: nginx cannot be asked which one it took.
fn free_port(address: IpAddr) -> Result<u16, PartError> {
    let taken = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    taken
        .map(|address| address.port())
        .map_err(|error| PartError::new(format!("no free port for nginx at {address}: {error}")))
}

/// Wait until somebody accepts connections there.
fn await_answer(child: &mut Child, address: SocketAddr, host: &HostContext) -> Result<(), PartError> {
    let deadline = Instant::now() + READY_WITHIN;
    while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
        if child.try_wait().map_err(PartError::new)?.is_some() {
            return Err(PartError::new(format!(
                "nginx ended at its start; it wrote: {}",
                child.last_words(Deadline::after(LAST_WORDS_WITHIN))
            )));
        }
        if Instant::now() > deadline {
            return Err(PartError::new(format!("nginx did not answer on {address} within {READY_WITHIN:?}")));
        }
        go_on(host)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Configuration {
    fn make(journal: &Journal) -> Result<Self, PartError> {
        let dir = std::env::temp_dir().join(format!(
            "kagiri-nginx-{}-{}",
            std::process::id(),
            sys::clock::monotonic_ns()
        ));
        let mut this = Self { dir: dir.clone(), journal: journal.clone(), entries: Vec::new() };
        this.note(Undo::RemoveFolder { path: dir.clone() })?;
        std::fs::create_dir(&dir).map_err(|error| {
            PartError::new(format!("cannot make the directory {}: {error}", dir.display()))
        })?;
        for file in [CONF, "nginx.pid"] {
            this.note(Undo::RemoveFile { path: dir.join(file) })?;
        }
        // nginx makes them at its start and leaves them.
        for kind in TEMPORARY {
            this.note(Undo::RemoveFolder { path: dir.join(kind) })?;
        }
        Ok(this)
    }

    fn note(&mut self, undo: Undo) -> Result<(), PartError> {
        self.entries.push(self.journal.record(undo).map_err(PartError::new)?);
        Ok(())
    }

    fn write(&self, text: &str) -> Result<PathBuf, PartError> {
        let file = self.dir.join(CONF);
        std::fs::write(&file, text)
            .map_err(|error| PartError::new(format!("cannot write {}: {error}", file.display())))?;
        Ok(file)
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        // Left to `kagiri undo` if it cannot be removed now.
        for entry in self.entries.iter().rev() {
            let _ = self.journal.undo(*entry);
        }
    }
}

/// One worker, sendfile, no logs, nothing outside its own directory.
fn nginx_conf(own: &Path, root: &Path, address: SocketAddr, workers: u32) -> String {
    let own = own.display();
    let mut text = String::new();
    // Workers that dropped root could not read content of a user's own directory.
    if sys::environment::is_root() {
        text.push_str("user root;\n");
    }
    let _ = write!(
        text,
        "daemon off;\nworker_processes {workers};\nworker_rlimit_nofile 65535;\npid {own}/nginx.pid;\n\
         error_log stderr warn;\nevents {{ worker_connections 32768; }}\nhttp {{\n  access_log off;\n  sendfile on;\n  \
         default_type application/octet-stream;\n  keepalive_requests 1000000;\n"
    );
    for kind in TEMPORARY {
        let _ = writeln!(text, "  {kind}_temp_path {own}/{kind};");
    }
    let root = root.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let _ = write!(text, "  server {{ listen {address} backlog=4096; root \"{root}\"; }}\n}}\n");
    text
}
