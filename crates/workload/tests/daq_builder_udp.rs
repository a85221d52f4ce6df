//! A builder whose sources, played by the test, send their fragments in datagrams: what is lost is asked for, and nobody
//! takes that from another.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails as tests do")]

mod daq_common;
mod daq_played;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::part::Progress;
use daq_common::{PATIENCE, Trial, settings};
use daq_played::{Played, piece};
use kagiri_workload::daq::report::BuilderReport;
use kagiri_workload::daq::settings::DaqSettings;
use kagiri_workload::daq::wire::{Kind, Order, Part, Piece};
use serde_json::{Value, json};
use sys::clock::monotonic_ns;

/// Payload of one datagram.
const PART_BYTES: usize = 1400;

/// Two sources that are told over their connections, of one event.
fn two(more: Value) -> DaqSettings {
    let mut all = json!({ "sources": 2, "events": 1, "orders": "tcp", "protocol": "udp", "size": "3000B" });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings(all)
}

/// The two sources and their UDP socket, which answers clock questions by itself.
struct Group {
    run: u32,
    builder: SocketAddr,
    socket: Arc<UdpSocket>,
    nacks: Receiver<Order>,
    sources: Vec<Played>,
}

impl Group {
    fn new(trial: &Trial) -> Self {
        let (run, builder) = (trial.facts.run, trial.facts.addresses[0]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let port = socket.local_addr().unwrap().port();
        let sources = [0, 1].map(|source| {
            let mut played = Played::silent(&trial.facts, source);
            played.say_hello(|_, hello| hello.udp_port = port);
            played
        });
        let socket = Arc::new(socket);
        let (heard, nacks) = channel();
        let ear = socket.clone();
        std::thread::spawn(move || hear(run, builder, &ear, &heard));
        Self { run, builder, socket, nacks, sources: sources.into() }
    }

    /// Waits until both sources are told to send; of which event.
    fn event(&mut self) -> u64 {
        let events: Vec<u64> = self.sources.iter_mut().map(|source| source.event(None)).collect();
        assert_eq!(events[0], events[1]);
        events[0]
    }

    /// Sends what is asked for until the builder has ended, and nothing else; how often it was asked, and the report.
    fn answer_to_the_end(mut self, mut trial: Trial, payload: &[u8]) -> (u32, BuilderReport) {
        let sources = self.sources.drain(..).map(only_hears).collect();
        let (mut answered, from) = (0, Instant::now());
        while trial.builder.progress() != Progress::Finished {
            assert!(from.elapsed() < PATIENCE, "the builder does not end: {:?}", trial.builder.live());
            answered += self.answer(payload, Instant::now() + Duration::from_millis(20));
        }
        (answered, end(trial, sources))
    }

    /// Sends these bytes of a fragment, in as many datagrams as it takes.
    fn send(&self, source: u32, event: u64, payload: &[u8], from: usize, to: usize) {
        for at in (from..to).step_by(PART_BYTES) {
            let bytes = &payload[at..to.min(at + PART_BYTES)];
            self.say(&piece(Kind::Fragment, self.run, source, event, bytes), at, payload.len(), bytes);
        }
    }

    fn say(&self, piece: &Piece, offset: usize, whole: usize, bytes: &[u8]) {
        let part = Part { piece: *piece, offset: offset as u32, whole_bytes: whole as u32 };
        self.socket.send_to(&[&part.encode()[..], bytes].concat(), self.builder).unwrap();
    }

    /// Sends what is asked for until `until`; how often it was asked.
    fn answer(&self, payload: &[u8], until: Instant) -> u32 {
        let mut answered = 0;
        while let Ok(nack) = self.nacks.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.give(payload, &nack);
            answered += 1;
        }
        answered
    }

    /// Sends what is asked for.
    fn give(&self, payload: &[u8], nack: &Order) {
        let (from, bytes) = (nack.credit_bytes as usize, nack.fragment_bytes as usize);
        self.send(nack.first_source, nack.event, payload, from, from + bytes);
    }
}

/// Answers clock questions and hands on what is asked for again, until nobody wants to know.
fn hear(run: u32, builder: SocketAddr, socket: &Arc<UdpSocket>, heard: &Sender<Order>) {
    let mut buffer = [0; 2048];
    while Arc::strong_count(socket) > 1 {
        let Ok((bytes, _)) = socket.recv_from(&mut buffer) else { continue };
        let (order, _) = Order::decode(&buffer[..bytes]).unwrap();
        match order.kind {
            Kind::Sync => {
                let now_ns = monotonic_ns();
                let answer = piece(Kind::Sync, run, 0, order.event, &[]);
                let answer = Piece { order_received_ns: now_ns, sent_ns: now_ns, ..answer };
                socket.send_to(&answer.encode(), builder).unwrap();
            }
            Kind::Nack => drop(heard.send(order)),
            _ => {}
        }
    }
}

