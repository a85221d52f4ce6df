//! kagiri's client detects the kind of server, and its server serves clients of kagiri and iperf3 at the same
//! time.

use crate::native_common::{ends, prepare, settings};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use base::units::Span;
use base::verdict::Verdict;
use base::workload::Judgement;
use serde_json::{Value, json};
use transfer::judge::judge;
use transfer::native::{NativeServer, NativeSettings};
use transfer::report::TransferReport;
use transfer::settings::TransferSettings;

/// Whether to repeat a transfer: its only fault is a missed rate, which happens if a sender or receiver waits
/// for a CPU. Other faults are never repeated.
fn only_lacks_its_rate(judgement: &Judgement) -> bool {
    let is_of_rate = |why: &String| {
        why.contains(" of the requested ") || why.starts_with("the sender was woken too late to offer")
    };
    judgement.verdict != Verdict::Pass
        && !judgement.reasons.is_empty()
        && judgement.reasons.iter().all(is_of_rate)
}

/// Runs a transfer until it keeps its rate, which it does long before the guard.
fn until_rate_is_kept(settings: &TransferSettings, give_up: Instant, run: impl Fn() -> TransferReport) {
    loop {
        let judgement = judge(settings, &run());
        if only_lacks_its_rate(&judgement) && Instant::now() < give_up {
            continue;
        }
        assert_eq!(judgement.verdict, Verdict::Pass, "{settings:?}: {:?}", judgement.reasons);
        return;
    }
}

#[test]
fn kagiri_and_iperf3_clients_share_one_port() {
    needs!("iperf3");
    let natives = Arc::new(NativeServer::new(NativeSettings::default()));
    let server = serve(|settings| settings.natives = Some(natives.clone()));
    let address = server.local_addr();
    let theirs =
        ["-b 50M -P 2", "-R -b 50M", "-u -b 10M -l 1200", "-u -R -b 10M -l 1200", "-u --bidir -b 5M"];
    let start = |s: &str| {
        theirs.map(|arguments| {
            start_iperf3(address, &arguments.split(' ').chain(["-t", s, "-J"]).collect::<Vec<_>>())
        })
    };
    let ours = [
        json!({ "bytes": "10MB", "direction": "both", "flows": 3 }),
        json!({ "protocol": "udp", "bytes": "1MB", "rate": "20Mbit/s" }),
        json!({ "protocol": "udp", "bytes": "1MB", "rate": "20Mbit/s", "direction": "down" }),
    ];
    let give_up = Instant::now() + GUARD;
    let run_ours = || {
        at_once(&ours, |value| {
            let settings = settings(value.clone());
            until_rate_is_kept(&settings, give_up, || {
                let report = prepare(address, &settings).unwrap().run(0);
                assert_eq!((report.peer.as_str(), &report.broken), ("kagiri", &None), "{value}");
                report
            });
        });
    };
    // However long ours take.
    let clients = start("100");
    until("iperf3's clients run", || running(&server) == theirs.len());
    run_ours();
    assert_eq!(server.sessions().len(), theirs.len(), "iperf3's clients still run");
    drop(clients);
    until("all sessions have ended", || server.sessions().is_empty());
    server.take_reports();
    let clients = start("2");
    run_ours();
    for (client, arguments) in clients.into_iter().zip(theirs) {
        let json: Value = serde_json::from_str(&client.output()).unwrap();
        assert_eq!(json["error"], Value::Null, "{arguments}");
    }
    until("all sessions have ended", || server.sessions().is_empty());
    let reports = server.take_reports();
    assert_eq!(reports.len(), theirs.len());
    assert!(reports.iter().all(|report| report.problem.is_none()), "{reports:?}");
}

#[test]
fn iperf3_server_is_detected() {
    needs!("iperf3");
    let cases = [
        json!({ "bytes": "10MB", "flows": 2 }),
        json!({ "bytes": "10MB", "direction": "down" }),
        json!({ "time": "1s", "direction": "both", "rate": "100Mbit/s", "peer": "iperf3", "host": "x" }),
        json!({ "protocol": "udp", "time": "1s", "rate": "10Mbit/s" }),
        json!({ "protocol": "udp", "time": "1s", "rate": "10Mbit/s", "direction": "both", "omit": "1s" }),
    ];
    let give_up = Instant::now() + GUARD;
    let run = |value: &Value, settings: &TransferSettings| {
        let (_process, address) = iperf3_server(&["-1"]);
        let report = prepare(address, settings).unwrap().run(0);
        assert_eq!((report.peer.as_str(), &report.broken), ("iperf3", &None), "{value}");
        for way in report.directions.iter().map(|way| way.direction) {
            let (sender, receiver) = ends(&report, way);
            let (sent, received) = (sender.bytes(), receiver.bytes());
            // iperf3 drops what is still in flight when the end is announced, and each end has its own
            // omitted time.
            let most = if settings.omit == Span::from_ms(0) { sent } else { sent + sent / 4 };
            assert!(received > 0 && received <= most, "{value}: {received} of {sent}");
            if let Some(bytes) = settings.bytes {
                assert!(sent >= bytes.bytes(), "{value}: {sent}");
            }
        }
        report
    };
    at_once(&cases, |value| {
        let settings = settings(value.clone());
        until_rate_is_kept(&settings, give_up, || run(value, &settings));
    });
}

