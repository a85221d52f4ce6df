//! Sources played by a test, with plain sockets.

#![allow(dead_code, reason = "each test uses some of it")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kagiri_workload::daq::task::PortFacts;
use kagiri_workload::daq::wire::{HEADER_BYTES, Hello, Kind, Order, Piece, PieceFlags};

/// No test waits longer for anything.
const GUARD: Duration = Duration::from_secs(30);

/// A connection to the first builder.
pub struct Played {
    pub run: u32,
    pub source: u32,
    pub stream: TcpStream,
    /// In the middle of a fragment it must not answer questions.
    pub is_busy: bool,
}

/// The header of a message without anything special.
pub fn piece(kind: Kind, run: u32, source: u32, event: u64, payload: &[u8]) -> Piece {
    Piece {
        kind,
        flags: PieceFlags::default(),
        run,
        builder: 0,
        event,
        source,
        payload_bytes: payload.len() as u32,
        order_received_ns: 0,
        sent_ns: sys::clock::monotonic_ns(),
        clock_error_ns: 0,
        sequence: 0,
        payload_crc: crc32c::crc32c(payload),
    }
}

impl Played {
    /// A connection that says nothing yet.
    pub fn silent(facts: &PortFacts, source: u32) -> Self {
        let stream = TcpStream::connect(facts.addresses[0]).expect("the builder listens");
        stream.set_read_timeout(Some(GUARD)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { run: facts.run, source, stream, is_busy: false }
    }

    /// A source that said hello.
    pub fn connect(facts: &PortFacts, source: u32) -> Self {
        let mut played = Self::silent(facts, source);
        played.say_hello(|_, _| {});
        played
    }

    /// Says hello, with whatever is altered.
    pub fn say_hello(&mut self, alter: impl Fn(&mut Piece, &mut Hello)) {
        let mut hello = Hello { group: 5, sources: 2, ..Hello::default() };
        let mut header = piece(Kind::Hello, self.run, self.source, 0, &hello.encode());
        alter(&mut header, &mut hello);
        header.payload_crc = crc32c::crc32c(&hello.encode());
        self.write(&[&header.encode()[..], &hello.encode()].concat());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the builder reads");
    }

    /// A fragment as it goes over the network.
    pub fn fragment(&self, event: u64, payload: &[u8]) -> Vec<u8> {
        [&piece(Kind::Fragment, self.run, self.source, event, payload).encode()[..], payload].concat()
    }

    pub fn send(&mut self, event: u64, payload: &[u8]) {
        let bytes = self.fragment(event, payload);
        self.write(&bytes);
    }

    /// The next order to send; questions are answered. `None`: the run is over.
    pub fn order(&mut self) -> Option<Order> {
        loop {
            let mut bytes = [0; HEADER_BYTES];
            self.stream.read_exact(&mut bytes).expect("an order");
            let (order, _) = Order::decode(&bytes).expect("an order");
            match order.kind {
                Kind::Sync if self.is_busy => {}
                Kind::Sync => {
                    let now_ns = sys::clock::monotonic_ns();
                    let answer = piece(Kind::Sync, self.run, self.source, order.event, &[]);
                    self.write(&Piece { order_received_ns: now_ns, sent_ns: now_ns, ..answer }.encode());
                }
                Kind::Stop => return None,
                _ => return Some(order),
            }
        }
    }

    /// Waits for the next event that has not been asked for before.
    pub fn event(&mut self, after: Option<u64>) -> u64 {
        loop {
            let order = self.order().expect("the run goes on");
            if after.is_none_or(|after| order.event > after) {
                return order.event;
            }
        }
    }

    /// Whether the builder ended the connection, which it is waited for.
    pub fn is_shown_out(&mut self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    /// Sends honestly what is asked for, until the run is over.
    pub fn go_on(mut self, payload: Vec<u8>) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut last = None;
            while let Some(order) = self.order() {
                if last.is_none_or(|last| order.event > last) {
                    last = Some(order.event);
                    self.send(order.event, &payload);
                }
            }
        })
    }
}
