//! What an agent says is not believed because it came: agents of another version, that break off, answer nonsense,
//! answer for others, or flood. Each is named within a deadline; nothing panics, nothing grows without bound.

#![allow(clippy::unwrap_used)] // clippy exempts test functions only, not their helpers

#[allow(dead_code, reason = "each test program uses a part")]
mod common;
mod odd;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::part::{Endpoints, PartError, Progress};
use common::{Agent, GUARD, bus, coordinator, endpoint, spec, until, wish};
use kagiri_fleet::coordinator::{Coordinator, FleetBus};
use kagiri_fleet::protocol::{self, Answer, Ask, Description, PROTOCOL, Tell};
use kagiri_fleet::session::{self, Role};
use kagiri_fleet::{Bus, FleetError};
use odd::{NEVER, Odd, but, description, honest};
use proptest::prelude::*;
use serde_json::{Value, json};
use zenoh::Wait;

/// Bytes that are none of ours, with a word of what is said of them.
fn nonsense() -> Vec<(Vec<u8>, &'static str)> {
    let deep = [vec![b'['; 1 << 20], vec![b']'; 1 << 20]].concat();
    let long = format!("\"{}\"", "x".repeat(protocol::MESSAGE_BYTES_MAX - 1000));
    vec![
        (Vec::new(), "cannot be read"),
        (b"\"done".to_vec(), "cannot be read"),
        (vec![0xff; 4096], "cannot be read"),
        (deep, "cannot be read"),
        (long.into_bytes(), "cannot be read"),
        (br#"{"prepared":{"a":NaN}}"#.to_vec(), "cannot be read"),
        (br#"{"description":{"name":"odd","realtime_s":1e999}}"#.to_vec(), "cannot be read"),
        (br#"{"stopped":{"z":{"Ok":null}}}"#.to_vec(), "does not fit"),
    ]
}

fn gathered(endpoint: &str, hosts: &[&str]) -> Result<Coordinator, FleetError> {
    let mut coordinator = coordinator(endpoint, "run");
    let wishes: Vec<_> = hosts.iter().map(|host| wish(host)).collect();
    coordinator.gather(&wishes, GUARD, &|_| {}).map(|()| coordinator)
}

/// A coordinator listens first, so that an odd agent, which tries once, finds it.
fn meet<T>(hosts: &[&str], join: impl FnOnce(&str) -> T) -> (Result<Coordinator, FleetError>, T) {
    let endpoint = endpoint();
    let mut coordinator = coordinator(&endpoint, "run");
    let joined = join(&endpoint);
    let wishes: Vec<_> = hosts.iter().map(|host| wish(host)).collect();
    let gathered = coordinator.gather(&wishes, GUARD, &|_| {});
    (gathered.map(|()| coordinator), joined)
}

/// A bus with a part `a` on the host `odd`, and what became of preparing, starting and stopping it.
fn drive(coordinator: Coordinator, dir: &std::path::Path) -> (FleetBus, Vec<String>) {
    let mut bus = bus(coordinator, dir);
    let mut told = Vec::new();
    let mut note = |what: &str, result: Result<(), kagiri_fleet::BusError>| {
        told.push(format!("{what}: {}", result.map_or_else(|error| error.to_string(), |()| "done".into())));
    };
    note("place", bus.place(vec![spec("a", "odd", json!({}))]));
    note("prepare", bus.prepare(&["a"], &Endpoints::new()).map(drop));
    let stopped = bus.stop(&["a"]).remove("a").unwrap();
    note("stop", stopped.map(drop));
    (bus, told)
}

#[test]
fn who_answers_nonsense_is_named_and_not_believed() {
    for (bytes, word) in nonsense() {
        let (refused, _odd) = meet(&["odd"], |endpoint| {
            Odd::join("odd", endpoint, PROTOCOL, but("odd", "describe", vec![bytes]))
        });
        let said = refused.err().unwrap().to_string();
        // Where the machine is busy, the longest do not come in time.
        let late = said.contains("odd: it joined, but does not say who it is");
        assert!(late || said.contains("odd: its answer") && said.contains(word), "{said}");
        assert!(said.len() < 1000, "{} bytes of message", said.len());
    }
}

#[test]
fn nonsense_in_each_phase_names_the_host_and_the_phase_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = nonsense();
    // A part that nobody asked for says nothing of the one that was.
    let of_another = all.pop().unwrap().0;
    let broken = all.swap_remove(1).0;
    for (phase, at, bytes) in [("place", 0, &broken), ("prepare", 1, &broken), ("stop", 2, &of_another)] {
        let (coordinator, odd) = meet(&["odd"], |endpoint| {
            Odd::join("odd", endpoint, PROTOCOL, but("odd", phase, vec![bytes.clone()]))
        });
        let (bus, told) = drive(coordinator.unwrap(), dir.path());
        assert!(told[at].contains("odd") && !told[at].ends_with("done"), "{told:?}");
        drop((bus, odd));
    }
}

#[test]
fn the_first_answer_counts_and_another_is_not_heard() {
    let dir = tempfile::tempdir().unwrap();
    let refused = Answer::Refused { part: None, error: PartError::new("second thoughts") };
    let twice = vec![protocol::write(&Answer::Done), protocol::write(&refused)];
    let (coordinator, _odd) =
        meet(&["odd"], |endpoint| Odd::join("odd", endpoint, PROTOCOL, but("odd", "place", twice)));
    let (_bus, told) = drive(coordinator.unwrap(), dir.path());
    assert_eq!(told, ["place: done", "prepare: done", "stop: done"]);
}

#[test]
fn nobody_answers_for_another() {
    let endpoint = endpoint();
    let dir = tempfile::tempdir().unwrap();
    let _nas = Agent::start("nas", &endpoint, dir.path(), false);
    let mut coordinator = coordinator(&endpoint, "run");
    let false_nas = protocol::write(&Answer::Description(Box::new(description("nas", "forged"))));
    let _odd = Odd::join("odd", &endpoint, PROTOCOL, but("odd", "describe", vec![false_nas]));
    let said = coordinator.gather(&[wish("nas"), wish("odd")], GUARD, &|_| {}).unwrap_err().to_string();
    assert!(said.contains("odd: its answer does not fit"), "{said}");
    assert_ne!(coordinator.agents()["nas"].instance, "forged");
}

#[test]
fn an_agent_of_another_version_is_named() {
    let endpoint = endpoint();
    let mut coordinator = coordinator(&endpoint, "run");
    let _odd = Odd::join("odd", &endpoint, PROTOCOL + 1, Arc::new(|_, _| Vec::new()));
    until("it is seen", || coordinator.roster().foreign().contains_key("odd"));
    let refused = coordinator.gather(&[wish("odd")], Duration::from_secs(1), &|_| {});
    let said = refused.err().unwrap().to_string();
    assert!(said.contains("odd: it speaks messages of version 2, here 1: install the same kagiri"), "{said}");
    // One that still understands the question.
    let other = Answer::Description(Box::new(Description {
        protocol: PROTOCOL + 1,
        version: "9.9".into(),
        ..description("odd", "x")
    }));
    let other = but("odd", "describe", vec![protocol::write(&other)]);
    let (refused, _odd) = meet(&["odd"], |endpoint| Odd::join("odd", endpoint, PROTOCOL, other));
    let said = refused.err().unwrap().to_string();
    assert!(said.contains("odd runs kagiri 9.9 (messages of version 2, here 1)"), "{said}");
}

#[test]
fn who_never_says_who_it_is_is_named_within_the_deadline() {
    let began = Instant::now();
    let (refused, _odd) =
        meet(&["odd"], |endpoint| Odd::join("odd", endpoint, PROTOCOL, Arc::new(|_, _| Vec::new())));
    let said = refused.err().unwrap().to_string();
    assert!(said.contains("odd: it joined, but does not say who it is"), "{said}");
    assert!(began.elapsed() < GUARD);
}

#[test]
fn an_agent_that_breaks_off_in_a_phase_is_lost_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for phase in ["place", "prepare", "stop"] {
        let (leave, left) = std::sync::mpsc::channel();
        let (coordinator, odd) = meet(&["odd"], |endpoint| {
            let answers = move |instance: &str, ask: Ask| {
                if serde_json::to_value(&ask).unwrap()["ask"] == phase {
                    leave.send(()).unwrap();
                    // Its asker learns that the agent is gone.
                    return vec![NEVER.to_vec()];
                }
                vec![protocol::write(&honest("odd", instance, &ask))]
            };
            Odd::join("odd", endpoint, PROTOCOL, Arc::new(answers))
        });
        let leaving = std::thread::spawn(move || {
            left.recv().unwrap();
            drop(odd.session.close().wait());
        });
        let (bus, told) = drive(coordinator.unwrap(), dir.path());
        let at = ["place", "prepare", "stop"].iter().position(|other| *other == phase).unwrap();
        assert!(
            told[at].contains("host odd was lost: its agent ended, was killed, or was cut off"),
            "{told:?}"
        );
        drop(bus);
        leaving.join().unwrap();
    }
}

#[test]
fn a_flood_of_tales_is_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, odd) =
        meet(&["odd"], |endpoint| Odd::join("odd", endpoint, PROTOCOL, but("odd", "", Vec::new())));
    let coordinator = coordinator.unwrap();
    let roster = coordinator.roster().clone();
    let line = |text: String| protocol::write(&Tell::Line { run: "run".into(), text });
    let beat = |part: &str| Tell::Beat {
        run: "run".into(),
        parts: [(part.to_owned(), Progress::Finished)].into(),
        live: Default::default(),
        start_late_ns: Some(u64::MAX),
    };
    let began = Instant::now();
    let mut floods = 0;
    let lines = loop {
        floods += 1;
        // A part of its own, so that it tells that this flood has been heard to its end.
        let part = format!("a{floods}");
        for (bytes, _) in nonsense() {
            odd.tell(bytes);
        }
        odd.tell(line(format!("\u{1b}[2J{}", "long".repeat(1 << 20))));
        for n in 0..5000 {
            odd.tell(line(format!("line {n}")));
        }
        while roster.progress("odd", &part).is_none() {
            assert!(began.elapsed() < GUARD, "what comes after a flood is heard");
            // Under a flood the bus drops some; beats are repeated.
            odd.tell(protocol::write(&beat(&part)));
            std::thread::sleep(Duration::from_millis(5));
        }
        let lines = roster.take_lines();
        // On a busy machine it drops all of them.
        if !lines.is_empty() {
            break lines;
        }
        assert!(began.elapsed() < GUARD, "not a line of any flood came");
    };
    assert!(lines.len() <= 1000, "{} lines", lines.len());
    for (name, text) in &lines {
        assert!(name == "odd" && text.len() <= 500 && !text.contains('\u{1b}'), "{text}");
    }
    drop(bus(coordinator, dir.path()));
}

