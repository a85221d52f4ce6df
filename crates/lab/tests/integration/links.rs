//! Links have the rate, delay and loss of their file, and no other losses.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::{Bench, UpLab, transfer};
use lab::file::Queue;
use sys::netlink::Queue as QueueCounters;

const LONG: Duration = Duration::from_secs(30);

/// Two hosts and a link with these keys; a program on each, so that its namespace can be found by a process.
fn two(bench: &Bench, name: &str, keys: &str) -> UpLab {
    let host = "run = ['exec sleep 600']\n";
    let text =
        format!("agents = false\n[host.a]\n{host}[host.b]\n{host}[[link]]\nfrom = 'a'\nto = 'b'\n{keys}\n");
    UpLab::new(bench, name, &text)
}

fn udp(lab: &UpLab, host: &str) -> UdpSocket {
    let address = lab.address(host);
    let socket = lab.on(host, || UdpSocket::bind((address, 0)).unwrap());
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn pid_on(lab: &UpLab, host: &str) -> i32 {
    let ends = format!("on {host}");
    lab.status().processes.iter().find(|process| process.what.ends_with(&ends)).unwrap().pid
}

#[test]
fn link_keeps_the_rate_of_each_direction() {
    let Some(bench) = Bench::new() else { return };
    for queue in ["tbf", "htb"] {
        let keys = format!("rate_up = '8Mbit/s'\nrate_down = '80Mbit/s'\nqueue = '{queue}'");
        let lab = two(&bench, queue, &keys);
        let (slow, fast) = (transfer(&lab, "a", "b", 500_000), transfer(&lab, "b", "a", 500_000));
        // 500 kB take at least 0.5 s at 8 Mbit/s, less the burst.
        assert!(slow > Duration::from_millis(480), "{queue}: {slow:?}");
        assert!(fast > Duration::from_millis(45), "{queue}: {fast:?}");
        // The queue in front of the link has counted everything.
        let mut counters = QueueCounters::open("eth0", Some(pid_on(&lab, "a"))).unwrap().unwrap();
        assert!(counters.read().unwrap().bytes > Some(500_000));
        // The supervisor reports the same, for both directions.
        let [carried] = lab.status().traffic[..] else { panic!("one link") };
        assert!(carried.link == 1 && carried.up.packets > 0, "{carried:?}");
        assert!(carried.up.bytes > 500_000 && carried.down.bytes > 500_000, "{carried:?}");
        assert_eq!(lab.state.links[0].queue, if queue == "htb" { Queue::Htb } else { Queue::Tbf });
        lab.down();
    }
}

#[test]
fn only_buffer_overflow_drops_packets() {
    let Some(bench) = Bench::new() else { return };
    let lab = two(&bench, "buffer", "rate = '1Mbit/s'\nbuffer = '20kB'");
    let (a, b) = (udp(&lab, "a"), udp(&lab, "b"));
    // The neighbours know each other.
    a.send_to(b"hello", b.local_addr().unwrap()).unwrap();
    let mut packet = [0; 2000];
    b.recv_from(&mut packet).unwrap();
    let mut counters = QueueCounters::open("eth0", Some(pid_on(&lab, "a"))).unwrap().unwrap();
    let before = counters.read().unwrap();
    const PACKETS: u64 = 100;
    // With its headers (8 UDP, 20 IP, 14 Ethernet) each is 1042 bytes.
    const FRAME: u64 = 1042;
    let began = Instant::now();
    for number in 0..PACKETS {
        a.send_to(&[number as u8; 1000], b.local_addr().unwrap()).unwrap();
    }
    let sending = began.elapsed();
    a.send_to(b"end", b.local_addr().unwrap()).ok();
    let mut arrived = 0;
    // Queued packets leave within 0.2 s.
    b.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    while let Ok((length, _)) = b.recv_from(&mut packet) {
        arrived += u64::from(length == 1000);
    }
    let after = counters.read().unwrap();
    let dropped = after.drops.unwrap() - before.drops.unwrap();
    assert!(dropped > 0 && arrived + dropped >= PACKETS, "{arrived} arrived, {dropped} dropped");
    assert!(arrived + dropped <= PACKETS + 1, "but for the last word: {arrived} arrived, {dropped} dropped");
    // It holds 19 of them, besides the burst and those that left while sending.
    let more = (3028 + (sending.as_secs_f64() * 125_000.0) as u64) / FRAME + 2;
    assert!(
        arrived >= 20_000 / FRAME && arrived <= 20_000 / FRAME + more,
        "{arrived} arrived in {sending:?}"
    );
    lab.down();
}

#[test]
fn packets_take_the_configured_delay() {
    let Some(bench) = Bench::new() else { return };
    let lab = two(&bench, "delay", "delay = '20ms'");
    let (a, b) = (udp(&lab, "a"), udp(&lab, "b"));
    let place = b.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let mut packet = [0; 100];
        for _ in 0..5 {
            let (length, from) = b.recv_from(&mut packet).unwrap();
            b.send_to(&packet[..length], from).unwrap();
        }
    });
    let mut packet = [0; 100];
    for _ in 0..5 {
        let began = Instant::now();
        a.send_to(b"there and back", place).unwrap();
        a.recv_from(&mut packet).unwrap();
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(40), "{took:?}");
    }
    echo.join().unwrap();
    // TCP as well, with many packets on the way at once.
    assert!(transfer(&lab, "a", "b", 2_000_000) >= Duration::from_millis(20));
    let line = lab.status().lines.unwrap()[0];
    assert!(line.up.forwarded >= 5 + 1300 && line.down.forwarded >= 5, "{line:?}");
    assert_eq!((line.up.lost, line.down.lost, line.up.dropped, line.down.dropped), (0, 0, 0, 0));
    lab.down();
}

