//! Accepts connections and checks hellos.

use sys::net::{ListenOptions, Listener, NetError, SocketOptions};

use super::config::BuilderConfig;
use super::sockets::Sockets;
use crate::wire::{ANY_BUILDER, FragmentHeader, Hello};

/// Limit of connections without a hello.
const UNIDENTIFIED_MAX: usize = 4096;
/// Connections without a hello are closed after so long: TCP repeats a lost hello at least twice within it.
const HELLO_TIMEOUT_NS: u64 = 5_000_000_000;
/// Interval of looking for them.
const IDLE_CHECK_NS: u64 = 100_000_000;
/// Pause of accepting when file descriptors ran out, and when too many connections have not sent a hello.
const NO_DESCRIPTORS_PAUSE_NS: u64 = 100_000_000;
const UNIDENTIFIED_PAUSE_NS: u64 = 5_000_000;
/// Connections accepted from one listener before others are served.
const ACCEPTS_AT_ONCE: usize = 256;
/// Sources per listener: the kernel distributes their connections unevenly over the listen queues, of 4096
/// each (`net.core.somaxconn`). A full queue delays a connection by a second.
const SOURCES_PER_LISTENER: u32 = 2500;
const LISTENERS_MAX: u32 = 16;

pub(super) struct Acceptor {
    listeners: Vec<Listener>,
    /// When a pause ends.
    resume_ns: Option<u64>,
    idle_check_ns: u64,
}

impl Acceptor {
    /// # Errors
    /// The port is taken; too few file descriptors.
    pub(super) fn bind(config: &BuilderConfig, sockets: &Sockets) -> Result<Self, NetError> {
        let options = ListenOptions {
            reuse_port: true,
            backlog: 4096,
            socket: SocketOptions { nodelay: Some(true), ..SocketOptions::default() },
        };
        let number = config.sources().div_ceil(SOURCES_PER_LISTENER).clamp(1, LISTENERS_MAX);
        let listeners: Result<Vec<_>, _> =
            (0..number).map(|_| Listener::bind(config.address, &options)).collect();
        let listeners = listeners?;
        listeners.iter().try_for_each(|listener| sockets.watch_listener(listener))?;
        Ok(Self { listeners, resume_ns: None, idle_check_ns: 0 })
    }

    /// Accepts the waiting connections.
    pub(super) fn accept(&mut self, sockets: &mut Sockets, now_ns: u64) {
        for listener in &self.listeners {
            for _ in 0..ACCEPTS_AT_ONCE {
                if sockets.unidentified() >= UNIDENTIFIED_MAX {
                    return self.pause(sockets, now_ns + UNIDENTIFIED_PAUSE_NS);
                }
                match listener.accept() {
                    Ok(Some((socket, peer))) => sockets.insert(socket, peer, now_ns),
                    Ok(None) => break,
                    Err(error) if error.is_out_of_resources() => {
                        return self.pause(sockets, now_ns + NO_DESCRIPTORS_PAUSE_NS);
                    }
                    // The peer has gone already.
                    Err(_) => {}
                }
            }
        }
    }

    /// Stops accepting; new connections wait in the listen queue.
    fn pause(&mut self, sockets: &Sockets, until_ns: u64) {
        self.resume_ns = Some(until_ns);
        self.listeners.iter().for_each(|listener| sockets.ignore_listener(listener));
    }

    pub(super) const fn resume_ns(&self) -> Option<u64> {
        self.resume_ns
    }

    /// Ends a pause that is over.
    pub(super) fn resume_if_due(&mut self, sockets: &Sockets, now_ns: u64) {
        if self.resume_ns.is_some_and(|resume_ns| resume_ns <= now_ns) {
            self.resume_ns = None;
            self.listeners.iter().for_each(|listener| drop(sockets.watch_listener(listener)));
        }
    }

    /// If a check for idle handshakes is due: connections accepted before this time must have sent a hello.
    pub(super) fn idle_before_ns(&mut self, sockets: &Sockets, now_ns: u64) -> Option<u64> {
        if sockets.unidentified() == 0 || now_ns < self.idle_check_ns {
            return None;
        }
        self.idle_check_ns = now_ns + IDLE_CHECK_NS;
        Some(now_ns.saturating_sub(HELLO_TIMEOUT_NS))
    }
}

/// Checks a hello; the error is the reason for the report. `configuration`: hash of the builder's settings.
pub(super) fn check_hello(
    config: &BuilderConfig,
    configuration: u64,
    header: &FragmentHeader,
    payload: &[u8],
) -> Result<Hello, &'static str> {
    if header.run != config.run {
        return Err("wrong_run");
    }
    if header.builder != config.builder && header.builder != ANY_BUILDER {
        return Err("wrong_builder");
    }
    let hello = Hello::decode(payload).map_err(|_| "bad_header")?;
    if !header.payload_matches(payload) {
        return Err("payload_checksum");
    }
    if header.source >= config.sources() || hello.group == 0 {
        return Err("unknown_source");
    }
    if hello.configuration != 0 && hello.configuration != configuration {
        return Err("configuration");
    }
    Ok(hello)
}
