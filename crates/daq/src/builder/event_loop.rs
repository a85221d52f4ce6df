//! Reads the builder's sockets and passes what arrives on.

use std::sync::Arc;

use sys::clock::monotonic_ns;
use sys::net::{Events, NetError};

use super::acceptor::{Acceptor, check_hello};
use super::config::BuilderConfig;
use super::connection::Received;
use super::control::Control;
use super::event_builder::EventBuilder;
use super::sockets::{LISTENER, Sockets, UDP, WAKER};
use crate::assembly::ControlMessage;
use crate::task::configuration_of;
use crate::wire::{FragmentHeader, HEADER_BYTES_MAX};

const READY_MAX: usize = 512;
const SCRATCH_BYTES: usize = 256 << 10;
/// Reads of one connection before others are served.
const READS_AT_ONCE: usize = 16;
/// Datagrams read before connections are served.
const DATAGRAMS_AT_ONCE: usize = 256;
/// Upper bound of a wait, and while events are under way: a wait that ends late shows that the thread had no
/// CPU.
const WAIT_NS: u64 = 100_000_000;
const WAIT_BUSY_NS: u64 = 5_000_000;
/// While at least so many fragments are awaited, the thread sleeps for half of the time that they took last,
/// within these bounds. Otherwise each would wake it up, which takes the CPU of a sender on the same machine
/// longer than sending.
const MODERATION_FRAGMENTS_MIN: u64 = 12;
const MODERATION_NS: (u64, u64) = (20_000, 50_000);
/// ESTABLISHED in tcp_states.h.
const TCP_ESTABLISHED: u8 = 1;

pub(super) struct EventLoop {
    config: Arc<BuilderConfig>,
    control: Arc<Control>,
    /// Hash of the settings; a source must present the same one.
    configuration: u64,
    sockets: Sockets,
    acceptor: Acceptor,
    ready: Events,
    scratch: Vec<u8>,
    /// Connections with more to read, and whether to their end: edge-triggered epoll does not report them
    /// again.
    unread: Vec<(usize, bool)>,
}

/// Until when to sleep without looking at sockets (interrupt moderation): `expected` fragments, one each
/// `gap_ns`.
fn moderation_until_ns((expected, gap_ns): (u64, u64), now_ns: u64, until_ns: u64) -> Option<u64> {
    let sleep_ns = (expected * gap_ns / 2).min(MODERATION_NS.1);
    let is_worth_it = expected >= MODERATION_FRAGMENTS_MIN && sleep_ns >= MODERATION_NS.0;
    (is_worth_it && now_ns + sleep_ns < until_ns).then_some(now_ns + sleep_ns)
}

impl EventLoop {
    /// # Errors
    /// The port is taken; too few file descriptors.
    pub(super) fn new(config: Arc<BuilderConfig>, control: Arc<Control>) -> Result<Self, NetError> {
        let sockets = Sockets::new(&config, &control.waker)?;
        Ok(Self {
            configuration: configuration_of(&config.settings),
            acceptor: Acceptor::bind(&config, &sockets)?,
            sockets,
            ready: Events::with_capacity(READY_MAX),
            scratch: vec![0; SCRATCH_BYTES],
            unread: Vec::new(),
            config,
            control,
        })
    }

