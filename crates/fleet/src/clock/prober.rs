//! The agent's side: sends requests until the offset is bounded well enough.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sys::clock::{Deadline, monotonic_ns, sleep_until_ns};
use sys::net::{Datagram, DatagramAddress, DatagramSocket, Epoll, Events, Interest};

use super::wire::{DATAGRAM_BYTES, Key, Message};
use super::{Batch, ClockError, Probe};

/// A batch may end early after this many probes.
const PROBES_MIN: u64 = 8;

/// How long to wait for a response before the next request. A later response still counts.
const RESPONSE_WAIT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(2)..=Duration::from_millis(100);

/// Pause between two requests: shorter while the bound improves, longer while there is interference.
const PAUSE: std::ops::RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_millis(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRequest {
    pub count: u32,
    /// Bound at which the batch ends early, ns.
    pub good_ns: u64,
    pub within: Duration,
}

impl Default for BatchRequest {
    fn default() -> Self {
        Self { count: 64, good_ns: 5_000, within: Duration::from_secs(1) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchResult {
    pub batch: Option<Batch>,
    pub sent: u32,
    /// Requests without a response in time.
    pub lost: u32,
    /// Duplicate responses, and responses to an earlier batch.
    pub stale: u32,
    pub rejected: u32,
}

#[derive(Debug)]
pub struct Prober {
    target: DatagramAddress,
    key: Key,
    socket: DatagramSocket,
    epoll: Epoll,
    sequence: u32,
}

impl Prober {
    /// Opens a socket. For a UNIX target, the socket is a new file in the same folder.
    pub fn open(target: &DatagramAddress, key: Key) -> Result<Self, ClockError> {
        let open = |source| ClockError::Open { address: target.to_string(), source };
        let mut socket = DatagramSocket::bind(&own_address(target)).map_err(open)?;
        socket.enable_stamps().map_err(open)?;
        let epoll = Epoll::new()?;
        epoll.add(&socket, 0, Interest::READ)?;
        Ok(Self { target: target.clone(), key, socket, epoll, sequence: 0 })
    }

    /// Sends requests until the bound is good, the count is reached or the time is over. Blocks meanwhile.
    /// Errors: The socket fails. A batch without responses is no error: [`BatchResult::batch`] is `None`.
    pub fn batch(&mut self, wanted: BatchRequest) -> Result<BatchResult, ClockError> {
        let deadline = Deadline::after(wanted.within);
        let mut round = Round::new(self.sequence, matches!(self.target, DatagramAddress::Unix(_)));
        let mut gap = *PAUSE.start();
        for _ in 0..wanted.count {
            let t1_ns = monotonic_ns();
            let request = Message::Request { sequence: self.sequence, t1_ns };
            // A request that cannot be sent (full queue, link down) counts as lost.
            let _ = self.socket.send_to(&request.write(&self.key), &self.target);
            round.open.push(Some(t1_ns));
            self.sequence = self.sequence.wrapping_add(1);
            let response_wait = round.response_wait().min(deadline.left());
            let better = self.receive(&mut round, response_wait)?;
            if round.is_good(wanted.good_ns) || deadline.passed() {
                break;
            }
            gap = if better { gap / 2 } else { gap * 2 }.clamp(*PAUSE.start(), *PAUSE.end());
            // With jitter, so that probes do not align with periodic load.
            let pause = gap.mul_f64(0.5 + fastrand::f64()).min(deadline.left());
            sleep_until_ns(
                monotonic_ns().saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX)),
            );
        }
        while round.result.batch.is_none() && !deadline.passed() {
            self.receive(&mut round, deadline.left())?;
        }
        Ok(round.end())
    }

    /// Waits for the response to the last request and takes all that arrive meanwhile. Returns whether the
    /// bound improved.
    fn receive(&mut self, round: &mut Round, response_wait: Duration) -> Result<bool, ClockError> {
        let (until, mut events) = (Deadline::after(response_wait), Events::with_capacity(1));
        let mut better = false;
        loop {
            // One byte more than a probe, to detect longer datagrams.
            let mut buffer = [0; DATAGRAM_BYTES + 1];
            let taken = self.socket.receive(&mut buffer);
            let failed = |source| ClockError::Socket { address: self.target.to_string(), source };
            match taken.map_err(failed)? {
                Some(datagram) => {
                    let message = Message::read(&buffer[..datagram.len], &self.key);
                    let (narrower, last) = round.take(&datagram, message.ok());
                    better |= narrower;
                    // Otherwise a flood would extend the batch without end.
                    if last || until.passed() {
                        return Ok(better);
                    }
                }
                None if until.passed() => return Ok(better),
                None => drop(self.epoll.wait(&mut events, Some(until.left()))?),
            }
        }
    }
}

struct Round {
    same_kernel: bool,
    first: u32,
    /// Send time of each request; `None` once answered.
    open: Vec<Option<u64>>,
    result: BatchResult,
}

impl Round {
    fn new(first: u32, same_kernel: bool) -> Self {
        Self { same_kernel, first, open: Vec::new(), result: BatchResult::default() }
    }

    fn response_wait(&self) -> Duration {
        let usual = self.result.batch.map(|batch| Duration::from_nanos(batch.rtt_min_ns.saturating_mul(4)));
        usual.unwrap_or(*RESPONSE_WAIT.end()).clamp(*RESPONSE_WAIT.start(), *RESPONSE_WAIT.end())
    }

    fn is_good(&self, good_ns: u64) -> bool {
        self.result.batch.is_some_and(|batch| batch.n >= PROBES_MIN && batch.bound_ns() <= good_ns)
    }

    /// Returns whether the bound improved, and whether this answers the last request.
    fn take(&mut self, datagram: &Datagram, message: Option<Message>) -> (bool, bool) {
        let Some(Message::Response { sequence, t1_ns, t2_ns, t3_ns }) = message else {
            self.result.rejected += 1;
            return (false, false);
        };
        let index = sequence.wrapping_sub(self.first) as usize;
        // The sequence number alone could be that of a request 2^32 ago; the time cannot.
        let Some(open) = self.open.get_mut(index).filter(|open| **open == Some(t1_ns)) else {
            self.result.stale += 1;
            return (false, false);
        };
        *open = None;
        let probe = Probe { t1_ns, t2_ns, t3_ns, t4_ns: datagram.at_monotonic_ns };
        let better = match &mut self.result.batch {
            Some(batch) => batch.add(&probe),
            none => {
                *none = Batch::new(&probe, self.same_kernel);
                none.is_some()
            }
        };
        (better, index + 1 == self.open.len())
    }

    fn end(self) -> BatchResult {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let lost = self.open.iter().filter(|open| open.is_some()).count();
        BatchResult { sent: count(self.open.len()), lost: count(lost), ..self.result }
    }
}

/// The local address for responses from `target`.
fn own_address(target: &DatagramAddress) -> DatagramAddress {
    match target {
        DatagramAddress::Udp(SocketAddr::V4(_)) => DatagramAddress::Udp((Ipv4Addr::UNSPECIFIED, 0).into()),
        DatagramAddress::Udp(SocketAddr::V6(_)) => DatagramAddress::Udp((Ipv6Addr::UNSPECIFIED, 0).into()),
        // An abstract socket would belong to one network namespace.
        DatagramAddress::Unix(path) => {
            DatagramAddress::Unix(path.with_file_name(format!("probe-{:016x}.sock", sys::random::number())))
        }
    }
}
