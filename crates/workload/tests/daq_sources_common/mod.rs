//! Plays the builders of the part `daq.sources`, with plain sockets.

#![allow(dead_code, reason = "every test file uses another part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails as tests do")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use base::part::{Endpoints, HERE, HostContext, Part, PartError, PartSpec, Progress};
use kagiri_workload::daq::report::SourcesReport;
use kagiri_workload::daq::settings::DaqSettings;
use kagiri_workload::daq::source::part::build;
use kagiri_workload::daq::task::{PortFacts, SourcesTask};
use kagiri_workload::daq::wire::{HEADER_BYTES, HELLO_BYTES, Hello, Kind, Order, OrderFlags, Piece};
use serde_json::Value;
use sys::net::MulticastSender;

/// No test waits longer than this for anything.
pub const GUARD: Duration = Duration::from_secs(30);
pub const RUN: u32 = 0x1234_5678;
pub const SEED: u64 = 7;

/// A builder played by the test.
pub struct Builder {
    pub number: u16,
    pub sources: u32,
    pub listener: TcpListener,
    pub udp: UdpSocket,
    pub voice: MulticastSender,
    pub group: SocketAddrV4,
    /// By source.
    pub connections: BTreeMap<u32, TcpStream>,
    pub hellos: BTreeMap<u32, (Piece, Hello)>,
}

impl Builder {
    /// A builder at this address, in the network of this thread.
    pub fn new(number: u16, sources: u32, at: Ipv4Addr) -> Self {
        // A TCP port whose number is free for UDP as well, which a builder's is.
        let (listener, udp) = loop {
            let listener = TcpListener::bind((at, 0)).unwrap();
            if let Ok(udp) = UdpSocket::bind(listener.local_addr().unwrap()) {
                break (listener, udp);
            }
        };
        udp.set_read_timeout(Some(GUARD)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let [high, low] = port.to_be_bytes();
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, high, low), port);
        let voice = MulticastSender::new(group, at).unwrap();
        let (connections, hellos) = (BTreeMap::new(), BTreeMap::new());
        Self { number, sources, listener, udp, voice, group, connections, hellos }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Takes the next connection and its hello; whose it is.
    pub fn accept(&mut self) -> u32 {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (piece, payload) = read_piece(&mut stream);
        assert_eq!((piece.kind, piece.run, piece.builder), (Kind::Hello, RUN, self.number));
        assert_eq!(payload.len(), HELLO_BYTES);
        self.hellos.insert(piece.source, (piece, Hello::decode(&payload).unwrap()));
        self.connections.insert(piece.source, stream);
        piece.source
    }

    /// An order to all sources.
    pub fn order(&self, kind: Kind, event: u64) -> Order {
        Order {
            kind,
            flags: OrderFlags::default(),
            run: RUN,
            builder: self.number,
            event,
            triggered_ns: sys::clock::monotonic_ns(),
            first_source: 0,
            sources: self.sources,
            fragment_bytes: 0,
            credit_bytes: 0,
            event_oldest: event,
            seed: 0,
        }
    }

    /// Says an order to all.
    pub fn say(&self, order: &Order) {
        self.voice.send(&order.encode()).unwrap();
    }

    /// Says an order to one, over its connection.
    pub fn tell(&mut self, source: u32, order: &Order) {
        self.connections.get_mut(&source).unwrap().write_all(&order.encode()).unwrap();
    }

    /// The next message of a source.
    pub fn next(&mut self, source: u32) -> (Piece, Vec<u8>) {
        read_piece(self.connections.get_mut(&source).unwrap())
    }

    /// The next message of a source, which is to be a whole fragment of that event.
    pub fn fragment(&mut self, source: u32, event: u64) -> Piece {
        let (piece, payload) = self.next(source);
        assert_eq!((piece.kind, piece.source, piece.event), (Kind::Fragment, source, event));
        assert_eq!((piece.run, piece.builder), (RUN, self.number));
        assert!(piece.vouches_for(&payload), "the checksum is wrong");
        piece
    }

    /// One fragment of that event of each source.
    pub fn event(&mut self, event: u64) -> Vec<Piece> {
        (0..self.sources).map(|source| self.fragment(source, event)).collect()
    }

