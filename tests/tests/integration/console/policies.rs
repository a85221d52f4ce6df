//! Policies that the console applies to running programs.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, names, need_programs, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::request::Inside;

const PATIENCE: Duration = Duration::from_secs(30);

fn policy(interface: &str, ceiling: &str) -> String {
    format!(
        "[bottleneck]\ninterface = '{interface}'\ncapacity = '200Mbit/s'\n[[class]]\nname = 'bulk'\n\
         match = {{ process = 'iperf3' }}\npriority = 5\nceiling = '{ceiling}'\n"
    )
}

fn applied(interface: &str, ceiling: &str) -> Value {
    json!({ "toml": policy(interface, ceiling), "for_s": null })
}

/// Two hosts, and iperf3 that sends from one to the other without end.
struct Scene {
    world: World,
    net: Namespaces,
    _server: Live,
    _client: Live,
}

impl Scene {
    fn new() -> Self {
        let (world, net) = (World::with_own_journal(), Namespaces::new(&["a", "b"]));
        let iperf3 = |host: &str, words: &[&str], sign: &str| {
            let mut command = Command::new("iperf3");
            command.args(words).arg("--forceflush").current_dir(world.path(""));
            let mut live = Live::start(net.on(host, &command));
            live.wait_for(sign, PATIENCE);
            live
        };
        let server = iperf3("b", &["-s"], "listening");
        let client = iperf3("a", &["-c", &net.address("b"), "-t", "120"], "sec");
        Self { world, net, _server: server, _client: client }
    }

