//! `kagiri tune set`, `undo` and `list` in network namespaces that the tests make, with `cat` as the witness
//! of the kernel's values.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Ended, Live, Namespaces, World, beside_others, need_root, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);
const WMEM: &str = "net.ipv4.tcp_wmem";
const NEW: &str = "4096 16384 8388608";

struct Scene {
    world: World,
    net: Namespaces,
    /// The value of [`WMEM`] before.
    before: String,
}

impl Scene {
    fn new() -> Self {
        let mut scene =
            Self { world: World::with_own_journal(), net: Namespaces::new(&["a"]), before: String::new() };
        scene.before = scene.value("tcp_wmem");
        assert_ne!(scene.before, NEW);
        scene
    }

    fn start(&self, words: &[&str]) -> Live {
        Live::start(self.net.on_with_mounts("a", &self.world.command(words)))
    }

    fn run(&self, words: &[&str]) -> Ended {
        self.start(words).end(PATIENCE)
    }

    /// Runs another program in the namespace.
    fn other(&self, words: &[&str]) -> Ended {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.world.path(""));
        Live::start(self.net.on("a", &command)).end(PATIENCE).code(0)
    }

    /// The kernel's value of a setting of IPv4, by another program.
    fn value(&self, name: &str) -> String {
        self.other(&["cat", &format!("/proc/sys/net/ipv4/{name}")]).stdout.trim().replace('\t', " ")
    }

    /// Sets, and waits until it is set.
    fn set(&self, words: &[&str]) -> Live {
        let mut live = self.start(&[&["tune", "set"], words].concat());
        live.wait_for("restores the values before", PATIENCE);
        live
    }

    /// What running `tune set` have set here.
    fn in_force(&self) -> Vec<Value> {
        let list = self.run(&["tune", "list", "--json"]).code(0).json();
        list["set"].as_array().cloned().expect("a list")
    }
}

#[test]
fn settings_for_a_time_are_restored_by_undo_and_by_the_end_of_the_time() {
    need_root!();
    let _beside = beside_others();
    let scene = Scene::new();
    // Tabs of the kernel, blanks of the user, commas and units are the same value.
    let live = scene.set(&["tcp_wmem=4096,16384,8MiB", "net.ipv4.tcp_sack=0", "--for", "1h"]);
    assert_eq!((scene.value("tcp_wmem"), scene.value("tcp_sack")), (NEW.to_owned(), "0".to_owned()));
    let in_force = scene.in_force();
    assert_eq!(in_force[0]["settings"][0]["name"], WMEM);
    // Another process would take the value of the first for the original.
    let refused = scene.run(&["tune", "set", "tcp_wmem=4096 16384 4194305"]);
    refused.fails(1, &["has set net.ipv4.tcp_wmem already", "kagiri tune undo"]);
    let beside = scene.set(&["tcp_autocorking=0", "--for", "1s"]).end(PATIENCE).code(0);
    assert!(beside.stdout.contains("net.ipv4.tcp_autocorking: restored to 1 (was 0)"), "{beside:?}");
    assert_eq!(scene.value("tcp_autocorking"), "1");
    let undone = scene.run(&["tune", "undo"]).code(0);
    assert!(undone.stdout.contains(&format!("which had set {WMEM}={NEW}")), "{undone:?}");
    let ended = live.end(PATIENCE).code(130);
    assert!(ended.stdout.contains(&format!("{WMEM}: restored to {}", scene.before)), "{ended:?}");
    assert_eq!((scene.value("tcp_wmem"), scene.value("tcp_sack")), (scene.before.clone(), "1".to_owned()));
    assert!(scene.in_force().is_empty());
    scene.world.assert_nothing_left(ended.pid);
    let nothing = scene.run(&["tune", "undo"]).code(0);
    assert!(nothing.stdout.contains("'kagiri tune set' has changed nothing"), "{nothing:?}");
}

#[test]
fn killed_process_is_undone_at_once_and_its_time_does_not_end_later() {
    need_root!();
    let _beside = beside_others();
    let scene = Scene::new();
    let live = scene.set(&[&format!("{WMEM}={NEW}"), "--for", "2s"]);
    assert_eq!(scene.value("tcp_wmem"), NEW);
    live.signal(Signal::SIGKILL);
    wait_until("the guardian has restored it", PATIENCE, || scene.value("tcp_wmem") == scene.before);
    // What another program sets from now on stays, also when the time would have ended.
    scene.other(&["sysctl", "-qw", &format!("{WMEM}={NEW}")]);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(scene.value("tcp_wmem"), NEW);
    assert!(scene.in_force().is_empty());
    scene.world.assert_nothing_left(live.pid());
}