    /// Makes sure that a source has nothing more to say: the answer to a question comes next.
    pub fn is_quiet(&mut self, source: u32) {
        let number = 1 << 40;
        let question = self.order(Kind::Sync, number);
        self.tell(source, &question);
        let (piece, _) = self.next(source);
        assert_eq!((piece.kind, piece.event), (Kind::Sync, number), "it said more than it was told to");
    }

    pub fn all_are_quiet(&mut self) {
        (0..self.sources).for_each(|source| self.is_quiet(source));
    }
}

pub fn read_piece(stream: &mut TcpStream) -> (Piece, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let (piece, length) = Piece::decode(&header).unwrap();
    assert_eq!(length, HEADER_BYTES);
    let mut payload = vec![0; piece.payload_bytes as usize];
    stream.read_exact(&mut payload).unwrap();
    (piece, payload)
}

/// The part and the builders that it sends to.
pub struct Rig {
    pub part: Box<dyn Part>,
    pub builders: Vec<Builder>,
    pub settings: DaqSettings,
}

pub fn host() -> HostContext {
    let here = std::env::temp_dir();
    HostContext::here(here.clone(), here, "unused".into())
}

impl Rig {
    /// Builders, and sources that are not connected yet.
    pub fn unprepared(settings: &Value) -> (Self, Endpoints) {
        let read = DaqSettings::read(settings.clone()).unwrap();
        let sources = u32::try_from(read.sources).unwrap();
        let builder = |number| Builder::new(number as u16, sources, Ipv4Addr::LOCALHOST);
        Self::with(settings, (0..read.builders).map(builder).collect())
    }

    /// These builders, and sources that are not connected yet.
    pub fn with(settings: &Value, builders: Vec<Builder>) -> (Self, Endpoints) {
        let settings = DaqSettings::read(settings.clone()).unwrap();
        let sources = u32::try_from(settings.sources).unwrap();
        let facts = PortFacts {
            addresses: builders.iter().map(Builder::address).collect(),
            groups: builders.iter().map(|builder| builder.group).collect(),
            run: RUN,
        };
        let endpoints = Endpoints::from([("port".to_owned(), serde_json::to_value(facts).unwrap())]);
        let task = SourcesTask {
            settings: settings.clone(),
            ports: vec!["port".into()],
            source_first: 0,
            sources,
            seed: SEED,
        };
        let part = build(&PartSpec {
            kind: "daq.sources".into(),
            name: "sources".into(),
            host: HERE.into(),
            settings: serde_json::to_value(task).unwrap(),
        });
        (Self { part: part.unwrap(), builders, settings }, endpoints)
    }

    /// Sources that are connected and started.
    pub fn new(settings: &Value) -> Self {
        let (mut rig, endpoints) = Self::unprepared(settings);
        rig.connect(&endpoints).unwrap();
        rig.part.start(sys::clock::monotonic_ns()).unwrap();
        rig
    }

    pub fn connect(&mut self, endpoints: &Endpoints) -> Result<Value, PartError> {
        let (part, builders) = (&mut self.part, &mut self.builders);
        std::thread::scope(|scope| {
            for builder in builders {
                scope.spawn(|| {
                    while builder.connections.len() < builder.sources as usize {
                        builder.accept();
                    }
                });
            }
            part.prepare(endpoints, &host())
        })
    }

    pub fn only(&mut self) -> &mut Builder {
        &mut self.builders[0]
    }

    /// Says that the run is over, waits for the end and takes the report.
    pub fn stop(mut self) -> SourcesReport {
        for builder in &mut self.builders {
            builder.say(&builder.order(Kind::Stop, 0));
            builder.connections.clear();
        }
        self.end()
    }

    /// Waits until the sources have finished and takes the report.
    pub fn end(&mut self) -> SourcesReport {
        until("the end of the sources", || self.part.progress() == Progress::Finished);
        self.report()
    }

    pub fn report(&mut self) -> SourcesReport {
        serde_json::from_value(self.part.stop().unwrap()).unwrap()
    }
}

/// Waits until `holds`, and fails if it never does.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + GUARD;
    while !holds() {
        assert!(Instant::now() < give_up, "{what} did not happen within {GUARD:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
