//! `kagiri transfer` as people use it: over labs, to and from the real iperf3, with what goes wrong.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kagiri_tests::{
    Ended, Live, UpLab, World, alone, free_port, is_root, missing, need_root, set_like, undisturbed,
    wait_until, with_verdict,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// What held the transfers of the lab back is one thing each: a CPU quota, a buffer, a link.
const LAB: &str = "[host.quick]\n[host.slow]\ncpu_quota_percent = 4\n[host.far]\n[host.narrow]\n[switch.s]\n\
    [[link]]\nbetween = ['quick', 's']\n[[link]]\nbetween = ['slow', 's']\n\
    [[link]]\nbetween = ['far', 's']\ndelay = '10ms'\n\
    [[link]]\nbetween = ['narrow', 's']\nrate = '50Mbit/s'\n";

/// Whether a program listens at a TCP port, without connecting: it may serve a single connection only.
fn listens(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().filter_map(|table| std::fs::read_to_string(table).ok()).any(
        |table| {
            let mut sockets = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            sockets.any(|words| {
                words.get(1).is_some_and(|at| at.ends_with(&format!(":{port:04X}")))
                    && words.get(3) == Some(&"0A")
            })
        },
    )
}

/// A server of kagiri's on loopback, and its port.
fn serve(world: &World) -> (Live, u16) {
    let port = free_port();
    let mut server = world.start(&["transfer", "--serve", "--listen", &format!("127.0.0.1:{port}")]);
    server.wait_for("serves at", PATIENCE);
    (server, port)
}

fn metric(document: &Value, name: &str) -> f64 {
    document["trials"][0]["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {document}"))
}

/// A transfer over a lab; of a second, unless another time is given.
fn transfer_over(lab: &UpLab, arguments: &[&str]) -> Ended {
    let time = if arguments.contains(&"--time") { &[][..] } else { &["--time", "1s"] };
    lab.run("transfer", &[&["--json", "--quiet"], time, arguments].concat())
}

#[test]
fn what_holds_a_transfer_back_is_named() {
    need_root!();
    let world = World::new();
    let lab = UpLab::new(&world, "causes", LAB);
    let exec = ["lab", "exec", "slow", "--lab", &lab.name, "--"];
    let program = kagiri_tests::program();
    let program = program.to_str().expect("a path");
    let serving = [program, "transfer", "--serve", "--listen", "10.77.0.2:5201", "--allow", "10.77.0.0/24"];
    let mut server = world.start(&[&exec[..], &serving].concat());
    server.wait_for("serves at", PATIENCE);
    let reno = ["--congestion", "reno"];
    let slow = ["10.77.0.2", "--place", "clients=quick"];
    let far = ["--place", "clients=quick", "--place", "server=far"];
    let narrow = ["--place", "clients=quick", "--place", "server=narrow"];
    let down = ["--direction", "down"];
    let window = ["--receive-buffer", "64KiB", "--send-buffer", "8MiB"];
    let buffer = ["--send-buffer", "64KiB", "--receive-buffer", "8MiB"];
    for (arguments, resource, words) in [
        // A large buffer would take all that is sent in a second.
        ([&slow[..], &reno, &["--receive-buffer", "1MiB"]].concat(), "cpu", "the receiver's threads"),
        ([&slow[..], &reno, &down].concat(), "cpu", "the sender's threads"),
        ([&far[..], &reno, &window].concat(), "window", "the receiver's window"),
        ([&far[..], &reno, &buffer].concat(), "send_buffer", "the sender's buffer"),
        ([&narrow[..], &reno].concat(), "network", "the link is full"),
    ] {
        let named = |document: &Value| {
            document["limit"]["resource"] == resource && document["limit"]["certainty"] == "confirmed"
        };
        // Long enough that a pause of the machine is not what held it back.
        let arguments = [&arguments[..], &["--time", "3s"]].concat();
        let (_, document) = undisturbed(named, || transfer_over(&lab, &arguments).code(0));
        let limit = &document["limit"];
        assert_eq!(limit["resource"], resource, "{arguments:?}: {limit}");
        assert_eq!(limit["certainty"], "confirmed", "{arguments:?}: {limit} {}", document["doubts"]);
        assert!(limit["evidence"].to_string().contains(words), "{arguments:?}: {limit}");
    }
    // Both buffers hold 64 KiB of what 10 ms need: whatever is named, this link is not full.
    let document = transfer_over(&lab, &[&far[..], &reno, &["--window", "64KiB"]].concat()).code(0).json();
    let limit = document["limit"].to_string();
    assert!(!limit.contains("the link is full"), "{limit}");
}

