//! Connects sources to builders: a few handshakes at a time, so that no listen queue overflows; reconnects
//! lost connections.

use sys::clock::monotonic_ns;
use sys::net::{ConnectState, Interest, Moved, NetError, SocketOptions, TcpSocket};

use super::builder_link::BuilderLink;
use super::connection::{LossCounters, State};
use super::sender;
use super::worker::{WorkerContext, token};
use crate::wire::{FragmentHeader, Hello, Kind};

/// Reconnections of one connection.
const TRIES_MAX: u32 = 3;
/// Delay before the first reconnection; each next one waits four times as long.
const RETRY_DELAY_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Connector {
    /// The next connection to start, counted over all links.
    next: usize,
    /// Limit of concurrent handshakes.
    handshakes_max: usize,
    /// Handshakes under way.
    pub(super) handshakes: usize,
    /// Established connections.
    pub(super) standing: usize,
    /// The first error before all connections were established.
    pub(super) failure: Option<String>,
    pub(super) options: SocketOptions,
    pub(super) is_done: bool,
}

impl Connector {
    pub(super) fn new(congestion: Option<String>, handshakes_max: usize) -> Self {
        let options = SocketOptions { nodelay: Some(true), congestion, ..SocketOptions::default() };
        let handshakes_max = handshakes_max.max(1);
        Self { next: 0, handshakes_max, handshakes: 0, standing: 0, failure: None, options, is_done: false }
    }
}

/// Starts as many handshakes as the limit allows.
pub(super) fn start_handshakes(context: &mut WorkerContext, links: &mut [BuilderLink]) {
    let sources = context.sources;
    while context.connector.handshakes < context.connector.handshakes_max
        && context.connector.failure.is_none()
    {
        let (link, place) =
            (context.connector.next / sources.max(1), context.connector.next % sources.max(1));
        let Some(link) = links.get_mut(link) else { break };
        context.connector.next += 1;
        start_handshake(context, link, place);
    }
    context.connector.is_done |= context.connector.standing == sources * links.len();
}

fn start_handshake(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) {
    let token = token(context, link, place);
    let begun = TcpSocket::connect_start(link.address, None, &context.connector.options)
        .and_then(|socket| context.epoll.add(&socket, token, Interest::WRITE).map(|()| socket));
    match begun {
        Ok(socket) => {
            let connection = &mut link.connections[place];
            (connection.socket, connection.state) = (Some(socket), State::Connecting);
            context.connector.handshakes += 1;
        }
        Err(error) => handshake_failed(context, link, place, &error),
    }
}

/// Handles an epoll event of a connection whose handshake is under way.
pub(super) fn finish_handshake(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) {
    let token = token(context, link, place);
    let Some(socket) = &link.connections[place].socket else { return };
    let stands = match socket.connect_result() {
        Ok(ConnectState::InProgress) => return,
        Ok(ConnectState::Connected) => send_hello(context, link, place)
            .and_then(|()| context.epoll.modify(socket, token, Interest::READ)),
        Err(error) => Err(error),
    };
    context.connector.handshakes = context.connector.handshakes.saturating_sub(1);
    if let Err(error) = stands {
        handshake_failed(context, link, place, &error);
        return;
    }
    let sampled = socket.info().map(|info| LossCounters::from_tcp_info(&info)).unwrap_or_default();
    let connection = &mut link.connections[place];
    (connection.state, connection.sampled) = (State::Open, sampled);
    if context.connector.is_done {
        context.counters.reconnected += 1;
    } else {
        context.connector.standing += 1;
    }
    sender::continue_sending(context, link, place);
}

fn send_hello(context: &WorkerContext, link: &BuilderLink, place: usize) -> Result<(), NetError> {
    let Some(socket) = &link.connections[place].socket else { return Ok(()) };
    let hello = Hello {
        group: context.number,
        boot: context.config.boot,
        udp_port: context.udp_port,
        sources: context.sources as u32,
        configuration: context.config.configuration,
        congestion_control: socket.congestion().unwrap_or_default(),
    };
    let payload = hello.encode();
    let header = FragmentHeader {
        payload_bytes: payload.len() as u32,
        sent_ns: monotonic_ns(),
        payload_crc: crc32c::crc32c(&payload),
        ..context.header(Kind::Hello, link, place)
    };
    let message = [&header.encode()[..], &payload].concat();
    match socket.send(&message, false)? {
        Moved::Bytes(bytes) if bytes == message.len() => Ok(()),
        // A new socket's send buffer always has room for a hello.
        _ => Err(socket_is_full(link)),
    }
}

fn socket_is_full(link: &BuilderLink) -> NetError {
    NetError {
        action: "send the hello to",
        target: format!("the builder at {}", link.address),
        source: std::io::ErrorKind::WriteZero.into(),
    }
}

fn handshake_failed(context: &mut WorkerContext, link: &mut BuilderLink, place: usize, error: &NetError) {
    // The error itself names a file descriptor, not an address.
    let what = if error.action == "connect" {
        format!("cannot connect to {}: {}", link.address, error.source)
    } else {
        error.to_string()
    };
    if !context.connector.is_done {
        link.connections[place].drop_socket();
        link.connections[place].state = State::Down;
        context.connector.failure.get_or_insert(what);
        return;
    }
    schedule_retry(context, link, place, &what);
}

/// Handles the loss of an established connection. `error` is `None` if the builder closed it: then there is
/// no reconnection.
pub(super) fn connection_lost(
    context: &mut WorkerContext,
    link: &mut BuilderLink,
    place: usize,
    error: Option<NetError>,
) {
    match error {
        _ if link.is_stopped => link.end(place),
        Some(error) => schedule_retry(context, link, place, &error.source.to_string()),
        None => end_connection(context, link, place, "the builder closed it before the end of the run"),
    }
}

fn schedule_retry(context: &mut WorkerContext, link: &mut BuilderLink, place: usize, why: &str) {
    let connection = &mut link.connections[place];
    if connection.state == State::Ended {
        return;
    }
    if connection.tries >= TRIES_MAX {
        let why = format!("{why}; {TRIES_MAX} reconnections failed");
        end_connection(context, link, place, &why);
        return;
    }
    connection.drop_socket();
    connection.state = State::Down;
    let pause_ns = RETRY_DELAY_NS << (2 * connection.tries);
    connection.tries += 1;
    context.again.push((monotonic_ns() + pause_ns, link.index, place));
}

/// Ends a connection for good and counts the reason.
pub(super) fn end_connection(context: &mut WorkerContext, link: &mut BuilderLink, place: usize, why: &str) {
    let connection = &mut link.connections[place];
    if connection.state == State::Ended {
        return;
    }
    connection.end();
    link.ended += 1;
    let kinds = context.counters.end_reasons.len();
    match context.counters.end_reasons.get_mut(why) {
        Some(number) => *number += 1,
        // Bounded, so that the report stays short.
        None if kinds < 8 => drop(context.counters.end_reasons.insert(why.to_owned(), 1)),
        None => {}
    }
}

/// Starts the reconnections that are due.
pub(super) fn reconnect_due(context: &mut WorkerContext, links: &mut [BuilderLink], now_ns: u64) {
    let mut at = 0;
    while at < context.again.len() {
        let (due_ns, link, place) = context.again[at];
        if due_ns > now_ns {
            at += 1;
            continue;
        }
        context.again.swap_remove(at);
        let Some(link) = links.get_mut(link).filter(|link| !link.is_stopped) else { continue };
        if link.connections[place].state == State::Down {
            start_handshake(context, link, place);
        }
    }
}
