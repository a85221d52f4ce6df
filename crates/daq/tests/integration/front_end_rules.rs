//! The table that tells an implementer which rules of the wire format his front ends broke.

use std::net::UdpSocket;

use crate::front_ends::{PAYLOAD, serve, two};
use crate::scripted_source::{ScriptedSource, header};
use crate::trial::Trial;
use base::outcome::Cell;
use daq::judge::judge;
use daq::report::{BuilderReport, BuildersReport};
use daq::settings::DaqSettings;
use daq::trial_reports::TrialReports;
use daq::wire::{FragmentHeader, Hello, Kind};
use serde_json::json;

/// The rules with what was seen of them.
struct Rules(Vec<(String, String, String)>);

impl Rules {
    fn new(settings: &DaqSettings, report: &BuilderReport) -> Self {
        let hosts = vec![BuildersReport { builders: vec![report.clone()] }];
        let judgement = judge(settings, &TrialReports { hosts, sources: Vec::new() });
        let mut tables = judgement.account.tables.into_iter();
        let table = tables.find(|table| table.title == "Front ends and the wire format").expect("the rules");
        let row = |row: Vec<Cell>| (row[0].text(""), row[1].text(""), row[2].text(""));
        Self(table.rows.into_iter().map(row).collect())
    }

    fn of(&self, rule: &str) -> (&str, &str) {
        let row = self.0.iter().find(|(name, ..)| name == rule);
        row.map_or_else(|| panic!("{rule}: {:?}", self.0), |row| (row.1.as_str(), row.2.as_str()))
    }

    fn broken(&self) -> Vec<(&str, &str)> {
        let broken = self.0.iter().filter(|(_, state, _)| state == "broken");
        broken.map(|(rule, _, seen)| (rule.as_str(), seen.as_str())).collect()
    }
}

#[test]
fn broken_rules_of_fragments_are_named() {
    let settings = two(json!({ "events": 12, "timeout": "200ms" }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    let [mut liar, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let honest = serve(honest, |_| true);
    let liar = std::thread::spawn(move || {
        while let Some(order) = liar.order() {
            let right = header(Kind::Fragment, liar.run, 0, order.event, &PAYLOAD);
            let far_ns = right.sent_ns + 3_000_000_000_000;
            let wrong = match order.event {
                2 => FragmentHeader { payload_crc: 1, ..right },
                3 => FragmentHeader { builder: 7, ..right },
                4 => FragmentHeader { event: 1_000, ..right },
                5 => FragmentHeader { sent_ns: 0, ..right },
                7 => FragmentHeader { run: liar.run ^ 1, ..right },
                8 => FragmentHeader { sent_ns: far_ns, ..right },
                9 => continue,
                _ => right,
            };
            liar.write(&[&wrong.encode()[..], &PAYLOAD].concat());
            // A fragment once more; and one of an event that was given up.
            let more = [(6, 6), (10, 9)].into_iter().find(|(event, _)| *event == order.event);
            if let Some((_, event)) = more {
                liar.write(&[&FragmentHeader { event, ..right }.encode()[..], &PAYLOAD].concat());
            }
        }
    });
    let report = trial.finish([liar, honest]);
    let rules = Rules::new(&settings, &report);
    assert_eq!(
        rules.broken(),
        [
            ("payload checksums", "payload checksum: 1"),
            ("run, builder and source in each header", "wrong run: 1, wrong builder: 1"),
            ("fragments of triggered events only", "never triggered: 1"),
            ("a fragment for each order", "source 0"),
            ("fragments before the timeout", "1 fragment"),
            ("one fragment for each event", "1 fragment"),
            ("send times between trigger and arrival", "source 0"),
        ]
    );
    for kept in ["a whole hello first, within 5 s", "payload lengths", "answers to clock probes"] {
        assert_eq!(rules.of(kept), ("kept", ""));
    }
    for not_seen in ["answers to multicast probes", "datagrams from the address in the hello"] {
        assert_eq!(rules.of(not_seen), ("not seen", ""));
    }
}

#[test]
fn wrong_hellos_are_named() {
    let settings = two(json!({ "events": 3 }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    let lies: [fn(&mut FragmentHeader, &mut Hello); 5] = [
        |header, _| header.run ^= 1,
        |header, _| header.builder = 7,
        |header, _| header.source = 99,
        |_, hello| hello.group = 0,
        |_, hello| hello.configuration = 1,
    ];
    for lie in lies {
        let mut wrong = ScriptedSource::silent(&facts, 1);
        wrong.send_hello(lie);
        assert!(wrong.is_closed());
    }
    let mut wrong = ScriptedSource::silent(&facts, 1);
    let hello = Hello { group: 5, ..Hello::default() }.encode();
    let right = header(Kind::Hello, facts.run, 1, 0, &hello);
    wrong.write(&[&FragmentHeader { payload_crc: 1, ..right }.encode()[..], &hello].concat());
    assert!(wrong.is_closed());
    // A second hello over the same connection.
    let mut twice = ScriptedSource::connect(&facts, 1);
    twice.send_hello(|_, _| {});
    assert!(twice.is_closed());
    drop(twice);
    let sources = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let report = trial.finish(sources.map(|source| serve(source, |_| true)));
    assert_eq!(report.events.complete, 3);
    let said = "wrong run: 1, wrong builder: 1, unknown source: 1, configuration: 1, no group: 1, payload \
                checksum: 1";
    assert_eq!(
        Rules::new(&settings, &report).broken(),
        [
            ("first messages that fit this run", said),
            ("one hello for each connection", "duplicate source: 1")
        ]
    );
}

#[test]
fn datagrams_from_another_address_are_named() {
    let settings = two(json!({ "events": 2, "protocol": "udp" }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sources = [0, 1].map(|source| {
        let mut source = ScriptedSource::silent(&facts, source);
        let port = own.local_addr().unwrap().port();
        source.send_hello(|_, hello| hello.udp_port = port);
        source
    });
    trial.start();
    let sources = sources.map(|mut source| {
        let builder = facts.addresses[0];
        std::thread::spawn(move || {
            let other = UdpSocket::bind("127.0.0.1:0").unwrap();
            while let Some(order) = source.order() {
                other.send_to(&source.fragment(order.event, &PAYLOAD), builder).unwrap();
            }
        })
    });
    let report = trial.finish(sources);
    let rules = Rules::new(&settings, &report);
    let (state, seen) = rules.of("datagrams from the address in the hello");
    assert!(state == "broken" && seen.starts_with("wrong address: "), "{seen}: {:?}", rules.0);
}
