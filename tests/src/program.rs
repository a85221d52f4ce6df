//! The program under test, in a world of its own: its data, its temporary files, its environment.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::Traces;
use crate::collect::collect;

/// A command that runs longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(90);
/// Debian's user without rights.
const NOBODY: &str = "65534";

pub fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("the tests stand in the workspace").to_owned()
}

/// Gives `command` the environment and the folder of another one.
pub fn set_like(command: &mut Command, other: &Command) {
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(other.get_current_dir().expect("a command of a world"));
}

/// The `kagiri` of this build: it stands two folders above the test's own file. `make test` builds it first.
pub fn program() -> PathBuf {
    static BUILD: Once = Once::new();
    built("kagiri", &BUILD)
}

/// The S3 server of this build.
pub fn s3_server_program() -> PathBuf {
    static BUILD: Once = Once::new();
    built("kagiri-s3-server", &BUILD)
}

fn built(package: &str, once: &Once) -> PathBuf {
    let own = std::env::current_exe().expect("a test has a file");
    let folder = own.parent().and_then(Path::parent).expect("target/debug/deps/TEST");
    let program = folder.join(package);
    once.call_once(|| {
        if !program.exists() {
            eprintln!("{} is missing; building it with 'cargo build -p {package}'", program.display());
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let built = Command::new(cargo).args(["build", "-p", package]).current_dir(workspace()).status();
            assert!(built.is_ok_and(|status| status.success()), "{package} cannot be built");
        }
    });
    program
}

/// A place where kagiri keeps its data and temporary files, gone when dropped.
pub struct World {
    dir: TempDir,
    program: PathBuf,
    as_nobody: bool,
    has_own_journal: bool,
}

/// Runs a program for which the first argument is the folder of root's journals.
const OWN_JOURNAL: &str = "mkdir -p /run/kagiri && mount --bind \"$1\" /run/kagiri && shift && exec \"$@\"";

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    pub fn new() -> Self {
        // Not in /tmp, which may be memory: images of disks lie here.
        let target = program().parent().and_then(Path::parent).expect("target/debug/kagiri").join("tmp");
        Self::within(&target, false)
    }

    /// A world for the user `nobody`; needs root, and a copy of the program that `nobody` may read.
    pub fn of_nobody() -> Self {
        let mut world = Self::within(&std::env::temp_dir(), true);
        let copy = world.path("kagiri");
        // By another process: while this one holds the copy open for writing, a fork of another thread would
        // make it "text file busy".
        let copied = Command::new("cp").arg(&world.program).arg(&copy).status();
        assert!(copied.is_ok_and(|status| status.success()), "a copy of the program");
        world.program = copy;
        for name in ["data", "tmp", "run", ""] {
            world.give_to_nobody(&world.path(name));
        }
        world
    }

    /// A world in which `kagiri undo` finds changes of this world alone, and no other finds them.
    pub fn with_own_journal() -> Self {
        let world = Self { has_own_journal: crate::is_root(), ..Self::new() };
        std::fs::set_permissions(world.path("run"), PermissionsExt::from_mode(0o700)).expect("chmod");
        world
    }

    fn within(parent: &Path, as_nobody: bool) -> Self {
        std::fs::create_dir_all(parent).expect("a folder for the worlds");
        let dir = tempfile::Builder::new().prefix("kagiri-world-").tempdir_in(parent).expect("a folder");
        for name in ["tmp", "run"] {
            std::fs::create_dir(dir.path().join(name)).expect("a folder");
        }
        if as_nobody {
            std::fs::create_dir(dir.path().join("data")).expect("a folder");
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        }
        Self { dir, program: program(), as_nobody, has_own_journal: false }
    }

    /// Let `nobody` own a path.
    pub fn give_to_nobody(&self, path: &Path) {
        let id: u32 = NOBODY.parse().expect("a number");
        std::os::unix::fs::chown(path, Some(id), Some(id)).expect("chown needs root");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What stands in `$KAGIRI_DATA`.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file of the world");
        path
    }

    /// kagiri with arguments, not started yet. The working folder is the world.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            command.arg(format!("--reuid={NOBODY}")).arg(format!("--regid={NOBODY}")).arg("--clear-groups");
            command.arg(&self.program);
            command
        } else if self.has_own_journal {
            self.with_journal_here(&self.program)
        } else {
            Command::new(&self.program)
        };
        command.args(arguments).current_dir(self.dir.path());
        command.env("KAGIRI_DATA", self.data()).env("TMPDIR", self.path("tmp")).env("HOME", self.path("tmp"));
        command.env("XDG_RUNTIME_DIR", self.path("run")).env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
        command.env_remove("NO_COLOR").env_remove("RUST_BACKTRACE");
        // A developer's own console must not get the tests' runs.
        for name in ["KAGIRI_CONSOLE", "KAGIRI_TOKEN", "KAGIRI_TOKEN_FILE", "KAGIRI_CONSOLE_CA"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Another program, for which the journals of all kagiris that it starts are in this world.
    pub fn with_journal_here(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "sh", "-c", OWN_JOURNAL, "sh"]);
        command.arg(self.path("run")).arg(program);
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Live {
        Live::start(self.command(arguments))
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end(PATIENCE)
    }

    /// Run kagiri to its end, which has to come within `patience`; then look that nothing was left behind.
    pub fn measure(&self, arguments: &[&str], patience: Duration) -> Ended {
        let ended = self.start(arguments).end(patience);
        self.assert_nothing_left(ended.pid);
        ended
    }

    /// Imports the run of `tests/fixtures/run.json`.
    pub fn import_fixture(&self) {
        let file = workspace().join("tests/fixtures/run.json");
        self.run(&["runs", "import", file.to_str().expect("text")]).code(0);
    }

    /// What kagiri of process `pid` has left: processes, mounts, devices, groups, namespaces, files.
    pub fn traces(&self, pid: u32) -> Traces {
        Traces::of(pid, self.dir.path())
    }

    /// Nothing may be left of a kagiri that has ended; what the kernel is still ending has a moment for it.
    pub fn assert_nothing_left(&self, pid: u32) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut traces = self.traces(pid);
        while !traces.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            traces = self.traces(pid);
        }
        assert!(traces.is_empty(), "kagiri {pid} left behind: {traces:#?}");
    }
}