#[test]
fn a_link_carries_what_arithmetic_says_and_loss_is_found_beyond_it() {
    need_root!();
    let world = World::new();
    let lab = UpLab::new(&world, "narrow", LAB);
    let narrow = ["--place", "clients=quick", "--place", "server=narrow"];
    let tcp = transfer_over(&lab, &narrow).code(0).json();
    // 1448 of 1514 bytes are payload; no link carries more, but for the first burst of its bucket.
    let most = metric(&tcp, "theoretical_bit_per_s");
    assert!(
        tcp["variants"][0]["account"]["headline"].as_str().is_some_and(|text| text.contains("Mbit/s up"))
    );
    let goodput = metric(&tcp, "goodput_bit_per_s");
    assert!(goodput <= 1.05 * most && goodput > 0.5 * most, "{goodput} of {most}");

    let above = [&narrow[..], &["--proto", "udp", "--rate", "200Mbit/s"]].concat();
    let udp = transfer_over(&lab, &above).code(0).json();
    let (sent, came) = (metric(&udp, "datagrams_sent"), metric(&udp, "datagrams_received"));
    assert_eq!(metric(&udp, "datagrams_lost"), sent - came);
    assert!(came * 1472.0 * 8.0 <= 1.3 * 50e6 * metric(&udp, "elapsed_s").max(1.0), "{came}");
    assert_eq!(udp["trials"][0]["verdict"], "fail", "a quarter of what was asked for arrived");
    assert_eq!(
        (&udp["limit"]["resource"], &udp["limit"]["certainty"]),
        (&"network".into(), &"confirmed".into())
    );

    let search = [&narrow[..], &["--proto", "udp", "--search", "100Mbit/s", "--resolution", "20"]].concat();
    let carries = |document: &Value| document["capacity"]["value"].as_f64().expect("a capacity");
    let is_right = |capacity: f64| (30.0..=51.0).contains(&capacity);
    let at_the_link =
        |document: &Value| is_right(carries(document)) && document["limit"]["resource"] == "network";
    let (_, found) = undisturbed(at_the_link, || transfer_over(&lab, &search).code(0));
    assert!(is_right(carries(&found)), "{}", found["capacity"]);
    assert_eq!(found["capacity"]["unit"], "Mbit/s");
    assert_eq!(found["limit"]["resource"], "network", "{}", found["limit"]);
}

#[test]
fn the_reference_plan_balances() {
    need_root!();
    let world = World::new();
    let plan = kagiri_tests::workspace().join("plans/two-pcs.toml");
    let plan = plan.to_str().expect("a path");
    let document = world.measure(&["run", plan, "--json", "--repeat", "1"], PATIENCE).code(0).json();
    // A trial that others disturbed is made again.
    let all = document["trials"].as_array().expect("trials");
    let trials: Vec<&Value> = all.iter().filter(|trial| trial["verdict"] != "invalid").collect();
    assert_eq!(trials.len(), 4, "{document:#}");
    for trial in trials {
        let of = |name: &str| trial["metrics"][name].as_f64();
        let sent = of("sent_bytes").expect("the sender reported");
        let received = of("received_bytes").expect("the receiver reported");
        let lost = of("datagrams_lost").unwrap_or(0.0);
        assert!(sent >= 16_777_216.0, "{trial}");
        assert_eq!(sent - received, lost * 1472.0, "{}", trial["variant"]);
        if trial["variant"].as_str().is_some_and(|name| name.starts_with("TCP")) {
            assert_eq!((sent, received), (16_777_216.0, 16_777_216.0));
        }
        assert!(trial["account"]["tables"].as_array().is_some_and(|tables| !tables.is_empty()));
    }
}

