//! What this host's counters do during some seconds, in the network namespace of this thread: TCP_INFO and
//! the memory of its sockets (sock_diag(7)), and the counters of `/proc/net` (proc_net(5)).

mod counters;
mod sockets;

pub use counters::Counters;
pub use sockets::{SocketUse, Sockets};

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use sys::proc::Softnet;

/// How often sockets are listed: what a connection did after its last listing is not seen.
const EVERY: Duration = Duration::from_millis(200);

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    pub length_s: f64,
    pub sockets: Vec<SocketUse>,
    /// How much the counters have grown.
    pub counters: Counters,
    /// Sources that could not be read, and why.
    pub missing: Vec<String>,
}

impl Observation {
    /// Observes this host for `length`, or until `is_stopped`.
    /// Errors: the sockets cannot be listed.
    pub fn make(length: Duration, is_stopped: &dyn Fn() -> bool) -> io::Result<Self> {
        let mut missing = Vec::new();
        let mut read = || {
            let (mut counters, problems) = Counters::read(Path::new("/"));
            missing = problems;
            match Softnet::open(Path::new("/")).and_then(|mut softnet| softnet.read()) {
                Ok(reading) => counters.add_softnet(reading),
                Err(error) => missing.push(error.to_string()),
            }
            counters
        };
        let begun = Instant::now();
        let before = read();
        let mut sockets = Sockets::open()?;
        sockets.sample()?;
        while begun.elapsed() < length && !is_stopped() {
            std::thread::sleep(EVERY.min(length.saturating_sub(begun.elapsed())));
            sockets.sample()?;
        }
        let counters = read().since(&before);
        Ok(Self { length_s: begun.elapsed().as_secs_f64(), sockets: sockets.used(), counters, missing })
    }
}
