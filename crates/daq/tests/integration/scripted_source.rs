//! Scripted sources with plain sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use daq::part_settings::PortEndpoint;
use daq::wire::{FragmentHeader, HEADER_BYTES, Hello, Kind, Order};

const GUARD: Duration = Duration::from_secs(30);

/// A connection to a builder, the first unless another is named.
pub struct ScriptedSource {
    pub run: u32,
    pub builder: u16,
    pub source: u32,
    pub stream: TcpStream,
    /// Within a fragment it must not answer clock probes.
    pub is_busy: bool,
}

/// A header with default fields.
pub fn header(kind: Kind, run: u32, source: u32, event: u64, payload: &[u8]) -> FragmentHeader {
    FragmentHeader {
        event,
        payload_bytes: payload.len() as u32,
        sent_ns: sys::clock::monotonic_ns(),
        payload_crc: crc32c::crc32c(payload),
        ..FragmentHeader::new(kind, run, 0, source)
    }
}

pub fn clock_answer(run: u32, source: u32, probe: &Order) -> FragmentHeader {
    let now_ns = sys::clock::monotonic_ns();
    let answer = header(Kind::Sync, run, source, probe.event, &[]);
    FragmentHeader { builder: probe.builder, order_received_ns: now_ns, sent_ns: now_ns, ..answer }
}

impl ScriptedSource {
    /// Connects without a hello.
    pub fn silent(facts: &PortEndpoint, source: u32) -> Self {
        Self::silent_to(facts, 0, source)
    }

    pub fn silent_to(facts: &PortEndpoint, builder: u16, source: u32) -> Self {
        let address = facts.addresses[usize::from(builder)];
        let stream = TcpStream::connect(address).expect("the builder listens");
        stream.set_read_timeout(Some(GUARD)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self { run: facts.run, builder, source, stream, is_busy: false }
    }

    /// Connects and sends a hello.
    pub fn connect(facts: &PortEndpoint, source: u32) -> Self {
        let mut source = Self::silent(facts, source);
        source.send_hello(|_, _| {});
        source
    }

    /// Sends a hello after `alter` changed it.
    pub fn send_hello(&mut self, alter: impl Fn(&mut FragmentHeader, &mut Hello)) {
        let mut hello = Hello { group: 5, sources: 2, ..Hello::default() };
        let mut header = self.header(Kind::Hello, 0, &hello.encode());
        alter(&mut header, &mut hello);
        header.payload_crc = crc32c::crc32c(&hello.encode());
        self.write(&[&header.encode()[..], &hello.encode()].concat());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the builder reads");
    }

    /// An encoded fragment.
    pub fn fragment(&self, event: u64, payload: &[u8]) -> Vec<u8> {
        [&self.header(Kind::Fragment, event, payload).encode()[..], payload].concat()
    }

    fn header(&self, kind: Kind, event: u64, payload: &[u8]) -> FragmentHeader {
        FragmentHeader { builder: self.builder, ..header(kind, self.run, self.source, event, payload) }
    }

    pub fn send(&mut self, event: u64, payload: &[u8]) {
        let bytes = self.fragment(event, payload);
        self.write(&bytes);
    }

    /// The next order for fragments; clock probes are answered. `None`: stop.
    pub fn order(&mut self) -> Option<Order> {
        loop {
            let mut bytes = [0; HEADER_BYTES];
            self.stream.read_exact(&mut bytes).expect("an order");
            let (order, _) = Order::decode(&bytes).expect("an order");
            match order.kind {
                Kind::Sync if self.is_busy => {}
                Kind::Sync => self.write(&clock_answer(self.run, self.source, &order).encode()),
                Kind::Stop => return None,
                _ => return Some(order),
            }
        }
    }

    /// Waits for an order of an event after `after`.
    pub fn event(&mut self, after: Option<u64>) -> u64 {
        loop {
            let order = self.order().expect("the run goes on");
            if after.is_none_or(|after| order.event > after) {
                return order.event;
            }
        }
    }

    /// Waits until the builder closes the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    /// Sends every ordered fragment until the stop order.
    pub fn send_until_stop(mut self, payload: Vec<u8>) -> std::thread::JoinHandle<()> {
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