#[test]
fn an_agent_refuses_what_it_cannot_read_and_serves_the_next() {
    let endpoint = endpoint();
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start("nas", &endpoint, dir.path(), false);
    let role = Role::Router { listen: vec![endpoint.clone()] };
    let hostile = session::open(&role, &[], GUARD).unwrap();
    let matching =
        hostile.liveliness().declare_subscriber(protocol::agents_key()).history(true).wait().unwrap();
    matching.recv_timeout(GUARD).unwrap().expect("the agent's token");
    let mut questions: Vec<Vec<u8>> = nonsense().into_iter().map(|(bytes, _)| bytes).collect();
    let of_nobody = Ask::Start { run: "none".into(), parts: vec!["a".into()], at_ns: u64::MAX };
    questions.push(protocol::write(&of_nobody));
    questions.push(br#"{"ask":"format_disk"}"#.to_vec());
    for question in questions {
        let answers =
            hostile.get(protocol::ask_key("nas", "*")).payload(question).timeout(GUARD).wait().unwrap();
        let reply = answers.recv_timeout(GUARD).unwrap().expect("an answer");
        let answer = protocol::read(&reply.result().unwrap().payload().to_bytes()).unwrap();
        assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
        // Nor does it believe a sign of life of nobody.
        hostile.put(protocol::coordinator_key("x"), vec![b'{'; 100]).wait().unwrap();
    }
    hostile.close().wait().unwrap();
    drop(gathered(&endpoint, &["nas"]).unwrap());
}

#[test]
fn a_stranger_that_prepares_for_ever_does_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, _odd) =
        meet(&["odd"], |endpoint| Odd::join("odd", endpoint, PROTOCOL, but("odd", "release", Vec::new())));
    let began = Instant::now();
    drop(bus(coordinator.unwrap(), dir.path()));
    assert!(began.elapsed() < GUARD, "a release that nobody answers");
}