#[test]
fn what_came_of_a_transfer_is_listed_compared_and_required_in_its_unit() {
    let world = World::new();
    let words = ["transfer", "--time", "200ms", "-q", "--require", "goodput>=1Tbit/s"];
    for _ in 0..2 {
        let ended = world.run(&words).code(3);
        assert!(ended.stdout.contains("not met (measured ") && ended.stdout.contains("bit/s)"), "{ended:?}");
    }
    let listed = world.run(&["runs", "list"]).code(0).stdout;
    assert!(listed.contains("bit/s") && !listed.contains("1 flow"), "{listed}");
    let compared = world.run(&["runs", "compare", "last~1", "last"]).code(0).stdout;
    assert!(compared.lines().any(|line| line.starts_with("Goodput: ")), "{compared}");
    let explained = world.run(&["explain", "last"]).code(0).stdout;
    assert!(explained.starts_with("Moved ") && explained.to_lowercase().contains("limit"), "{explained}");
    let page = world.run(&["report", "-o", "-"]).code(0).stdout;
    assert!(page.contains("<dt>goodput</dt>") && !page.contains("No limit found"), "{page}");
}

#[test]
fn iperf3_is_served_and_is_a_server() {
    if let Some(program) = missing(&["iperf3"]) {
        return kagiri_tests::skip(&format!("needs {program}"));
    }
    let world = World::new();
    let (mut server, port) = serve(&world);
    let port_text = port.to_string();
    let client =
        Command::new("iperf3").args(["-c", "127.0.0.1", "-p", &port_text, "-n", "5M", "-J"]).output();
    let results: Value = serde_json::from_slice(&client.expect("iperf3 runs").stdout).expect("its JSON");
    assert_eq!(results["end"]["sum_received"]["bytes"].as_u64(), Some(5 << 20), "{results}");
    assert!(
        server.reaches("iperf3 3", PATIENCE) && server.reaches("received 5.24 MB", PATIENCE),
        "{}",
        server.stdout()
    );
    server.signal(Signal::SIGINT);
    server.end(PATIENCE);

    let port = free_port();
    let mut peer =
        Command::new("iperf3").args(["-s", "-1", "-p", &port.to_string()]).spawn().expect("iperf3 starts");
    wait_until("iperf3 listens", PATIENCE, || listens(port));
    let host = format!("127.0.0.1:{port}");
    let arguments = ["transfer", &host, "--bytes", "3MB", "--flows", "2", "--json", "-q"];
    let document = world.measure(&arguments, PATIENCE).code(0).json();
    assert_eq!(metric(&document, "sent_bytes"), metric(&document, "received_bytes"));
    assert_eq!((metric(&document, "received_bytes"), metric(&document, "asked_bytes")), (3e6, 3e6));
    peer.wait().expect("it ends after one test");
}

#[test]
fn mistakes_and_absent_peers_are_named() {
    let world = World::new();
    let unused = format!("127.0.0.1:{}", free_port());
    world.run(&["transfer", &unused]).fails(1, &["refused", "kagiri transfer --serve"]);
    world
        .run(&["transfer", "no-such-host.invalid"])
        .fails(1, &["no-such-host.invalid", "check its spelling"]);
    world.run(&["transfer", "--serve", "--listen", "0.0.0.0:0"]).fails(2, &["--allow", "--open"]);
    world.run(&["transfer", "--serve", "--listen", "tls/nas"]).fails(2, &["--listen", "5201"]);
    world.run(&["transfer", "--proto", "udp", "--size", "8B"]).fails(2, &["size", "16B"]);
    world.run(&["transfer", "--search"]).fails(2, &["search", "udp"]);
    world.run(&["transfer", "--spin"]).fails(2, &["--rr"]);
    world.run(&["transfer", "--peer", "ttcp"]).fails(2, &["peer", "HOST"]);
    world.run(&["transfer", "--serve", "--proto", "udp"]).fails(2, &["--serve", "--protocol"]);
    world.run(&["transfer", "nas", "--peer", "ttcp", "--omit", "1s"]).fails(2, &["omit", "ttcp"]);
}

