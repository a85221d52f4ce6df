//! `kagiri transfer` in each of its modes, held against what the other end counted.

use std::process::{Command, Stdio};
use std::time::Duration;

use kagiri_tests::{
    Ended, Live, UpLab, World, free_port, need_programs, need_root, set_like, undisturbed, wait_until,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server of kagiri's on loopback that prints JSON for each session, and where it listens.
fn serve(world: &World) -> (Live, String) {
    let host = format!("127.0.0.1:{}", free_port());
    let mut server = world.start(&["transfer", "--serve", "--listen", &host, "--json"]);
    server.wait_for("serves at", PATIENCE);
    (server, host)
}

fn metric(document: &Value, name: &str) -> f64 {
    document["trials"][0]["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {document}"))
}

/// Measures, and returns the client's document and what the server printed of the session.
fn measured(world: &World, arguments: &[&str]) -> (Value, Value) {
    let (mut server, host) = serve(world);
    let arguments = [&["transfer", &host, "--json", "-q"], arguments].concat();
    let document = world.run(&arguments).code(0).json();
    assert!(server.reaches("\"received_bytes\"", PATIENCE), "{}", server.stdout());
    let printed = server.stdout();
    let line = printed.lines().find(|line| line.contains("\"received_bytes\"")).expect("its line");
    (document, serde_json::from_str(line).expect("JSON"))
}

fn headline(document: &Value) -> &str {
    document["variants"][0]["account"]["headline"].as_str().unwrap_or_default()
}

#[test]
fn both_directions_move_what_the_server_counts() {
    let world = World::new();
    for protocol in ["tcp", "quic"] {
        let asked = ["--proto", protocol, "--direction", "both", "--bytes", "4MB", "--flows", "2"];
        let (document, session) = measured(&world, &asked);
        assert_eq!(
            (&session["sent_bytes"], &session["received_bytes"]),
            (&4_000_000.into(), &4_000_000.into())
        );
        assert_eq!((metric(&document, "received_bytes"), metric(&document, "asked_bytes")), (8e6, 8e6));
        let (up, down) =
            (metric(&document, "goodput_up_bit_per_s"), metric(&document, "goodput_down_bit_per_s"));
        assert!(
            (up + down - metric(&document, "goodput_bit_per_s")).abs() <= 1e-6 * (up + down),
            "{protocol}"
        );
        let said = headline(&document);
        assert!(said.contains(" up and ") && said.contains(" down"), "{protocol}: {said}");
        let rtt_us = metric(&document, "rtt_min_us");
        assert!(rtt_us > 0.0 && rtt_us < 1e6, "{protocol}: {rtt_us}");
    }
}

#[test]
fn mode_is_named_and_moves_the_same_bytes() {
    let world = World::new();
    for (mode, says) in [("copy", false), ("discard", true)] {
        let (document, session) = measured(&world, &["--mode", mode, "--bytes", "64MB"]);
        assert_eq!(session["received_bytes"], 64_000_000, "{mode}");
        assert_eq!(metric(&document, "received_bytes"), 64e6, "{mode}");
        assert_eq!(headline(&document).contains("discarded unread"), says, "{mode}: {}", headline(&document));
    }
}

#[test]
fn requests_are_those_that_the_server_received() {
    let world = World::new();
    let asked = ["--rr", "100B", "--requests-per-s", "100", "--flows", "2", "--time", "2s"];
    let (document, session) = measured(&world, &asked);
    let requests = session["received_bytes"].as_f64().expect("bytes") / 100.0;
    let answered = metric(&document, "transactions_per_s") * 2.0;
    // Two flows of 100 a second for two seconds; the last may be under way.
    assert!(
        (380.0..=404.0).contains(&requests) && (answered - requests).abs() <= 8.0,
        "{answered} of {requests}"
    );
    let (p50, p99) = (metric(&document, "response_p50_us"), metric(&document, "response_p99_us"));
    assert!(p50 > 0.0 && p50 <= p99 && p99 <= metric(&document, "response_max_us"), "{p50} {p99}");
    assert!(headline(&document).starts_with("Answered "), "{}", headline(&document));
}

