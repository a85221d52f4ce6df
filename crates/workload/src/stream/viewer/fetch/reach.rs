//! From a name to a connection, in time and only where this host may send.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use base::part::HostContext;
use base::permit::Permit;
use sys::clock::{Deadline, monotonic_ns};
use sys::net::{ConnectState, Epoll, Events, Interest, NetError, SocketOptions, TcpSocket};

use super::FetchError;
use crate::stream::viewer::url::Url;

/// How long a wait may last before it looks whether the run is to end.
const SLICE: Duration = Duration::from_millis(200);

/// A deadline that remembers what it allowed and for whom, and hears of an early end.
#[derive(Debug, Clone)]
pub struct Until {
    deadline: Deadline,
    allowed_s: f64,
    url: String,
    stop: Arc<AtomicBool>,
}

impl Until {
    /// `allowed` is the whole time that `deadline` left at its beginning.
    #[must_use]
    pub fn new(url: &Url, deadline: Deadline, allowed: Duration, host: &HostContext) -> Self {
        Self {
            deadline,
            allowed_s: allowed.as_secs_f64(),
            url: url.to_string(),
            stop: Arc::clone(&host.stop),
        }
    }

    /// What is fetched.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The error of having come too late.
    #[must_use]
    pub fn late(&self, what: &'static str) -> FetchError {
        FetchError::Deadline { url: self.url.clone(), what, allowed_s: self.allowed_s }
    }

    /// How long to wait before asking again.
    ///
    /// # Errors
    /// No time is left, or the run is to end.
    pub fn wait(&self, what: &'static str) -> Result<Duration, FetchError> {
        let left = self.deadline.left();
        if self.stop.load(Ordering::Relaxed) {
            return Err(FetchError::Stopped { url: self.url.clone() });
        }
        if left.is_zero() { Err(self.late(what)) } else { Ok(left.min(SLICE)) }
    }
}

/// The addresses of a host that this one may send to. The resolver cannot be told a deadline, so it is asked on a thread
/// of its own, which is left behind when it takes too long.
///
/// # Errors
/// No address, or none that is permitted.
pub fn resolve(url: &Url, until: &Until, permit: &dyn Permit) -> Result<Vec<SocketAddr>, FetchError> {
    let (host, port) = (url.host().to_owned(), url.port());
    let (answer, answered) = mpsc::channel();
    let fail = |why: String| FetchError::Resolve { url: url.to_string(), why };
    std::thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            // Nobody may be waiting any more.
            let _ = answer.send(found);
        })
        .map_err(|e| fail(e.to_string()))?;
    let found = loop {
        match answered.recv_timeout(until.wait("address of the host")?) {
            Ok(found) => break found.map_err(|e| fail(e.to_string()))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(fail("the resolver gave no answer".into())),
        }
    };
    permitted(found, permit)?.ok_or_else(|| fail("the name has no address".into()))
}

/// Those of the addresses that are permitted; the refusal of the first where none is, `None` where there are none.
fn permitted(found: Vec<SocketAddr>, permit: &dyn Permit) -> Result<Option<Vec<SocketAddr>>, FetchError> {
    let mut refusal = None;
    let mut permitted = Vec::new();
    for address in found {
        match permit.peer(address) {
            Ok(()) => permitted.push(address),
            Err(refused) => {
                refusal.get_or_insert(refused);
            }
        }
    }
    match (permitted.is_empty(), refusal) {
        (true, Some(refusal)) => Err(FetchError::Refused(refusal)),
        (true, None) => Ok(None),
        (false, _) => Ok(Some(permitted)),
    }
}

/// The first of the addresses that takes a connection; else the error of the first.
///
/// # Errors
/// [`FetchError`]: nobody there, too late.
pub fn connect(addresses: &[SocketAddr], until: &Until) -> Result<(TcpStream, SocketAddr), FetchError> {
    let mut first = None;
    for &address in addresses {
        match connected(address, until)? {
            Ok(socket) => return Ok((socket, address)),
            Err(error) if error.kind() == ErrorKind::TimedOut => return Err(until.late("connection")),
            Err(error) => {
                let (url, why) = (until.url.clone(), error.source.to_string());
                first.get_or_insert(FetchError::Connect { url, address, why });
            }
        }
    }
    Err(first.unwrap_or_else(|| until.late("connection")))
}

/// One connection; what the kernel said where there is none.
fn connected(address: SocketAddr, until: &Until) -> Result<Result<TcpStream, NetError>, FetchError> {
    let begin = || {
        let socket = TcpSocket::connect_start(address, None, &SocketOptions::default())?;
        let epoll = Epoll::new()?;
        epoll.add(&socket, 0, Interest::WRITE)?;
        Ok((socket, epoll))
    };
    let (socket, epoll) = match begin() {
        Ok(begun) => begun,
        Err(error) => return Ok(Err(error)),
    };
    let mut events = Events::with_capacity(1);
    loop {
        let wait = until.wait("connection")?;
        if let Err(error) = epoll.wait_until(&mut events, monotonic_ns() + wait.as_nanos() as u64) {
            return Ok(Err(error));
        }
        match socket.connect_result() {
            Ok(ConnectState::InProgress) => {}
            Ok(ConnectState::Connected) => {
                let stream = TcpStream::from(OwnedFd::from(socket));
                // A socket that does not wait would only make the loops that read it turn faster.
                let _ = stream.set_nonblocking(false);
                return Ok(Ok(stream));
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}
