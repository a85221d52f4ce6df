//! Programs that state class, size and target themselves, through the library in C from Python.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use kagiri_tests::{
    Live, UpLab, World, beside_others, need_programs, need_root, program, wait_until, workspace,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::commands::{ONE, field, on};

const PATIENCE: Duration = Duration::from_secs(60);
const LAB: &str = "[host.robots]\n[host.base]\n[switch.s]\n[[link]]\nbetween = ['robots', 's']\n\
    rate = '20Mbit/s'\n[[link]]\nbetween = ['s', 'base']\n";
/// Reads what comes.
const SINK: &str = "
import socket, sys, threading
def serve(c):
    while c.recv(65536): pass
s = socket.create_server((sys.argv[1], 7000))
print('ready', flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";
/// A program with the library: what is in force for it before, during and after its statement.
const TALK: &str = "
import os, socket, sys, time
sys.path.insert(0, sys.argv[2])
import client
c = client.Client(5000)
s = socket.create_connection((sys.argv[1], 7000))
def until(what, holds):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        report, problem = c.rate()
        if not problem and holds(report): return report
        time.sleep(0.05)
    sys.exit(client.line(what, report, problem))
name = lambda report: report.class_name.decode()
r = until('bulk', lambda r: name(r) == 'bulk' and (r.sockets, r.paced) == (1, 1))
print('bulk', r.rate_bit_per_s, flush=True)
print('closed:', c.state('closed', 1, 1)[1], flush=True)
print('nowhere:', c.state('nowhere', 1, 1)[1], flush=True)
print('stated:', c.state('alarm', 50000, 80)[1], flush=True)
r = until('alarm', lambda r: name(r) == 'alarm' and (r.sockets, r.paced) == (1, 0))
print('alarm', r.rate_bit_per_s == client.UNLIMITED, r.size_bytes, r.target_us, r.need_bit_per_s, flush=True)
def messages(r):
    s.sendall(bytes(50000)); time.sleep(0.3)
    return r.messages >= 3
r = until('messages', messages)
print('messages', r.messages, r.in_time, flush=True)
c.withdraw()
until('bulk again', lambda r: name(r) == 'bulk' and r.paced == 1)
c.state('alarm', 50000, 80)
until('alarm again', lambda r: name(r) == 'alarm' and r.paced == 0)
child = os.fork() if len(sys.argv) > 3 else -1
if child != 0: print('waiting', child, os.getpid(), flush=True)
time.sleep(600)
";
/// Becomes the user nobody, and speaks the protocol without the library: as docs/qos.md has it.
const RAW: &str = "
import glob, os, socket, struct, sys, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
path = glob.glob('/run/kagiri-qos/%d-*' % os.stat('/proc/self/ns/net').st_ino)[0]
def connect():
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.connect(path); c.settimeout(20)
    return c
def request(kind, sequence, name=b'', size=0, target=0):
    head = struct.pack('<4sBBHIIQQ', b'KGQC', 1, kind, len(name), sequence, 0, size, target)
    return head + name.ljust(256, b'\\0')
def closed(c):
    try: return c.recv(1000) == b''
    except OSError: return True
garbage = [b'x', bytes(288), b'KGQC' + b'\\xff' * 284, request(9, 1), request(2, 1, b'alarm'),
           request(1, 1, b'a b'), request(1, 1, b'alarm', 1, 1) + b'x', os.urandom(288), os.urandom(60000)]
for bytes_ in garbage:
    c = connect(); c.send(bytes_)
    assert closed(c), bytes_
print('garbage', len(garbage), flush=True)
first = connect(); first.send(request(1, 7, b'alarm', 1 << 63, 3))
answer = first.recv(1000)
magic, version, outcome, length, sequence, sockets = struct.unpack_from('<4sBBHII', answer)
name = answer[72:72 + length]
size, target = struct.unpack_from('<QQ', answer, 40)
print('answer', len(answer), outcome, sequence, sockets, name.decode(), size, target, flush=True)
many = []
for _ in range(100):
    c = connect(); many.append(c)
    try: c.send(request(2, 1))
    except OSError: pass
print('served', sum(not closed(c) for c in many), flush=True)
print(path, os.getpid(), flush=True)
time.sleep(600)
";

/// The library in C of this build.
fn library() -> PathBuf {
    let library = program().with_file_name("libkagiri_qos.so");
    if !library.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = ["build", "-p", "kagiri-qos-client"];
        assert!(Command::new(cargo).args(build).current_dir(workspace()).status().is_ok_and(|s| s.success()));
    }
    library
}