/// iperf3 as a server for one test on loopback, and where it listens.
fn iperf3_server() -> (std::process::Child, String) {
    let port = free_port();
    let mut command = Command::new("iperf3");
    command.args(["-s", "-1", "-J", "-B", "127.0.0.1", "-p", &port.to_string()]);
    let server = command.stdout(Stdio::piped()).spawn().expect("iperf3 starts");
    let listens = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        table.lines().any(|line| line.contains(&format!("0100007F:{port:04X} 00000000:0000 0A")))
    };
    wait_until("iperf3 listens", PATIENCE, listens);
    (server, format!("127.0.0.1:{port}"))
}

#[test]
fn losses_at_an_iperf3_server_are_told_as_it_and_the_kernel_count_them() {
    need_programs!("iperf3");
    let world = World::new();
    let (server, host) = iperf3_server();
    let asked = ["--proto", "udp", "--rate", "6Gbit/s", "--time", "1s", "--json", "-q"];
    let ended = world.measure(&[&["transfer", &host], &asked[..]].concat(), PATIENCE);
    let document = ended.code(0).json();
    let theirs: Value =
        serde_json::from_slice(&server.wait_with_output().expect("it ends").stdout).expect("JSON");
    let (lost, at_socket) =
        (metric(&document, "datagrams_lost"), metric(&document, "datagrams_lost_at_receiver"));
    assert_eq!(metric(&document, "datagrams_lost_on_path"), lost - at_socket);
    // Those after the last that iperf3 read leave no gap in its count.
    let gaps = theirs["end"]["sum"]["lost_packets"].as_f64().expect("its count");
    assert!(lost >= gaps && lost - gaps <= 0.01 * lost + 1000.0, "{lost} lost, {gaps} by iperf3");
    assert!(at_socket >= 0.999 * lost, "loopback loses nothing: {at_socket} of {lost}");
    let printed = document.to_string();
    assert!(!printed.contains(" 0 were dropped"), "{printed}");
    for unknown in ["datagrams_reordered", "datagrams_duplicated"] {
        assert!(document["trials"][0]["metrics"][unknown].is_null(), "iperf3 does not report {unknown}");
    }
}

#[test]
fn tcp_of_iperf3_in_both_directions_is_not_told_as_quic() {
    need_programs!("iperf3");
    let world = World::new();
    let (mut server, host) = iperf3_server();
    let asked = ["transfer", &host, "--direction", "both", "--time", "1s", "--json", "-q"];
    let document = world.measure(&asked, PATIENCE).code(0).json();
    server.wait().expect("it ends after one test");
    assert!(metric(&document, "goodput_up_bit_per_s") > 0.0);
    assert!(metric(&document, "goodput_down_bit_per_s") > 0.0);
    assert!(!document.to_string().contains("QUIC declared"), "{document}");
}

/// What iperf3's server says that it was asked for, and the buffers that the kernel gave it.
#[test]
fn letters_and_bare_numbers_mean_what_iperf3_means_by_them() {
    need_programs!("iperf3");
    let world = World::new();
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, Value)]);
    let cases: [Case<'_>; 5] = [
        (
            &["-t", "1", "-P", "2", "-l", "64K", "-N"],
            &[
                ("/start/test_start/protocol", "TCP".into()),
                ("/start/test_start/num_streams", 2.into()),
                ("/start/test_start/blksize", 65_536.into()),
                ("/start/test_start/duration", 1.into()),
                ("/start/test_start/reverse", 0.into()),
            ],
        ),
        (
            &["-u", "-b", "10M", "-l", "1000", "-t", "1"],
            &[
                ("/start/test_start/protocol", "UDP".into()),
                ("/start/test_start/target_bitrate", 10_000_000.into()),
                ("/start/test_start/blksize", 1000.into()),
            ],
        ),
        (
            &["-n", "4M", "-R"],
            &[("/start/test_start/bytes", 4_194_304.into()), ("/start/test_start/reverse", 1.into())],
        ),
        (&["-w", "256K", "-t", "1"], &[("/start/sock_bufsize", 262_144.into())]),
        (&["-b", "0", "-t", "1", "-Z"], &[("/start/test_start/target_bitrate", 0.into())]),
    ];
    for (letters, expected) in cases {
        let (server, host) = iperf3_server();
        let (address, port) = host.split_once(':').expect("a port");
        let words = [&["transfer", address, "-p", port, "--json", "-q"], letters].concat();
        let ended = world.run(&words);
        // A busy machine may spoil a verdict, but not what iperf3 was asked for.
        assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended:?}");
        let document = ended.json();
        let output = server.wait_with_output().expect("it ends after one test").stdout;
        let seen: Value = serde_json::from_slice(&output).expect("its JSON");
        for (place, value) in expected {
            assert_eq!(seen.pointer(place), Some(value), "{letters:?} {place}: {}", seen["start"]);
        }
        assert!(metric(&document, "goodput_bit_per_s") > 0.0, "{letters:?}");
    }
}

