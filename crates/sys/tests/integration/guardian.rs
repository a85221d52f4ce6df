//! A daemon that is killed while it has changed 1000 sockets: its guardian process, or `kagiri undo`,
//! restores them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{LONG, as_root, flows, flows_of, holder, namespace_with_loopback, own_name, work_folder};
use sys::child::{Child, Signal, Spawn};
use sys::clock::Deadline;
use sys::journal::{Journal, Outcome};
use sys::process::{ForeignProcess, PacingRate, SocketChange};
use sys::shaping::{Guardian, ManagedSockets, SocketTarget, Sysctl, guard};

/// Set for the daemon: `FOLDER PID`.
const DAEMON: &str = "KAGIRI_TEST_DAEMON";
/// Set for the guardian process: the journal's path.
const GUARD: &str = "KAGIRI_TEST_GUARD";

const SOCKETS: usize = 1000;
/// What one in ten of the sockets has before.
const OWN_BYTES_PER_S: u64 = 77_000_000;

/// Not a test of its own: the second process.
#[test]
fn guardian_process() {
    let Some(path) = std::env::var_os(GUARD) else { return };
    let report = guard(Path::new(&path)).unwrap();
    assert!(report.results.iter().all(|result| result.outcome.is_settled()), "{:?}", report.results);
}

fn reexec(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command
}

/// Not a test of its own: the daemon that is killed.
#[test]
fn daemon() {
    let Ok(text) = std::env::var(DAEMON) else { return };
    let (folder, pid) = text.rsplit_once(' ').unwrap();
    let journal = Journal::open(&PathBuf::from(folder)).unwrap();
    let mut command = reexec("guardian::guardian_process");
    command.env(GUARD, journal.path());
    let mut guardian = Guardian::start(command).unwrap();
    let _sysctl = Sysctl::set(&journal, "net.ipv4.tcp_tso_rtt_log", "0").unwrap();
    let (process, found) = flows_of(pid.parse().unwrap(), |flow| flow.state == 1);
    let change = SocketChange { pacing: PacingRate::from_bytes_per_s(1_000_000), ..SocketChange::default() };
    let targets: Vec<_> = found
        .iter()
        .map(|(flow, fd)| SocketTarget {
            process: &process,
            fd: *fd,
            inode: flow.inode,
            cookie: flow.cookie,
            change,
        })
        .collect();
    let mut managed = ManagedSockets::new(&journal);
    let results = managed.apply(&targets).unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!(guardian.is_running());
    println!("\nmanaging {} guardian {}", results.len(), guardian.pid());
    loop {
        std::thread::park();
    }
}

struct Scene {
    folder: tempfile::TempDir,
    holder: Child,
    daemon: Child,
    guardian: i32,
    // Dropped last.
    namespace: sys::netns::Namespace,
    journal: Journal,
}

impl Scene {
    fn new(name: &str) -> Option<Self> {
        let (folder, journal) = as_root()?;
        let namespace = namespace_with_loopback(&journal, name);
        let holder = holder(&journal, &namespace, SOCKETS / 2);
        let (process, found) = flows_of(holder.pid(), |flow| flow.state == 1);
        assert_eq!(found.len(), SOCKETS);
        let own =
            SocketChange { pacing: PacingRate::from_bytes_per_s(OWN_BYTES_PER_S), ..SocketChange::default() };
        for (flow, fd) in found.iter().step_by(10) {
            process.change(*fd, flow.cookie, own).unwrap();
        }
        let mut daemon = Spawn::new(std::env::current_exe().unwrap())
            .args(["--exact", "guardian::daemon", "--nocapture"])
            .env(DAEMON, format!("{} {}", folder.path().join("daemon").display(), holder.pid()))
            .namespace(&namespace)
            .start(&journal)
            .unwrap();
        let line = daemon.wait_line(LONG, |line| line.starts_with("managing")).unwrap();
        assert!(line.starts_with(&format!("managing {SOCKETS} ")), "{line}");
        let guardian = line.rsplit(' ').next().unwrap().parse().unwrap();
        let this = Self { folder, holder, daemon, guardian, namespace, journal };
        assert_eq!((this.count(1_000_000), this.tso_setting()), (SOCKETS, "0".to_owned()));
        Some(this)
    }

    /// How many sockets have this rate, as sock_diag reports it.
    fn count(&self, bytes_per_s: u64) -> usize {
        let rate = |flow: &sys::netlink::Flow| flow.tcp.as_ref().and_then(|info| info.pacing_max_bytes_per_s);
        flows(self.holder.pid()).iter().filter(|flow| rate(flow) == Some(bytes_per_s)).count()
    }

    fn tso_setting(&self) -> String {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_tso_rtt_log");
        // Older kernels lack it.
        self.namespace.within(read).unwrap().map_or_else(|_| "0".to_owned(), |text| text.trim().to_owned())
    }

    fn assert_restored(&self) {
        assert_eq!(self.count(OWN_BYTES_PER_S), SOCKETS / 10);
        assert_eq!(self.count(u64::MAX), SOCKETS - SOCKETS / 10);
        assert_ne!(self.tso_setting(), "0");
    }

    fn journals(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("daemon")).unwrap().count()
    }
}

#[test]
fn guardian_restores_all_sockets_when_the_daemon_is_killed() {
    let Some(scene) = Scene::new("guarded") else { return };
    let guardian = ForeignProcess::open(scene.guardian).unwrap();
    let killed = Instant::now();
    scene.daemon.signal(Signal::SIGKILL).unwrap();
    let deadline = Deadline::after(LONG);
    while scene.count(1_000_000) > 0 {
        assert!(!deadline.passed(), "{} sockets still have the rate", scene.count(1_000_000));
    }
    eprintln!("{SOCKETS} sockets restored {:?} after SIGKILL", killed.elapsed());
    while !guardian.has_ended() {
        assert!(deadline.pause(Duration::from_millis(1)));
    }
    scene.assert_restored();
    assert_eq!(scene.journals(), 0, "a settled journal is removed");
}