#[test]
fn more_flows_than_files_may_be_open_are_refused_by_name() {
    // Root would raise its limit.
    let world = if is_root() { World::of_nobody() } else { World::new() };
    let plain = world.command(&["transfer", "--flows", "20000", "--quiet"]);
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=600:600").arg(plain.get_program()).args(plain.get_args());
    limited.stdin(std::process::Stdio::null());
    set_like(&mut limited, &plain);
    let ended = Live::start(limited).end(PATIENCE);
    ended.fails(1, &["20000 flows need", "ulimit -n"]);
}

#[test]
fn datagrams_larger_than_the_path_takes_arrive_in_fragments() {
    need_root!();
    let world = World::new();
    let lab = UpLab::new(&world, "small", LAB);
    for host in ["quick", "far"] {
        let small = ["ip", "link", "set", "eth0", "mtu", "1000"];
        world.run(&[&["lab", "exec", host, "--lab", &lab.name, "--"][..], &small].concat()).code(0);
    }
    // So slow that a pause of the machine leaves none out.
    let asked = ["--place", "clients=quick", "--place", "server=far", "--proto", "udp"];
    let asked = [&asked[..], &["--rate", "200kbit/s", "--time", "3s"]].concat();
    let (_, document) = with_verdict("pass", || transfer_over(&lab, &asked).code(0));
    assert_eq!(document["trials"][0]["verdict"], "pass", "{document}");
    assert!(metric(&document, "datagrams_received") > 10.0);
    assert_eq!(metric(&document, "datagrams_lost"), 0.0);
    // Both hosts read one clock, so that what the delay line does is seen to the microsecond; it lets nothing
    // by sooner.
    assert_eq!(metric(&document, "delay_bound_us"), 0.0);
    assert!(metric(&document, "delay_min_us") >= 9_900.0, "{document}");
}

#[test]
fn datagrams_that_a_firewall_drops_are_named() {
    let world = World::new();
    let (server, port) = serve(&world);
    let (address, _) = door(port);
    let _hole = UdpSocket::bind(address).expect("the same port");
    let host = address.to_string();
    let ended = world.run(&["transfer", &host, "--proto", "udp", "--time", "1s", "-q"]);
    ended.fails(1, &["0 of 1 flows", "firewall"]);
    drop(server);
}

/// A door to a server on loopback: connections are forwarded, datagrams vanish. How many bytes came through
/// it.
fn door(port: u16) -> (SocketAddr, Arc<AtomicU64>) {
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let (address, passed) = (door.local_addr().expect("its address"), Arc::new(AtomicU64::new(0)));
    let counted = passed.clone();
    std::thread::spawn(move || {
        while let Ok((client, _)) = door.accept() {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
            forward(&client, &server, counted.clone());
            forward(&server, &client, counted.clone());
        }
    });
    (address, passed)
}