/// Any JSON, of some depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,10}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Messages of ours, to be damaged.
fn ours() -> Vec<Vec<u8>> {
    let take = Ask::Take {
        run: "r".into(),
        coordinator: "7f".into(),
        name: "desk".into(),
        fleet: vec!["10.0.0.1".parse().unwrap()],
        lease_ms: 5000,
    };
    let place =
        Ask::Place { run: "r".into(), specs: vec![spec("a", "nas", json!({"deep": [1, {"x": null}]}))] };
    let stopped = Answer::Stopped([("a".to_owned(), Err(PartError::usage("no")))].into());
    let described = Answer::Description(Box::new(description("nas", "7f")));
    vec![
        protocol::write(&take),
        protocol::write(&place),
        protocol::write(&stopped),
        protocol::write(&described),
    ]
}

fn read_all(bytes: &[u8]) -> [bool; 4] {
    [
        protocol::read::<Ask>(bytes).is_ok(),
        protocol::read::<Answer>(bytes).is_ok(),
        protocol::read::<Tell>(bytes).is_ok(),
        protocol::read::<protocol::Renewal>(bytes).is_ok(),
    ]
}

proptest! {
    #[test]
    fn damaged_messages_are_read_or_refused(
        which in 0..4usize, cut in any::<prop::sample::Index>(), flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6)
    ) {
        let mut bytes = ours()[which].clone();
        prop_assert!(read_all(&bytes).contains(&true));
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        let _ = read_all(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        // A message is whole only with its last bracket.
        prop_assert_eq!(read_all(&bytes), [false; 4]);
    }

    #[test]
    fn any_json_is_read_or_refused_and_reads_back(value in any_json(), tag in "(ask|tell)") {
        let mut value = value;
        if let Some(object) = value.as_object_mut() {
            object.insert(tag, json!("line"));
        }
        let bytes = serde_json::to_vec(&value).unwrap();
        if let Ok(tell) = protocol::read::<Tell>(&bytes) {
            prop_assert_eq!(protocol::read::<Tell>(&protocol::write(&tell)).unwrap(), tell);
        }
        let _ = read_all(&bytes);
    }
}

#[test]
fn a_host_whose_clock_is_not_known_is_left_out_by_name_and_let_go() {
    let refused = Answer::Refused { part: None, error: PartError::new("its owner does not want it") };
    let (asked, released) = std::sync::mpsc::channel();
    let answers = but("odd", "probe", vec![protocol::write(&refused)]);
    let (coordinator, _odd) = meet(&["odd"], |endpoint| {
        let answers = move |instance: &str, ask: Ask| {
            if let Ask::Release { run } = &ask {
                asked.send(run.clone()).unwrap();
            }
            answers(instance, ask)
        };
        Odd::join("odd", endpoint, PROTOCOL, Arc::new(answers))
    });
    let why = coordinator.err().unwrap().to_string();
    assert!(why.contains("odd: its clock is not known: its owner does not want it"), "{why}");
    assert_eq!(released.try_recv().unwrap(), "run");
}