#[test]
fn setting_that_lost_its_guardian_too_is_restored_by_undo() {
    need_root!();
    let _beside = beside_others();
    let scene = Scene::new();
    let live = scene.set(&[&format!("{WMEM}={NEW}"), "--for", "1h"]);
    let guardian = guardian_of(live.pid());
    // Stopped, this process does not start another one.
    live.signal(Signal::SIGSTOP);
    kill(Pid::from_raw(guardian), Signal::SIGKILL).expect("the guardian runs");
    live.signal(Signal::SIGKILL);
    drop(live);
    // Another measurement on this machine may restore it first.
    scene.run(&["tune", "undo"]).code(0);
    assert_eq!(scene.value("tcp_wmem"), scene.before);
}

/// The guardian whose command line names the journal of process `pid`.
fn guardian_of(pid: u32) -> i32 {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let is_guardian = |entry: &std::fs::DirEntry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.contains("tune guard") && words.contains(&format!("/{pid}-"))
    };
    let found = entries.into_iter().find(is_guardian).expect("a guardian");
    found.file_name().to_string_lossy().parse().expect("a process id")
}

#[test]
fn setting_that_another_program_changes_meanwhile_is_left_alone_and_named() {
    need_root!();
    let _beside = beside_others();
    let scene = Scene::new();
    let mut live = scene.set(&[&format!("{WMEM}={NEW}"), "tcp_sack=0", "--json"]);
    scene.other(&["sysctl", "-qw", &format!("{WMEM}=4096 20000 4194304")]);
    live.wait_for("another program has set it to 4096 20000 4194304", PATIENCE);
    live.signal(Signal::SIGINT);
    let ended = live.end(PATIENCE).code(0);
    let settings = &ended.json()["settings"];
    assert_eq!(
        (&settings[0]["outcome"], &settings[1]["outcome"]),
        (&"left_alone".into(), &"restored".into())
    );
    assert_eq!(settings[0]["before"], scene.before.as_str());
    assert_eq!(
        (scene.value("tcp_wmem").as_str(), scene.value("tcp_sack").as_str()),
        ("4096 20000 4194304", "1")
    );
    scene.world.assert_nothing_left(ended.pid);
}

#[test]
fn command_runs_with_the_settings_which_are_restored_then() {
    need_root!();
    let _beside = beside_others();
    let scene = Scene::new();
    let setting = format!("{WMEM}={NEW}");
    let set = |words: &[&str]| scene.run(&[&["tune", "set", &setting], words].concat());
    let shown = set(&["--", "cat", "/proc/sys/net/ipv4/tcp_wmem"]).code(0);
    assert_eq!(shown.stdout.trim().replace('\t', " "), NEW);
    assert!(shown.stderr.contains(&format!("{WMEM}: restored to {}", scene.before)), "{shown:?}");
    assert_eq!(scene.value("tcp_wmem"), scene.before);
    set(&["--", "sh", "-c", "exit 7"]).code(7);
    let document = set(&["--json", "--", "sh", "-c", "echo words; exit 5"]).code(5);
    assert_eq!(document.json()["command_exit_code"], 5);
    assert!(document.stderr.contains("words"), "{document:?}");
    set(&["--", "no-such-program"]).fails(1, &["no-such-program", "no such program"]);
    assert_eq!(scene.value("tcp_wmem"), scene.before);
    // The command gets the signals; a killed one is undone by the guardian.
    let words = ["tune", "set", &setting, "--", "sh", "-c", "echo waiting; exec sleep 8"];
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut live = scene.start(&words);
        live.wait_for("waiting", PATIENCE);
        assert_eq!(scene.value("tcp_wmem"), NEW);
        live.signal(signal);
        wait_until("it is restored", PATIENCE, || scene.value("tcp_wmem") == scene.before);
    }
}