#[test]
fn unsupported_settings_for_iperf3_fail_before_the_start() {
    needs!("iperf3");
    for (value, words) in [
        (json!({ "requests": {} }), "does not support requests"),
        (json!({ "time": "1500ms" }), "counts time in whole seconds"),
        (json!({ "peer": "kagiri" }), "is a server of iperf3, not of kagiri"),
    ] {
        let (_process, address) = iperf3_server(&[]);
        let error = prepare(address, &settings(value.clone())).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{value}: {error}");
    }
}

#[test]
fn busy_or_dead_iperf3_server_is_named() {
    needs!("iperf3");
    let (process, address) = iperf3_server(&[]);
    let settings = settings(json!({ "time": "60s", "direction": "down" }));
    let first = prepare(address, &settings).unwrap();
    let passed = first.passed.clone();
    let first = std::thread::spawn(move || first.run(0));
    until("bytes move", || passed[1].load(std::sync::atomic::Ordering::Relaxed) > 1 << 20);
    let busy = prepare(address, &settings).map(|_| ()).unwrap_err().to_string();
    assert!(busy.contains("busy with another test"), "{busy}");
    let killed = Instant::now();
    drop(process);
    let report = first.join().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    let broken = report.broken.unwrap();
    assert!(broken.contains("closed the control connection"), "{broken}");
    assert!(report.directions[0].receiver.as_ref().unwrap().bytes() > 1 << 20, "what had arrived is kept");
    let error = prepare(address, &settings).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("start a server there"), "{error}");
}

#[test]
fn ttcp_peer_is_supported() {
    let (address, receiver) = byte_sink();
    let up = settings(json!({ "peer": "ttcp", "host": "x", "bytes": "16MB" }));
    let report = prepare(address, &up).unwrap().run(0);
    assert_eq!((report.broken, receiver.join().unwrap()), (None, 16_000_000));
    assert_eq!(report.directions[0].sender.as_ref().unwrap().bytes(), 16_000_000);
    needs!("nuttcp");
    let address = free_address(Ipv4Addr::LOCALHOST.into());
    let down = settings(json!({ "peer": "ttcp", "host": "x", "direction": "down" }));
    let ready = prepare(address, &down).unwrap();
    let port = address.port().to_string();
    let sender = Process::start("nuttcp", &["-t", "-p", &port, "-l", "8192", "-n", "2048", "127.0.0.1"]);
    let report = ready.run(0);
    let printed = sender.output();
    assert_eq!(report.broken, None, "{printed}");
    assert_eq!(report.directions[0].receiver.as_ref().unwrap().bytes(), 16 << 20, "{printed}");
}

/// The datagrams that the network namespace's sockets dropped so far (`RcvbufErrors`, SNMP).
fn receive_buffer_errors() -> u64 {
    let table = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let index = names.split(' ').position(|name| name == "RcvbufErrors").unwrap();
    values.split(' ').nth(index).unwrap().parse().unwrap()
}

/// iperf3 reports no drops at its socket; the kernel of this machine counts them.
#[test]
fn datagrams_dropped_at_the_socket_of_iperf3_are_counted_there() {
    needs!("iperf3");
    let settings = settings(
        json!({ "protocol": "udp", "time": "1s", "rate": "6Gbit/s", "peer": "iperf3", "host": "x" }),
    );
    // Faster than iperf3 reads, unless this machine is too busy to send so fast.
    until_enough_moves("more datagrams than iperf3 can read", |_| {
        let (_process, address) = iperf3_server(&["-1"]);
        let before = receive_buffer_errors();
        let report = prepare(address, &settings).unwrap().run(0);
        let kernel = receive_buffer_errors() - before;
        assert_eq!(report.broken, None);
        let metrics = transfer::metrics::of(&report);
        let lost = metrics["datagrams_lost"].unwrap() as u64;
        let at_socket = metrics["datagrams_lost_at_receiver"].expect("it is on this machine") as u64;
        let on_path = metrics["datagrams_lost_on_path"].unwrap() as u64;
        // Other tests' sockets of this namespace may drop datagrams too.
        assert!(at_socket <= kernel, "{at_socket} of {kernel}");
        assert_eq!(at_socket + on_path, lost);
        assert!(
            on_path * 1000 <= lost,
            "loopback loses nothing: {on_path} of {lost}, {kernel} in the kernel"
        );
        let account = judge(&settings, &report).account;
        let printed = format!("{account:?}");
        assert!(!printed.contains(" 0 were dropped"), "{printed}");
        if lost < 10_000 {
            return false;
        }
        assert!(
            printed.contains(&format!("{at_socket} were dropped at the receiver's full socket")),
            "{printed}"
        );
        assert_ne!(account.limit.unwrap().resource, base::outcome::Resource::Network);
        true
    });
}

/// A receiver of ttcp's datagrams cannot see which are missing.
#[test]
fn losses_of_unnumbered_datagrams_are_unknown() {
    let address = free_address(Ipv4Addr::LOCALHOST.into());
    let down = json!({ "peer": "ttcp", "host": "x", "direction": "down", "protocol": "udp" });
    let ready = prepare(address, &settings(down)).unwrap();
    let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let run = std::thread::spawn(move || ready.run(0));
    for payload in [&[0; 4][..], &[7; 1000], &[7; 1000], &[0; 4]] {
        sender.send_to(payload, address).unwrap();
    }
    let metrics = transfer::metrics::of(&run.join().unwrap());
    assert_eq!(metrics["datagrams_received"], Some(2.0));
    for name in ["loss_ratio", "datagrams_lost", "datagrams_reordered", "jitter_us"] {
        assert_eq!(metrics[name], None, "{name}");
    }
}
