//! Programs that do what a policy in force does not expect: none may be left with a rate.

use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::commands::ONE;

const PATIENCE: Duration = Duration::from_secs(60);
const POLICY: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = '200Mbit/s'\n[[class]]\nname = 'bulk'\n\
    match = { command = 'program.py' }\npriority = 5\nceiling = '20Mbit/s'\n";
const SERVER: &str = "
import socket, sys, threading
s = socket.create_server((sys.argv[1], 7002), backlog=4000)
print('ready', flush=True)
kept = []
def serve(c):
    while c.recv(1 << 20): pass
while True:
    kept.append(s.accept()[0])
    threading.Thread(target=serve, args=(kept[-1],), daemon=True).start()
";
/// `forks`: a child holds the connections of a parent that ends. `many`: 1000 connections. `own`: sets a
/// pacing rate of its own, again and again. `slow`: sets a low one, and a higher one when asked.
/// `reconnects`: a connection for each message, and keeps the last of each hundred.
/// `dies`: children that connect, send and are killed.
const PROGRAM: &str = "
import os, signal, socket, struct, sys, time
mode, to = sys.argv[1], (sys.argv[2], 7002)
def connect():
    c = socket.create_connection(to); c.sendall(b'x' * 10000); return c
def wait(text='ready'):
    print(text, flush=True)
    while True: time.sleep(1)
if mode == 'forks':
    kept = [connect() for _ in range(20)]
    if os.fork(): time.sleep(1); os._exit(0)
    time.sleep(2)
    wait()
if mode == 'many':
    kept = [connect() for _ in range(1000)]
    wait()
if mode == 'own':
    c = connect()
    print('ready', flush=True)
    while True:
        c.setsockopt(socket.SOL_SOCKET, 47, struct.pack('Q', 3000000)); time.sleep(0.003)
if mode == 'slow':
    c = connect()
    def limit(bytes_per_s): c.setsockopt(socket.SOL_SOCKET, 47, struct.pack('Q', bytes_per_s))
    limit(125000)
    print('ready', flush=True)
    while not os.path.exists('faster'): time.sleep(0.01)
    limit(250000)
    wait('faster')
if mode == 'reconnects':
    kept = []
    for i in range(1000):
        c = connect()
        if i % 100 == 99: kept.append(c)
        else: c.close()
    wait()
if mode == 'dies':
    print('ready', flush=True)
    while True:
        children = []
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                kept = [connect() for _ in range(5)]
                time.sleep(5)
                # Not back into the loop: with pid 0 it would kill the process group of the tests.
                os._exit(0)
            children.append(pid)
        time.sleep(0.15)
        for pid in children: os.kill(pid, signal.SIGKILL)
        for pid in children: os.waitpid(pid, 0)
";

