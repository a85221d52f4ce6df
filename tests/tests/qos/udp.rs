//! `kagiri qos run` and UDP: sockets of real programs, held to a rate in front of the interface. Witnesses
//! are tc(8), ss(8) and the counters of the receiver's interface.

use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use kagiri_tests::{Live, Namespaces, World, beside_others, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::commands::ONE;

const PATIENCE: Duration = Duration::from_secs(30);

/// Two hosts; programs of iperf3 send from `a` to `b`.
struct Scene {
    world: World,
    net: Namespaces,
    servers: Vec<Live>,
}

impl Scene {
    fn new(ceiling: &str) -> Self {
        let world = World::new();
        world.write(
            "p.toml",
            format!(
                "[bottleneck]\ninterface = 'eth0'\ncapacity = '100Mbit/s'\n[[class]]\nname = 'bulk'\n\
                 match = {{ process = 'iperf3' }}\npriority = 5\nceiling = '{ceiling}'\n"
            ),
        );
        Self { world, net: Namespaces::new(&["a", "b"]), servers: Vec::new() }
    }

    fn start(&self, host: &str, words: &[&str]) -> Live {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.world.path(""));
        Live::start(self.net.on(host, &command))
    }

    fn text(&self, host: &str, words: &[&str]) -> String {
        self.start(host, words).end(PATIENCE).code(0).stdout
    }

    /// A client of iperf3 with a server of its own, which sends.
    fn iperf3(&mut self, port: &str, words: &[&str]) -> Live {
        let mut server = self.start("b", &["iperf3", "-s", "-p", port, "--forceflush"]);
        server.wait_for("listening", PATIENCE);
        self.servers.push(server);
        let to = self.net.address("b");
        let client = ["iperf3", "-c", &to, "-p", port, "-t", "120", "--forceflush"];
        let mut client = self.start("a", &[&client[..], words].concat());
        client.wait_for("Bytes", PATIENCE);
        client
    }

    fn enforce(&self) -> Live {
        let command = self.world.command(&["qos", "run", "p.toml", "--json"]);
        let mut daemon = Live::start(self.net.on("a", &command));
        daemon.wait_for("is in force", PATIENCE);
        daemon
    }

    fn class(&self) -> Value {
        let status = self.world.run(&["qos", "status", "--json"]).code(0).json();
        status["policies"][0]["status"]["classes"][0].clone()
    }

    fn wait_limited(&self, sockets: u64) {
        wait_until("the UDP sockets are limited", PATIENCE, || {
            self.class()["udp"]["sockets_in_class"].as_u64() == Some(sockets)
        });
    }

    fn qdisc(&self) -> String {
        self.text("a", &["tc", "qdisc", "show", "dev", "eth0"])
    }

    fn tc_classes(&self) -> String {
        self.text("a", &["tc", "-s", "class", "show", "dev", "eth0"])
    }

    /// Whether a UDP socket has a priority of ours.
    fn has_priority(&self) -> bool {
        self.text("a", &["ss", "-uanH", "--tos"]).contains("class_id:0x6b")
    }

    fn received_bytes(&self) -> f64 {
        let text = self.text("b", &["cat", "/sys/class/net/eth0/statistics/rx_bytes"]);
        text.trim().parse().expect("a number")
    }

    /// What arrives at `b`, bit/s.
    fn received_bit_per_s(&self) -> f64 {
        // What waited in front of the discipline has passed.
        std::thread::sleep(Duration::from_secs(2));
        let (began, before) = (Instant::now(), self.received_bytes());
        std::thread::sleep(Duration::from_secs(6));
        let bits = 8.0 * (self.received_bytes() - before);
        bits / began.elapsed().as_secs_f64()
    }
}