struct Scene<'a> {
    world: &'a World,
    lab: UpLab<'a>,
    base: String,
    _sink: Live,
}

impl<'a> Scene<'a> {
    fn new(world: &'a World) -> Self {
        let lab = UpLab::new(world, "qosclient", LAB);
        let base = field(world, &lab, "base", 3).split('/').next().expect("an address").to_owned();
        world.write("sink.py", SINK);
        world.write("talk.py", TALK);
        let policy = format!(
            "[bottleneck]\ninterface = '{}'\ncapacity = '20Mbit/s'\n\
             [[class]]\nname = 'alarm'\nmatch = {{ process = 'alarmd' }}\npriority = 1\ntarget = '500ms'\n\
             join = true\n\
             [[class]]\nname = 'closed'\nmatch = {{ process = 'closedd' }}\npriority = 1\ntarget = '1s'\n\
             [[class]]\nname = 'bulk'\nmatch = {{ command = 'talk.py' }}\npriority = 5\n",
            field(world, &lab, "robots", 1)
        );
        world.write("p.toml", policy);
        let mut sink = on(world, &lab, "base", &["python3", "sink.py", &base]);
        sink.wait_for("ready", PATIENCE);
        Self { world, lab, base, _sink: sink }
    }

    fn on_robots(&self, words: &[&str]) -> Live {
        on(self.world, &self.lab, "robots", words)
    }

    fn enforce(&self) -> Live {
        let program = program();
        let mut daemon = self.on_robots(&[program.to_str().expect("a path"), "qos", "run", "p.toml"]);
        daemon.wait_for("is in force", PATIENCE);
        daemon
    }

    /// A program of root with the library, until it waits; and its process.
    fn talk(&self, more: &[&str]) -> (Live, i32) {
        let library = format!("KAGIRI_QOS_LIBRARY={}", library().display());
        let examples = workspace().join("examples/qos");
        let words =
            ["env", &library, "python3", "-B", "talk.py", &self.base, examples.to_str().expect("a path")];
        let mut talk = self.on_robots(&[&words[..], more].concat());
        let pid = last_word(&mut talk, "waiting");
        (talk, pid.parse().expect("a process"))
    }

    /// A program of the user nobody without the library.
    fn raw(&self) -> Live {
        self.on_robots(&["python3", "-c", RAW])
    }

    fn programs(&self) -> Vec<Value> {
        let status = self.world.run(&["qos", "status", "--json"]).code(0).json();
        let policies = status["policies"].as_array().expect("policies");
        policies
            .iter()
            .flat_map(|one| one["status"]["programs"].as_array().expect("programs").clone())
            .collect()
    }
}

/// The last word of the line that begins with `start`.
fn last_word(live: &mut Live, start: &str) -> String {
    live.wait_for(start, PATIENCE);
    let mut found = None;
    wait_until("a whole line", PATIENCE, || {
        let text = live.stdout();
        let is_it = |line: &&str| line.starts_with(start) && text.contains(&format!("{line}\n"));
        found = text.lines().find(is_it).and_then(|line| Some(line.split_whitespace().last()?.to_owned()));
        found.is_some()
    });
    found.expect("just seen")
}

