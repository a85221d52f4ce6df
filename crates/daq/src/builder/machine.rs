//! The state machine of a builder: reads its sockets and passes on what arrives.

use std::os::fd::AsFd;
use std::sync::Arc;

use reactor::{Reactor, StateMachine, Token};
use sys::clock::monotonic_ns;
use sys::net::{Event, NetError};

use super::config::{BuilderConfig, BuilderProgress};
use super::event_builder::EventBuilder;
use super::sockets::{LISTENER_CLASS, Received, Sockets, UDP};
use crate::assembly::ControlMessage;
use crate::part_settings::configuration_of;
use crate::wire::{ANY_BUILDER, FragmentHeader, HEADER_BYTES_MAX, Hello};

const SCRATCH_BYTES: usize = 256 << 10;
/// Reads of one connection before others are served.
const READS_AT_ONCE: usize = 16;
/// Datagrams read before connections are served.
const DATAGRAMS_AT_ONCE: usize = 256;
/// ESTABLISHED in tcp_states.h.
const TCP_ESTABLISHED: u8 = 1;

pub(super) struct BuilderMachine {
    config: Arc<BuilderConfig>,
    /// Hash of the settings; a source must present the same one.
    configuration: u64,
    pub(super) events: EventBuilder,
    pub(super) sockets: Sockets,
    scratch: Vec<u8>,
    /// When the wait under way should end.
    pub(super) wait_until_ns: u64,
    /// When the last wait ended, or should have ended if the thread got no CPU then.
    woke_ns: u64,
}

impl StateMachine for BuilderMachine {
    fn before_events(&mut self, reactor: &mut Reactor) {
        self.woke_ns = reactor.now_ns().min(self.wait_until_ns);
    }

    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, event: Event) {
        match token {
            UDP => self.read_datagrams(),
            listener if listener.class() == LISTENER_CLASS => self.sockets.accept(reactor, listener),
            at => {
                if event.is_peer_done() {
                    self.sockets.set_peer_done(at);
                }
                if event.is_readable() {
                    self.read(reactor, at);
                }
                self.sockets.flush(at);
            }
        }
    }

    fn on_resume(&mut self, reactor: &mut Reactor, at: Token) {
        self.read(reactor, at);
    }

    fn on_timer(&mut self, reactor: &mut Reactor, listener: Token) {
        self.sockets.resume_accepting(reactor, listener);
    }

    fn on_stop(&mut self, _: &mut Reactor) {}

    fn after_events(&mut self, _: &mut Reactor) {
        let now_ns = monotonic_ns();
        while let Some(at) = self.sockets.expired_handshake(now_ns) {
            self.events.close(at, None, &mut self.sockets);
        }
        self.events.handle_timers(now_ns, &mut self.sockets);
    }
}

impl BuilderMachine {
    pub(super) fn new(
        config: Arc<BuilderConfig>,
        progress: Arc<BuilderProgress>,
        reactor: &Reactor,
    ) -> Result<Self, NetError> {
        Ok(Self {
            configuration: configuration_of(&config.settings),
            events: EventBuilder::new(config.clone(), progress),
            sockets: Sockets::new(&config, reactor)?,
            scratch: vec![0; SCRATCH_BYTES],
            wait_until_ns: u64::MAX,
            woke_ns: 0,
            config,
        })
    }

    /// The trial ends: see [`EventBuilder::stop`].
    pub(super) fn stop(&mut self) -> Vec<(bool, Option<String>)> {
        self.events.stop(&mut self.sockets)
    }

    fn read_datagrams(&mut self) {
        let mut datagram = [0; 2 * HEADER_BYTES_MAX + 2048];
        for _ in 0..DATAGRAMS_AT_ONCE {
            let Sockets { udp, udp_arrivals, .. } = &mut self.sockets;
            let Ok(Some((bytes, from, stamp))) = udp_arrivals.receive(udp.as_fd(), &mut datagram) else {
                break;
            };
            let now_ns = monotonic_ns();
            self.events.assembler.set_read_time(now_ns, self.woke_ns);
            let arrived_ns = || udp_arrivals.monotonic_ns(stamp).unwrap_or(now_ns);
            self.events.handle_datagram(&datagram[..bytes], from, arrived_ns);
        }
        self.events.process_fragments(&mut self.sockets);
    }

