//! Connects sources to builders.

use std::time::Duration;

use reactor::{ConnectOutcome, ConnectSettings, Connector, Reactor};
use sys::clock::monotonic_ns;
use sys::net::{Interest, Moved, NetError, SocketOptions, TcpSocket};

use super::builder_link::BuilderLink;
use super::connection::{LossCounters, State};
use super::context::{HANDSHAKE, WorkerContext};
use super::sender;
use crate::wire::{FragmentHeader, Hello, Kind};

/// Timeout of one handshake; longer than `CONNECT` (20 s, part.rs), so that `CONNECT` ends first.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct SourceConnector {
    pub(super) handshakes: Connector,
    pub(super) established: usize,
    /// Whether all connections were established once: later ones are reconnections.
    pub(super) all_were_established: bool,
}

impl SourceConnector {
    /// `handshakes_max`: concurrent handshakes.
    pub(super) fn new(congestion: Option<String>, handshakes_max: usize) -> Self {
        let options = SocketOptions { nodelay: Some(true), congestion, ..SocketOptions::default() };
        let settings =
            ConnectSettings { options, handshakes_max, timeout: TIMEOUT, ..ConnectSettings::default() };
        let handshakes = Connector::new(HANDSHAKE, settings);
        Self { handshakes, established: 0, all_were_established: false }
    }

    pub(super) fn connect(
        &mut self,
        context: &WorkerContext,
        link: &mut BuilderLink,
        place: usize,
        reactor: &mut Reactor,
    ) {
        link.connections[place].state = State::Connecting;
        self.handshakes.connect(reactor, context.token(link, place).index() as u64, link.address);
    }

    /// Opens the connections whose handshakes have ended.
    ///
    /// # Errors
    /// A connection failed before all were established.
    pub(super) fn handle_outcomes(
        &mut self,
        context: &mut WorkerContext,
        links: &mut [BuilderLink],
    ) -> Result<(), String> {
        while let Some(ConnectOutcome { key, result, .. }) = self.handshakes.next_outcome() {
            let (index, place) = (key as usize / context.sources, key as usize % context.sources);
            let link = &mut links[index];
            // The builder may have sent a stop order meanwhile.
            if link.connections[place].state != State::Connecting {
                continue;
            }
            match result.and_then(|socket| open(context, link, place, socket)) {
                Ok(()) if self.all_were_established => context.counters.report.reconnected += 1,
                Ok(()) => self.established += 1,
                Err(error) => {
                    let what = error.to_string();
                    if !self.all_were_established {
                        return Err(what);
                    }
                    context.schedule_retry(link, place, &what);
                }
            }
        }
        self.all_were_established |= self.established == context.sources * links.len();
        Ok(())
    }
}

/// Sends the hello, and whatever was queued meanwhile.
fn open(
    context: &mut WorkerContext,
    link: &mut BuilderLink,
    place: usize,
    socket: TcpSocket,
) -> Result<(), NetError> {
    send_hello(context, link, place, &socket)?;
    context.registry.watch(&socket, context.token(link, place), Interest::READ)?;
    let connection = &mut link.connections[place];
    connection.sampled = socket.info().map(|info| LossCounters::from_tcp_info(&info)).unwrap_or_default();
    (connection.state, connection.socket) = (State::Open, Some(socket));
    sender::continue_sending(context, link, place);
    Ok(())
}

fn send_hello(
    context: &WorkerContext,
    link: &BuilderLink,
    place: usize,
    socket: &TcpSocket,
) -> Result<(), NetError> {
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
        _ => Err(NetError {
            action: "send the hello to",
            target: format!("the builder at {}", link.address),
            source: std::io::ErrorKind::WriteZero.into(),
        }),
    }
}
