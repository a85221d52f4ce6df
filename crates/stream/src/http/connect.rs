//! Resolve and connect with a deadline, only to permitted addresses.

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

use super::fetch_error::FetchError;
use super::url::Url;

/// How often a wait checks whether the run was stopped.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The deadline of one fetch; also passes when the run is stopped.
#[derive(Debug, Clone)]
pub struct FetchDeadline {
    deadline: Deadline,
    allowed_s: f64,
    url: String,
    stop: Arc<AtomicBool>,
}

impl FetchDeadline {
    /// `allowed` is the whole time of `deadline`, for the error message.
    pub fn new(url: &Url, deadline: Deadline, allowed: Duration, host: &HostContext) -> Self {
        Self {
            deadline,
            allowed_s: allowed.as_secs_f64(),
            url: url.to_string(),
            stop: Arc::clone(&host.stop),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn timeout_error(&self, what: &'static str) -> FetchError {
        FetchError::Timeout { url: self.url.clone(), what, allowed_s: self.allowed_s }
    }

    /// How long to wait for `what` before calling this again.
    pub fn next_wait(&self, what: &'static str) -> Result<Duration, FetchError> {
        let left = self.deadline.left();
        if self.stop.load(Ordering::Relaxed) {
            return Err(FetchError::Stopped { url: self.url.clone() });
        }
        if left.is_zero() { Err(self.timeout_error(what)) } else { Ok(left.min(STOP_CHECK_INTERVAL)) }
    }
}

/// The permitted addresses of a URL's host. The resolver takes no deadline, so it runs on a thread of its
/// own, which is abandoned when it takes too long.
pub fn resolve(
    url: &Url,
    deadline: &FetchDeadline,
    permit: &dyn Permit,
) -> Result<Vec<SocketAddr>, FetchError> {
    let (host, port) = (url.host().to_owned(), url.port());
    let (sender, receiver) = mpsc::channel();
    let fail = |why: String| FetchError::Resolve { url: url.to_string(), why };
    std::thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            // The receiver may be gone.
            let _ = sender.send(found);
        })
        .map_err(|e| fail(e.to_string()))?;
    let found = loop {
        match receiver.recv_timeout(deadline.next_wait("address of the host")?) {
            Ok(found) => break found.map_err(|e| fail(e.to_string()))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(fail("the resolver ended without a result".into()));
            }
        }
    };
    permitted(found, permit)?.ok_or_else(|| fail("the name has no address".into()))
}

/// The permitted addresses of `found`; the first refusal if none is permitted, `None` if `found` is empty.
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

pub fn connect(
    addresses: &[SocketAddr],
    deadline: &FetchDeadline,
) -> Result<(TcpStream, SocketAddr), FetchError> {
    let mut first = None;
    for &address in addresses {
        match connect_one(address, deadline)? {
            Ok(socket) => return Ok((socket, address)),
            Err(error) => {
                let (url, why) = (deadline.url.clone(), error.source.to_string());
                first.get_or_insert(FetchError::Connect { url, address, why });
            }
        }
    }
    Err(first.unwrap_or_else(|| deadline.timeout_error("connection")))
}

/// The inner error is the kernel's.
fn connect_one(
    address: SocketAddr,
    deadline: &FetchDeadline,
) -> Result<Result<TcpStream, NetError>, FetchError> {
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
        let wait = deadline.next_wait("connection")?;
        if let Err(error) = epoll.wait_until(&mut events, monotonic_ns() + wait.as_nanos() as u64) {
            return Ok(Err(error));
        }
        match socket.connect_result() {
            Ok(ConnectState::InProgress) => {}
            Ok(ConnectState::Connected) => {
                let stream = TcpStream::from(OwnedFd::from(socket));
                // If this fails, the read loops poll.
                let _ = stream.set_nonblocking(false);
                return Ok(Ok(stream));
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}
