//! `kagiri qos exec`, metrics and the live status, with real programs in two namespaces.

use std::path::PathBuf;
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::commands::ONE;

const PATIENCE: Duration = Duration::from_secs(30);
const POLICY: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = '50Mbit/s'\n[[class]]\nname = 'alarm'\n\
    match = { process = 'alarmd' }\npriority = 1\ntarget = '100ms'\nsize = '10kB'\n[[class]]\nname = 'bulk'\n\
    match = { process = 'no-such' }\npriority = 5\nceiling = '8Mbit/s'\n";
/// Answers each connection's first byte.
const SERVER: &str = "
import socket, sys, threading
s = socket.create_server((sys.argv[1], 7001), backlog=2000)
print('ready', flush=True)
def serve(c):
    with c:
        while c.recv(65536): c.sendall(b'.')
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";
/// Makes a connection for each of 40 messages, and prints the pacing rate (SO_MAX_PACING_RATE is 47) that
/// each has when it is established, in byte/s.
const CLIENT: &str = "
import socket, struct, sys, time
for i in range(40):
    with socket.create_connection((sys.argv[1], 7001)) as c:
        print(struct.unpack('Q', c.getsockopt(socket.SOL_SOCKET, 47, 8))[0], flush=True)
        c.sendall(bytes(20000)); c.recv(1)
    time.sleep(0.02)
sys.exit(7)
";
/// Ends with 5 at Ctrl-C.
const WAITER: &str = "
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(5))
print('waiting', flush=True)
time.sleep(60)
";

struct Scene {
    world: World,
    net: Namespaces,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        world.write("p.toml", POLICY);
        for (name, text) in [("server.py", SERVER), ("client.py", CLIENT), ("waiter.py", WAITER)] {
            world.write(name, text);
        }
        Self { world, net: Namespaces::new(&["a", "b"]) }
    }

    fn kagiri(&self, words: &[&str]) -> Live {
        Live::start(self.net.on_with_mounts("a", &self.world.command(words)))
    }

    fn server(&self) -> Live {
        let mut command = Command::new("python3");
        command.args(["server.py", &self.net.address("b")]).current_dir(self.world.path(""));
        let mut server = Live::start(self.net.on("b", &command));
        server.wait_for("ready", PATIENCE);
        server
    }

    fn enforce(&self, words: &[&str]) -> Live {
        let mut daemon = self.kagiri(&[&["qos", "run", "p.toml"], words].concat());
        daemon.wait_for("is in force", PATIENCE);
        daemon
    }

    fn status(&self) -> Value {
        let status = self.world.run(&["qos", "status", "--json"]).code(0).json();
        status["policies"][0]["status"].clone()
    }

    /// Folders of control groups that are named after process `pid`.
    fn groups(&self, above: &str, pid: u32) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(above).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_of = |path: &PathBuf| path.to_string_lossy().contains(&format!("kagiri-{pid}-"));
        entries.filter(is_of).collect()
    }
}

#[test]
fn program_without_a_policy_is_told_how_to_get_one() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let refused = scene.kagiri(&["qos", "exec", "bulk", "--", "true"]).end(PATIENCE);
    refused.fails(1, &["no policy is in force here", "kagiri qos run"]);
    let daemon = scene.enforce(&[]);
    let refused = scene.kagiri(&["qos", "exec", "bluk", "--", "true"]).end(PATIENCE);
    refused.fails(2, &["bluk", "alarm, bulk"]);
    if scene.status()["classes"][1]["group"].is_string() {
        let refused = scene.kagiri(&["qos", "exec", "bulk", "--", "no-such-program"]).end(PATIENCE);
        refused.fails(1, &["no-such-program", "no such program"]);
    }
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
}