#[test]
fn interval_lines_come_as_they_happen_and_add_up() {
    let world = World::new();
    let arguments = ["transfer", "-t", "2", "-i", "0.5", "-b", "80M", "--json-lines=events"];
    let mut live = world.start(&arguments);
    live.wait_for(" to   0.5 s  up ", PATIENCE);
    assert!(live.is_running(), "the first line comes before the end");
    let ended = live.end(PATIENCE).code(0);
    let lines: Vec<&str> = ended.stdout.lines().filter(|line| line.contains(" s  up ")).collect();
    assert!((3..=4).contains(&lines.len()), "{}", ended.stdout);
    let bytes = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "up").expect("a direction");
        assert_eq!(words[at + 2], "MB", "{line}");
        words[at + 1].parse::<f64>().expect("a number") * 1e6
    };
    let sum: f64 = lines.iter().map(bytes).sum();
    let events = std::fs::read_to_string(world.path("events")).expect("the file of --json-lines");
    let trial = events.lines().find(|line| line.starts_with("{\"event\":\"trial\",")).expect("a trial");
    let trial: Value = serde_json::from_str(trial).expect("JSON");
    let all = trial["trial"]["metrics"]["received_bytes"].as_f64().expect("bytes");
    assert!(sum <= all * 1.001 && sum >= all * 0.8, "{sum} of {all} bytes in {lines:?}");
    // JSON keeps standard output for itself.
    let json = world.run(&["transfer", "-t", "1", "-i", "0.5", "-b", "80M", "--json"]).code(0);
    assert!(json.json()["run"].is_string() && json.stderr.contains(" to   0.5 s  up "), "{}", json.stderr);
}

#[test]
fn transfers_in_a_lab_are_named_after_their_hosts() {
    need_root!();
    let world = World::new();
    let lab = UpLab::new(
        &world,
        "named",
        "[host.a]\n[host.b]\n[switch.s]\n[[link]]\nbetween = ['a', 's']\n\
        [[link]]\nbetween = ['b', 's']\n",
    );
    let asked =
        ["--place", "clients=a", "--place", "server=b", "--bytes", "10MB", "--flows", "2", "--json", "-q"];
    let document = lab.run("transfer", &asked).code(0).json();
    assert_eq!(document["name"], "transfer: a to b");
    // The flows' own first bytes, of one client with one clock.
    let skew_us = metric(&document, "start_skew_us");
    assert!(skew_us > 0.0 && skew_us < 1e6, "{skew_us}");
}

/// A process that only computes, on one CPU; killed at the end.
struct Burner(std::process::Child);

