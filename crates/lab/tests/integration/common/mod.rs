//! Labs for tests: this test program is its own `kagiri`, started again as supervisor, delay lines and disk
//! server.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lab::state::{Folders, HostState, State};
use lab::supervisor::{Program, SupervisorOptions};

/// A folder beside the test program, which is on a disk; `/tmp` may be memory. `None` without root.
pub fn work_folder() -> Option<tempfile::TempDir> {
    if !sys::environment::is_root() {
        features::skip("needs root");
        return None;
    }
    let here = std::env::current_exe().unwrap();
    Some(tempfile::tempdir_in(here.parent().unwrap()).unwrap())
}

/// This test program, to be started again.
pub fn this_program() -> Program {
    let arguments = ["--exact", "program", "--nocapture", "--"].map(OsString::from).to_vec();
    Program { path: std::env::current_exe().unwrap(), arguments }
}

/// A folder on a disk for one test's labs, and a unique part of their names.
pub struct Bench {
    folder: tempfile::TempDir,
    mark: String,
}

static BENCHES: AtomicU32 = AtomicU32::new(1);

impl Bench {
    /// `None` without root, which labs need.
    pub fn new() -> Option<Self> {
        let mark = format!("{}-{}", std::process::id(), BENCHES.fetch_add(1, Ordering::Relaxed));
        Some(Self { folder: work_folder()?, mark })
    }

    pub fn folders(&self) -> Folders {
        Folders { journal: self.folder.path().join("run"), data: self.folder.path().join("data") }
    }

    /// The name of a lab: at most 24 bytes, another one in each test.
    pub fn lab_name(&self, name: &str) -> String {
        format!("{name}-{}", self.mark)
    }

    pub fn options(&self, name: &str, text: &str) -> SupervisorOptions {
        let file = self.folder.path().join(format!("{name}.toml"));
        std::fs::write(&file, format!("name = '{}'\n{text}", self.lab_name(name))).unwrap();
        SupervisorOptions { file, folders: self.folders(), program: this_program(), owner: None }
    }
}

/// What this test program does when a supervisor or a lab's client calls it. To be called by a test called
/// `program`.
pub fn program() {
    let arguments: Vec<OsString> = std::env::args_os().skip_while(|argument| argument != "--").collect();
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    match words[..] {
        ["--", "lab", "keep", file, "--data", data] => {
            let data = PathBuf::from(data);
            let folders = Folders { journal: data.with_file_name("run"), data };
            let options =
                SupervisorOptions { file: file.into(), folders, program: this_program(), owner: None };
            let well = lab::supervisor::supervise(&options, &|line| {
                // On a line of its own, after the unfinished line of the test harness.
                writeln!(std::io::stdout(), "\n{line}").is_ok()
            });
            std::process::exit(i32::from(!well));
        }
        ["--", "lab", "line", spec] => {
            let carried = lab::line::run(Path::new(spec), &|line| println!("\n{line}"));
            panic!("a line ended: {carried:?}");
        }
        ["--", "lab", "disk", service] => {
            let service = serde_json::from_str(service).unwrap();
            let stop = sys::stop::StopSignal::install().unwrap();
            lab::disk::serve(&service, stop, || println!("\n{}", lab::disk::Service::READY)).unwrap();
        }
        ["--", "own", folder] => crate::disk::own(Path::new(folder)),
        // An ordinary run of all tests.
        _ => {}
    }
}

/// A lab that is up, and taken down at the end of the test, whatever its outcome.
pub struct UpLab {
    pub options: SupervisorOptions,
    pub state: State,
}

impl UpLab {
    pub fn new(bench: &Bench, name: &str, text: &str) -> Self {
        let options = bench.options(name, text);
        let state = lab::client::up(&options).unwrap_or_else(|error| panic!("{error}"));
        Self { options, state }
    }

    pub fn host(&self, name: &str) -> &HostState {
        self.state.hosts.iter().find(|host| host.name == name).unwrap()
    }

    pub fn address(&self, host: &str) -> std::net::Ipv4Addr {
        self.host(host).interfaces[0].address
    }