#[test]
fn new_connections_of_a_program_in_a_class_are_paced_at_once() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let _server = scene.server();
    let daemon = scene.enforce(&[]);
    let mut status = scene.status();
    let Some(above) = status["classes"][1]["group"].as_str().map(str::to_owned) else {
        assert!(status["groups_problem"].as_str().is_some_and(|why| why.contains("version 2")), "{status}");
        return kagiri_tests::skip("needs control groups of version 2");
    };
    wait_until("the rate of new sockets is known", PATIENCE, || {
        status = scene.status();
        !status["classes"][1]["new_sockets_bit_per_s"].is_null()
            || !status["classes"][1]["new_sockets_problem"].is_null()
    });
    if let Some(why) = status["classes"][1]["new_sockets_problem"].as_str() {
        return kagiri_tests::skip(&format!("needs BPF: {why}"));
    }
    let address = scene.net.address("b");
    let client = scene.kagiri(&["qos", "exec", "bulk", "--", "python3", "client.py", &address]);
    let (pid, ended) = (client.pid(), client.end(PATIENCE).code(7));
    let rates: Vec<f64> = ended.stdout.lines().map(|line| line.parse().expect("a rate")).collect();
    // Each is below the ceiling of 8 Mbit/s, and not much below: there is one connection at a time. One of
    // before may count while it is closed.
    assert!(rates.len() == 40 && rates.iter().all(|rate| (400e3..=1e6).contains(rate)), "{rates:?}");
    assert!(scene.groups(&above, pid).is_empty(), "its control group is removed");

    // Ctrl-C goes to the program.
    let mut waiter = scene.kagiri(&["qos", "exec", "bulk", "--", "python3", "waiter.py"]);
    waiter.wait_for("waiting", PATIENCE);
    let pid = waiter.pid();
    assert_eq!(scene.groups(&above, pid).len(), 1);
    waiter.signal(Signal::SIGINT);
    waiter.end(PATIENCE).code(5);
    assert!(scene.groups(&above, pid).is_empty());
    // One that runs when the policy ends continues, and its group goes with the policy's.
    let mut waiter = scene.kagiri(&["qos", "exec", "bulk", "--", "python3", "waiter.py"]);
    waiter.wait_for("waiting", PATIENCE);
    let of_daemon = daemon.pid();
    daemon.signal(Signal::SIGKILL);
    let top = PathBuf::from(&above).parent().expect("a folder").to_string_lossy().into_owned();
    wait_until("the guardian has removed the groups", PATIENCE, || scene.groups(&top, of_daemon).is_empty());
    assert!(waiter.is_running());
    waiter.signal(Signal::SIGINT);
    waiter.end(PATIENCE).code(5);
}

#[test]
fn metrics_are_served_on_loopback_and_status_is_drawn_anew() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let refused = scene.kagiri(&["qos", "run", "p.toml", "--metrics", "0.0.0.0:9464"]).end(PATIENCE);
    refused.fails(2, &["0.0.0.0:9464", "--open"]);
    let _server = scene.server();
    let mut daemon = scene.enforce(&["--metrics", "127.0.0.1:0"]);
    daemon.wait_for("/metrics", PATIENCE);
    let said = daemon.stderr();
    let url =
        said.split_whitespace().find(|word| word.starts_with("http://")).expect("an address").to_owned();
    let get = || {
        let mut command = Command::new("curl");
        command.args(["--silent", "--fail", "--include", "--max-time", "10", &url]);
        command.current_dir(scene.world.path(""));
        Live::start(scene.net.on("a", &command)).end(PATIENCE).code(0).stdout
    };
    let mut text = String::new();
    wait_until("the law has begun", PATIENCE, || {
        text = get();
        text.contains("kagiri_qos_state{interface=\"eth0\",state=\"capacity given\"} 1")
    });
    assert!(text.contains("Content-Type: text/plain; version=0.0.4"), "{text}");
    for line in [
        "# TYPE kagiri_qos_messages_total counter",
        "kagiri_qos_messages_total{interface=\"eth0\",class=\"alarm\"} 0",
        "kagiri_qos_target_seconds{interface=\"eth0\",class=\"alarm\"} 0.1",
        "kagiri_qos_sockets{interface=\"eth0\",class=\"bulk\",protocol=\"tcp\"} 0",
        "kagiri_qos_rate_bits_per_second{interface=\"eth0\",class=\"bulk\",protocol=\"tcp\",stage=\"asked\"}",
        // 97 % of the payload of 50 Mbit/s.
        "kagiri_qos_capacity_bits_per_second{interface=\"eth0\"} 46385",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_is_prometheus_text(&text);

    let mut watch = scene.world.start(&["qos", "status", "--watch"]);
    wait_until("it is drawn anew", PATIENCE, || watch.stdout().matches("in force for").count() >= 3);
    assert!(watch.is_running());
    watch.signal(Signal::SIGINT);
    let shown = watch.end(PATIENCE).code(0).stdout;
    assert!(shown.split("\n\n").all(|answer| answer.lines().count() <= 15), "{shown}");

    daemon.signal(Signal::SIGINT);
    let pid = daemon.pid();
    daemon.end(PATIENCE).code(0);
    assert!(!scene.world.path(&format!("run/kagiri/qos/{pid}.metrics")).exists());
}

/// Each line is a comment, or a name with labels and a number.
fn assert_is_prometheus_text(page: &str) {
    let body = page.split("\r\n\r\n").nth(1).expect("a body");
    assert!(body.ends_with('\n'));
    for line in body.lines().filter(|line| !line.starts_with("# HELP ") && !line.starts_with("# TYPE ")) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(name.starts_with("kagiri_qos_") && name.ends_with('}'), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}
