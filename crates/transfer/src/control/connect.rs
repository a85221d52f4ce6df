//! Opening connections with a deadline, until stopped.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use reactor::{ConnectSettings, Connector, EventLoop, Reactor, StateMachine, StopHandle, Token};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Epoll, Event, Events, Interest, Moved, NetError, SocketOptions, TcpSocket};

use super::ControlError;

/// Concurrent handshakes: enough to hide the round trips of a long path, few enough for any listen backlog.
const HANDSHAKES_MAX: usize = 256;

/// Why not all connections were opened.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Net(NetError),
    /// The deadline passed; the number of open connections.
    Late(usize),
    Stopped,
}

impl From<NetError> for ConnectError {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

/// Hands the events of its loop to the connector.
struct Connecting(Connector);

impl StateMachine for Connecting {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
        self.0.on_ready(reactor, token);
    }
    fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        self.0.on_timer(reactor, token);
    }
    fn on_stop(&mut self, _: &mut Reactor) {}
}

/// Opens `count` connections to `peer` until `until`. Calls `greet` with the number of each as soon as it is
/// open: a server keeps few unidentified connections.
pub(crate) fn connect_all(
    peer: SocketAddr,
    count: usize,
    options: &SocketOptions,
    stop_handle: &Arc<StopHandle>,
    until: Deadline,
    mut greet: impl FnMut(usize, &TcpSocket) -> Result<(), NetError>,
) -> Result<Vec<TcpSocket>, ConnectError> {
    let until_ns = monotonic_ns().saturating_add(u64::try_from(until.left().as_nanos()).unwrap_or(u64::MAX));
    let settings = ConnectSettings {
        options: options.clone(),
        handshakes_max: HANDSHAKES_MAX,
        // `until` bounds all of them.
        timeout: Duration::MAX,
        ..ConnectSettings::default()
    };
    let mut events = EventLoop::new(stop_handle.clone(), HANDSHAKES_MAX)?;
    let mut machine = Connecting(Connector::new(0, settings));
    let mut sockets: Vec<Option<TcpSocket>> = (0..count).map(|_| None).collect();
    let (mut requested, mut connected) = (0, 0);
    loop {
        while let Some(outcome) = machine.0.next_outcome() {
            let (index, socket) = (outcome.key as usize, outcome.result?);
            greet(index, &socket)?;
            sockets[index] = Some(socket);
            connected += 1;
        }
        match () {
            () if connected == count => return Ok(sockets.into_iter().flatten().collect()),
            () if stop_handle.is_stopped() => return Err(ConnectError::Stopped),
            () if until.passed() => return Err(ConnectError::Late(connected)),
            () => {}
        }
        let requests_more = requested < count && machine.0.pending() < HANDSHAKES_MAX;
        if requests_more {
            machine.0.connect(events.reactor(), requested as u64, peer);
            requested += 1;
        }
        // On the same host a connection is open at once: it is greeted before the next one is requested.
        events.poll_once(&mut machine, if requests_more { 0 } else { until_ns })?;
    }
}

/// Connects to `peer` until `until`.
pub(crate) fn connect(
    peer: SocketAddr,
    options: &SocketOptions,
    stop_handle: &Arc<StopHandle>,
    until: Deadline,
) -> Result<TcpSocket, ControlError> {
    let within = until.left();
    let silent = || ControlError::Silent { peer, during: "being connected to", within };
    match connect_all(peer, 1, options, stop_handle, until, |_, _| Ok(())) {
        Ok(sockets) => sockets.into_iter().next().ok_or_else(silent),
        Err(ConnectError::Net(error)) => Err(error.into()),
        Err(ConnectError::Late(_)) => Err(silent()),
        Err(ConnectError::Stopped) => Err(ControlError::Stopped),
    }
}

/// Sends what a new connection begins with; its buffer has room for that.
pub(crate) fn send_first(socket: &TcpSocket, bytes: &[u8], peer: SocketAddr) -> Result<(), NetError> {
    match socket.send(bytes, false)? {
        Moved::Bytes(n) if n == bytes.len() => Ok(()),
        _ => Err(NetError {
            action: "open a stream to",
            target: peer.to_string(),
            source: ErrorKind::WriteZero.into(),
        }),
    }
}

/// Waits until `socket` is ready; `false` if it is not by `until`.
pub(crate) fn wait_until_ready(
    socket: &impl AsFd,
    interest: Interest,
    stop_handle: &StopHandle,
    until: Deadline,
) -> Result<bool, ControlError> {
    let epoll = Epoll::new()?;
    epoll.add(socket, 0, interest)?;
    epoll.add(stop_handle, 1, Interest::READ | Interest::EDGE)?;
    let mut events = Events::with_capacity(2);
    loop {
        if stop_handle.is_stopped() {
            return Err(ControlError::Stopped);
        }
        if until.passed() {
            return Ok(false);
        }
        epoll.wait(&mut events, Some(until.left()))?;
        if events.iter().any(|event| event.token == 0) {
            return Ok(true);
        }
    }
}
