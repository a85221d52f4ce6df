//! Everything that a killed supervisor leaves can be removed, whenever it was killed.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::{Bench, leaves_nothing, soon_leaves_nothing, traces, wait_until};
use lab::supervisor::SupervisorOptions;
use sys::journal::Journal;

/// One of everything.
const ALL: &str = "agents = false\n[host.a]\ncpu_quota_percent = 50\nrun = ['sleep 600 & exec sleep 600']\n\
    [host.a.disk]\nsize = '16MiB'\n[host.b]\n[host.c]\n[switch.s]\n[[link]]\nbetween = ['*', 's']\nrate = \
    '10Mbit/s'\n\
    [[link]]\nbetween = ['a', 'b']\ndelay = '1ms'\n";

fn start(options: &SupervisorOptions) -> Child {
    let mut command = Command::new(&options.program.path);
    command.args(&options.program.arguments).args(["lab", "keep"]).arg(&options.file);
    command.arg("--data").arg(&options.folders.data);
    sys::child::start_detached(command).unwrap()
}

/// What `kagiri undo` does.
fn undo(folder: &Path) {
    for leftover in Journal::leftovers(folder, Duration::ZERO).unwrap().journals {
        for result in leftover.replay() {
            assert!(result.outcome.is_settled(), "{result}");
        }
    }
}

fn kill_and_undo(mut supervisor: Child, options: &SupervisorOptions) {
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    undo(&options.folders.journal);
}

fn journal_lines(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.map(|text| text.lines().count()).sum()
}

/// Killed between any two changes: as soon as the journal has this number of lines.
#[test]
fn killed_supervisor_leaves_nothing_at_any_step() {
    let Some(bench) = Bench::new() else { return };
    let options = bench.options("step", ALL);
    let state = options.folders.lab(&bench.lab_name("step")).join("state.json");
    let before = traces(&bench);
    for lines in 1.. {
        let supervisor = start(&options);
        let began = Instant::now();
        while journal_lines(&options.folders.journal) < lines && !state.exists() {
            assert!(began.elapsed() < Duration::from_secs(30), "it goes on");
            std::thread::yield_now();
        }
        let complete = state.exists();
        kill_and_undo(supervisor, &options);
        soon_leaves_nothing(&bench, &before);
        if complete {
            assert!(lines > 10, "there are many steps: {lines}");
            break;
        }
    }
}

/// Killed at random moments.
#[test]
fn killed_supervisor_leaves_nothing_at_any_time() {
    let Some(bench) = Bench::new() else { return };
    let options = bench.options("moment", ALL);
    let before = traces(&bench);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..30 {
        let supervisor = start(&options);
        // It takes about that long to be up; some are killed after that.
        std::thread::sleep(Duration::from_micros(random.u64(0..250_000)));
        kill_and_undo(supervisor, &options);
        soon_leaves_nothing(&bench, &before);
    }
}

#[test]
fn killed_supervisor_leaves_nothing_while_stopping() {
    let Some(bench) = Bench::new() else { return };
    let options = bench.options("down", ALL);
    let before = traces(&bench);
    let mut random = fastrand::Rng::with_seed(6);
    for _ in 0..8 {
        let state = lab::client::up(&options).unwrap();
        let folders = options.folders.clone();
        let name = state.lab.clone();
        let asks = std::thread::spawn(move || lab::client::down(&folders, &name));
        std::thread::sleep(Duration::from_micros(random.u64(0..150_000)));
        // SIGKILL at once: no time is given.
        let _ = Command::new("kill").args(["-9", &state.supervisor.pid.to_string()]).status().unwrap();
        let _ = asks.join().unwrap();
        wait_until("the supervisor is gone", || !state.supervisor.is_running());
        undo(&options.folders.journal);
        soon_leaves_nothing(&bench, &before);
    }
}

/// The next `up` of the same lab removes what a dead supervisor left, and makes the lab.
#[test]
fn next_up_removes_what_a_crash_left() {
    let Some(bench) = Bench::new() else { return };
    let options = bench.options("next", ALL);
    let before = traces(&bench);
    let state = lab::client::up(&options).unwrap();
    let _ = Command::new("kill").args(["-9", &state.supervisor.pid.to_string()]).status().unwrap();
    wait_until("the supervisor is gone", || !state.supervisor.is_running());
    let dead = lab::client::status(&options.folders, &state.lab).unwrap_err().to_string();
    assert!(dead.contains("kagiri undo"), "{dead}");
    let again = lab::client::up(&options).unwrap();
    assert_ne!(again.supervisor, state.supervisor);
    assert_eq!(lab::client::down(&options.folders, &again.lab).unwrap(), Vec::<String>::new());
    leaves_nothing(&bench, &before);
}