/// Requests to end do not end it, as a service manager sends them to both.
#[test]
fn undo_restores_all_sockets_when_both_are_killed() {
    let Some(scene) = Scene::new("unguarded") else { return };
    let guardian = ForeignProcess::open(scene.guardian).unwrap();
    let kill = |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(scene.guardian), signal).unwrap();
    kill(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!guardian.has_ended());
    kill(Signal::SIGKILL);
    let deadline = Deadline::after(LONG);
    while !guardian.has_ended() {
        assert!(deadline.pause(Duration::from_millis(1)));
    }
    scene.daemon.signal(Signal::SIGKILL).unwrap();
    let journals = scene.folder.path().join("daemon");
    let mut found = Journal::leftovers(&journals, LONG).unwrap().journals;
    while found.is_empty() {
        assert!(deadline.pause(Duration::from_millis(5)));
        found = Journal::leftovers(&journals, LONG).unwrap().journals;
    }
    assert_eq!(scene.count(1_000_000), SOCKETS, "nothing restores them");
    let began = Instant::now();
    let results = found.pop().unwrap().replay();
    eprintln!("{SOCKETS} sockets restored by a replay within {:?}", began.elapsed());
    assert_eq!(results.iter().filter(|result| result.outcome == Outcome::Done).count(), results.len());
    assert!(results.len() >= SOCKETS);
    scene.assert_restored();
    assert_eq!((scene.journals(), scene.journal.pending() > 0), (0, true));
}

/// Only the socket that the journal means is restored: not another one in its place.
#[test]
fn replaced_socket_is_left_alone_and_a_moved_one_is_restored() {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    let Some((_folder, journal)) = as_root() else { return };
    let process = ForeignProcess::open(i32::try_from(std::process::id()).unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (gone, moves) = (connect(), connect());
    let change = SocketChange {
        pacing: PacingRate::from_bytes_per_s(1_000_000),
        priority: Some(5),
        ..SocketChange::default()
    };
    let mut managed = ManagedSockets::new(&journal);
    for socket in [&gone, &moves] {
        let now = process.read(socket.as_raw_fd()).unwrap();
        let (fd, inode, cookie) = (socket.as_raw_fd(), now.inode, now.cookie);
        managed
            .apply(&[SocketTarget { process: &process, fd, inode, cookie, change }])
            .unwrap()
            .remove(0)
            .unwrap();
    }
    let moved = moves.try_clone().unwrap();
    drop((gone, moves));
    // They may get the numbers of those descriptors.
    let others = [connect(), connect()];
    for other in &others {
        let cookie = process.read(other.as_raw_fd()).unwrap().cookie;
        process.change(other.as_raw_fd(), cookie, change).unwrap();
    }
    let results = journal.undo_all();
    let mut outcomes: Vec<_> = results.iter().map(|result| result.outcome.clone()).collect();
    outcomes.retain(|outcome| *outcome != Outcome::Done);
    assert_eq!((results.len(), outcomes), (2, vec![Outcome::AlreadyGone]));
    let now = process.read(moved.as_raw_fd()).unwrap();
    assert_eq!((now.pacing, now.priority), (PacingRate::UNLIMITED, 0));
    for other in &others {
        assert_eq!(process.read(other.as_raw_fd()).unwrap().pacing.bytes_per_s(), 1_000_000);
    }
}

/// A guardian that never starts must not be taken for one.
#[test]
fn program_that_does_not_guard_is_refused() {
    let error = Guardian::start(Command::new("true")).unwrap_err().to_string();
    assert!(error.contains("ended at once") && error.contains("nothing was changed"), "{error}");
    let mut noise = Command::new("sh");
    noise.args(["-c", "yes"]);
    let error = Guardian::start(noise).unwrap_err().to_string();
    assert!(error.contains("is another program"), "{error}");
    assert!(Guardian::start(Command::new("no-such-program")).is_err());
}

/// A daemon of days: the file does not grow with all that it ever changed.
#[test]
fn journal_is_written_anew_when_it_has_grown_long() {
    let folder = work_folder();
    let journals = folder.path().join(own_name("journal"));
    let journal = Journal::open(&journals).unwrap();
    let undo = |number: usize| sys::journal::Undo::RemoveFile {
        path: folder.path().join(format!("{number}-{}", "x".repeat(200))),
    };
    let kept = journal.record(undo(0)).unwrap();
    let length = || std::fs::metadata(journal.path()).unwrap().len();
    let mut longest = 0;
    for number in 0..100 {
        let ids = journal.record_all((1..=200).map(|at| undo(number * 200 + at)).collect()).unwrap();
        longest = longest.max(length());
        journal.done_all(&ids).unwrap();
    }
    assert_eq!(journal.pending(), 1);
    assert!((1 << 20..4 << 20).contains(&longest), "{longest}");
    assert_eq!(std::fs::read_dir(&journals).unwrap().count(), 1);
    // Its owner lives: it is left alone, and is still a whole journal.
    assert!(Journal::leftovers(&journals, Duration::ZERO).unwrap().journals.is_empty());
    let text = std::fs::read_to_string(journal.path()).unwrap();
    assert!(text.starts_with("{\"kagiri_journal\"") && text.ends_with('\n'), "{}", &text[..80]);
    assert_eq!(text.matches("/0-x").count(), 1);
    journal.done(kept).unwrap();
}
