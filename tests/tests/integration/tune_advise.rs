//! `kagiri tune advise` against planted faults.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, UpLab, World, beside_others, need_root};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// `receive`: reads all that comes. `send BYTES`: sends without end, with a send buffer of that size unless
/// it is 0. `deaf`: a UDP socket that is never read. `shout`: datagrams to it, without end.
pub const PROGRAM: &str = "
import socket, sys, time
mode, to = sys.argv[1], sys.argv[2]
def ready(): print('ready', flush=True)
if mode == 'receive':
    s = socket.create_server(('0.0.0.0', 7009))
    ready()
    while True:
        c = s.accept()[0]
        while c.recv(1 << 16): pass
if mode == 'send':
    c = socket.socket()
    if sys.argv[3] != '0': c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(sys.argv[3]))
    c.connect((to, 7009))
    ready()
    while True: c.sendall(b'x' * 100000)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if mode == 'deaf':
    s.bind(('0.0.0.0', 7010))
    ready()
    time.sleep(60)
s.connect((to, 7010))
ready()
while True:
    s.send(b'x' * 1000)
    time.sleep(0.0005)
";

fn statements(document: &Value, finding: &str) -> Vec<String> {
    let all = document["statements"].as_array().expect("statements");
    let found = all.iter().filter(|one| one["finding"] == finding);
    found.map(|one| one["text"].as_str().expect("a text").to_owned()).collect()
}

/// A path of 40 ms there and back, and a buffer of 16 kB: the case in which send buffers matter.
#[test]
fn small_send_buffer_on_a_long_path_is_named_and_a_large_one_is_not() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    world.write("program.py", PROGRAM);
    let file = "[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\nrate = '50Mbit/s'\ndelay = '20ms'\n";
    let lab = UpLab::new(&world, "tune", file);
    let exec = |host: &str, words: &[&str]| {
        Live::start(world.command(&[&["lab", "exec", "--lab", &lab.name, host, "--"], words].concat()))
    };
    let mut receiver = exec("b", &["python3", "program.py", "receive", "-"]);
    receiver.wait_for("ready", PATIENCE);
    let program = kagiri_tests::program();
    let program = program.to_str().expect("a path");
    let address = address_of(&world, &lab.name, "b");
    for (buffer, is_limit) in [("16384", true), ("0", false)] {
        let mut sender = exec("a", &["python3", "program.py", "send", &address, buffer]);
        sender.wait_for("ready", PATIENCE);
        let advice = exec("a", &[program, "tune", "advise", "--for", "3s", "--json"]);
        let document = advice.end(PATIENCE).code(0).json();
        let limits = statements(&document, "limit").join("\n");
        let is_named = limits.contains("Send buffers limit") && limits.contains("tcpi_sndbuf_limited");
        assert_eq!(is_named, is_limit, "{document:#}");
        if is_limit {
            let statement = &document["statements"][0];
            assert_eq!(statement["setting"], "SO_SNDBUF", "{document:#}");
            let busy = statement["counters"][0]["value"].as_u64();
            assert!(busy > Some(1_000_000), "{document:#}");
        }
        sender.signal(nix::sys::signal::Signal::SIGKILL);
    }
}

/// The address of a lab's host.
fn address_of(world: &World, lab: &str, host: &str) -> String {
    let status = world.run(&["lab", "status", lab, "--json"]).code(0).json();
    let hosts = status["hosts"].as_array().cloned().unwrap_or_default();
    let host = hosts.iter().find(|one| one["name"] == host).unwrap_or_else(|| panic!("{status:#}"));
    let address = host["interfaces"][0]["address"].as_str().unwrap_or_else(|| panic!("{status:#}"));
    address.split('/').next().expect("an address").to_owned()
}

#[test]
fn udp_socket_that_is_never_read_is_named_with_its_counter() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    world.write("program.py", PROGRAM);
    let net = Namespaces::new(&["a", "b"]);
    let start = |host: &str, mode: &str| {
        let mut command = Command::new("python3");
        command.args(["program.py", mode, &net.address("b")]).current_dir(world.path(""));
        let mut live = Live::start(net.on(host, &command));
        live.wait_for("ready", PATIENCE);
        live
    };
    let advise = |host: &str, words: &[&str]| {
        let words = [&["tune", "advise", "--for", "2s"], words].concat();
        Live::start(net.on_with_mounts(host, &world.command(&words))).end(PATIENCE).code(0)
    };
    let idle = advise("b", &["--json"]).json();
    // Other tests may fill the host's queues, which all namespaces share.
    assert!(!statements(&idle, "limit").join("\n").contains("buffers"), "{idle:#}");
    assert_eq!(statements(&idle, "unknown").len(), 2, "{idle:#}");
    let (_deaf, _shout) = (start("b", "deaf"), start("a", "shout"));
    // Until the buffer is full.
    std::thread::sleep(Duration::from_secs(1));
    let document = advise("b", &["--json"]).json();
    let limits = statements(&document, "limit").join("\n");
    for part in ["Udp RcvbufErrors", "port 7010", "SK_MEMINFO_DROPS"] {
        assert!(limits.contains(part), "{document:#}");
    }
    let statement = &document["statements"][0];
    assert_eq!(statement["setting"], "net.core.rmem_default", "{document:#}");
    assert!(statement["counters"][1]["value"].as_u64() > Some(100), "{document:#}");
    let text = advise("b", &[]).stdout;
    assert!(text.lines().count() <= 15 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("limit") && text.contains("RcvbufErrors"), "{text}");
}
