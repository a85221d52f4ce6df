//! The configuration of a server.

use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use pool::Pool;

pub enum AccessLog {
    /// Appended to this file, created if missing.
    Path(PathBuf),
    /// Written here, by the log's own thread.
    Writer(Box<dyn Write + Send>),
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Writer(_) => f.write_str("Writer"),
        }
    }
}

/// Bounds on the memory, connections and time that peers can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request head (request line and header fields) in bytes; a longer one gets 431, a longer
    /// request line 414.
    pub header_bytes_max: usize,
    /// Most header fields of a request; more get 431.
    pub headers_max: usize,
    /// Most connections at a time. When the table is full the oldest connection still without a complete
    /// request is dropped, then the one that idled longest between requests; when all are being served the
    /// new one gets
    /// 503.
    pub connections_max: usize,
    /// Most connections of one peer address at a time; `None`: no such limit. One more gets 503.
    pub connections_per_peer_max: Option<usize>,
    /// A request head must be complete within this time of the connection or of its first byte; else 408.
    pub header_deadline: Duration,
    /// A kept-alive connection may wait this long for the next request.
    pub idle_deadline: Duration,
    /// A response or an upload that moves no byte for this long is given up. Checked four times within it,
    /// so a dead peer is noticed after at most 1.25 times this.
    pub send_stall_deadline: Duration,
    /// Longest upload in bytes; a longer one gets 413.
    pub upload_bytes_max: u64,
    /// An upload of a lower mean rate is given up (408) after [`Limits::slow_upload_grace`]: it holds space
    /// that was reserved for it.
    pub upload_bytes_per_s_min: u64,
    /// How long an upload may take whatever its rate.
    pub slow_upload_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes_max: 16 << 10,
            headers_max: 100,
            connections_max: 10_000,
            connections_per_peer_max: None,
            header_deadline: Duration::from_secs(10),
            idle_deadline: Duration::from_secs(60),
            send_stall_deadline: Duration::from_secs(30),
            upload_bytes_max: 1 << 40,
            upload_bytes_per_s_min: 100_000,
            slow_upload_grace: Duration::from_secs(60),
        }
    }
}

const SLOW_SEND_BUFFER_BYTES: u64 = 256 << 10;

/// What [`Server::start`](super::Server::start) needs.
#[derive(Debug)]
pub struct ServerConfig {
    /// The directory that is served; nothing outside it can be reached.
    pub root: PathBuf,
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Worker threads, each with its own epoll; at least 1.
    pub threads: usize,
    /// CPUs to keep the workers on, in turn (worker `i` on `cpus[i % len]`); empty: anywhere.
    pub cpus: Vec<usize>,
    /// One line per request and per rejected or timed-out connection; `None`: no log.
    pub access_log: Option<AccessLog>,
    /// Whether clients may upload (PUT) and delete files.
    pub upload: bool,
    /// The pool whose files are served with those of `root`; uploads go into it. Its folder is
    /// [`pool::FOLDER`] in `root`, which is not served.
    pub pool: Option<Pool>,
    pub limits: Limits,
    /// CPU time burnt per content byte sent, in nanoseconds, to act as a slower processor; 0 is none. 44.8
    /// makes a 25 Mbit/s stream cost 14 % of a core, as the published set-up did.
    pub cost_ns_per_byte: f64,
    /// Congestion control of every connection, such as `reno`; `None`: the host's default.
    pub congestion_control: Option<String>,
    /// `SO_SNDBUF` of every connection in bytes; `None`: the kernel tunes it, unless CPU time is burnt (see
    /// [`ServerConfig::send_buffer`]).
    pub send_buffer_bytes: Option<u64>,
}

impl ServerConfig {
    /// Serves `root` on `listen` with one worker, no log, no upload and the default limits.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            root: root.into(),
            listen,
            threads: 1,
            cpus: Vec::new(),
            access_log: None,
            upload: false,
            pool: None,
            limits: Limits::default(),
            cost_ns_per_byte: 0.0,
            congestion_control: None,
            send_buffer_bytes: None,
        }
    }

    /// `SO_SNDBUF` of every connection, in bytes: what was asked for; else, where CPU time is burnt, 256 KiB,
    /// since a slow CPU must not be hidden behind megabytes that the kernel holds for every connection; else
    /// `None`.
    pub fn send_buffer(&self) -> Option<u64> {
        self.send_buffer_bytes.or((self.cost_ns_per_byte > 0.0).then_some(SLOW_SEND_BUFFER_BYTES))
    }

    /// [`ServerConfig::new`] on a free port of the loopback interface.
    pub fn loopback(root: impl Into<PathBuf>) -> Self {
        Self::new(root, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the directory to serve cannot be used: {0}")]
    Root(#[from] sys::Error),
    #[error("the content server cannot listen: {0}; choose another address or port")]
    Listen(sys::net::NetError),
    #[error("the content server cannot start: {0}; raise the limit of open files (ulimit -n)")]
    EventLoop(#[from] sys::net::NetError),
    #[error("cannot open the access log {path}: {source}; name a file in a writable directory")]
    AccessLog { path: PathBuf, source: std::io::Error },
    #[error("the content server cannot work with {0}")]
    Config(String),
    #[error("cannot start a thread of the content server: {0}; raise the limit of processes")]
    Thread(std::io::Error),
    /// No thread for a worker.
    #[error(transparent)]
    Worker(#[from] reactor::ThreadError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_slow_cpu_gets_a_small_send_buffer() {
        let mut config = ServerConfig::loopback("/");
        assert_eq!(config.send_buffer(), None, "the kernel tunes it");
        config.cost_ns_per_byte = 44.8;
        assert_eq!(config.send_buffer(), Some(256 << 10));
        config.send_buffer_bytes = Some(4096);
        assert_eq!(config.send_buffer(), Some(4096), "what was asked for goes first");
    }
}