struct Scene {
    world: World,
    net: Namespaces,
    _server: Live,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        for (name, text) in [("p.toml", POLICY), ("server.py", SERVER), ("program.py", PROGRAM)] {
            world.write(name, text);
        }
        let net = Namespaces::new(&["a", "b", "c"]);
        let mut server = start(&world, &net, "b", &["python3", "server.py", &net.address("b")]);
        server.wait_for("ready", PATIENCE);
        Self { world, net, _server: server }
    }

    fn program(&self, mode: &str) -> Live {
        start(&self.world, &self.net, "a", &["python3", "program.py", mode, &self.net.address("b")])
    }

    fn enforce(&self) -> Live {
        let command = self.world.command(&["qos", "run", "p.toml", "--json"]);
        let mut daemon = Live::start(self.net.on_with_mounts("a", &command));
        daemon.wait_for("is in force", PATIENCE);
        daemon
    }

    /// Pacing rates that differ from "no limit" of connections of `host`, as ss(8) shows them: `rate/limit`.
    fn limits(&self, host: &str) -> Vec<String> {
        // Connections without a process close without us.
        let words = ["ss", "-tinH", "state", "established", "dport = :7002"];
        let text = start(&self.world, &self.net, host, &words).end(PATIENCE).code(0).stdout;
        let rates = text.split("pacing_rate ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        rates.filter_map(|rate| rate.split_once('/')).map(|(_, limit)| limit.to_owned()).collect()
    }

    /// The rates asked for, in bit/s, as the policy in force says.
    fn asked(&self) -> Vec<f64> {
        let status = self.world.run(&["qos", "status", "--json"]).code(0).json();
        let sockets = status["policies"][0]["status"]["sockets"].as_array().cloned().unwrap_or_default();
        sockets.iter().filter_map(|socket| socket["asked_bit_per_s"].as_f64()).collect()
    }

    /// Runs ip(8) on host a.
    fn ip(&self, words: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        start(&self.world, &self.net, "a", &words).end(PATIENCE).code(0);
    }

    /// The policy is in force on a program of this mode; ends as Ctrl-C and as `kill -9` do it.
    fn is_put_back(&self, mode: &str, paced: usize) {
        let mut program = self.program(mode);
        program.wait_for("ready", PATIENCE);
        for signal in [Signal::SIGINT, Signal::SIGKILL] {
            let daemon = self.enforce();
            wait_until(&format!("{mode}: the connections are paced"), PATIENCE, || {
                self.limits("a").len() >= paced
            });
            daemon.signal(signal);
            if signal == Signal::SIGINT {
                let ended = daemon.end(PATIENCE).code(0).json();
                assert_eq!(ended["status"]["problems"].as_array().map(Vec::len), Some(0), "{mode}: {ended}");
                assert_eq!(self.limits("a"), Vec::<String>::new(), "{mode}");
            } else {
                wait_until(&format!("{mode}: the guardian has put back all"), PATIENCE, || {
                    self.limits("a").is_empty()
                });
            }
        }
    }
}

fn start(world: &World, net: &Namespaces, host: &str, words: &[&str]) -> Live {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(world.path(""));
    Live::start(net.on(host, &command))
}

#[test]
fn connections_of_programs_that_fork_reconnect_or_have_many_are_put_back() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    scene.is_put_back("forks", 20);
    scene.is_put_back("reconnects", 10);
    scene.is_put_back("many", 1000);
}

#[test]
fn program_that_sets_its_own_rate_is_paced_and_gets_it_back() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let mut program = scene.program("own");
    program.wait_for("ready", PATIENCE);
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let daemon = scene.enforce();
        wait_until("it is paced as asked at times", PATIENCE, || {
            let status = scene.world.run(&["qos", "status", "--json"]).code(0).json();
            let sockets = &status["policies"][0]["status"]["sockets"];
            sockets.as_array().is_some_and(|sockets| !sockets.is_empty())
        });
        daemon.signal(signal);
        wait_until("it has its own rate", PATIENCE, || scene.limits("a") == ["24000000bps"]);
        drop(daemon);
    }
    assert!(program.is_running());
}

#[test]
fn programs_that_are_killed_meanwhile_leave_nothing() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let mut program = scene.program("dies");
    program.wait_for("ready", PATIENCE);
    let daemon = scene.enforce();
    let mut acked: Vec<u64> = Vec::new();
    wait_until("connections came and went", PATIENCE, || {
        let status = scene.world.run(&["qos", "status", "--json"]).code(0).json();
        acked.extend(status["policies"][0]["status"]["classes"][0]["acked_bytes"].as_u64());
        acked.last() > Some(&100_000)
    });
    daemon.signal(Signal::SIGINT);
    // Nothing is left that could not be put back, and there was no problem.
    let ended = daemon.end(PATIENCE).code(0).json();
    assert_eq!(ended["status"]["problems"], Value::Array(Vec::new()), "{ended}");
    assert_eq!(scene.limits("a"), Vec::<String>::new());
}

