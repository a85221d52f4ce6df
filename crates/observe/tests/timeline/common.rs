//! Programs to watch, and watching them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base::timeline::{CallRow, CallState, CallTimes};
use observe::timeline::calls;
use observe::timeline::session::{Session, SessionError, Watched, Wish};
use sys::child::suspended_child::{ProcessFamily, SuspendedChild};
use sys::clock::Deadline;
use sys::trace::{Backend, Target, TraceError};

/// No traced program runs this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub const BACKENDS: [Backend; 2] = [Backend::Bpf, Backend::Perf];
/// With and without a picture, which makes a difference in the kernel to BPF alone.
pub const WAYS: [(Backend, bool); 3] = [(Backend::Bpf, false), (Backend::Bpf, true), (Backend::Perf, true)];

/// A wish for these calls ("" for the usual ones).
pub fn wish(backend: Backend, names: &str, picture: bool) -> Wish {
    Wish {
        calls: if names.is_empty() { calls::usual() } else { calls::read(names).expect("known calls") },
        spans_max: picture.then_some(1_000_000),
        softirqs: false,
        ring_bytes: 4 << 20,
        backend: Some(backend),
        cost_within: Duration::ZERO,
    }
}

/// One test at a time: a trace sees the end of all children of this process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether tracing works here; says so if not. `KAGIRI_TESTS_ALL` makes that an error.
pub fn can_trace(backend: Backend) -> bool {
    static REFUSED: [OnceLock<Option<String>>; 2] = [const { OnceLock::new() }; 2];
    let refused = REFUSED[usize::from(backend == Backend::Perf)].get_or_init(|| {
        match Session::open(wish(backend, "read", false)) {
            Ok(_) => None,
            Err(SessionError::Trace(
                error @ (TraceError::NotPermitted { .. } | TraceError::Unsupported { .. }),
            )) => Some(error.to_string()),
            Err(error) => panic!("{error}"),
        }
    });
    let Some(why) = refused else { return true };
    features::skip(why);
    false
}

/// The backends that work here, up to the first that does not; none unless `needed` is there.
pub fn backends(needed: fn() -> bool) -> impl Iterator<Item = Backend> {
    BACKENDS.into_iter().take_while(move |backend| needed() && can_trace(*backend))
}

/// As [`backends`], of [`WAYS`].
pub fn ways(needed: fn() -> bool) -> impl Iterator<Item = (Backend, bool)> {
    WAYS.into_iter().take_while(move |(backend, _)| needed() && can_trace(*backend))
}

pub fn has_python() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = *THERE.get_or_init(|| Command::new("python3").arg("--version").output().is_ok());
    if !there {
        features::skip("needs python3");
    }
    there
}

pub fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

/// Python with these lines. The interpreter itself: `python3` may be a script with processes of its own.
pub fn python(lines: &str) -> Vec<OsString> {
    static INTERPRETER: OnceLock<String> = OnceLock::new();
    let interpreter = INTERPRETER.get_or_init(|| {
        let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        String::from_utf8_lossy(&asked.expect("python3 is there").stdout).trim().to_owned()
    });
    words(&[interpreter, "-c", lines])
}

/// A program to be started without being followed.
pub fn program(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

pub fn start(session: &mut Session, command: &[OsString]) -> ProcessFamily {
    let held = SuspendedChild::prepare(command, true).expect("a child");
    session.follow(Target::Suspended(held.pid())).expect("it is held");
    held.release().expect("it is a program")
}

/// Watches a program to its end; without fetching meanwhile if `starved`.
pub fn watch(wish: Wish, command: &[OsString], starved: bool) -> Watched {
    let mut session = Session::open(wish).expect("tracing works here");
    let mut family = start(&mut session, command);
    let deadline = Instant::now() + PATIENCE;
    while !family.has_ended() {
        assert!(Instant::now() < deadline, "{command:?} runs on");
        std::thread::sleep(Duration::from_millis(5));
        if !starved {
            session.pump();
        }
    }
    let status = family.status().map(|status| status.to_string());
    session.finish("test", status).expect("counts")
}

#[track_caller]
pub fn assert_balanced(times: &CallTimes) {
    assert_eq!(times.events + times.events_lost, times.events_counted, "{times:#?}");
}

/// The rows of a call: ready and blocked.
pub fn rows<'a>(times: &'a CallTimes, name: &str) -> [Option<&'a CallRow>; 2] {
    [CallState::Ready, CallState::Blocked]
        .map(|state| times.calls.iter().find(|row| row.name == name && row.state == state))
}

pub fn count(times: &CallTimes, name: &str) -> u64 {
    rows(times, name).into_iter().flatten().map(|row| row.count).sum()
}

pub fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    (folder, path)
}

/// Counters that a Python program shares with a test, so that the test can wait for its progress.
pub struct Tally {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Tally {
    pub fn new(counters: usize) -> Self {
        let (_folder, folder) = folder();
        let path = folder.join("tally");
        std::fs::write(&path, vec![0; counters * size_of::<u64>()]).expect("a file");
        Self { _folder, path }
    }

    /// The program's lines after those that define `count(N)`. It makes no call: they may be watched.
    pub fn with(&self, lines: &str) -> String {
        let path = self.path.display().to_string();
        format!(
            "import mmap\nwith open({path:?}, 'r+b') as file: tally = memoryview(mmap.mmap(file.fileno(), \
             0)).cast('Q')\n\
             def count(n): tally[n] += 1\n{lines}"
        )
    }

    fn read(&self) -> Vec<u64> {
        let bytes = std::fs::read(&self.path).expect("the file");
        bytes.chunks_exact(8).map(|eight| u64::from_ne_bytes(eight.try_into().expect("eight"))).collect()
    }

    /// Pumps until each counter has grown by `more`.
    pub fn pump_until(&self, session: &mut Session, more: u64) {
        let deadline = Deadline::after(Duration::from_secs(20));
        let from = self.read();
        while self.read().iter().zip(&from).any(|(now, from)| *now < from + more) {
            assert!(deadline.pause(Duration::from_millis(5)), "{from:?} {:?}", self.read());
            session.pump();
        }
    }
}

/// Whether a thread sleeps in a read of this descriptor (proc(5), "syscall").
pub fn reads(thread: i32, descriptor: i32) -> bool {
    let read = calls::read("read").expect("a call")[0].number;
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    call.starts_with(&format!("{read} {descriptor:#x} "))
}