/// A source that says nothing more but hears that the run is over.
fn only_hears(mut source: Played) -> JoinHandle<()> {
    std::thread::spawn(move || while source.order().is_some() {})
}

/// Waits until the builder has taken out all datagrams that came to it.
fn wait_until_taken(builder: SocketAddr) {
    // The kernel may hand them over a moment after they were sent.
    std::thread::sleep(Duration::from_millis(50));
    let (from, port) = (Instant::now(), format!(":{:04X}", builder.port()));
    loop {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let own: Vec<_> = rows.filter(|fields| fields[1].ends_with(&port)).collect();
        assert!(!own.is_empty(), "nobody listens at {builder}");
        if own.iter().all(|fields| fields[4].ends_with(":00000000")) {
            return;
        }
        assert!(from.elapsed() < PATIENCE, "datagrams are left: {own:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn end(mut trial: Trial, sources: Vec<JoinHandle<()>>) -> BuilderReport {
    trial.wait();
    let report = trial.end().0.remove(0);
    sources.into_iter().for_each(|source| source.join().unwrap());
    report
}

fn counted(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    counts.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[test]
fn who_repeats_one_part_keeps_nobody_from_being_asked() {
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
        // Nothing at all is nothing new either.
        group.say(&piece(Kind::Fragment, group.run, 0, event, &[]), 2000, 3000, &[]);
        std::thread::sleep(Duration::from_micros(500));
        let heard = nacks.len();
        nacks.extend(group.nacks.try_iter());
        nacks[heard..].iter().for_each(|nack| asked[nack.first_source as usize] = true);
    }
    // The builder does not ask for ever.
    nacks.iter().for_each(|nack| group.give(&payload, nack));
    let (_, report) = group.answer_to_the_end(trial, &payload);
    assert_eq!((report.events.complete, report.ledger.built), (1, 2), "{:?}", report.ledger);
    assert_eq!(report.ledger.refused_all(), 0, "{:?}", report.ledger);
}

#[test]
fn a_refused_fragment_counts_once_however_often_it_is_asked_for() {
    let more = json!({ "size": "40KiB", "memory": "64KiB", "timeout": "3s" });
    let mut trial = Trial::new(&two(more));
    let mut group = Group::new(&trial);
    trial.start();
    let event = group.event();
    let payload = vec![9; 40 << 10];
    for source in [0, 1] {
        group.send(source, event, &payload, 0, payload.len());
    }
    let (answered, report) = group.answer_to_the_end(trial, &payload);
    assert!(answered > 1, "{answered}");
    assert_eq!((report.events.incomplete, report.ledger.in_incomplete), (1, 1), "{:?}", report.ledger);
    assert_eq!(counted(&report.ledger.refused), [("no_memory", 1)]);
    assert_eq!((report.ledger.late, report.ledger.duplicate), (0, 0));
}

#[test]
fn parts_with_other_bytes_than_were_sent_are_told_of_once_and_mended() {
    let mut trial = Trial::new(&two(json!({})));
    let mut group = Group::new(&trial);
    trial.start();
    let event = group.event();
    let payload = [9; 3000];
    for at in [0, PART_BYTES, PART_BYTES] {
        let right = piece(Kind::Fragment, group.run, 0, event, &payload[..PART_BYTES]);
        group.say(&Piece { payload_crc: 1, ..right }, at, payload.len(), &payload[..PART_BYTES]);
    }
    // No such source; and of no event that there ever was, in three parts.
    group.send(2, event, &payload, 0, PART_BYTES);
    group.send(0, event + 1000, &payload, 0, payload.len());
    let (_, report) = group.answer_to_the_end(trial, &payload);
    assert_eq!((report.events.complete, report.ledger.built), (1, 2), "{:?}", report.ledger);
    assert_eq!(counted(&report.ledger.refused), [("never_triggered", 1), ("payload_checksum", 1)]);
    assert_eq!(counted(&report.ledger.turned_away), [("unknown_source", 1)]);
}

#[test]
fn datagrams_are_no_fragments_where_connections_carry_them() {
    let mut trial = Trial::new(&two(json!({ "protocol": "tcp" })));
    let mut group = Group::new(&trial);
    trial.start();
    let event = group.sources[0].event(None);
    let payload = [9; 3000];
    // Whole ones and parts.
    group.send(0, event, &payload, 0, payload.len());
    group.send(1, event, &payload[..100], 0, 100);
    wait_until_taken(group.builder);
    let [mut one, other] = group.sources.try_into().ok().unwrap();
    one.send(event, &payload);
    // Asked once more it would send once more.
    let sources = vec![only_hears(one), other.go_on(payload.to_vec())];
    let report = end(trial, sources);
    assert_eq!((report.events.complete, report.ledger.built), (1, 2), "{:?}", report.ledger);
    assert_eq!((report.ledger.refused_all(), report.ledger.duplicate), (0, 0));
    assert_eq!(counted(&report.ledger.turned_away), [("wrong_kind", 4)]);
}