fn numbers(lab: &UpLab, packets: u32) -> Vec<u32> {
    let (a, b) = (udp(lab, "a"), udp(lab, "b"));
    let place: SocketAddr = b.local_addr().unwrap();
    // In groups that the receiver's buffer holds.
    b.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut arrived = Vec::new();
    for group in (0..packets).collect::<Vec<_>>().chunks(50) {
        for number in group {
            a.send_to(&number.to_be_bytes(), place).unwrap();
        }
        let mut packet = [0; 4];
        while arrived.last() != group.last() && b.recv_from(&mut packet).is_ok() {
            arrived.push(u32::from_be_bytes(packet));
        }
    }
    arrived
}

#[test]
fn loss_follows_the_seed_and_is_counted() {
    const PACKETS: u32 = 300;
    let Some(bench) = Bench::new() else { return };
    let mut runs = Vec::new();
    for name in ["first", "again"] {
        let lab = two(&bench, name, "loss = 0.2\ndelay = '1ms'");
        let arrived = numbers(&lab, PACKETS);
        let line = lab.status().lines.unwrap()[0];
        assert_eq!(line.up.lost, u64::from(PACKETS) - arrived.len() as u64, "lost on purpose, and no other");
        assert_eq!(line.up.dropped, 0);
        assert!(arrived.is_sorted() && line.up.lost > 0);
        runs.push(arrived);
        lab.down();
    }
    assert_eq!(runs[0], runs[1], "the same packets get lost each time");
}

#[test]
fn dead_delay_line_is_reported() {
    let Some(bench) = Bench::new() else { return };
    let lab = two(&bench, "dies", "delay = '1ms'");
    let line = |lab: &UpLab| {
        lab.status().processes.into_iter().find(|process| process.what == "delay lines").unwrap()
    };
    let pid = line(&lab).pid;
    sys::child::terminate(pid, sys::proc::start_ticks("/".as_ref(), pid).unwrap(), LONG).unwrap();
    crate::common::wait_until("its end is named", || line(&lab).ended.is_some());
    assert_eq!(lab.status().lines, None, "missing is not zero");
    lab.down();
}
