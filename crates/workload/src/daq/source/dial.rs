//! Connecting sources to builders: a few handshakes at a time, so that no queue overflows, and again where a connection is
//! lost.

use sys::clock::monotonic_ns;
use sys::net::{ConnectState, Interest, Moved, NetError, SocketOptions, TcpSocket};

use super::connection::{State, Troubles};
use super::group::{Desk, token};
use super::lane::Lane;
use super::send;
use crate::daq::wire::{Hello, Kind, Piece, PieceFlags};

/// How many times a lost connection is begun anew.
const TRIES_MAX: u32 = 3;
/// How long is waited before the first time; four times as long before each next one.
const PAUSE_NS: u64 = 100_000_000;

/// What is under way until all connections stand.
#[derive(Debug)]
pub(super) struct Dial {
    /// The next to be begun, counted over all lanes.
    next: usize,
    /// Handshakes that may be under way at once.
    handshakes_max: usize,
    /// Begun and not standing yet.
    pub(super) handshakes: usize,
    /// How many stand.
    pub(super) standing: usize,
    /// The first that failed while not all stood.
    pub(super) failure: Option<String>,
    pub(super) options: SocketOptions,
    pub(super) is_done: bool,
}

impl Dial {
    /// Nothing begun yet.
    pub(super) fn new(congestion: Option<String>, handshakes_max: usize) -> Self {
        let options = SocketOptions { nodelay: Some(true), congestion, ..SocketOptions::default() };
        let handshakes_max = handshakes_max.max(1);
        Self { next: 0, handshakes_max, handshakes: 0, standing: 0, failure: None, options, is_done: false }
    }
}

/// Begins as many handshakes as may be under way.
pub(super) fn go_on(desk: &mut Desk, lanes: &mut [Lane]) {
    let sources = desk.sources;
    while desk.dial.handshakes < desk.dial.handshakes_max && desk.dial.failure.is_none() {
        let (lane, place) = (desk.dial.next / sources.max(1), desk.dial.next % sources.max(1));
        let Some(lane) = lanes.get_mut(lane) else { break };
        desk.dial.next += 1;
        begin(desk, lane, place);
    }
    desk.dial.is_done |= desk.dial.standing == sources * lanes.len();
}

fn begin(desk: &mut Desk, lane: &mut Lane, place: usize) {
    let token = token(desk, lane, place);
    let begun = TcpSocket::connect_start(lane.address, None, &desk.dial.options)
        .and_then(|socket| desk.epoll.add(&socket, token, Interest::WRITE).map(|()| socket));
    match begun {
        Ok(socket) => {
            let connection = &mut lane.connections[place];
            (connection.socket, connection.state) = (Some(socket), State::Connecting);
            desk.dial.handshakes += 1;
        }
        Err(error) => failed(desk, lane, place, &error),
    }
}

/// Something happened at a connection whose handshake is under way.
pub(super) fn settle(desk: &mut Desk, lane: &mut Lane, place: usize) {
    let token = token(desk, lane, place);
    let Some(socket) = &lane.connections[place].socket else { return };
    let stands = match socket.connect_result() {
        Ok(ConnectState::InProgress) => return,
        Ok(ConnectState::Connected) => {
            greet(desk, lane, place).and_then(|()| desk.epoll.modify(socket, token, Interest::READ))
        }
        Err(error) => Err(error),
    };
    desk.dial.handshakes = desk.dial.handshakes.saturating_sub(1);
    if let Err(error) = stands {
        failed(desk, lane, place, &error);
        return;
    }
    let seen = socket.info().map(|info| Troubles::of(&info)).unwrap_or_default();
    let connection = &mut lane.connections[place];
    (connection.state, connection.seen) = (State::Open, seen);
    if desk.dial.is_done {
        desk.account.reconnected += 1;
    } else {
        desk.dial.standing += 1;
    }
    send::go_on(desk, lane, place);
}

