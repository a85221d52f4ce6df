//! A builder with scripted sources that send datagrams: lost bytes are requested, and one source's faults do
//! not affect another's.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::scripted_source::{ScriptedSource, clock_answer, header};
use crate::trial::{PATIENCE, Trial, merged, settings};
use base::part::Progress;
use daq::report::BuilderReport;
use daq::settings::DaqSettings;
use daq::wire::{DatagramHeader, FragmentHeader, Kind, Order};
use serde_json::{Value, json};

const PART_BYTES: usize = 1400;

/// Two sources, with orders over their connections, and one event.
fn two(more: Value) -> DaqSettings {
    let all = json!({ "sources": 2, "events": 1, "orders": "tcp", "protocol": "udp", "size": "3000B" });
    settings(merged(all, more))
}

/// Two sources and their UDP socket; a thread answers clock probes.
struct Group {
    run: u32,
    builder: SocketAddr,
    socket: Arc<UdpSocket>,
    nacks: Receiver<Order>,
    sources: Vec<ScriptedSource>,
}

impl Group {
    fn new(trial: &Trial) -> Self {
        let (run, builder) = (trial.facts.run, trial.facts.addresses[0]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let port = socket.local_addr().unwrap().port();
        let sources = [0, 1].map(|source| {
            let mut source = ScriptedSource::silent(&trial.facts, source);
            source.send_hello(|_, hello| hello.udp_port = port);
            source
        });
        let socket = Arc::new(socket);
        let (heard, nacks) = channel();
        let ear = socket.clone();
        std::thread::spawn(move || answer_clock_probes(run, builder, &ear, &heard));
        Self { run, builder, socket, nacks, sources: sources.into() }
    }

    /// Waits for both sources' orders; returns the event.
    fn event(&mut self) -> u64 {
        let events: Vec<u64> = self.sources.iter_mut().map(|source| source.event(None)).collect();
        assert_eq!(events[0], events[1]);
        events[0]
    }

    /// Sends only what NACKs request until the builder ends; returns the number of NACKs and the report.
    fn answer_until_end(mut self, mut trial: Trial, payload: &[u8]) -> (u32, BuilderReport) {
        let sources: Vec<_> = self.sources.drain(..).map(wait_for_stop).collect();
        let (mut answered, from) = (0, Instant::now());
        while trial.builder.progress() != Progress::Finished {
            assert!(from.elapsed() < PATIENCE, "the builder does not end: {:?}", trial.builder.live());
            answered += self.answer(payload, Instant::now() + Duration::from_millis(20));
        }
        (answered, trial.finish(sources))
    }

    /// Sends bytes of a fragment as datagrams.
    fn send(&self, source: u32, event: u64, payload: &[u8], from: usize, to: usize) {
        for at in (from..to).step_by(PART_BYTES) {
            let bytes = &payload[at..to.min(at + PART_BYTES)];
            self.send_message(
                &header(Kind::Fragment, self.run, source, event, bytes),
                at,
                payload.len(),
                bytes,
            );
        }
    }

    fn send_message(&self, header: &FragmentHeader, offset: usize, whole: usize, bytes: &[u8]) {
        let datagram_header =
            DatagramHeader { fragment: *header, offset: offset as u32, whole_bytes: whole as u32 };
        self.socket.send_to(&[&datagram_header.encode()[..], bytes].concat(), self.builder).unwrap();
    }

    /// Answers NACKs until `until`; returns their number.
    fn answer(&self, payload: &[u8], until: Instant) -> u32 {
        let mut answered = 0;
        while let Ok(nack) = self.nacks.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.send_requested(payload, &nack);
            answered += 1;
        }
        answered
    }

    fn send_requested(&self, payload: &[u8], nack: &Order) {
        let (from, bytes) = (nack.credit_bytes as usize, nack.fragment_bytes as usize);
        self.send(nack.first_source, nack.event, payload, from, from + bytes);
    }
}

/// Answers clock probes and passes NACKs on until the receiver is dropped.
fn answer_clock_probes(run: u32, builder: SocketAddr, socket: &Arc<UdpSocket>, heard: &Sender<Order>) {
    let mut buffer = [0; 2048];
    while Arc::strong_count(socket) > 1 {
        let Ok((bytes, _)) = socket.recv_from(&mut buffer) else { continue };
        let (order, _) = Order::decode(&buffer[..bytes]).unwrap();
        match order.kind {
            Kind::Sync => {
                socket.send_to(&clock_answer(run, 0, &order).encode(), builder).unwrap();
            }
            Kind::Nack => drop(heard.send(order)),
            _ => {}
        }
    }
}

/// A source that only waits for the stop order.
fn wait_for_stop(mut source: ScriptedSource) -> JoinHandle<()> {
    std::thread::spawn(move || while source.order().is_some() {})
}