/// A program that runs. It is killed when dropped.
pub struct Live {
    child: Child,
    readers: Vec<JoinHandle<()>>,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    words: String,
}

#[derive(Debug)]
pub struct Ended {
    /// Its process id, free again now.
    pub pid: u32,
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    pub words: String,
}

impl Live {
    pub fn start(mut command: Command) -> Self {
        let words = format!("{command:?}");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{words}: {error}"));
        let (stdout, stderr) = (Arc::<Mutex<String>>::default(), Arc::<Mutex<String>>::default());
        let readers = vec![
            collect(child.stdout.take().expect("piped"), Arc::clone(&stdout)),
            collect(child.stderr.take().expect("piped"), Arc::clone(&stderr)),
        ];
        Self { child, readers, stdout, stderr, words }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.lock().expect("no reader panics").clone()
    }

    /// What it has written to standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("no reader panics").clone()
    }

    /// Wait until `part` was written, to either; `false` when it ended before.
    pub fn reaches(&mut self, part: &str, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        loop {
            // Asked before its words are looked at: what it wrote last counts too.
            let ended = !self.is_running();
            if ended {
                self.drain();
            }
            let (out, err) = (self.stdout(), self.stderr());
            if out.contains(part) || err.contains(part) {
                return true;
            }
            if ended {
                return false;
            }
            assert!(Instant::now() < deadline, "{}: did not write '{part}'\n{out}\n{err}", self.words);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Wait until `part` was written, to either.
    pub fn wait_for(&mut self, part: &str, within: Duration) {
        let reached = self.reaches(part, within);
        let (out, err, how) = (self.stdout(), self.stderr(), self.child.try_wait());
        assert!(reached, "{}: ended ({how:?}) before it wrote '{part}'\n{out}\n{err}", self.words);
    }

    /// Wait until all that an ended program wrote is read. A grandchild that outlives it may hold the pipes
    /// open; that is for the traces to find, not to wait for.
    fn drain(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        kill(Pid::from_raw(pid), signal).unwrap_or_else(|error| panic!("{}: {signal}: {error}", self.words));
    }

    pub fn end(mut self, within: Duration) -> Ended {
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            let late = Instant::now() > deadline;
            assert!(!late, "{}: runs after {within:?}\n{}\n{}", self.words, self.stdout(), self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        };
        self.drain();
        let (stdout, stderr) = (self.stdout(), self.stderr());
        Ended { pid: self.child.id(), status, stdout, stderr, words: self.words.clone() }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// How many trials have ended, by the progress lines: "    1 stream   pass", "    2 streams  FAIL".
    pub fn trials_shown(&self) -> usize {
        let is_trial = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [load, "stream" | "streams", "pass" | "FAIL" | "invalid", ..] => load.parse::<f64>().is_ok(),
                _ => false,
            }
        };
        self.stderr.lines().filter(is_trial).count()
    }

    #[track_caller]
    pub fn code(self, expected: i32) -> Self {
        let found = self.status.code();
        let signal = self.status.signal();
        assert_eq!(
            found,
            Some(expected),
            "{}\nsignal {signal:?}\n{}\n{}",
            self.words,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Its standard error holds all these words.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "{}: no '{part}' in\n{}", self.words, self.stderr);
        }
        self
    }

    /// It failed with this code and exactly one message, which holds all these words.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Self {
        let ended = self.code(code).says(parts);
        let messages = ended.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert_eq!(messages, 1, "{}: one message, not\n{}", ended.words, ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        ended
    }

    /// Its standard output as one JSON document, with nothing else.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}\n{}", self.words, self.stdout, self.stderr))
    }
}