/// Says who the source is.
fn greet(desk: &Desk, lane: &Lane, place: usize) -> Result<(), NetError> {
    let Some(socket) = &lane.connections[place].socket else { return Ok(()) };
    let hello = Hello {
        group: desk.number,
        boot: desk.told.boot,
        udp_port: desk.udp_port,
        sources: desk.sources as u32,
        configuration: desk.told.configuration,
        congestion_control: socket.congestion().unwrap_or_default(),
    };
    let payload = hello.encode();
    let piece = Piece {
        kind: Kind::Hello,
        flags: PieceFlags::default(),
        run: desk.told.run_of(lane.builder()),
        builder: lane.builder(),
        event: 0,
        source: desk.first + place as u32,
        payload_bytes: payload.len() as u32,
        order_received_ns: 0,
        sent_ns: monotonic_ns(),
        clock_error_ns: 0,
        sequence: 0,
        payload_crc: crc32c::crc32c(&payload),
    };
    let message = [&piece.encode()[..], &payload].concat();
    match socket.send(&message, false)? {
        Moved::Bytes(bytes) if bytes == message.len() => Ok(()),
        // There is room for this in any new socket.
        _ => Err(socket_is_full(lane)),
    }
}

fn socket_is_full(lane: &Lane) -> NetError {
    NetError {
        action: "say hello to",
        target: format!("the builder at {}", lane.address),
        source: std::io::ErrorKind::WriteZero.into(),
    }
}

/// A connection could not be made to stand.
fn failed(desk: &mut Desk, lane: &mut Lane, place: usize, error: &NetError) {
    // The kernel's words alone are about a descriptor.
    let what = if error.action == "connect" {
        format!("cannot connect to {}: {}", lane.address, error.source)
    } else {
        error.to_string()
    };
    if !desk.dial.is_done {
        lane.connections[place].drop_socket();
        lane.connections[place].state = State::Down;
        desk.dial.failure.get_or_insert(what);
        return;
    }
    retry(desk, lane, place, &what);
}

/// A connection that stood is gone. `error` is `None` where the builder ended it in an orderly way: nobody is to come
/// again then.
pub(super) fn lost(desk: &mut Desk, lane: &mut Lane, place: usize, error: Option<NetError>) {
    match error {
        _ if lane.is_stopped => lane.end(place),
        Some(error) => retry(desk, lane, place, &error.source.to_string()),
        None => end(desk, lane, place, "the builder ended it before it said that the run is over"),
    }
}

fn retry(desk: &mut Desk, lane: &mut Lane, place: usize, why: &str) {
    let connection = &mut lane.connections[place];
    if connection.state == State::Ended {
        return;
    }
    if connection.tries >= TRIES_MAX {
        let why = format!("{why}, and again {TRIES_MAX} times when it was begun anew");
        end(desk, lane, place, &why);
        return;
    }
    connection.drop_socket();
    connection.state = State::Down;
    let pause_ns = PAUSE_NS << (2 * connection.tries);
    connection.tries += 1;
    desk.again.push((monotonic_ns() + pause_ns, lane.index, place));
}

/// Ends a connection for good, for a reason.
pub(super) fn end(desk: &mut Desk, lane: &mut Lane, place: usize, why: &str) {
    let connection = &mut lane.connections[place];
    if connection.state == State::Ended {
        return;
    }
    connection.end();
    lane.ended += 1;
    let kinds = desk.account.ends.len();
    match desk.account.ends.get_mut(why) {
        Some(number) => *number += 1,
        // A list of reasons is of use while it is short.
        None if kinds < 8 => drop(desk.account.ends.insert(why.to_owned(), 1)),
        None => {}
    }
}

/// Begins those lost connections anew whose pause is over.
pub(super) fn again(desk: &mut Desk, lanes: &mut [Lane], now_ns: u64) {
    let mut at = 0;
    while at < desk.again.len() {
        let (due_ns, lane, place) = desk.again[at];
        if due_ns > now_ns {
            at += 1;
            continue;
        }
        desk.again.swap_remove(at);
        let Some(lane) = lanes.get_mut(lane).filter(|lane| !lane.is_stopped) else { continue };
        if lane.connections[place].state == State::Down {
            begin(desk, lane, place);
        }
    }
}
