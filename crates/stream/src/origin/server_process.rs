//! The launched server: a process of its own, so that its load can be measured apart from the players'.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::part::{HostContext, PartError};
use sys::cgroup::ExistingGroup;
use sys::child::{Child, LAST_WORDS_WITHIN, Spawn};
use sys::clock::Deadline;
use sys::journal::{EntryId, Journal, Undo};

use crate::settings::{ServerKind, StreamSettings};
use httpd::target::percent_encode;

const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a wait checks whether the run was stopped.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time from SIGTERM to SIGKILL.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// The text before the address in the embedded server's ready line.
const READY_MARK: &str = " at http://";

/// In [`NginxConfig::dir`].
const NGINX_CONF: &str = "nginx.conf";
/// Folders that nginx makes there.
const NGINX_TEMP_FOLDERS: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];

pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
    name: String,
    nginx: Option<NginxConfig>,
}

/// nginx's configuration and state in a directory of its own, removed on drop.
struct NginxConfig {
    dir: PathBuf,
    journal: Journal,
    /// Everything in `dir`, in the order of creation.
    entries: Vec<EntryId>,
}

pub struct ServerLauncher<'a> {
    pub settings: &'a StreamSettings,
    /// The server listens here, on a free port.
    pub address: IpAddr,
    pub group: Option<&'a ExistingGroup>,
    pub journal: &'a Journal,
    pub host: &'a HostContext,
}

impl ServerLauncher<'_> {
    pub fn launch(&self, content: &Path) -> Result<ServerProcess, PartError> {
        let (Some(dir), Some(name)) = (content.parent(), content.file_name().and_then(|name| name.to_str()))
        else {
            return Err(PartError::usage(format!(
                "{} cannot be served: its name is not UTF-8",
                content.display()
            )));
        };
        match self.settings.server.kind {
            ServerKind::Embedded => self.embedded(dir, name.to_owned()),
            ServerKind::Nginx => self.nginx(dir, name.to_owned()),
        }
    }

    fn embedded(&self, dir: &Path, name: String) -> Result<ServerProcess, PartError> {
        let server = &self.settings.server;
        let mut spawn = Spawn::new(&self.host.program).args(["content", "serve"]).arg(dir);
        spawn = spawn.arg("--listen").arg(SocketAddr::from((self.address, 0)).to_string());
        if !self.address.is_loopback() {
            // The policy has permitted this address.
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
        Ok(ServerProcess { child, address, name, nginx: None })
    }

    fn nginx(&self, dir: &Path, name: String) -> Result<ServerProcess, PartError> {
        let address = SocketAddr::from((self.address, free_port(self.address)?));
        let nginx = NginxConfig::make(self.journal)?;
        let workers = self.settings.server.threads.max(1);
        let file = nginx.write(&nginx_conf(&nginx.dir, dir, address, workers))?;
        // nginx logs before it has read its configuration, so -e is needed too.
        let spawn = Spawn::new("nginx").args(["-e", "stderr", "-p"]).arg(&nginx.dir);
        // nginx's workers end with their master on SIGTERM, not on SIGKILL.
        let spawn = spawn.arg("-c").arg(&file).death_signal(sys::child::Signal::SIGTERM);
        let mut child = self.child(spawn)?;
        wait_until_accepting(&mut child, address, self.host)?;
        Ok(ServerProcess { child, address, name, nginx: Some(nginx) })
    }

    fn child(&self, spawn: Spawn) -> Result<Child, PartError> {
        let spawn = match self.group {
            Some(group) => spawn.join(group),
            None => spawn,
        };
        spawn.start(self.journal).map_err(PartError::new)
    }
}