#[test]
fn udp_is_held_to_its_ceiling_and_everything_is_put_back() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let mut scene = Scene::new("5Mbit/s");
    let _client = scene.iperf3("5301", &["-u", "-b", "20M"]);
    let before = scene.qdisc();
    assert!(!scene.has_priority() && !before.contains("htb"), "{before}");
    let daemon = scene.enforce();
    scene.wait_limited(1);
    assert!(scene.has_priority());
    let rate = scene.received_bit_per_s();
    let class = scene.class();
    let classes = scene.tc_classes();
    eprintln!("UDP with a ceiling of 5 Mbit/s: {rate:.0} bit/s arrive");
    assert!((rate / 5e6 - 1.0).abs() < 0.03, "{rate} {class} {classes}");
    assert!(classes.contains("prio 7 rate 64Kbit ceil 5Mbit"), "{classes}");
    for key in ["asked_bit_per_s", "enforced_bit_per_s", "verified_bit_per_s"] {
        assert_eq!(class["udp"][key].as_f64(), Some(5e6), "{key}: {class}");
    }
    // What the status says was sent is what tc(8) counts, which increases meanwhile.
    let sent = class["udp"]["sent_bytes"].as_u64().expect("bytes");
    let counted = sent_bytes(&classes, ":2 ");
    assert!(counted >= sent && sent > counted / 2, "{sent} {classes}");
    let text = scene.world.run(&["qos", "status"]).code(0).stdout;
    assert!(text.contains("UDP: 1 of 1 sockets limited") && text.contains("at most 5 Mbit/s"), "{text}");

    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
    assert_eq!(scene.qdisc(), before);
    assert!(!scene.has_priority());
    assert!(scene.received_bit_per_s() > 15e6, "without a policy, it sends as it wants");

    let daemon = scene.enforce();
    scene.wait_limited(1);
    daemon.signal(Signal::SIGKILL);
    wait_until("the guardian has put back all", PATIENCE, || {
        scene.qdisc() == before && !scene.has_priority()
    });
}

/// Bytes that tc(8) has counted for the class whose line contains `name`.
fn sent_bytes(classes: &str, name: &str) -> u64 {
    let after = classes.split(name).nth(1).and_then(|rest| rest.split("Sent ").nth(1));
    after.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a counter")
}

#[test]
fn udp_and_tcp_of_a_class_keep_its_ceiling_together() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let mut scene = Scene::new("10Mbit/s");
    let _clients = [scene.iperf3("5302", &["-u", "-b", "50M"]), scene.iperf3("5303", &[])];
    let daemon = scene.enforce();
    scene.wait_limited(1);
    let rate = scene.received_bit_per_s();
    let class = scene.class();
    // 10 Mbit/s of payload, with TCP's and Ethernet's headers.
    assert!((8e6..11.5e6).contains(&rate), "{rate} {class}");
    let udp = class["udp"]["sent_bit_per_s"].as_f64().expect("a rate");
    assert!((3e6..7.5e6).contains(&udp), "each has about a half: {class}");
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
}

#[test]
fn congestion_control_of_a_class_is_set_and_put_back() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let mut scene = Scene::new("50Mbit/s'\ncongestion_control = 'cubic");
    let _client = scene.iperf3("5305", &["-C", "reno"]);
    let uses = |name: &str| {
        let text = scene.text("a", &["ss", "-tinH", "dport = :5305"]);
        text.lines().any(|line| line.trim_start().starts_with(name) && line.contains("bytes_sent"))
    };
    assert!(uses("reno") && !uses("cubic"));
    let daemon = scene.enforce();
    wait_until("its connections use cubic", PATIENCE, || uses("cubic") && !uses("reno"));
    wait_until("the status says so", PATIENCE, || scene.class()["congestion"]["name"] == "cubic");
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
    assert!(uses("reno") && !uses("cubic"), "it has its own again");
    let daemon = scene.enforce();
    wait_until("its connections use cubic", PATIENCE, || uses("cubic"));
    daemon.signal(Signal::SIGKILL);
    wait_until("the guardian has put it back", PATIENCE, || uses("reno") && !uses("cubic"));
}

#[test]
fn foreign_discipline_is_named_and_never_replaced() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let mut scene = Scene::new("5Mbit/s");
    let tbf = "qdisc add dev eth0 root handle 9: tbf rate 50mbit burst 20kb latency 50ms";
    scene.text("a", &[&["tc"], &tbf.split(' ').collect::<Vec<_>>()[..]].concat());
    let before = scene.qdisc();
    let _client = scene.iperf3("5304", &["-u", "-b", "20M"]);
    let mut daemon = scene.enforce();
    daemon.wait_for("tbf 9: already, which is not replaced", PATIENCE);
    let class = scene.class();
    assert!(class["udp"].is_null() && class["udp_sockets"].as_u64() == Some(1), "{class}");
    let text = scene.world.run(&["qos", "status"]).code(0).stdout;
    assert!(text.contains("1 UDP sockets match, whose rate is not limited"), "{text}");
    assert!(scene.qdisc() == before && !scene.has_priority());
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
    assert_eq!(scene.qdisc(), before);
}
