//! Several hosts at one bottleneck: `kagiri qos coordinate`.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, free_port, need_programs, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::commands::ONE;

const PATIENCE: Duration = Duration::from_secs(30);
const SERVER: &str = include_str!("../../fixtures/qos/server.py");
const ALARM: &str = include_str!("../../fixtures/qos/alarm.py");
const BURST: &str = include_str!("../../fixtures/qos/burst.py");
const TARGET_MS: f64 = 120.0;
/// Alarms, and robots whose messages all together need nearly the whole link.
const RANKED: &str = "[[class]]\nname = 'alarm'\nmatch = { command = 'burst.py alarm' }\npriority = 1\n\
    target = '700ms'\nsize = '250kB'\nclients = 4\n[[class]]\nname = 'robots'\n\
    match = { command = 'burst.py robots' }\npriority = 2\ntarget = '2s'\nsize = '300kB'\nclients = 8\n";
const PORT: u16 = 7448;

/// Two senders, and a server behind a link of 20 Mbit/s that both share. The reports pass this link, too.
struct Scene {
    world: World,
    net: Namespaces,
    base: String,
    _programs: Vec<Live>,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self::of(&format!(
            "[[class]]\nname = 'alarm'\nmatch = {{ command = 'alarm.py' }}\npriority = 1\n\
             target = '{TARGET_MS}ms'\nsize = '50kB'\n\
             [[class]]\nname = 'bulk'\nmatch = {{ cgroup = '/' }}\npriority = 5\n"
        ));
        scene.send_bulk();
        scene
    }

    fn of(classes: &str) -> Self {
        let world = World::new();
        let net = Namespaces::new(&["a", "b", "base"]);
        let base = net.address("base");
        world.write("server.py", SERVER);
        world.write("alarm.py", ALARM);
        world.write("burst.py", BURST);
        let policy = format!(
            "[bottleneck]\ninterface = 'eth0'\ncapacity = '20Mbit/s'\n\
             coordinator = 'tls/{base}:{PORT}'\n{classes}"
        );
        // Of one content: the name says which host a record is of.
        ["a.toml", "b.toml", "base.toml"].iter().for_each(|name| drop(world.write(name, &policy)));
        let coordinator = format!("desk,{base}");
        let words = ["fleet", "init", "fleet", "--coordinator", &coordinator, "--host", "a", "--host", "b"];
        world.run(&words).code(0);
        let mut scene = Self { world, net, base, _programs: Vec::new() };
        // The fourth host of the network is the bridge; the link to the server is the slow one.
        let words = "tc qdisc add dev to-2 root tbf rate 20mbit burst 8kb limit 256kb";
        scene.on("hub", &words.split(' ').collect::<Vec<_>>()).end(PATIENCE).code(0);
        let mut server = scene.on("base", &["python3", "server.py", &scene.base]);
        server.wait_for("ready", PATIENCE);
        scene._programs.push(server);
        scene
    }

    fn send_bulk(&mut self) {
        let base = self.base.clone();
        for (host, port) in [("a", "5201"), ("b", "5202")] {
            let mut server = self.on("base", &["iperf3", "-s", "-B", &base, "-p", port, "--forceflush"]);
            server.wait_for("listening", PATIENCE);
            let words =
                ["iperf3", "-c", &base, "-p", port, "-t", "60", "-P", "3", "-C", "reno", "--forceflush"];
            let mut bulk = self.on(host, &words);
            bulk.wait_for("SUM", PATIENCE);
            self._programs.extend([server, bulk]);
        }
    }

    fn on(&self, host: &str, words: &[&str]) -> Live {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        kagiri_tests::set_like(&mut command, &self.world.command(&[]));
        Live::start(self.net.on_with_mounts(host, &command))
    }

    fn kagiri(&self, host: &str, words: &[&str]) -> Live {
        Live::start(self.net.on_with_mounts(host, &self.world.command(words)))
    }

    fn coordinate(&self) -> Live {
        let words = ["qos", "coordinate", "base.toml", "--credentials", "fleet/bundles/coordinator"];
        let mut coordinator = self.kagiri("base", &words);
        coordinator.wait_for("coordinates", PATIENCE);
        coordinator
    }

    fn enforce(&self, host: &str) -> Live {
        let (policy, bundle) = (format!("{host}.toml"), format!("fleet/bundles/{host}"));
        let mut daemon = self.kagiri(host, &["qos", "run", &policy, "--credentials", &bundle, "--json"]);
        daemon.wait_for("is in force", PATIENCE);
        daemon
    }

    /// The records of both hosts.
    fn records(&self) -> [Value; 2] {
        let status = self.world.run(&["qos", "status", "--json"]).code(0).json();
        let of = |name: &str| {
            let policies = status["policies"].as_array().cloned().unwrap_or_default();
            let is_of = |record: &Value| record["policy"].as_str().is_some_and(|path| path.ends_with(name));
            policies.into_iter().find(is_of).unwrap_or_default()
        };
        ["/a.toml", "/b.toml"].map(of)
    }

    fn wait_for_state(&self, state: &str) {
        let is_so = |record: &Value| record["status"]["hosts"]["state"] == state;
        wait_until(state, PATIENCE, || self.records().iter().all(is_so));
    }

    /// Rates of bulk of both hosts between two readings, in bit/s.
    fn rates(&self, before: &[Value; 2]) -> [f64; 2] {
        let after = self.records();
        let number =
            |record: &Value, key: &str| record.pointer(key).and_then(Value::as_f64).expect("a number");
        [0, 1].map(|host| {
            let of = |key: &str| number(&after[host], key) - number(&before[host], key);
            8.0 * of("/status/classes/1/acked_bytes") / of("/age_s")
        })
    }

    /// A program that sends messages over several connections at once, as another of the same interval.
    fn burst(&self, host: &str, name: &str, connections: &str, bytes: &str) -> Live {
        let words = ["python3", "burst.py", name, &self.base, connections, bytes, "5", "4.0"];
        let mut burst = self.on(host, &words);
        burst.wait_for("ready", PATIENCE);
        burst
    }

    /// Response times of alarms of one host and robots of the other, which send at once, in milliseconds.
    fn at_once(&self) -> [Vec<f64>; 2] {
        let robots = self.burst("b", "robots", "8", "300000");
        let alarms = self.burst("a", "alarm", "4", "250000");
        [alarms, robots].map(|burst| {
            let text = burst.end(PATIENCE).code(0).stdout;
            let line = text.lines().find(|line| line.starts_with("times")).expect("the times");
            line.split_whitespace().skip(1).map(|word| word.parse().expect("a time")).collect()
        })
    }

    /// Response times of alarms, in milliseconds.
    fn alarms(&self, count: usize) -> Vec<f64> {
        let words = ["python3", "alarm.py", &self.base, &count.to_string(), "0.15"];
        let text = self.on("a", &words).end(PATIENCE).code(0).stdout;
        text.split_whitespace().skip(1).map(|word| word.parse().expect("a time")).collect()
    }
}

