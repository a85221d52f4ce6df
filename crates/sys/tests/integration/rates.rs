//! Rates of unmodified programs: iperf3, limited while it runs, and measured by the interface's counters.
//!
//! The bounds have room for a busy machine; the measured rates are printed.

use std::time::{Duration, Instant};

use crate::common::{LONG, Pair, as_root, flows_of};
use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::journal::Journal;
use sys::process::{ForeignProcess, PacingRate, SocketChange};
use sys::shaping::{Htb, HtbClass, ManagedSockets, SocketTarget, Sysctl};

/// One measurement.
const WINDOW: Duration = Duration::from_secs(2);
/// Before it, for what was sent at the former rate.
const SETTLE: Duration = Duration::from_secs(1);

/// A client of iperf3 that sends to a server in the other namespace.
struct Iperf {
    client: Child,
    _server: Child,
    pair: Pair,
}

impl Iperf {
    fn start(journal: &Journal, name: &str, arguments: &[&str]) -> Self {
        let pair = Pair::make(journal, name);
        let mut server =
            Spawn::new("iperf3").args(["-s", "--forceflush"]).namespace(&pair.server).start(journal).unwrap();
        server.wait_line(LONG, |line| line.contains("listening")).unwrap();
        let client = Spawn::new("iperf3")
            .args(["-c", &Pair::SERVER.to_string(), "-t", "600", "--forceflush"])
            .args(arguments)
            .namespace(&pair.client)
            .start(journal)
            .unwrap();
        let mut this = Self { client, _server: server, pair };
        this.client.wait_line(LONG, |line| line.contains("sec")).unwrap();
        this
    }

    /// The sockets that send data: not the control connection.
    fn sockets(&self, is_tcp: bool) -> (ForeignProcess, Vec<(u64, u64, i32)>) {
        let deadline = Deadline::after(LONG);
        loop {
            let is_data = |flow: &sys::netlink::Flow| {
                let sent = flow.tcp.as_ref().and_then(|info| info.sent_bytes).unwrap_or(u64::MAX);
                flow.tcp.is_some() == is_tcp && sent > 100_000 && flow.peer.port() == 5201
            };
            let (process, found) = flows_of(self.client.pid(), is_data);
            if !found.is_empty() {
                let sockets = found.iter().map(|(flow, fd)| (flow.inode, flow.cookie, *fd));
                return (process, sockets.collect());
            }
            assert!(deadline.pause(Duration::from_millis(20)), "{}", self.client.output_tail());
        }
    }

    /// Bytes that the interface has sent, with the link's headers.
    fn sent(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/net/dev", self.client.pid())).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
        line.split_whitespace().nth(8).unwrap().parse().unwrap()
    }

    /// Its rate by the interface's counters, bit/s.
    fn rate(&self) -> f64 {
        std::thread::sleep(SETTLE);
        let (from, began) = (self.sent(), Instant::now());
        std::thread::sleep(WINDOW);
        let (bytes, elapsed) = (self.sent() - from, began.elapsed());
        bytes as f64 * 8.0 / elapsed.as_secs_f64()
    }
}

fn check(what: &str, wanted_bit_per_s: u64, measured: f64) {
    let wanted = wanted_bit_per_s as f64;
    eprintln!(
        "{what}: {wanted} bit/s wanted, {measured:.0} measured, {:+.2} %",
        (measured / wanted - 1.0) * 100.0
    );
    // A busy machine sends less, never more; at 1 Mbit/s a burst more or less counts.
    assert!(measured < 1.15 * wanted, "{what}: {measured} of {wanted}");
    assert!(measured > 0.3 * wanted, "{what}: {measured} of {wanted}");
}

fn has_iperf() -> bool {
    let found = std::process::Command::new("iperf3").arg("--version").output().is_ok();
    if !found {
        features::skip("needs iperf3");
    }
    found
}

#[test]
fn pacing_holds_a_running_iperf3() {
    let Some((_folder, journal)) = as_root() else { return };
    if !has_iperf() {
        return;
    }
    let iperf = Iperf::start(&journal, "pace", &["-C", "cubic"]);
    let _sysctl = iperf.pair.client.within(|| Sysctl::set(&journal, "net.ipv4.tcp_tso_rtt_log", "0"));
    let (process, sockets) = iperf.sockets(true);
    let [(inode, cookie, fd)] = sockets[..] else { panic!("{sockets:?}") };
    let mut managed = ManagedSockets::new(&journal);
    for bits in [100_000_000, 10_000_000, 1_000_000, 100_000_000, 10_000_000] {
        let change = SocketChange { pacing: PacingRate::from_bit_per_s(bits), ..SocketChange::default() };
        let target = SocketTarget { process: &process, fd, inode, cookie, change };
        managed.apply(&[target]).unwrap().pop().unwrap().unwrap();
        check("pacing", bits, iperf.rate());
    }
    drop(managed);
    let unlimited = iperf.rate();
    eprintln!("restored: {unlimited:.0} bit/s");
    assert!(unlimited > 5e7, "{unlimited}");
}

#[test]
fn htb_class_by_socket_priority_holds_udp_and_tcp_of_iperf3() {
    let Some((_folder, journal)) = as_root() else { return };
    if !has_iperf() {
        return;
    }
    for (name, is_tcp, arguments) in
        [("udp", false, &["-u", "-b", "200M", "-l", "1400"][..]), ("tcp4", true, &["-P", "4"])]
    {
        let iperf = Iperf::start(&journal, name, arguments);
        let mut htb = iperf.pair.client.within(|| Htb::create(&journal, "eth0", 30)).unwrap().unwrap();
        let of = |bits| HtbClass { rate_bit_per_s: bits, ceil_bit_per_s: bits, priority: 1 };
        htb.add_class(30, None, of(10_000_000_000)).unwrap();
        htb.add_class(10, None, of(50_000_000)).unwrap();
        let (process, sockets) = iperf.sockets(is_tcp);
        let change = SocketChange { priority: Some(htb.socket_priority(10)), ..SocketChange::default() };
        let targets: Vec<_> = sockets
            .iter()
            .map(|(inode, cookie, fd)| SocketTarget {
                process: &process,
                fd: *fd,
                inode: *inode,
                cookie: *cookie,
                change,
            })
            .collect();
        assert_eq!(targets.len(), if is_tcp { 4 } else { 1 });
        let mut managed = ManagedSockets::new(&journal);
        assert!(managed.apply(&targets).unwrap().iter().all(Result::is_ok));
        for bits in [50_000_000, 100_000_000, 10_000_000] {
            htb.set_class(10, of(bits)).unwrap();
            let (from, began) = (htb.read().unwrap()[&10], Instant::now());
            check(&format!("HTB {name}"), bits, iperf.rate());
            let to = htb.read().unwrap()[&10];
            assert_eq!(to.bytes_per_s * 8, bits);
            let counted = (to.bytes - from.bytes) as f64 * 8.0 / began.elapsed().as_secs_f64();
            eprintln!("HTB {name}: {counted:.0} bit/s by the class's counter");
            assert!(counted > 0.3 * bits as f64 && counted < 1.3 * bits as f64, "{counted}");
        }
        drop(managed);
        let free = iperf.rate();
        eprintln!("HTB {name}: {free:.0} bit/s without priority");
        assert!(free > 3e7, "{free}");
    }
}