#[test]
fn kept_settings_stay_and_the_way_back_is_printed() {
    need_root!();
    let _beside = beside_others();
    let scene = Scene::new();
    let kept = scene.run(&["tune", "set", &format!("{WMEM}={NEW}"), "tcp_sack=0", "--keep"]).code(0);
    assert!(kept.stdout.lines().count() <= 15, "{kept:?}");
    assert_eq!(scene.value("tcp_wmem"), NEW);
    scene.world.assert_nothing_left(kept.pid);
    scene.run(&["tune", "undo"]).code(0);
    assert_eq!((scene.value("tcp_wmem").as_str(), scene.value("tcp_sack").as_str()), (NEW, "0"));
    // The printed command restores both.
    let back = kept.stdout.lines().last().expect("a line").trim().replace("kagiri", "\"$0\"");
    let program = kagiri_tests::program();
    let mut shell = Command::new("sh");
    shell.args(["-c", &back]).arg(program);
    kagiri_tests::set_like(&mut shell, &scene.world.command(&[]));
    Live::start(scene.net.on_with_mounts("a", &shell)).end(PATIENCE).code(0);
    assert_eq!((scene.value("tcp_wmem"), scene.value("tcp_sack")), (scene.before.clone(), "1".to_owned()));
}

#[test]
fn wrong_settings_are_refused_and_nothing_is_changed() {
    need_root!();
    let _beside = beside_others();
    let scene = Scene::new();
    // Words and parts of the message, separated by bars.
    for (words, parts) in [
        ("tcp_wmen=1 2 3", "unknown setting 'tcp_wmen'|did you mean 'net.ipv4.tcp_wmem'?"),
        ("tcp_sack=0|tcp_sack=2", "tcp_sack=2: expected 0 (off) or 1 (on)"),
        ("tcp_wmem=4096 16384 9999999999", "2147483647 bytes"),
        ("tcp_wmem=4096 16384", "three rising numbers"),
        ("tcp_congestion_control=nope", "expected one of|modprobe tcp_nope"),
        ("tcp_sack", "expected NAME=VALUE"),
        ("net.core.rmem_max=1000000", "read-only in this network namespace"),
        ("netdev_max_backlog=2000", "outside of network namespaces only"),
        ("SO_SNDBUF=1MiB", "only its program sets"),
        ("tcp_sack=0|--for|0s", "--for 0s: expected more than 0"),
        ("tcp_sack=0|--for|1s|--keep", "cannot be used with"),
        ("tcp_sack=0|--keep|--|true", "cannot be used with"),
        ("--keep", "required"),
    ] {
        let words: Vec<&str> = ["tune", "set"].into_iter().chain(words.split('|')).collect();
        scene.run(&words).fails(2, &parts.split('|').collect::<Vec<_>>());
    }
    assert_eq!((scene.value("tcp_wmem"), scene.value("tcp_sack")), (scene.before.clone(), "1".to_owned()));
    scene.run(&["tune", "list", "tcp_wmen"]).fails(2, &["did you mean"]);
    scene.run(&["tune", "advise", "--for", "0s"]).fails(2, &["--for 0s"]);
}

#[test]
fn exports_and_lists_need_no_root_and_settings_do() {
    need_root!();
    let _beside = beside_others();
    let world = World::of_nobody();
    let set = ["tune", "set", "tcp_wmem=4096 16384 8MiB"];
    world.run(&set).fails(1, &["needs root", "sudo", "--export"]);
    world.run(&["tune", "undo"]).fails(1, &["needs root"]);
    world.run(&["tune", "set", "tcp_wmen=1"]).fails(2, &["did you mean"]);
    let export = |form: &str| world.run(&[&set[..], &["--export", form]].concat()).code(0).stdout;
    assert!(export("sysctl.d").ends_with(&format!("{WMEM} = {NEW}\n")));
    assert_eq!(export("commands"), format!("sysctl -w {WMEM}='{NEW}'\n"));
    let list = world.run(&["tune", "list", "--json"]).code(0).json();
    let settings = list["settings"].as_array().expect("a list");
    assert!(settings.len() > 20, "{list}");
    let shown = world.run(&["tune", "list"]).code(0).stdout;
    assert!(shown.lines().count() <= 15 && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let one = world.run(&["tune", "list", "tcp_wmem"]).code(0).stdout;
    assert!(one.contains("allowed  three rising numbers"), "{one}");
}