    /// Reads a connection; to its end if the peer has closed it, because nothing reports it again.
    fn read(&mut self, reactor: &mut Reactor, at: Token) {
        for _ in 0..READS_AT_ONCE {
            let Some(connection) = self.sockets.connection_mut(at) else { return };
            let (assembler, woke_ns) = (&mut self.events.assembler, self.woke_ns);
            let to_end = connection.is_peer_done;
            assembler.current_source = connection.source();
            let received = connection.receive(&mut self.scratch, assembler, |assembler| {
                let now_ns = monotonic_ns();
                assembler.set_read_time(now_ns, woke_ns);
                now_ns
            });
            match received {
                Received::Nothing => return,
                Received::Closed => return self.events.close(at, None, &mut self.sockets),
                Received::Bytes { .. } | Received::Invalid(_) => {}
            }
            self.handle_control_messages(reactor, at);
            self.events.process_fragments(&mut self.sockets);
            self.events.pull_next_early(at, &mut self.sockets);
            match received {
                Received::Bytes { is_full } if !is_full && !to_end => return,
                Received::Invalid(error) => {
                    return self.events.close(at, Some(error.reason()), &mut self.sockets);
                }
                _ => {}
            }
        }
        reactor.resume(at);
    }

    /// Handles the hellos and clock answers that the last read brought.
    fn handle_control_messages(&mut self, reactor: &mut Reactor, at: Token) {
        let mut messages = std::mem::take(&mut self.events.assembler.control);
        for message in &messages {
            match message {
                ControlMessage::ClockAnswer(answer) => {
                    let now_ns = self.events.assembler.now_ns;
                    self.events.handle_clock_answer(answer, now_ns);
                }
                ControlMessage::Hello(header, payload) => {
                    if let Err(reason) = self.handle_hello(reactor, at, header, payload) {
                        self.events.close(at, Some(reason), &mut self.sockets);
                    }
                }
            }
        }
        // Keep the allocation.
        messages.clear();
        self.events.assembler.control = messages;
    }

    /// Identifies a connection by its hello, or returns why it is refused.
    fn handle_hello(
        &mut self,
        reactor: &mut Reactor,
        at: Token,
        header: &FragmentHeader,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        let hello = self.check_hello(header, payload)?;
        let source = header.source;
        if self.sockets.connection(at).is_some_and(|connection| connection.identity.is_some()) {
            return Err("duplicate_source");
        }
        if let Some(old) = self.events.sources.connection(source) {
            if self.is_established(old) {
                return Err("duplicate_source");
            }
            // What the source sent before it reconnected still counts.
            self.sockets.set_peer_done(old);
            self.read(reactor, old);
            if self.events.sources.connection(source) == Some(old) {
                self.events.close(old, None, &mut self.sockets);
            }
        }
        self.events.source_connected(source, hello, at, &mut self.sockets);
        Ok(())
    }

    /// The error is the reason for the report.
    fn check_hello(&self, header: &FragmentHeader, payload: &[u8]) -> Result<Hello, &'static str> {
        if header.run != self.config.run {
            return Err("wrong_run");
        }
        if header.builder != self.config.builder && header.builder != ANY_BUILDER {
            return Err("wrong_builder");
        }
        let hello = Hello::decode(payload).map_err(|_| "bad_header")?;
        if !header.payload_matches(payload) {
            return Err("payload_checksum");
        }
        if header.source >= self.config.sources() {
            return Err("unknown_source");
        }
        if hello.group == 0 {
            return Err("no_group");
        }
        if hello.configuration != 0 && hello.configuration != self.configuration {
            return Err("configuration");
        }
        Ok(hello)
    }

    fn is_established(&self, at: Token) -> bool {
        let info = self.sockets.connection(at).and_then(|connection| connection.socket.info().ok());
        info.is_some_and(|info| info.state == Some(TCP_ESTABLISHED))
    }
}
