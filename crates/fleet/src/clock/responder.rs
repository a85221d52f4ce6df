//! The coordinator's side: answers every authentic request at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;
use sys::net::{Datagram, DatagramAddress, DatagramSocket, Epoll, Events, Interest, Waker};

use super::ClockError;
use super::wire::{DATAGRAM_BYTES, Key, Message, Rejected};

/// Enough for about 300 agents with a batch each; costs a quarter of a core.
const RESPONSES_PER_S_MAX: u64 = 50_000;

/// Datagrams handled before the thread checks for its end.
const DATAGRAMS_PER_CHECK: usize = 64;

const SOCKET: u64 = 0;
const STOP: u64 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub answered: u64,
    /// Not a probe: wrong length or content.
    pub malformed: u64,
    /// Protocol version of another kagiri.
    pub other_version: u64,
    pub other_key: u64,
    pub forged: u64,
    pub over_limit: u64,
    /// Responses that could not be sent: the receiver is gone or its queue is full.
    pub unsent: u64,
}

/// Answers clock probes in a thread until it is dropped.
#[derive(Debug)]
pub struct Responder {
    address: DatagramAddress,
    counts: Arc<Mutex<Counts>>,
    stop: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Listens at `address` for holders of `key`. UDP port 0 chooses a free port.
    pub fn start(address: &DatagramAddress, key: Key) -> Result<Self, ClockError> {
        let open = |source| ClockError::of_opening(address, source);
        let mut socket = DatagramSocket::bind(address).map_err(open)?;
        socket.enable_stamps().map_err(open)?;
        let bound = socket.local_address().map_err(open)?;
        let (epoll, stop) = (Epoll::new()?, Arc::new(Waker::new()?));
        epoll.add(&socket, SOCKET, Interest::READ)?;
        epoll.add(&*stop, STOP, Interest::READ)?;
        let counts = Arc::new(Mutex::new(Counts::default()));
        let responder =
            ResponderLoop { socket, key, counts: Arc::clone(&counts), rate_limit: RateLimit::default() };
        let thread = std::thread::Builder::new()
            .name("clock".to_owned())
            .spawn(move || responder.serve(&epoll))
            .map_err(open)?;
        Ok(Self { address: bound, counts, stop, thread: Some(thread) })
    }

    pub fn address(&self) -> &DatagramAddress {
        &self.address
    }

    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            // A panic must not become an abort here.
            let _ = thread.join();
        }
    }
}

struct ResponderLoop {
    socket: DatagramSocket,
    key: Key,
    counts: Arc<Mutex<Counts>>,
    rate_limit: RateLimit,
}

#[derive(Default)]
struct RateLimit {
    second: u64,
    requests: u64,
}

impl RateLimit {
    fn admit(&mut self, now_ns: u64) -> bool {
        let second = now_ns / 1_000_000_000;
        if self.second != second {
            *self = Self { second, requests: 0 };
        }
        self.requests += 1;
        self.requests <= RESPONSES_PER_S_MAX
    }
}

impl ResponderLoop {
    fn serve(mut self, epoll: &Epoll) {
        let mut events = Events::with_capacity(2);
        // Fails only with a bad descriptor.
        while epoll.wait(&mut events, None).is_ok() {
            if events.iter().any(|event| event.token == STOP) {
                return;
            }
            // An error (such as a lack of memory) leaves the datagram queued: the next wait returns at once.
            for _ in 0..DATAGRAMS_PER_CHECK {
                // One byte more than a probe, to detect longer datagrams.
                let mut buffer = [0; DATAGRAM_BYTES + 1];
                let Ok(Some(datagram)) = self.socket.receive(&mut buffer) else { break };
                self.answer(&datagram, &buffer[..datagram.len]);
            }
        }
    }

    fn answer(&mut self, datagram: &Datagram, bytes: &[u8]) {
        let message = Message::read(bytes, &self.key);
        let admitted = message.is_ok() && self.rate_limit.admit(datagram.at_monotonic_ns);
        let sent = match (message, &datagram.from) {
            (Ok(Message::Request { sequence, t1_ns }), Some(from)) if admitted => {
                let t2_ns = datagram.at_monotonic_ns;
                let answer = Message::Response { sequence, t1_ns, t2_ns, t3_ns: monotonic_ns() };
                // As long as the request, so that a forged source address gains nothing.
                self.socket.send_to(&answer.write(&self.key), from).is_ok()
            }
            _ => false,
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match message {
            Ok(Message::Request { .. }) if sent => &mut counts.answered,
            Ok(_) if !admitted => &mut counts.over_limit,
            Ok(Message::Request { .. }) => &mut counts.unsent,
            Ok(Message::Response { .. }) | Err(Rejected::Malformed) => &mut counts.malformed,
            Err(Rejected::Version(_)) => &mut counts.other_version,
            Err(Rejected::OtherKey) => &mut counts.other_key,
            Err(Rejected::Forged) => &mut counts.forged,
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_applies_to_each_second() {
        let mut rate_limit = RateLimit::default();
        for second in [5, 6, 900] {
            let requests = 3 * RESPONSES_PER_S_MAX;
            let start_ns = second * 1_000_000_000;
            let admitted = (0..requests).filter(|i| rate_limit.admit(start_ns + i * 1000)).count();
            assert_eq!(admitted as u64, RESPONSES_PER_S_MAX);
        }
    }
}
