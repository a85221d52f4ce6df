//! The client's end of a transfer, whatever server is at the other: kagiri's, iperf3's, or a classic `ttcp`.

mod iperf3;
mod native;
pub mod part;
mod ttcp;
mod under_load;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::SocketOptions;

use super::control::{Control, ControlError, StopHandle, connect};
use super::iperf3::{Iperf3Error, State};
use super::native::session_id::{Role, SessionId};
use super::native::{self as protocol, NativeError};
use super::path_rate::{Link, theoretical_bit_per_s};
use super::report::TransferReport;
use super::settings::{PORT, Peer, TTCP_PORT, TransferSettings};
use super::ttcp::TtcpError;

/// How long each step of the preparation may take.
const STEP: Duration = Duration::from_secs(5);

/// Why a client could not get ready.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot resolve '{host}': {why}; write HOST or HOST:PORT, such as nas:5201 or \
         [fd00::1]:5201"
    )]
    Address { host: String, why: String },
    #[error("cannot resolve the host name '{host}': {why}; check its spelling, or give its IP address")]
    HostName { host: String, why: String },
    #[error("{source}; start a server there ('kagiri transfer --serve', or 'iperf3 -s')")]
    NoServer { source: ControlError },
    #[error(
        "{source}; is something else listening there, or a server stuck? start 'kagiri transfer \
         --serve' or 'iperf3 -s' there, or use --peer ttcp for a classic ttcp"
    )]
    Stranger { source: Iperf3Error },
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Iperf3(#[from] Iperf3Error),
    #[error(transparent)]
    Native(#[from] NativeError),
    #[error(transparent)]
    Ttcp(#[from] TtcpError),
    #[error(transparent)]
    Net(#[from] sys::net::NetError),
    #[error("{server} is a server of {found}, not of {wanted}; omit --peer to accept either")]
    OtherPeer { server: SocketAddr, found: &'static str, wanted: &'static str },
    #[error("{server} is an iperf3 server, which {problem}; start 'kagiri transfer --serve' there instead")]
    NotIperf3s { server: SocketAddr, problem: &'static str },
}

#[derive(Debug, Clone)]
pub struct Task {
    pub settings: TransferSettings,
    pub server: SocketAddr,
    /// What lets the client in.
    pub key: Option<String>,
}

/// Payload that has passed: up, and down. Grows while the transfer runs.
pub type Passed = Arc<[AtomicU64; 2]>;

pub struct Ready {
    pub peer: &'static str,
    pub passed: Passed,
    run: Box<dyn FnOnce(u64) -> TransferReport + Send>,
}

/// Where `host` (`HOST`, `HOST:PORT`) is; the port is the usual one of its protocol unless given.
pub fn address(host: &str, peer: Peer) -> Result<SocketAddr, ClientError> {
    let port = if peer == Peer::Ttcp { TTCP_PORT } else { PORT };
    workload::address::resolve(host, port).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            ClientError::Address { host: host.to_owned(), why: error.to_string() }
        }
        _ => {
            let why = error.to_string().replace("failed to lookup address information: ", "");
            ClientError::HostName { host: host.to_owned(), why }
        }
    })
}

impl Ready {
    /// Connects to the server, finds out whose it is, and gets everything ready that can be before the start.
    pub fn prepare(task: Task, stop_handle: Arc<StopHandle>) -> Result<Self, ClientError> {
        if let Some(idle) = task.settings.under_load {
            return under_load::prepare(task, idle, stop_handle);
        }
        if task.settings.peer == Peer::Ttcp {
            return ttcp::prepare(task, stop_handle);
        }
        let server = task.server;
        let until = Deadline::after(STEP);
        let socket =
            connect(server, &SocketOptions::default(), &stop_handle, until).map_err(connect_error)?;
        let control = Control::new(socket, server, stop_handle.clone(), STEP)?;
        let name = SessionId::random();
        let cookie = name.cookie(Role::Control);
        control.send_cookie(&cookie)?;
        let during = "identifying itself";
        let first = control.receive_byte(during).map_err(|error| stranger(error.into()))?;
        let wanted = task.settings.peer;
        let other = |found, wanted| ClientError::OtherPeer { server, found, wanted };
        match (first, wanted) {
            (protocol::GREETING, Peer::Iperf3) => Err(other("kagiri", "iperf3")),
            (protocol::GREETING, _) => native::prepare(task, control, name, stop_handle),
            (byte, _) if control.state_of(byte, during).map_err(stranger)? != State::ParamExchange => {
                Err(stranger(Iperf3Error::Unexpected { peer: server, byte, during }))
            }
            (_, Peer::Kagiri) => Err(other("iperf3", "kagiri")),
            _ => iperf3::prepare(task, control, cookie, stop_handle),
        }
    }

    /// Begins at a moment of the monotonic clock (now, if it has passed) and runs to the end, or until
    /// stopped. What was measured until then is in the report, whatever happens.
    pub fn run(self, at_ns: u64) -> TransferReport {
        (self.run)(at_ns.max(monotonic_ns()))
    }
}

/// A refused or silent connection mostly means that no server runs there.
fn connect_error(source: ControlError) -> ClientError {
    match source {
        ControlError::Net(_) | ControlError::Silent { .. } => ClientError::NoServer { source },
        other => other.into(),
    }
}

/// A server that is silent, closes or sends something unknown at first may be of another protocol.
fn stranger(source: Iperf3Error) -> ClientError {
    match source {
        Iperf3Error::Control(ControlError::Silent { .. } | ControlError::Closed { .. })
        | Iperf3Error::Unexpected { .. } => ClientError::Stranger { source },
        other => other.into(),
    }
}

/// The report's beginning, the same for every kind of server.
fn report(task: &Task, peer: &str, server_link: Option<Link>) -> TransferReport {
    let settings = &task.settings;
    let ways = settings.direction.each().len() as u64;
    TransferReport {
        peer: peer.to_owned(),
        server: task.server.to_string(),
        theoretical_bit_per_s: theoretical_bit_per_s(settings, task.server, server_link),
        asked_bytes: settings.bytes.map(|bytes| bytes.bytes().saturating_mul(ways)),
        ..TransferReport::default()
    }
}

/// The hold, from the start on: the omitted beginning is no part of it.
fn hold_s(settings: &TransferSettings, start_ns: u64) -> (f64, f64) {
    let omit_s = settings.omit.duration().as_secs_f64();
    let elapsed_s = monotonic_ns().saturating_sub(start_ns) as f64 / 1e9;
    (omit_s, elapsed_s.max(omit_s + 0.001))
}

fn add_passed(passed: &Passed, way: usize, bytes: u64) {
    passed[way].store(bytes, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        for (host, peer, expected) in [
            ("127.0.0.1", Peer::Auto, "127.0.0.1:5201"),
            ("127.0.0.1", Peer::Ttcp, "127.0.0.1:5001"),
            ("127.0.0.1:99", Peer::Auto, "127.0.0.1:99"),
            ("::1", Peer::Auto, "[::1]:5201"),
            ("[::1]", Peer::Auto, "[::1]:5201"),
            ("[::1]:7", Peer::Auto, "[::1]:7"),
        ] {
            assert_eq!(address(host, peer).unwrap().to_string(), expected, "{host}");
        }
        assert!(address("127.0.0.1:port", Peer::Auto).unwrap_err().to_string().contains("HOST:PORT"));
    }
}