#[test]
fn program_of_a_class_in_another_network_namespace_is_not_left_with_a_rate() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let command = scene.world.command(&[]);
    let (own, other) = (scene.net.on("c", &command), scene.net.address("b"));
    let namespace = own.get_args().nth(2).expect("ip netns exec NAME").to_string_lossy().into_owned();
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let daemon = scene.enforce();
        let status = scene.world.run(&["qos", "status", "--json"]).code(0).json();
        if status["policies"][0]["status"]["classes"][0]["group"].is_null() {
            return kagiri_tests::skip("needs control groups of version 2");
        }
        // The rate of new sockets is set with the first step.
        std::thread::sleep(Duration::from_secs(1));
        let words = ["qos", "exec", "bulk", "--", "ip", "netns", "exec", &namespace];
        let words = [&words[..], &["python3", "program.py", "reconnects", &other]].concat();
        let mut program = Live::start(scene.net.on_with_mounts("a", &scene.world.command(&words)));
        program.wait_for("ready", PATIENCE);
        // The daemon does not see its connections; BPF programs set them.
        let status = scene.world.run(&["qos", "status", "--json"]).code(0).json();
        let is_set = status["policies"][0]["status"]["classes"][0]["new_sockets_bit_per_s"].is_number();
        assert_eq!(scene.limits("c").len(), if is_set { 10 } else { 0 }, "{status}");
        daemon.signal(signal);
        wait_until("nothing of it has a rate", PATIENCE, || scene.limits("c").is_empty());
        assert!(program.is_running(), "{}", program.stderr());
        program.signal(Signal::SIGTERM);
        drop((program, daemon));
    }
}

#[test]
fn of_policies_that_start_together_one_is_in_force() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let mut program = scene.program("forks");
    program.wait_for("ready", PATIENCE);
    for _ in 0..3 {
        let command = scene.world.command(&["qos", "run", "p.toml", "--for", "3s"]);
        let both = [(); 2].map(|()| Live::start(scene.net.on_with_mounts("a", &command)));
        let ended = both.map(|daemon| daemon.end(PATIENCE));
        let refused = ended.iter().filter(|ended| ended.stderr.contains("on eth0 already")).count();
        let codes = ended.each_ref().map(|ended| ended.status.code());
        let said = ended.each_ref().map(|ended| &ended.stderr);
        assert!(refused == 1 && codes.contains(&Some(0)) && codes.contains(&Some(1)), "{codes:?} {said:?}");
        assert_eq!(scene.limits("a"), Vec::<String>::new());
    }
}

#[test]
fn program_that_limits_itself_is_not_sped_up_and_keeps_what_it_sets() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let mut program = scene.program("slow");
    program.wait_for("ready", PATIENCE);
    let daemon = scene.enforce();
    wait_until("its own rate is kept", PATIENCE, || scene.asked() == [1e6]);
    assert_eq!(scene.limits("a"), ["1000000bps"]);
    scene.world.write("faster", "");
    program.wait_for("faster", PATIENCE);
    wait_until("its new rate is kept", PATIENCE, || scene.asked() == [2e6]);
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
    assert_eq!(scene.limits("a"), ["2000000bps"]);
}

#[test]
fn alternative_name_means_its_interface_and_a_removed_one_ends_the_policy() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    scene.world.write("p.toml", POLICY.replace("eth0", "uplink"));
    scene.ip("link property add dev eth0 altname uplink");
    let mut program = scene.program("forks");
    program.wait_for("ready", PATIENCE);
    let mut daemon = scene.enforce();
    wait_until("the connections are paced", PATIENCE, || scene.limits("a").len() == 20);
    scene.ip("link set eth0 down");
    scene.ip("link set eth0 name gone0");
    daemon.wait_for("eth0 was removed or renamed", PATIENCE);
    daemon.end(PATIENCE).code(1);
    assert_eq!(scene.limits("a"), Vec::<String>::new());
}
