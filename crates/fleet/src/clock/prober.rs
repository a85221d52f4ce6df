//! The agent's side: asks until the answers bound the offset well enough.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sys::clock::{Deadline, monotonic_ns, sleep_until_ns};
use sys::net::{Datagram, DatagramAddress, DatagramSocket, Epoll, Events, Interest};

use super::wire::{DATAGRAM_BYTES, Key, Message};
use super::{Batch, ClockError, Probe};

/// Probes after which a batch may end before its count.
const PROBES_MIN: u64 = 8;

/// How long an answer is waited for before the next question; later it counts still.
const PATIENCE: std::ops::RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(100);

/// The pause between two questions: short while it gets better, longer while something is in the way.
const GAP: std::ops::RangeInclusive<Duration> = Duration::from_micros(50)..=Duration::from_millis(4);

/// How a batch is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Probes at most.
    pub count: u32,
    /// The bound at which they end early, ns.
    pub good_ns: u64,
    /// How long the batch may take.
    pub within: Duration,
}

impl Default for Ask {
    fn default() -> Self {
        Self { count: 64, good_ns: 5_000, within: Duration::from_secs(1) }
    }
}

/// What became of a batch of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// What the answers say; `None` if none came.
    pub batch: Option<Batch>,
    /// Questions sent.
    pub sent: u32,
    /// Questions without an answer in time.
    pub lost: u32,
    /// Answers that came again, or to an earlier batch.
    pub stale: u32,
    /// Datagrams that were no answer of the coordinator's.
    pub rejected: u32,
}

/// Asks one coordinator for its clock.
#[derive(Debug)]
pub struct Prober {
    target: DatagramAddress,
    key: Key,
    socket: DatagramSocket,
    epoll: Epoll,
    /// The next question's number.
    sequence: u32,
}

impl Prober {
    /// Opens a socket for questions to `target`. To a UNIX socket they go from another file in the same folder.
    ///
    /// # Errors
    /// No socket can be had there.
    pub fn open(target: &DatagramAddress, key: Key) -> Result<Self, ClockError> {
        let open = |source| ClockError::Open { address: target.to_string(), source };
        let mut socket = DatagramSocket::bind(&own_address(target)).map_err(open)?;
        socket.enable_stamps().map_err(open)?;
        let epoll = Epoll::new()?;
        epoll.add(&socket, 0, Interest::READ)?;
        Ok(Self { target: target.clone(), key, socket, epoll, sequence: 0 })
    }

    /// Asks until the bound is good, the count is reached or the time is over. Blocks for that long: for a thread that
    /// has nothing else to do.
    ///
    /// # Errors
    /// The socket fails. That nobody answers is no error: [`Probed::batch`] is `None`.
    pub fn batch(&mut self, ask: Ask) -> Result<Probed, ClockError> {
        let deadline = Deadline::after(ask.within);
        let mut round = Round::new(self.sequence, matches!(self.target, DatagramAddress::Unix(_)));
        let mut gap = *GAP.start();
        for _ in 0..ask.count {
            let t1_ns = monotonic_ns();
            let question = Message::Question { sequence: self.sequence, t1_ns };
            // What cannot be sent now (a full queue, a link that is down) is as if it were lost on the way.
            let _ = self.socket.send_to(&question.write(&self.key), &self.target);
            round.open.push(Some(t1_ns));
            self.sequence = self.sequence.wrapping_add(1);
            let patience = round.patience().min(deadline.left());
            let better = self.hear(&mut round, patience)?;
            if round.is_good(ask.good_ns) || deadline.passed() {
                break;
            }
            gap = if better { gap / 2 } else { gap * 2 }.clamp(*GAP.start(), *GAP.end());
            // Not in step with anything periodic.
            let pause = gap.mul_f64(0.5 + fastrand::f64()).min(deadline.left());
            sleep_until_ns(
                monotonic_ns().saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX)),
            );
        }
        while round.probed.batch.is_none() && !deadline.passed() {
            self.hear(&mut round, deadline.left())?;
        }
        Ok(round.end())
    }

    /// Waits for the answer to the last question, and takes all that come meanwhile. Returns whether the bound became
    /// better.
    fn hear(&mut self, round: &mut Round, patience: Duration) -> Result<bool, ClockError> {
        let (until, mut events) = (Deadline::after(patience), Events::with_capacity(1));
        let mut better = false;
        loop {
            // One byte more than ours have, so that longer ones show.
            let mut buffer = [0; DATAGRAM_BYTES + 1];
            let taken = self.socket.receive(&mut buffer);
            let failed = |source| ClockError::Socket { address: self.target.to_string(), source };
            match taken.map_err(failed)? {
                Some(datagram) => {
                    let message = Message::read(&buffer[..datagram.len], &self.key);
                    let (narrower, last) = round.take(&datagram, message.ok());
                    better |= narrower;
                    // Or somebody who sends without end holds the batch up without end.
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

/// A batch under way.
struct Round {
    same_kernel: bool,
    /// The number of the first question.
    first: u32,
    /// When each question was sent, until it is answered.
    open: Vec<Option<u64>>,
    probed: Probed,
}

impl Round {
    fn new(first: u32, same_kernel: bool) -> Self {
        Self { same_kernel, first, open: Vec::new(), probed: Probed::default() }
    }

    /// How long the next answer is worth waiting for.
    fn patience(&self) -> Duration {
        let usual = self.probed.batch.map(|batch| Duration::from_nanos(batch.rtt_min_ns.saturating_mul(4)));
        usual.unwrap_or(*PATIENCE.end()).clamp(*PATIENCE.start(), *PATIENCE.end())
    }

    fn is_good(&self, good_ns: u64) -> bool {
        self.probed.batch.is_some_and(|batch| batch.n >= PROBES_MIN && batch.bound_ns() <= good_ns)
    }

    /// Takes what came. Returns whether the bound became better, and whether it answers the last question.
    fn take(&mut self, datagram: &Datagram, message: Option<Message>) -> (bool, bool) {
        let Some(Message::Answer { sequence, t1_ns, t2_ns, t3_ns }) = message else {
            self.probed.rejected += 1;
            return (false, false);
        };
        let index = sequence.wrapping_sub(self.first) as usize;
        // The number alone could be that of a question 2^32 ago; the time is not.
        let Some(open) = self.open.get_mut(index).filter(|open| **open == Some(t1_ns)) else {
            self.probed.stale += 1;
            return (false, false);
        };
        *open = None;
        let probe = Probe { t1_ns, t2_ns, t3_ns, t4_ns: datagram.at_monotonic_ns };
        let better = match &mut self.probed.batch {
            Some(batch) => batch.add(&probe),
            none => {
                *none = Batch::new(&probe, self.same_kernel);
                none.is_some()
            }
        };
        (better, index + 1 == self.open.len())
    }

    fn end(self) -> Probed {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let lost = self.open.iter().filter(|open| open.is_some()).count();
        Probed { sent: count(self.open.len()), lost: count(lost), ..self.probed }
    }
}

/// Where answers from `target` come to.
fn own_address(target: &DatagramAddress) -> DatagramAddress {
    match target {
        DatagramAddress::Udp(SocketAddr::V4(_)) => DatagramAddress::Udp((Ipv4Addr::UNSPECIFIED, 0).into()),
        DatagramAddress::Udp(SocketAddr::V6(_)) => DatagramAddress::Udp((Ipv6Addr::UNSPECIFIED, 0).into()),
        // A name without a file would belong to one network namespace.
        DatagramAddress::Unix(path) => {
            DatagramAddress::Unix(path.with_file_name(format!("probe-{:016x}.sock", sys::random::number())))
        }
    }
}