    pub(super) const fn sockets(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    /// Waits for events until `until_ns` at most, and handles them and all timers.
    ///
    /// # Errors
    /// epoll_wait(2) failed.
    pub(super) fn poll_once(&mut self, events: &mut EventBuilder, until_ns: u64) -> Result<(), NetError> {
        let now_ns = monotonic_ns();
        let wait_ns = match events.outstanding() {
            _ if !self.unread.is_empty() => 0,
            0 => WAIT_NS,
            _ => WAIT_BUSY_NS,
        };
        let dues = [events.next_due_ns(), self.acceptor.resume_ns()];
        let until_ns = dues.into_iter().flatten().fold(until_ns.min(now_ns + wait_ns), u64::min);
        let sleep_until = moderation_until_ns(events.expected(), now_ns, until_ns);
        let mut ready = std::mem::replace(&mut self.ready, Events::with_capacity(1));
        let waited = self.sockets.wait(&mut ready, sleep_until, until_ns);
        // If the thread got no CPU, it is late since `until_ns`.
        let woke_ns = monotonic_ns().min(until_ns.max(now_ns));
        let unread = std::mem::take(&mut self.unread);
        if waited.is_ok() {
            self.handle_ready(events, &ready, woke_ns);
        }
        self.ready = ready;
        for (at, to_end) in unread {
            self.read(events, at, woke_ns, to_end);
        }
        waited?;
        self.handle_timers(events);
        Ok(())
    }

    /// Handles socket events; datagrams first, because delays of clock answers widen the clocks' error
    /// bounds.
    fn handle_ready(&mut self, events: &mut EventBuilder, ready: &Events, woke_ns: u64) {
        if ready.iter().any(|event| event.token == UDP) {
            self.read_datagrams(events, woke_ns);
        }
        for event in ready.iter() {
            match event.token {
                UDP => {}
                WAKER => drop(self.control.waker.clear()),
                LISTENER => self.acceptor.accept(&mut self.sockets, woke_ns),
                token => {
                    let at = token as usize;
                    if event.is_readable() {
                        self.read(events, at, woke_ns, event.is_peer_done());
                    }
                    self.sockets.flush(at);
                }
            }
        }
    }

    fn handle_timers(&mut self, events: &mut EventBuilder) {
        let now_ns = monotonic_ns();
        self.acceptor.resume_if_due(&self.sockets, now_ns);
        if let Some(before_ns) = self.acceptor.idle_before_ns(&self.sockets, now_ns) {
            for at in self.sockets.idle_handshakes(before_ns) {
                events.close(at, None, &mut self.sockets);
            }
        }
        events.handle_timers(now_ns, &mut self.sockets);
    }

    fn read_datagrams(&mut self, events: &mut EventBuilder, woke_ns: u64) {
        let mut datagram = [0; 2 * HEADER_BYTES_MAX + 2048];
        for _ in 0..DATAGRAMS_AT_ONCE {
            let Some((bytes, from)) = self.sockets.receive_datagram(&mut datagram) else { break };
            let now_ns = monotonic_ns();
            events.assembler().set_read_time(now_ns, woke_ns);
            events.handle_datagram(&datagram[..bytes], from, now_ns);
        }
        events.process_fragments(&mut self.sockets);
    }

    /// Reads a connection. `to_end`: the peer has closed it, so that everything must be read now.
    fn read(&mut self, events: &mut EventBuilder, at: usize, woke_ns: u64, to_end: bool) {
        for _ in 0..READS_AT_ONCE {
            let Some(connection) = self.sockets.connection_mut(at) else { return };
            let assembler = events.assembler();
            assembler.set_source(connection.source());
            let received = connection.receive(&mut self.scratch, assembler, |assembler| {
                let now_ns = monotonic_ns();
                assembler.set_read_time(now_ns, woke_ns);
                now_ns
            });
            match received {
                Received::Nothing => return,
                Received::Closed => return events.close(at, None, &mut self.sockets),
                Received::Bytes { .. } | Received::Invalid(_) => {}
            }
            self.handle_control_messages(events, at);
            events.process_fragments(&mut self.sockets);
            events.pull_next_early(at, &mut self.sockets);
            match received {
                Received::Bytes { is_full } if !is_full && !to_end => return,
                Received::Invalid(error) => return events.close(at, Some(error.reason()), &mut self.sockets),
                _ => {}
            }
        }
        self.unread.push((at, to_end));
    }

    /// Handles the hellos and clock answers that the last read brought.
    fn handle_control_messages(&mut self, events: &mut EventBuilder, at: usize) {
        let messages = events.assembler().take_control();
        for message in &messages {
            match message {
                ControlMessage::ClockAnswer(answer) => {
                    let now_ns = events.assembler().now_ns();
                    events.handle_clock_answer(answer, now_ns);
                }
                ControlMessage::Hello(header, payload) => {
                    if let Err(reason) = self.handle_hello(events, at, header, payload) {
                        events.close(at, Some(reason), &mut self.sockets);
                    }
                }
            }
        }
        events.assembler().recycle_control(messages);
    }

    /// Identifies a connection by its hello, or returns why it is refused.
    fn handle_hello(
        &mut self,
        events: &mut EventBuilder,
        at: usize,
        header: &FragmentHeader,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        let hello = check_hello(&self.config, self.configuration, header, payload)?;
        let source = header.source;
        if self.sockets.connection(at).is_some_and(|connection| connection.identity().is_some()) {
            return Err("duplicate_source");
        }
        if let Some(old) = events.sources().connection(source) {
            if self.is_established(old) {
                return Err("duplicate_source");
            }
            // What the source sent before it reconnected still counts.
            let now_ns = events.assembler().now_ns();
            self.read(events, old, now_ns, true);
            if events.sources().connection(source) == Some(old) {
                events.close(old, None, &mut self.sockets);
            }
        }
        events.source_connected(source, hello, at, &mut self.sockets);
        Ok(())
    }

    fn is_established(&self, at: usize) -> bool {
        let info = self.sockets.connection(at).and_then(|connection| connection.socket().info().ok());
        info.is_some_and(|info| info.state == Some(TCP_ESTABLISHED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moderation_sleeps_half_of_the_expected_time_within_bounds() {
        for (expected, gap_ns, until_ns, sleep_until) in [
            (12, 5_000, u64::MAX, Some(30_100)),
            (1000, 5_000, u64::MAX, Some(50_100)),
            (11, 5_000, u64::MAX, None),
            (12, 3_000, u64::MAX, None),
            (12, 5_000, 30_100, None),
        ] {
            let found = moderation_until_ns((expected, gap_ns), 100, until_ns);
            assert_eq!(found, sleep_until, "{expected} {gap_ns} {until_ns}");
        }
    }
}