fn spread([a, b]: [f64; 2]) -> f64 {
    a.max(b) / a.min(b)
}

#[test]
fn hosts_share_one_link_and_continue_without_their_coordinator() {
    need_root!();
    need_programs!("iperf3", "python3", "tc");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::new();
    let coordinator = scene.coordinate();
    let daemons = ["a", "b"].map(|host| scene.enforce(host));
    scene.wait_for_state("leased");
    // The coordinator estimates the capacity, and looks for more only while no urgent message is on its way.
    wait_until("bulk fills the link", PATIENCE, || {
        let before = scene.records();
        std::thread::sleep(Duration::from_secs(2));
        scene.rates(&before).iter().sum::<f64>() > 8e6
    });
    let before = scene.records();
    let times = scene.alarms(40);
    let led = scene.rates(&before);
    let in_time = times.iter().filter(|ms| **ms <= TARGET_MS).count();
    let words = format!("{led:?} bit/s, {times:?} ms, {}", before[0]["status"]["hosts"]);
    assert!(in_time * 100 >= 97 * times.len(), "{in_time} in time: {words}");
    assert!(spread(led) < 1.25 && led[0] + led[1] > 8e6, "{words}");
    let status = scene.world.run(&["qos", "status"]).code(0).stdout;
    assert!(status.contains("lease valid: 2 hosts"), "{status}");
    assert!(before[0]["status"]["hosts"]["delay_ms"].as_f64().is_some_and(|ms| ms < 300.0), "{words}");

    coordinator.signal(Signal::SIGKILL);
    coordinator.end(PATIENCE);
    scene.wait_for_state("alone");
    let before = scene.records();
    assert!(before[0]["status"]["hosts"]["since_s"].as_f64().is_some_and(|s| s < 2.5), "{}", before[0]);
    std::thread::sleep(Duration::from_secs(4));
    let alone = scene.rates(&before);
    assert!(spread(alone) < 1.6 && alone[0] + alone[1] > 8e6, "{alone:?} bit/s");
    let status = scene.world.run(&["qos", "status"]).code(0).stdout;
    assert!(status.contains("On its own since ") && status.contains("nothing listens there"), "{status}");

    let successor = scene.coordinate();
    scene.wait_for_state("leased");
    for daemon in daemons {
        daemon.signal(Signal::SIGINT);
        let ended = daemon.end(PATIENCE).code(0);
        assert!(ended.stderr.contains("continues on its own"), "{}", ended.stderr);
        assert_eq!(ended.json()["status"]["hosts"]["state"], "leased");
    }
    successor.signal(Signal::SIGINT);
    let said = successor.end(PATIENCE).code(0);
    assert!(said.stderr.contains("a has joined") && said.stderr.contains("b has joined"), "{}", said.stderr);
}