    /// Rates to which the sender's connections are limited, in Mbit/s, as ss(8) reads them from the kernel.
    fn limits(&self) -> Vec<f64> {
        let mut ss = Command::new("ss");
        ss.args(["-tinH", "state", "established", "dport = :5201"]).current_dir("/");
        let text = Live::start(self.net.on("a", &ss)).end(PATIENCE).code(0).stdout;
        let rates = text.split("pacing_rate ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        let limits = rates.filter_map(|rate| rate.split_once('/')?.1.strip_suffix("bps")?.parse().ok());
        limits.map(|bit_per_s: f64| bit_per_s / 1e6).collect()
    }

    #[track_caller]
    fn wait_for_limit(&self, mbit_per_s: f64) {
        let is_close = |limit: &f64| (limit / mbit_per_s - 1.0).abs() < 0.01;
        wait_until(&format!("limited to {mbit_per_s} Mbit/s"), PATIENCE, || {
            let limits = self.limits();
            !limits.is_empty() && limits.iter().all(is_close)
        });
    }

    #[track_caller]
    fn wait_for_no_limit(&self) {
        wait_until("no limit", PATIENCE, || self.limits().is_empty());
    }
}

#[test]
fn policy_is_applied_to_a_running_program_replaced_and_ended() {
    need_root!();
    need_programs!("iperf3", "ss");
    let _beside = beside_others();
    let scene = Scene::new();
    let console = Inside::start(&scene.world, &scene.net);
    assert_eq!(console.get("/qos")["policies"], json!([]));
    let judged = console.answered("POST", "/qos/check", &json!({ "toml": policy("eth0", "20Mbit/s") }), 200);
    assert_eq!(judged["classes"][0]["verdict"], "BEST_EFFORT", "{judged:#}");
    // What cannot be applied changes nothing; the message is about the text, not about a file of the server.
    let message = |toml: String, status: i64| {
        let refused = console.answered("POST", "/qos/apply", &json!({ "toml": toml }), status);
        refused["error"]["message"].as_str().expect("a message").to_owned()
    };
    let none = message(policy("none0", "20Mbit/s"), 422);
    assert!(none.starts_with("bottleneck.interface: ") && none.contains("none0"), "{none}");
    let unknown = message(policy("eth0", "20Mbit/s") + "colour = 'red'\n", 422);
    assert!(unknown.starts_with("line 9: colour: "), "{unknown}");
    assert_eq!(scene.limits(), [0.0; 0]);

    let begun = console.answered("POST", "/qos/apply", &applied("eth0", "20Mbit/s"), 201);
    assert_eq!(begun["interface"], "eth0", "{begun:#}");
    scene.wait_for_limit(20.0);
    wait_until("the kernel's rate is shown", PATIENCE, || {
        let sockets = console.get("/qos")["policies"][0]["status"]["sockets"].take();
        let is_verified =
            |socket: &Value| socket["verified_bit_per_s"].as_f64().is_some_and(|rate| rate < 2.1e7);
        sockets.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_verified))
    });
    let shown = console.command(&["qos", "status"]).code(0).stdout;
    assert!(shown.contains("eth0") && shown.contains("sockets as asked (sock_diag)"), "{shown}");
    let document = console.command(&["qos", "status", "--json"]).code(0).json();
    assert_eq!(document["policies"][0]["pid"], console.get("/qos")["policies"][0]["pid"]);
    // Two people: the second one does not undo what the first one has applied, unless that is asked for.
    let second = console.answered("POST", "/qos/apply", &applied("eth0", "40Mbit/s"), 409);
    assert!(second["error"]["message"].as_str().is_some_and(|text| text.contains("replace")), "{second}");
    scene.wait_for_limit(20.0);
    let replaced = |ceiling: &str| {
        let mut body = applied("eth0", ceiling);
        body["replace"] = json!(true);
        body
    };
    console.answered("POST", "/qos/apply", &replaced("no rate"), 422);
    scene.wait_for_limit(20.0);
    console.answered("POST", "/qos/apply", &replaced("40Mbit/s"), 201);
    scene.wait_for_limit(40.0);
    assert_eq!(console.get("/qos")["policies"].as_array().map(Vec::len), Some(1));
    // Two tabs that show the same policy: the later one does not replace what the earlier one has applied.
    let shown = console.get("/qos")["policies"][0]["pid"].clone();
    let over = |ceiling: &str| {
        let mut body = replaced(ceiling);
        body["replaces"] = shown.clone();
        body
    };
    console.answered("POST", "/qos/apply", &over("50Mbit/s"), 201);
    scene.wait_for_limit(50.0);
    let later = console.answered("POST", "/qos/apply", &over("60Mbit/s"), 409);
    assert!(later["error"]["message"].as_str().is_some_and(|text| text.contains("meanwhile")), "{later}");
    scene.wait_for_limit(50.0);
    console.answered("POST", "/qos/clear", &json!({ "interface": "eth1" }), 404);
    console.answered("POST", "/qos/clear", &json!({ "interface": "eth0" }), 200);
    scene.wait_for_no_limit();
    console.answered("POST", "/qos/clear", &json!({ "interface": "eth0" }), 404);
}

#[test]
fn policy_outlives_a_killed_server_and_ends_when_its_time_is_over() {
    need_root!();
    need_programs!("iperf3", "ss");
    let _beside = beside_others();
    let scene = Scene::new();
    let first = Inside::start(&scene.world, &scene.net);
    first.answered("POST", "/qos/apply", &applied("eth0", "20Mbit/s"), 201);
    scene.wait_for_limit(20.0);
    first.end(Signal::SIGKILL);
    scene.wait_for_limit(20.0);
    let second = Inside::start(&scene.world, &scene.net);
    let pid = second.get("/qos")["policies"][0]["pid"].clone();
    // Of a policy with this interface in another namespace, the process is another.
    second.answered("POST", "/qos/clear", &json!({ "interface": "eth0", "pid": 1 }), 404);
    second.answered("POST", "/qos/clear", &json!({ "interface": "eth0", "pid": pid }), 200);
    scene.wait_for_no_limit();
    let mut timed = applied("eth0", "20Mbit/s");
    timed["for_s"] = json!(15);
    second.answered("POST", "/qos/apply", &timed, 201);
    // The folder of the policy that has ended is gone.
    assert_eq!(names(&scene.world.data().join("console/qos")).len(), 1);
    scene.wait_for_limit(20.0);
    second.end(Signal::SIGKILL);
    scene.wait_for_no_limit();
}