fn forward(from: &TcpStream, to: &TcpStream, passed: Arc<AtomicU64>) {
    let (mut from, mut to) = (from.try_clone().expect("a copy"), to.try_clone().expect("a copy"));
    std::thread::spawn(move || {
        let mut buffer = [0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
            passed.fetch_add(n as u64, Ordering::Relaxed);
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}

#[test]
fn an_interrupted_transfer_keeps_what_it_measured() {
    let world = World::new();
    let (_server, port) = serve(&world);
    let (address, passed) = door(port);
    let live = world.start(&["transfer", &address.to_string(), "--time", "60s", "--json"]);
    wait_until("bytes move", PATIENCE, || passed.load(Ordering::Relaxed) > 10_000_000);
    live.signal(Signal::SIGINT);
    let document = live.end(PATIENCE).code(130).json();
    assert_eq!(document["state"], "interrupted");
    let trials = document["trials"].as_array().expect("trials");
    assert_eq!((trials.len(), trials[0]["verdict"].as_str()), (1, Some("invalid")));
    assert!(metric(&document, "received_bytes") > 1e6, "the server reported what it had received");
    let series = trials[0]["series"].as_array().expect("series");
    let goodput = series.iter().find(|one| one["name"] == "goodput_up_bit_per_s").expect("its course");
    assert!(goodput["values"].as_array().is_some_and(|values| !values.is_empty()), "{goodput}");
}

#[test]
fn a_transfer_that_breaks_off_fails_its_run_and_names_no_limit() {
    let world = World::new();
    let (server, port) = serve(&world);
    let (address, passed) = door(port);
    let live = world.start(&["transfer", &address.to_string(), "--time", "60s", "--json"]);
    wait_until("bytes move", PATIENCE, || passed.load(Ordering::Relaxed) > 10_000_000);
    server.signal(Signal::SIGINT);
    let ended = live.end(PATIENCE).fails(1, &["gave up", "stopped before its end"]);
    let document = ended.json();
    assert_eq!((&document["state"], &document["limit"]["certainty"]), (&"failed".into(), &"unknown".into()));
    assert!(metric(&document, "sent_bytes") > 1e6, "what had moved is kept");
}

#[test]
fn a_silent_listener_is_no_server() {
    let world = World::new();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let host = silent.local_addr().expect("its address").to_string();
    world
        .run(&["transfer", &host, "-q"])
        .fails(1, &["did not answer within 5 s", "something else", "--peer ttcp"]);
}

#[test]
fn the_calls_of_a_receiver_are_those_of_the_transfer() {
    let world = World::new();
    for (proto, flows) in [("tcp", "1"), ("tcp", "4"), ("udp", "1")] {
        let asked = ["--proto", proto, "--flows", flows, "--direction", "down", "--bytes", "16MiB"];
        let common = ["transfer", "--calls", "--json", "-q"];
        let document = world.run(&[&common[..], &asked].concat()).code(0).json();
        let tables = document["variants"][0]["account"]["tables"].as_array().expect("tables");
        let calls =
            tables.iter().find(|table| table["title"] == "Calls of the receiver down").expect("its calls");
        let shares =
            calls["rows"].as_array().expect("rows").iter().filter_map(|row| row.as_array()?.last()?.as_str());
        let percent: f64 = shares.filter_map(|share| share.strip_suffix(" %")?.parse::<f64>().ok()).sum();
        assert!(
            percent > 0.0 && percent < 110.0,
            "{proto} {flows}: no thread can be in calls for longer: {calls}"
        );
    }
}

#[test]
fn a_client_that_waits_for_a_silent_server_hears_ctrl_c() {
    let world = World::new();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let host = silent.local_addr().expect("its address").to_string();
    let live = world.start(&["transfer", &host]);
    let _held = silent.accept().expect("the client comes");
    let from = Instant::now();
    live.signal(Signal::SIGINT);
    live.end(PATIENCE).code(130);
    assert!(from.elapsed() < Duration::from_secs(4), "it would have given up by itself after 5 s");
}

#[test]
fn announced_time_is_what_a_transfer_takes() {
    let _alone = alone();
    let world = World::new();
    for words in [&["--time", "0.2s"][..], &["--time", "3s"], &["--rr", "--time", "0.2s"]] {
        let mut live = world.start(&[&["transfer"][..], words].concat());
        live.wait_for("1 trial, about ", PATIENCE);
        let began = Instant::now();
        let ended = live.end(PATIENCE).code(0);
        let took_s = began.elapsed().as_secs_f64();
        let said = ended.stderr.split("1 trial, about ").nth(1).and_then(|rest| rest.split(' ').next());
        let said_s: f64 = said.and_then(|number| number.parse().ok()).expect("a number of seconds");
        assert!((took_s / 1.5..=took_s * 1.5).contains(&said_s), "{words:?}: {said_s} s said, {took_s} s");
    }
}
