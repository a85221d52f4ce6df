//! The real iperf3 at the other end, and ways to wait for things.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use sys::net::PortReservation;
use transfer::control::StopHandle;
use transfer::iperf3::{Carrying, Client, ClientOrder, Deadlines, Iperf3Error, Parameters, TestReport};
use transfer::server::{Server, ServerSettings};

/// No test waits longer than this for anything.
pub const GUARD: Duration = Duration::from_secs(40);

/// Whether a program is installed; says so if not.
pub fn is_installed(name: &str) -> bool {
    let there =
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        features::skip(&format!("needs {name}"));
    }
    there
}

/// Skips a test if the program is not installed.
#[macro_export]
macro_rules! needs {
    ($program:literal) => {
        if !$crate::common::is_installed($program) {
            return;
        }
    };
}

/// Waits until `holds`, and fails if it never does.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + GUARD;
    while !holds() {
        assert!(Instant::now() < give_up, "{what} did not happen within {GUARD:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs all cases concurrently: they mostly wait.
pub fn at_once<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| run(case));
        }
    });
}

/// Runs a case with longer and longer times, s, until enough was transferred: a thread that lost its CPU for
/// most of a short time does not catch up.
pub fn until_enough_moves(what: &str, is_enough: impl Fn(u32) -> bool) {
    let enough = [1, 2, 4, 8].into_iter().find(|&s| is_enough(s));
    assert!(enough.is_some(), "{what}: not what is due moved, however long it took");
}

/// A program that is killed at the end of the test.
pub struct Process(pub Child);

impl Process {
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the program starts"))
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// What it printed, once it has ended by itself.
    pub fn output(mut self) -> String {
        let mut out = self.0.stdout.take().unwrap();
        let mut err = self.0.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            err.read_to_string(&mut text).unwrap();
            text
        });
        until("the end of the program", || self.has_ended());
        reader.join().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Deadlines that are short enough for a test, and long enough for threads that wait for a CPU.
pub fn short() -> Deadlines {
    Deadlines {
        step: Duration::from_secs(3),
        stall: Duration::from_secs(2),
        grace: Duration::from_secs(2),
        longest: Duration::from_secs(20),
        unheard: Duration::from_secs(4),
        drain: Duration::from_secs(2),
    }
}

/// Our server on loopback.
pub fn serve(change: impl FnOnce(&mut ServerSettings)) -> Server {
    let mut settings = ServerSettings::new((Ipv4Addr::LOCALHOST, 0).into());
    change(&mut settings);
    Server::start(settings).expect("the server starts")
}

/// The one report of a session that has ended.
pub fn report(server: &Server) -> TestReport {
    let mut reports = Vec::new();
    until("the end of the session", || {
        reports.extend(server.take_reports());
        !reports.is_empty() && server.sessions().is_empty()
    });
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.remove(0)
}

/// Starts iperf3 as a client.
pub fn start_iperf3(server: SocketAddr, arguments: &[&str]) -> Process {
    let (host, port) = (server.ip().to_string(), server.port().to_string());
    Process::start("iperf3", &[&["-c", &host, "-p", &port], arguments].concat())
}

/// Runs iperf3 as a client; returns its JSON.
pub fn iperf3(server: SocketAddr, arguments: &[&str]) -> Value {
    let printed = start_iperf3(server, &[&["-J"], arguments].concat()).output();
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error} in {printed}"))
}

/// iperf3 as a server on loopback, and where it listens.
pub fn iperf3_server(arguments: &[&str]) -> (Process, SocketAddr) {
    iperf3_server_at(Ipv4Addr::LOCALHOST.into(), arguments)
}

/// iperf3 as a server at an address of this host.
pub fn iperf3_server_at(ip: IpAddr, arguments: &[&str]) -> (Process, SocketAddr) {
    // A child that another thread of this test is starting may briefly hold the port, and iperf3 ends then.
    for _ in 0..5 {
        let address = free_address(ip);
        let (host, port) = (ip.to_string(), address.port().to_string());
        let common = ["-s", "-B", &host, "-p", &port, "--forceflush"];
        let mut process = Process::start("iperf3", &[&common, arguments].concat());
        until("iperf3 listens, or has ended", || process.has_ended() || listens(address));
        if !process.has_ended() {
            return (process, address);
        }
    }
    panic!("iperf3 has ended, five times");
}

/// An address that was free a moment ago, with a port outside the kernel's ephemeral range.
pub fn free_address(ip: IpAddr) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id() as u16;
    let candidates = (0..4096).map(|_| {
        let offset = own.wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        SocketAddr::new(ip, 61_000 + offset % 4096)
    });
    // Not by a listener: its copy in a child that is being started would look like iperf3's.
    candidates.into_iter().find(|address| PortReservation::bind(*address).is_ok()).expect("a free port")
}

fn listens(address: SocketAddr) -> bool {
    let port = format!(":{:04X}", address.port());
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&port) && fields[3] == "0A"
        })
    })
}

/// A listener on a free port of loopback, and its address.
pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A loopback address without a listener.
pub fn closed_address() -> SocketAddr {
    listener().1
}

/// Takes one connection; the thread returns how many bytes came over it.
pub fn byte_sink() -> (SocketAddr, JoinHandle<u64>) {
    let (listener, address) = listener();
    let take = move || std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap();
    (address, std::thread::spawn(take))
}

/// Reads a message with its length in front.
pub fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut text).ok()?;
    Some(text)
}

/// How many of iperf3's clients have begun to move data.
pub fn running(server: &Server) -> usize {
    server.sessions().iter().filter(|session| session.started_ns.is_some()).count()
}

pub fn stop_handle() -> Arc<StopHandle> {
    Arc::new(StopHandle::new().unwrap())
}

/// A client's order with those parameters.
pub fn order(server: SocketAddr, parameters: Parameters) -> ClientOrder {
    ClientOrder { server, parameters, carrying: Carrying::default(), deadlines: Deadlines::default() }
}

/// Runs our client to its end.
pub fn run(server: SocketAddr, parameters: Parameters) -> Result<TestReport, Iperf3Error> {
    carry_out(order(server, parameters))
}

/// The same with deadlines that a test can wait for.
pub fn run_hastily(server: SocketAddr, parameters: Parameters) -> Result<TestReport, Iperf3Error> {
    let mut order = order(server, parameters);
    order.deadlines = short();
    carry_out(order)
}

fn carry_out(order: ClientOrder) -> Result<TestReport, Iperf3Error> {
    Ok(Client::prepare(order, stop_handle())?.run())
}
