//! A scripted builder with plain sockets, for tests of the part `daq.sources`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use base::part::{AnyPart, Endpoints, HERE, HostContext, PartError, Progress, Watch};
use daq::part_settings::{PortEndpoint, SourcesTask};
use daq::report::SourcesReport;
use daq::settings::DaqSettings;
use daq::source::part::SourcesPart;
use daq::wire::{FragmentHeader, HEADER_BYTES, HELLO_BYTES, Hello, Kind, Order};
use serde_json::Value;
use sys::net::MulticastSender;
use workload::part;

pub const GUARD: Duration = Duration::from_secs(30);
pub const RUN: u32 = 0x1234_5678;
pub const SEED: u64 = 7;

pub struct Builder {
    pub number: u16,
    pub sources: u32,
    pub listener: TcpListener,
    pub udp: UdpSocket,
    pub multicast: MulticastSender,
    pub group: SocketAddrV4,
    pub connections: BTreeMap<u32, TcpStream>,
    pub hellos: BTreeMap<u32, (FragmentHeader, Hello)>,
}

impl Builder {
    /// A builder at this address, in this thread's network namespace.
    pub fn new(number: u16, sources: u32, at: Ipv4Addr) -> Self {
        // A TCP port that is free as a UDP port, too.
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
        let multicast = MulticastSender::new(group, at).unwrap();
        let (connections, hellos) = (BTreeMap::new(), BTreeMap::new());
        Self { number, sources, listener, udp, multicast, group, connections, hellos }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Accepts a connection and reads its hello; returns the source.
    pub fn accept(&mut self) -> u32 {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (header, payload) = read_message(&mut stream);
        assert_eq!((header.kind, header.run, header.builder), (Kind::Hello, RUN, self.number));
        assert_eq!(payload.len(), HELLO_BYTES);
        self.hellos.insert(header.source, (header, Hello::decode(&payload).unwrap()));
        self.connections.insert(header.source, stream);
        header.source
    }

    /// An order for all sources.
    pub fn order(&self, kind: Kind, event: u64) -> Order {
        Order {
            event,
            triggered_ns: sys::clock::monotonic_ns(),
            event_oldest: event,
            ..Order::new(kind, RUN, self.number, self.sources)
        }
    }

    /// Multicasts an order.
    pub fn multicast_order(&self, order: &Order) {
        self.multicast.send(&order.encode()).unwrap();
    }

    /// Sends an order over one source's connection.
    pub fn send_over_connection(&mut self, source: u32, order: &Order) {
        self.connections.get_mut(&source).unwrap().write_all(&order.encode()).unwrap();
    }

    /// Sends an order to the UDP port of a source's worker.
    pub fn send_to_worker(&self, source: u32, order: &Order) {
        let port = self.hellos[&source].1.udp_port;
        self.udp.send_to(&order.encode(), ("127.0.0.1", port)).unwrap();
    }

    /// The next datagram, which must have a plain header, and the port that it came from.
    pub fn next_datagram(&self) -> (FragmentHeader, u16) {
        let mut buffer = [0; 2048];
        let (bytes, from) = self.udp.recv_from(&mut buffer).unwrap();
        (FragmentHeader::decode(&buffer[..bytes]).unwrap().0, from.port())
    }

    pub fn next(&mut self, source: u32) -> (FragmentHeader, Vec<u8>) {
        read_message(self.connections.get_mut(&source).unwrap())
    }

    /// Reads the next message of a source, which must be a complete fragment of the event.
    pub fn fragment(&mut self, source: u32, event: u64) -> FragmentHeader {
        let (header, payload) = self.next(source);
        assert_eq!((header.kind, header.source, header.event), (Kind::Fragment, source, event));
        assert_eq!((header.run, header.builder), (RUN, self.number));
        assert!(header.payload_matches(&payload), "the checksum is wrong");
        header
    }

    /// Reads one fragment of the event from each source.
    pub fn event(&mut self, event: u64) -> Vec<FragmentHeader> {
        (0..self.sources).map(|source| self.fragment(source, event)).collect()
    }

    /// Asserts that a source sent nothing else: its next message answers a clock probe.
    pub fn assert_quiet(&mut self, source: u32) {
        let number = 1 << 40;
        let question = self.order(Kind::Sync, number);
        self.send_over_connection(source, &question);
        let (header, _) = self.next(source);
        assert_eq!(
            (header.kind, header.event),
            (Kind::Sync, number),
            "it sent more than its orders asked for"
        );
    }

    pub fn assert_all_quiet(&mut self) {
        (0..self.sources).for_each(|source| self.assert_quiet(source));
    }
}

pub fn read_message(stream: &mut TcpStream) -> (FragmentHeader, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let (header, length) = FragmentHeader::decode(&header).unwrap();
    assert_eq!(length, HEADER_BYTES);
    let mut payload = vec![0; header.payload_bytes as usize];
    stream.read_exact(&mut payload).unwrap();
    (header, payload)
}

/// The part under test and its scripted builders.
pub struct Rig {
    pub part: Box<dyn AnyPart>,
    pub builders: Vec<Builder>,
    pub settings: DaqSettings,
}

pub fn host() -> HostContext {
    let here = std::env::temp_dir();
    HostContext::here(here.clone(), here, "unused".into())
}

impl Rig {
    pub fn unprepared(settings: &Value) -> (Self, Endpoints) {
        let read = DaqSettings::read(settings.clone()).unwrap();
        let sources = u32::try_from(read.sources).unwrap();
        let builder = |number| Builder::new(number as u16, sources, Ipv4Addr::LOCALHOST);
        Self::with(settings, (0..read.builders).map(builder).collect())
    }

    pub fn with(settings: &Value, builders: Vec<Builder>) -> (Self, Endpoints) {
        let settings = DaqSettings::read(settings.clone()).unwrap();
        let sources = u32::try_from(settings.sources).unwrap();
        let facts = PortEndpoint {
            addresses: builders.iter().map(Builder::address).collect(),
            groups: builders.iter().map(|builder| builder.group).collect(),
            run: RUN,
            watch: Watch::default(),
            pid: 0,
        };
        let endpoints = Endpoints::from([("port".to_owned(), serde_json::to_value(facts).unwrap())]);
        let task = SourcesTask {
            settings: settings.clone(),
            ports: vec!["port".into()],
            source_first: 0,
            sources,
            seed: SEED,
        };
        let spec = part::spec::<SourcesPart>("sources".into(), HERE, &task).unwrap();
        let part = (part::kind::<SourcesPart>().build)(&spec);
        (Self { part: part.unwrap(), builders, settings }, endpoints)
    }

    /// Connects and starts the sources.
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

    /// Multicasts stop, waits for the end and returns the report.
    pub fn stop(mut self) -> SourcesReport {
        for builder in &mut self.builders {
            builder.multicast_order(&builder.order(Kind::Stop, 0));
            builder.connections.clear();
        }
        self.end()
    }

    pub fn end(&mut self) -> SourcesReport {
        until("the end of the sources", || self.part.progress() == Progress::Finished);
        self.report()
    }

    pub fn report(&mut self) -> SourcesReport {
        serde_json::from_value(self.part.stop().unwrap()).unwrap()
    }
}

/// Waits until `holds`; panics after [`GUARD`].
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + GUARD;
    while !holds() {
        assert!(Instant::now() < give_up, "{what} did not happen within {GUARD:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