    /// Runs `work` on a thread on `host`. Sockets opened there stay there.
    pub fn on<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = &self.host(host).namespace;
        let enter = || {
            sys::netns::enter(namespace).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    pub fn status(&self) -> lab::state::Status {
        lab::client::status(&self.options.folders, &self.state.lab).unwrap()
    }

    pub fn down(self) {
        let left = lab::client::down(&self.options.folders, &self.state.lab).unwrap();
        assert_eq!(left, Vec::<String>::new());
    }
}

impl Drop for UpLab {
    fn drop(&mut self) {
        // Already down in a test that succeeds.
        let _ = lab::client::down(&self.options.folders, &self.state.lab);
    }
}

/// How long `bytes` take from one host to the other, once connected; all must arrive as they were sent.
pub fn transfer(lab: &UpLab, from: &str, to: &str, bytes: usize) -> Duration {
    let address = lab.address(to);
    let listener = lab.on(to, || TcpListener::bind((address, 0)).unwrap());
    let place = listener.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        (all, Instant::now())
    });
    let mut stream = lab.on(from, || TcpStream::connect_timeout(&place, PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let began = Instant::now();
    stream.write_all(&sent).unwrap();
    drop(stream);
    let (arrived, ended) = receiver.join().unwrap();
    assert!(arrived == sent, "what arrives is what was sent");
    ended - began
}

/// Everything on this machine that carries a lab's name or lies in its folder, and all links of this
/// namespace.
pub fn traces(bench: &Bench) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let own = format!("-{}-", bench.mark);
    let mut add = |kind: &str, folder: &str, all: bool| {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if all || (name.starts_with("kagiri-") && name.contains(&own)) {
                found.insert(format!("{kind} {name}"));
            }
        }
    };
    add("namespace", "/run/netns", false);
    add("link", "/sys/class/net", true);
    for entry in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        add("group", &entry.path().to_string_lossy(), false);
    }
    add("group", "/sys/fs/cgroup", false);
    let folder = bench.folder.path();
    let mounts = sys::proc::mounts::mounts(Path::new("/")).unwrap();
    let below = mounts.iter().filter(|mount| mount.target.starts_with(folder));
    found.extend(below.map(|mount| format!("mount {}", mount.target.display())));
    for device in std::fs::read_dir("/sys/block").unwrap().flatten() {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim()).starts_with(folder) {
            found.insert(format!("loop {}", file.trim()));
        }
    }
    found.extend(processes_naming(folder).into_iter().map(|line| format!("process {line}")));
    for place in ["run", "run/lab", "data/lab"] {
        for entry in std::fs::read_dir(folder.join(place)).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.file_name().is_some_and(|name| name != "lab") {
                found.insert(format!("file {}", path.display()));
            }
        }
    }
    found
}

/// The [`traces`] that exist now and did not exist before. A link may belong to another test.
fn left(bench: &Bench, before: &BTreeSet<String>) -> BTreeSet<String> {
    traces(bench).difference(before).cloned().collect()
}

/// Waits until nothing is left of a lab whose supervisor did not report that it is down.
pub fn soon_leaves_nothing(bench: &Bench, before: &BTreeSet<String>) {
    let began = Instant::now();
    while !left(bench, before).is_empty() {
        assert!(began.elapsed() < PATIENCE, "left after {PATIENCE:?}: {:?}", left(bench, before));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Nothing is left of a lab that is down. Tests beside this one make links as well, and take them away again.
pub fn leaves_nothing(bench: &Bench, before: &BTreeSet<String>) {
    let left = left(bench, before);
    assert!(left.iter().all(|trace| trace.starts_with("link ")), "{left:?}");
    soon_leaves_nothing(bench, before);
}

fn processes_naming(folder: &Path) -> Vec<String> {
    let name = folder.to_string_lossy().into_owned();
    let pids = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let lines = pids.filter_map(|pid| std::fs::read(pid.join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&name))
        .collect()
}

const PATIENCE: Duration = Duration::from_secs(30);

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