impl Burner {
    fn start() -> Self {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
        Self(command.spawn().expect("taskset starts"))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        // It ends only by this.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn load_of_others_on_the_receivers_cpu_is_the_limit() {
    need_programs!("taskset");
    let world = World::new();
    let host = format!("127.0.0.1:{}", free_port());
    // Apart, so that the load of others meets the receiver alone.
    let on_cpu = |cpu: &str, arguments: &[&str]| {
        let plain = world.command(arguments);
        let mut pinned = Command::new("taskset");
        pinned.args(["-c", cpu]).arg(plain.get_program()).args(plain.get_args()).stdin(Stdio::null());
        set_like(&mut pinned, &plain);
        Live::start(pinned)
    };
    let mut server = on_cpu("0", &["transfer", "--serve", "--listen", &host]);
    server.wait_for("serves at", PATIENCE);
    let _burners = [Burner::start(), Burner::start(), Burner::start()];
    let measure = || -> Ended {
        let asked = ["transfer", &host, "--time", "3s", "--engine", "write", "--json", "-q"];
        on_cpu("1", &asked).end(PATIENCE).code(0)
    };
    let named = |document: &Value| document["limit"]["resource"] == "cpu";
    let (_, document) = undisturbed(named, measure);
    let limit = &document["limit"];
    assert_eq!(limit["resource"], "cpu", "{limit}");
    // On a busy machine the sender may wait for longer than the receiver.
    let first = limit["evidence"][0]["statement"].as_str().expect("a sentence");
    assert!(first.ends_with(" of the time") && first.contains(" threads "), "{limit}");
    assert!(first.contains("waited for a CPU"), "{limit}");
    assert!(limit.to_string().contains("a receiving thread waited for a CPU "), "{limit}");
}

/// Answers datagrams, or sends one every 20 ms for so many seconds and prints the median round trip in ms.
const PINGER: &str = "
import socket, statistics, sys, time
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == 'answer':
    it.bind(('0.0.0.0', 7777))
    print('ready', flush=True)
    while True:
        it.sendto(*it.recvfrom(64))
it.connect(('10.77.0.2', 7777))
it.settimeout(1)
times, end = [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    sent = time.monotonic()
    it.send(b'%f' % sent)
    try:
        while float(it.recv(64)) < sent - 1e-6:
            pass
        times.append(time.monotonic() - sent)
    except socket.timeout:
        pass
    time.sleep(0.02)
print(1e3 * statistics.median(times))
";

#[test]
fn response_time_under_load_is_that_of_an_independent_pinger() {
    need_root!();
    need_programs!("python3");
    let world = World::new();
    let reno = "settings = { tcp_congestion_control = 'reno' }\n";
    // Without a delay, TCP small queues would keep the queue short.
    let links = "[switch.s]\n[[link]]\nbetween = ['a', 's']\ndelay = '5ms'\n\
                 [[link]]\nbetween = ['b', 's']\nrate = '20Mbit/s'\nbuffer = '128KiB'\n";
    let file = format!("[host.a]\n{reno}[host.b]\n{reno}{links}");
    let lab = UpLab::new(&world, "loaded", &file);
    let exec = |host: &str, what: &str| {
        let words = ["lab", "exec", host, "--lab", &lab.name, "--", "python3", "-c", PINGER, what];
        world.start(&words)
    };
    let mut answering = exec("b", "answer");
    answering.wait_for("ready", PATIENCE);
    let asked =
        ["--place", "clients=a", "--place", "server=b", "--under-load", "1s", "--time", "8s", "--flows"];
    let asked = [&["transfer", "--lab", &lab.name, "--json", "--quiet"][..], &asked, &["4"]].concat();
    let measuring = world.start(&asked);
    // The load begins a second after the start, fills the queue within another, and then stays.
    std::thread::sleep(Duration::from_secs(4));
    let pinging = exec("a", "3");
    let pinged = pinging.end(PATIENCE).code(0).stdout;
    let witness_ms: f64 = pinged.trim().parse().expect("a number");
    let document = measuring.end(PATIENCE).code(0).json();
    let ms = |name: &str| metric(&document, name) / 1e3;
    let (idle_ms, loaded_ms) = (ms("idle_response_p50_us"), ms("response_p50_us"));
    // A full queue of 128 KiB takes 52 ms at 20 Mbit/s, beyond the 10 ms of the delay; reno empties it to a
    // half
    // after each loss.
    let is_idle = (9.9..15.0).contains(&idle_ms);
    assert!(is_idle && (25.0..80.0).contains(&loaded_ms), "idle {idle_ms} ms, loaded {loaded_ms} ms");
    assert!((loaded_ms / witness_ms - 1.0).abs() < 0.3, "{loaded_ms} ms, the pinger {witness_ms} ms");
    let per_min = metric(&document, "round_trips_per_min");
    assert!((per_min * loaded_ms / 60_000.0 - 1.0).abs() < 0.3, "{per_min} per minute at {loaded_ms} ms");
    let goodput = metric(&document, "goodput_bit_per_s");
    assert!((17e6..20.1e6).contains(&goodput), "{goodput}");
}