fn line(live: &Live, start: &str) -> Vec<String> {
    let text = live.stdout();
    let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

fn end(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the process of this test");
}

#[test]
fn program_states_its_class_and_sees_its_rate_until_it_ends() {
    need_root!();
    need_programs!("python3");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    let scene = Scene::new(&world);
    let daemon = scene.enforce();
    let (talk, pid) = scene.talk(&["fork"]);
    let text = talk.stdout();
    let rate: f64 = line(&talk, "bulk")[0].parse().expect("a rate");
    assert!((64e3..20e6).contains(&rate), "{text}");
    assert!(text.contains("closed: the class does not permit it"), "{text}");
    assert!(text.contains("nowhere: the policy has no class"), "{text}");
    let alarm = line(&talk, "alarm");
    assert_eq!(alarm[..3], ["True", "50000", "80000"], "{text}");
    let need: f64 = alarm[3].parse().expect("a rate");
    assert!((need / (8.0 * 50e3 / (0.85 * 0.08)) - 1.0).abs() < 0.001, "{text}");
    let messages: Vec<u64> = line(&talk, "messages").iter().map(|word| word.parse().unwrap()).collect();
    assert!(messages[0] >= 3 && messages[1] <= messages[0], "{text}");
    // The record is written once a second.
    let is_stated = |programs: &[Value]| {
        programs.len() == 1 && programs[0]["class"] == "alarm" && programs[0]["pid"] == pid
    };
    wait_until("the status shows the program", PATIENCE, || is_stated(&scene.programs()));
    let program = scene.programs().remove(0);
    assert_eq!((&program["target_ms"], &program["user_id"]), (&80.0.into(), &0.into()), "{program}");
    assert_eq!((&program["size_bytes"], &program["sockets"]), (&50e3.into(), &1.into()), "{program}");
    let shown = world.run(&["qos", "status"]).code(0).stdout;
    assert!(shown.contains("1 program states what it needs"), "{shown}");
    // Its child keeps the connection open, and does not speak for it.
    end(pid);
    wait_until("the statement has ended", PATIENCE, || scene.programs().is_empty());
    end(line(&talk, "waiting")[0].parse().expect("the child"));
    drop(talk);
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
}

#[test]
fn no_program_speaks_for_another_and_garbage_changes_nothing() {
    need_root!();
    need_programs!("python3");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    let scene = Scene::new(&world);
    let daemon = scene.enforce();
    let (talk, pid) = scene.talk(&[]);
    let mut raw = scene.raw();
    raw.wait_for("/run/kagiri-qos/", PATIENCE);
    let other: i32 = last_word(&mut raw, "/run/kagiri-qos/").parse().expect("a process");
    assert_eq!(line(&raw, "garbage"), ["9"]);
    // Its own statement, within bounds; it has no socket.
    assert_eq!(line(&raw, "answer"), ["328", "0", "7", "0", "alarm", "1000000000000", "1000"]);
    // One user has 64 connections at most.
    assert_eq!(line(&raw, "served"), ["63"]);
    let of = |programs: &[Value], pid: i32| programs.iter().find(|one| one["pid"] == pid).cloned();
    wait_until("both are shown", PATIENCE, || {
        let programs = scene.programs();
        programs.len() == 2 && of(&programs, pid).is_some() && of(&programs, other).is_some()
    });
    let programs = scene.programs();
    let first = of(&programs, pid).expect("the first");
    assert_eq!((&first["target_ms"], &first["class"]), (&80.0.into(), &"alarm".into()), "{first}");
    assert_eq!((&first["sockets"], &first["user_id"]), (&1.into(), &0.into()), "{first}");
    let second = of(&programs, other).expect("the other");
    assert_eq!((&second["sockets"], &second["user_id"]), (&0.into(), &65534.into()), "{second}");
    end(other);
    wait_until("only the first is left", PATIENCE, || of(&scene.programs(), other).is_none());
    assert!(of(&scene.programs(), pid).is_some());
    // The file of the socket goes even if the policy is killed.
    let file = raw.stdout().lines().last().and_then(|line| line.split(' ').next()).map(PathBuf::from);
    let file = file.expect("a path");
    assert!(file.exists());
    daemon.signal(Signal::SIGKILL);
    wait_until("the guardian has removed the socket", PATIENCE, || !Path::new(&file).exists());
    end(pid);
    drop((talk, daemon));
}