#[test]
fn more_urgent_messages_of_one_host_come_before_less_urgent_ones_of_another() {
    need_root!();
    need_programs!("python3", "tc");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let scene = Scene::of(RANKED);
    let in_time = |times: &[f64], target_ms: f64| {
        times.iter().filter(|ms| **ms <= target_ms).count() as f64 / times.len() as f64
    };
    // Each host ranks its own classes only.
    let daemons = ["a", "b"].map(|host| scene.enforce(host));
    let [alarms, robots] = scene.at_once();
    eprintln!("each host on its own: alarms {alarms:?}, robots {robots:?}");
    assert!(in_time(&alarms, 700.0) < 0.5, "on their own: {alarms:?}");

    let coordinator = scene.coordinate();
    scene.wait_for_state("leased");
    let [alarms, robots] = scene.at_once();
    let words = format!("coordinated: alarms {alarms:?}, robots {robots:?}");
    eprintln!("{words}");
    assert!(in_time(&alarms, 700.0) > 0.9, "{words}");
    assert!(in_time(&robots, 2500.0) > 0.9, "{words}");
    for live in daemons.into_iter().chain([coordinator]) {
        live.signal(Signal::SIGINT);
        live.end(PATIENCE).code(0);
    }
}

#[test]
fn coordinator_refuses_other_policies_strangers_and_a_second_one() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    let port = free_port();
    let policy = |capacity: &str| {
        format!(
            "[bottleneck]\ninterface = 'lo'\ncapacity = '{capacity}'\ncoordinator = 'tcp/127.0.0.1:{port}'\n\
             [[class]]\nname = 'bulk'\nmatch = {{ process = 'no-such-program' }}\npriority = 5\n"
        )
    };
    world.write("p.toml", policy("20Mbit/s"));
    world.write("other.toml", policy("30Mbit/s"));
    let mut coordinator = world.start(&["qos", "coordinate", "p.toml", "--json"]);
    coordinator.wait_for("coordinates", PATIENCE);
    let words = ["another program listens there", "one coordinator"];
    world.run(&["qos", "coordinate", "p.toml"]).fails(1, &words);
    let beyond = ["qos", "coordinate", "p.toml", "--listen", "tcp/0.0.0.0:7448"];
    world.run(&beyond).fails(2, &["no authentication", "kagiri fleet init"]);
    world.run(&["qos", "coordinate", "p.toml", "--listen", "tls/0.0.0.0:7448"]).fails(2, &["--credentials"]);

    // Bytes of a stranger, and one that says nothing.
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    connect().write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    connect().write_all(b"\x03\x00abc").expect("sent");
    let _silent = connect();

    let mut other = world.start(&["qos", "run", "other.toml"]);
    other.wait_for("the coordinator has another policy", PATIENCE);
    other.signal(Signal::SIGINT);
    let answer = other.end(PATIENCE).code(0).stdout;
    assert!(answer.contains("On its own since"), "{answer}");

    let mut same = world.start(&["qos", "run", "p.toml", "--json"]);
    same.wait_for("grants this host its share", PATIENCE);
    same.signal(Signal::SIGINT);
    same.end(PATIENCE).code(0);
    coordinator.signal(Signal::SIGINT);
    let ended = coordinator.end(PATIENCE).code(0);
    assert!(ended.stderr.contains("no message of hosts on one bottleneck"), "{}", ended.stderr);
    assert!(ended.json()["refused"].as_u64().is_some_and(|count| count >= 3), "{}", ended.stdout);
}