impl ServerProcess {
    pub fn content_url(&self) -> String {
        format!("http://{}/{}", self.address, percent_encode(self.name.as_bytes()))
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The first process of the server.
    pub fn pid(&self) -> u32 {
        self.child.pid().unsigned_abs()
    }

    pub fn exit_error(&mut self) -> Option<String> {
        let status = match self.child.try_wait() {
            Ok(status) => status?,
            Err(error) => return Some(format!("cannot see whether the server still runs: {error}")),
        };
        Some(format!(
            "the server exited unexpectedly ({status}); it wrote: {}",
            self.child.last_words(Deadline::after(LAST_WORDS_WITHIN))
        ))
    }

    pub fn stop(self) {
        // It is killed if it does not end in time.
        let _ = self.child.stop(END_TIMEOUT);
        drop(self.nginx);
    }
}

fn ready_line(child: &mut Child, host: &HostContext) -> Result<String, PartError> {
    let deadline = Deadline::after(READY_TIMEOUT);
    loop {
        match child.wait_line(deadline.left().min(STOP_CHECK_INTERVAL), |line| line.contains(READY_MARK)) {
            Err(sys::Error::Deadline { .. }) if !deadline.passed() => continue_unless_stopped(host)?,
            ended => return ended.map_err(PartError::new),
        }
    }
}

fn continue_unless_stopped(host: &HostContext) -> Result<(), PartError> {
    match host.stop_requested() {
        true => Err(PartError::new("the run was ended before the server was ready")),
        false => Ok(()),
    }
}

/// A port that was free a moment ago: nginx does not report which one it took.
fn free_port(address: IpAddr) -> Result<u16, PartError> {
    let taken = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    taken
        .map(|address| address.port())
        .map_err(|error| PartError::new(format!("no free port for nginx at {address}: {error}")))
}

fn wait_until_accepting(child: &mut Child, address: SocketAddr, host: &HostContext) -> Result<(), PartError> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
        if child.try_wait().map_err(PartError::new)?.is_some() {
            return Err(PartError::new(format!(
                "nginx exited at its start; it wrote: {}",
                child.last_words(Deadline::after(LAST_WORDS_WITHIN))
            )));
        }
        if Instant::now() > deadline {
            return Err(PartError::new(format!(
                "nginx did not answer on {address} within {READY_TIMEOUT:?}"
            )));
        }
        continue_unless_stopped(host)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl NginxConfig {
    fn make(journal: &Journal) -> Result<Self, PartError> {
        let dir = std::env::temp_dir().join(format!(
            "kagiri-nginx-{}-{}",
            std::process::id(),
            sys::clock::monotonic_ns()
        ));
        let mut this = Self { dir: dir.clone(), journal: journal.clone(), entries: Vec::new() };
        this.journal_undo(Undo::RemoveFolder { path: dir.clone() })?;
        std::fs::create_dir(&dir).map_err(|error| {
            PartError::new(format!("cannot make the directory {}: {error}", dir.display()))
        })?;
        for file in [NGINX_CONF, "nginx.pid"] {
            this.journal_undo(Undo::RemoveFile { path: dir.join(file) })?;
        }
        // nginx creates these at its start and does not remove them.
        for kind in NGINX_TEMP_FOLDERS {
            this.journal_undo(Undo::RemoveFolder { path: dir.join(kind) })?;
        }
        Ok(this)
    }

    fn journal_undo(&mut self, undo: Undo) -> Result<(), PartError> {
        self.entries.push(self.journal.record(undo).map_err(PartError::new)?);
        Ok(())
    }

    fn write(&self, text: &str) -> Result<PathBuf, PartError> {
        let file = self.dir.join(NGINX_CONF);
        std::fs::write(&file, text)
            .map_err(|error| PartError::new(format!("cannot write {}: {error}", file.display())))?;
        Ok(file)
    }
}

impl Drop for NginxConfig {
    fn drop(&mut self) {
        // `kagiri undo` removes what cannot be removed now.
        for entry in self.entries.iter().rev() {
            let _ = self.journal.undo(*entry);
        }
    }
}

/// sendfile, no access log, nothing outside nginx's own directory.
fn nginx_conf(own: &Path, root: &Path, address: SocketAddr, workers: u32) -> String {
    let own = own.display();
    let mut text = String::new();
    // Workers without root could not read content in a user's home directory.
    if sys::environment::is_root() {
        text.push_str("user root;\n");
    }
    let _ = write!(
        text,
        "daemon off;\nworker_processes {workers};\nworker_rlimit_nofile 65535;\npid {own}/nginx.pid;\n\
         error_log stderr warn;\nevents {{ worker_connections 32768; }}\nhttp {{\n  access_log off;\n  \
         sendfile on;\n  default_type application/octet-stream;\n  keepalive_requests 1000000;\n"
    );
    for kind in NGINX_TEMP_FOLDERS {
        let _ = writeln!(text, "  {kind}_temp_path {own}/{kind};");
    }
    let root = root.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let _ = write!(text, "  server {{ listen {address} backlog=4096; root \"{root}\"; }}\n}}\n");
    text
}