/// Waits until the builder has read all datagrams.
fn wait_until_taken(builder: SocketAddr) {
    // The kernel may deliver datagrams a moment after the send call.
    std::thread::sleep(Duration::from_millis(50));
    let (from, port) = (Instant::now(), format!(":{:04X}", builder.port()));
    loop {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let own: Vec<_> = rows.filter(|fields| fields[1].ends_with(&port)).collect();
        assert!(!own.is_empty(), "no socket listens at {builder}");
        if own.iter().all(|fields| fields[4].ends_with(":00000000")) {
            return;
        }
        assert!(from.elapsed() < PATIENCE, "datagrams are left: {own:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn counted(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    counts.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[test]
fn repeated_datagram_does_not_delay_other_nacks() {
    let mut trial = Trial::new(&two(json!({})));
    let mut group = Group::new(&trial);
    trial.start();
    let event = group.event();
    let payload = [9; 3000];
    let from = Instant::now();
    let (mut asked, mut nacks) = ([false; 2], Vec::new());
    while asked != [true; 2] {
        assert!(from.elapsed() < Duration::from_secs(10), "asked: {asked:?}");
        group.send(0, event, &payload, 0, PART_BYTES);
        // An empty datagram brings nothing new, either.
        group.send_message(&header(Kind::Fragment, group.run, 0, event, &[]), 2000, 3000, &[]);
        std::thread::sleep(Duration::from_micros(500));
        let heard = nacks.len();
        nacks.extend(group.nacks.try_iter());
        nacks[heard..].iter().for_each(|nack| asked[nack.first_source as usize] = true);
    }
    // The builder stops asking after some tries.
    nacks.iter().for_each(|nack| group.send_requested(&payload, nack));
    let (_, report) = group.answer_until_end(trial, &payload);
    assert_eq!((report.events.complete, report.ledger.built), (1, 2), "{:?}", report.ledger);
    assert_eq!(report.ledger.refused_all(), 0, "{:?}", report.ledger);
}

#[test]
fn refused_datagram_fragment_counts_once() {
    let more = json!({ "size": "40KiB", "memory": "64KiB", "timeout": "3s" });
    let mut trial = Trial::new(&two(more));
    let mut group = Group::new(&trial);
    trial.start();
    let event = group.event();
    let payload = vec![9; 40 << 10];
    for source in [0, 1] {
        group.send(source, event, &payload, 0, payload.len());
    }
    let (answered, report) = group.answer_until_end(trial, &payload);
    assert!(answered > 1, "{answered}");
    assert_eq!((report.events.incomplete, report.ledger.in_incomplete), (1, 1), "{:?}", report.ledger);
    assert_eq!(counted(&report.ledger.refused), [("no_memory", 1)]);
    assert_eq!((report.ledger.late, report.ledger.duplicate), (0, 0));
}

#[test]
fn corrupt_datagrams_count_once_and_are_repaired() {
    let mut trial = Trial::new(&two(json!({})));
    let mut group = Group::new(&trial);
    trial.start();
    let event = group.event();
    let payload = [9; 3000];
    for at in [0, PART_BYTES, PART_BYTES] {
        let right = header(Kind::Fragment, group.run, 0, event, &payload[..PART_BYTES]);
        group.send_message(
            &FragmentHeader { payload_crc: 1, ..right },
            at,
            payload.len(),
            &payload[..PART_BYTES],
        );
    }
    // An unknown source, and an event that was never triggered, in three parts.
    group.send(2, event, &payload, 0, PART_BYTES);
    group.send(0, event + 1000, &payload, 0, payload.len());
    let (_, report) = group.answer_until_end(trial, &payload);
    assert_eq!((report.events.complete, report.ledger.built), (1, 2), "{:?}", report.ledger);
    assert_eq!(counted(&report.ledger.refused), [("never_triggered", 1), ("payload_checksum", 1)]);
    assert_eq!(counted(&report.ledger.turned_away), [("unknown_source", 1)]);
}

#[test]
fn tcp_builder_refuses_datagram_fragments() {
    let mut trial = Trial::new(&two(json!({ "protocol": "tcp" })));
    let mut group = Group::new(&trial);
    trial.start();
    let event = group.sources[0].event(None);
    let payload = [9; 3000];
    // Whole datagrams and parts.
    group.send(0, event, &payload, 0, payload.len());
    group.send(1, event, &payload[..100], 0, 100);
    wait_until_taken(group.builder);
    let [mut one, other] = group.sources.try_into().ok().unwrap();
    one.send(event, &payload);
    // A further NACK would be answered.
    let report = trial.finish([wait_for_stop(one), other.send_until_stop(payload.to_vec())]);
    assert_eq!((report.events.complete, report.ledger.built), (1, 2), "{:?}", report.ledger);
    assert_eq!((report.ledger.refused_all(), report.ledger.duplicate), (0, 0));
    assert_eq!(counted(&report.ledger.turned_away), [("wrong_kind", 4)]);
}
