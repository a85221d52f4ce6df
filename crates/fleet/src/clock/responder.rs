//! The coordinator's side: answers every authentic question at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;
use sys::net::{Datagram, DatagramAddress, DatagramSocket, Epoll, Events, Interest, Waker};

use super::ClockError;
use super::wire::{DATAGRAM_BYTES, Key, Message, Rejected};

/// Answers a second at most: some 300 agents with a batch each, and a quarter of a core.
const ANSWERS_PER_S_MAX: u64 = 50_000;

/// Datagrams that are taken before the thread looks whether it is to end.
const TURN: usize = 64;

const SOCKET: u64 = 0;
const STOP: u64 = 1;

/// What came, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Questions that were answered.
    pub answered: u64,
    /// Too short, too long, or nothing like a probe.
    pub malformed: u64,
    /// Probes of another version of this program.
    pub other_version: u64,
    /// Probes of another run.
    pub other_key: u64,
    /// Probes of nobody who holds the key.
    pub forged: u64,
    /// Questions beyond what is answered a second.
    pub over_cap: u64,
    /// Answers that could not be sent: the asker is gone, or does not read.
    pub unsent: u64,
}

/// Answers clock probes in a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Responder {
    address: DatagramAddress,
    counts: Arc<Mutex<Counts>>,
    stop: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Starts to answer at `address` whoever holds `key`; UDP port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be bound, or there are no threads or descriptors left.
    pub fn start(address: &DatagramAddress, key: Key) -> Result<Self, ClockError> {
        let open = |source| ClockError::of_opening(address, source);
        let mut socket = DatagramSocket::bind(address).map_err(open)?;
        socket.enable_stamps().map_err(open)?;
        let bound = socket.local_address().map_err(open)?;
        let (epoll, stop) = (Epoll::new()?, Arc::new(Waker::new()?));
        epoll.add(&socket, SOCKET, Interest::READ)?;
        epoll.add(&*stop, STOP, Interest::READ)?;
        let counts = Arc::new(Mutex::new(Counts::default()));
        let desk = Desk { socket, key, counts: Arc::clone(&counts), cap: Cap::default() };
        let thread = std::thread::Builder::new()
            .name("clock".to_owned())
            .spawn(move || desk.serve(&epoll))
            .map_err(open)?;
        Ok(Self { address: bound, counts, stop, thread: Some(thread) })
    }

    /// Where it is asked.
    pub fn address(&self) -> &DatagramAddress {
        &self.address
    }

    /// What came so far.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            // It never panics; were it to, that must not become an abort here.
            let _ = thread.join();
        }
    }
}

/// What the thread works with.
struct Desk {
    socket: DatagramSocket,
    key: Key,
    counts: Arc<Mutex<Counts>>,
    cap: Cap,
}

/// The second under way, and how often it was asked in it.
#[derive(Default)]
struct Cap {
    second: u64,
    asked: u64,
}

impl Cap {
    fn admit(&mut self, now_ns: u64) -> bool {
        let second = now_ns / 1_000_000_000;
        if self.second != second {
            *self = Self { second, asked: 0 };
        }
        self.asked += 1;
        self.asked <= ANSWERS_PER_S_MAX
    }
}

impl Desk {
    fn serve(mut self, epoll: &Epoll) {
        let mut events = Events::with_capacity(2);
        // It fails only on descriptors that are not there.
        while epoll.wait(&mut events, None).is_ok() {
            if events.iter().any(|event| event.token == STOP) {
                return;
            }
            // An error (no memory for a moment) took nothing from the queue: the next wait ends at once.
            for _ in 0..TURN {
                // One byte more than ours have, so that longer ones show.
                let mut buffer = [0; DATAGRAM_BYTES + 1];
                let Ok(Some(datagram)) = self.socket.receive(&mut buffer) else { break };
                self.answer(&datagram, &buffer[..datagram.len]);
            }
        }
    }

    fn answer(&mut self, datagram: &Datagram, bytes: &[u8]) {
        let message = Message::read(bytes, &self.key);
        let admitted = message.is_ok() && self.cap.admit(datagram.at_monotonic_ns);
        let sent = match (message, &datagram.from) {
            (Ok(Message::Question { sequence, t1_ns }), Some(from)) if admitted => {
                let t2_ns = datagram.at_monotonic_ns;
                let answer = Message::Answer { sequence, t1_ns, t2_ns, t3_ns: monotonic_ns() };
                // As long as the question was: nobody is flooded in another's name.
                self.socket.send_to(&answer.write(&self.key), from).is_ok()
            }
            _ => false,
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match message {
            Ok(Message::Question { .. }) if sent => &mut counts.answered,
            Ok(_) if !admitted => &mut counts.over_cap,
            Ok(Message::Question { .. }) => &mut counts.unsent,
            Ok(Message::Answer { .. }) | Err(Rejected::Malformed) => &mut counts.malformed,
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
    fn a_second_has_its_answers_and_the_next_one_too() {
        let mut cap = Cap::default();
        for second in [5, 6, 900] {
            let asked = 3 * ANSWERS_PER_S_MAX;
            let start_ns = second * 1_000_000_000;
            let admitted = (0..asked).filter(|i| cap.admit(start_ns + i * 1000)).count();
            assert_eq!(admitted as u64, ANSWERS_PER_S_MAX);
        }
    }
}
