//! An agent's messages are checked: agents of another version, that break off, answer nonsense, answer for
//! others, or flood. Each is named within a deadline; nothing panics, nothing grows without bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Agent, GUARD, bus, coordinator, endpoint, fleet, spec, until, wish};
use crate::scripted_agent::{Answers, NO_RESPONSE, ScriptedAgent, description, honest, honest_except};
use base::part::{Endpoints, PartError, Progress};
use fleet::coordinator::{Coordinator, FleetBus, LogLine};
use fleet::protocol::{self, Description, Notification, PROTOCOL, Request, Response};
use fleet::session::{self, Role};
use fleet::{Bus, FleetError};
use proptest::prelude::*;
use serde_json::{Value, json};
use zenoh::Wait;

/// Bytes that are no valid message, and a word of the error.
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
        (br#"{"stopped":{"z":{"Ok":null}}}"#.to_vec(), "unexpected response"),
    ]
}

/// Recruits an odd agent. The coordinator listens first, so that the agent, which tries once, finds it.
fn recruit_odd(answers: Arc<Answers>) -> (Result<Coordinator, FleetError>, ScriptedAgent) {
    let endpoint = endpoint();
    let mut coordinator = coordinator(&endpoint, "run");
    let odd = ScriptedAgent::join("odd", &endpoint, PROTOCOL, answers);
    let recruited = coordinator.recruit(&[wish("odd")], GUARD, &|_| {});
    (recruited.map(|()| coordinator), odd)
}

/// A bus with a part `a` on the host `odd`, and the results of preparing, starting and stopping it.
fn run_phases(coordinator: Coordinator, dir: &std::path::Path) -> (FleetBus, Vec<String>) {
    let mut bus = bus(coordinator, dir);
    let mut outcomes = Vec::new();
    let mut note = |what: &str, result: Result<(), fleet::BusError>| {
        outcomes
            .push(format!("{what}: {}", result.map_or_else(|error| error.to_string(), |()| "done".into())));
    };
    note("place", bus.place(vec![spec("a", "odd", json!({}))]));
    note("prepare", bus.prepare(&["a"], &Endpoints::new()).map(drop));
    let stopped = bus.stop(&["a"]).remove("a").unwrap();
    note("stop", stopped.map(drop));
    (bus, outcomes)
}

#[test]
fn nonsense_description_is_rejected_by_name() {
    for (bytes, word) in nonsense() {
        let (refused, _odd) = recruit_odd(honest_except("odd", "describe", vec![bytes]));
        let error_text = refused.err().unwrap().to_string();
        // Where the machine is busy, the longest do not come in time.
        let late = error_text.contains("odd: it joined, but sends no description");
        assert!(late || error_text.contains("odd: it") && error_text.contains(word), "{error_text}");
        assert!(error_text.len() < 1000, "{} bytes of message", error_text.len());
    }
}

#[test]
fn nonsense_in_each_phase_names_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = nonsense();
    // A report of an unrequested part does not count for the requested one.
    let of_another = all.pop().unwrap().0;
    let broken = all.swap_remove(1).0;
    for (phase, at, bytes) in [("place", 0, &broken), ("prepare", 1, &broken), ("stop", 2, &of_another)] {
        let (coordinator, odd) = recruit_odd(honest_except("odd", phase, vec![bytes.clone()]));
        let (bus, outcomes) = run_phases(coordinator.unwrap(), dir.path());
        assert!(outcomes[at].contains("odd") && !outcomes[at].ends_with("done"), "{outcomes:?}");
        drop((bus, odd));
    }
}

#[test]
fn second_response_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let refused = Response::Refused { part: None, error: PartError::new("second thoughts") };
    let twice = vec![protocol::encode(&Response::Done), protocol::encode(&refused)];
    let (coordinator, _odd) = recruit_odd(honest_except("odd", "place", twice));
    let (_bus, outcomes) = run_phases(coordinator.unwrap(), dir.path());
    assert_eq!(outcomes, ["place: done", "prepare: done", "stop: done"]);
}

#[test]
fn response_under_another_name_is_rejected() {
    let endpoint = endpoint();
    let dir = tempfile::tempdir().unwrap();
    let _nas = Agent::start("nas", &endpoint, dir.path(), false);
    let mut coordinator = coordinator(&endpoint, "run");
    let false_nas = protocol::encode(&Response::Description(Box::new(description("nas", "forged"))));
    let _odd =
        ScriptedAgent::join("odd", &endpoint, PROTOCOL, honest_except("odd", "describe", vec![false_nas]));
    let error_text =
        coordinator.recruit(&[wish("nas"), wish("odd")], GUARD, &|_| {}).unwrap_err().to_string();
    assert!(error_text.contains("odd: it sent an unexpected response"), "{error_text}");
    assert_ne!(coordinator.agents()["nas"].instance, "forged");
}

#[test]
fn agent_of_another_version_is_reported() {
    let endpoint = endpoint();
    let mut coordinator = coordinator(&endpoint, "run");
    let _odd = ScriptedAgent::join("odd", &endpoint, PROTOCOL + 1, Arc::new(|_, _| Vec::new()));
    until("it is seen", || coordinator.membership().other_versions().contains_key("odd"));
    let refused = coordinator.recruit(&[wish("odd")], Duration::from_secs(1), &|_| {});
    let error_text = refused.err().unwrap().to_string();
    assert!(
        error_text.contains("odd: it uses protocol version 3, this host 2: install the same kagiri"),
        "{error_text}"
    );
    // One that still understands the question.
    let other = Response::Description(Box::new(Description {
        protocol: PROTOCOL + 1,
        version: "9.9".into(),
        ..description("odd", "x")
    }));
    let other = honest_except("odd", "describe", vec![protocol::encode(&other)]);
    let (refused, _odd) = recruit_odd(other);
    let error_text = refused.err().unwrap().to_string();
    assert!(error_text.contains("odd runs kagiri 9.9 (protocol version 3, this host 2)"), "{error_text}");
}

#[test]
fn agent_without_description_is_reported_in_time() {
    let began = Instant::now();
    let (refused, _odd) = recruit_odd(Arc::new(|_, _| Vec::new()));
    let error_text = refused.err().unwrap().to_string();
    assert!(error_text.contains("odd: it joined, but sends no description"), "{error_text}");
    assert!(began.elapsed() < GUARD);
}

#[test]
fn agent_that_leaves_in_a_phase_is_reported_lost() {
    let dir = tempfile::tempdir().unwrap();
    for phase in ["place", "prepare", "stop"] {
        let (leave, left) = std::sync::mpsc::channel();
        let answers = move |instance: &str, ask: Request| {
            if serde_json::to_value(&ask).unwrap()["ask"] == phase {
                leave.send(()).unwrap();
                // Its asker learns that the agent is gone.
                return vec![NO_RESPONSE.to_vec()];
            }
            vec![protocol::encode(&honest("odd", instance, &ask))]
        };
        let (coordinator, odd) = recruit_odd(Arc::new(answers));
        let leaving = std::thread::spawn(move || {
            left.recv().unwrap();
            drop(odd.session.close().wait());
        });
        let (bus, outcomes) = run_phases(coordinator.unwrap(), dir.path());
        let at = ["place", "prepare", "stop"].iter().position(|other| *other == phase).unwrap();
        assert!(
            outcomes[at].contains("host odd was lost: its agent ended, was killed, or was cut off"),
            "{outcomes:?}"
        );
        drop(bus);
        leaving.join().unwrap();
    }
}

#[test]
fn flood_of_notifications_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, odd) = recruit_odd(honest_except("odd", "", Vec::new()));
    let coordinator = coordinator.unwrap();
    let roster = coordinator.membership().clone();
    let line = |text: String| protocol::encode(&Notification::Log { run: "run".into(), text, needed: false });
    let beat = |part: &str| Notification::Heartbeat {
        run: "run".into(),
        parts: [(part.to_owned(), Progress::Finished)].into(),
        live: Default::default(),
        start_late_ns: Some(u64::MAX),
    };
    let began = Instant::now();
    let mut floods = 0;
    let lines = loop {
        floods += 1;
        // A part of its own: its report shows that the whole flood has been received.
        let part = format!("a{floods}");
        for (bytes, _) in nonsense() {
            odd.notify(bytes);
        }
        odd.notify(line(format!("\u{1b}[2J{}", "long".repeat(1 << 20))));
        for n in 0..5000 {
            odd.notify(line(format!("line {n}")));
        }
        while roster.progress("odd", &part).is_none() {
            assert!(began.elapsed() < GUARD, "what comes after a flood is heard");
            // Under a flood the bus drops some; beats are repeated.
            odd.notify(protocol::encode(&beat(&part)));
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
    for LogLine { host, text, .. } in &lines {
        assert!(host == "odd" && text.len() <= 500 && !text.contains('\u{1b}'), "{text}");
    }
    drop(bus(coordinator, dir.path()));
}

#[test]
fn agent_refuses_malformed_requests_and_continues() {
    let endpoint = endpoint();
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start("nas", &endpoint, dir.path(), false);
    let role = Role::Router { listen: vec![endpoint.clone()] };
    let hostile = session::open(&role, None, &[], GUARD).unwrap();
    let matching =
        hostile.liveliness().declare_subscriber(protocol::agents_key()).history(true).wait().unwrap();
    matching.recv_timeout(GUARD).unwrap().expect("the agent's token");
    let mut questions: Vec<Vec<u8>> = nonsense().into_iter().map(|(bytes, _)| bytes).collect();
    let unknown_run = Request::Start { run: "none".into(), parts: vec!["a".into()], at_ns: u64::MAX };
    questions.push(protocol::encode(&unknown_run));
    questions.push(br#"{"ask":"format_disk"}"#.to_vec());
    for question in questions {
        let answers =
            hostile.get(protocol::request_key("nas", "*")).payload(question).timeout(GUARD).wait().unwrap();
        let reply = answers.recv_timeout(GUARD).unwrap().expect("an answer");
        let answer = protocol::decode(&reply.result().unwrap().payload().to_bytes()).unwrap();
        assert!(matches!(answer, Response::Refused { .. }), "{answer:?}");
        // It also ignores a heartbeat of an unknown host.
        hostile.put(protocol::coordinator_key("x"), vec![b'{'; 100]).wait().unwrap();
    }
    hostile.close().wait().unwrap();
    drop(fleet(&endpoint, &["nas"], dir.path()));
}

#[test]
fn unanswered_release_does_not_block_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (coordinator, _odd) = recruit_odd(honest_except("odd", "release", Vec::new()));
    let began = Instant::now();
    drop(bus(coordinator.unwrap(), dir.path()));
    assert!(began.elapsed() < GUARD, "a release without an answer");
}

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

fn sample_messages() -> Vec<Vec<u8>> {
    let take = Request::Take {
        run: "r".into(),
        coordinator: "7f".into(),
        name: "desk".into(),
        fleet: vec!["10.0.0.1".parse().unwrap()],
        lease_ms: 5000,
    };
    let place =
        Request::Place { run: "r".into(), specs: vec![spec("a", "nas", json!({"deep": [1, {"x": null}]}))] };
    let stopped = Response::Stopped([("a".to_owned(), Err(PartError::usage("no")))].into());
    let described = Response::Description(Box::new(description("nas", "7f")));
    vec![
        protocol::encode(&take),
        protocol::encode(&place),
        protocol::encode(&stopped),
        protocol::encode(&described),
    ]
}

fn decodes_as(bytes: &[u8]) -> [bool; 4] {
    [
        protocol::decode::<Request>(bytes).is_ok(),
        protocol::decode::<Response>(bytes).is_ok(),
        protocol::decode::<Notification>(bytes).is_ok(),
        protocol::decode::<protocol::Renewal>(bytes).is_ok(),
    ]
}

proptest! {
    #[test]
    fn damaged_messages_are_decoded_or_rejected(
        which in 0..4usize,
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6)
    ) {
        let mut bytes = sample_messages()[which].clone();
        prop_assert!(decodes_as(&bytes).contains(&true));
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        let _ = decodes_as(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        // A message is whole only with its last bracket.
        prop_assert_eq!(decodes_as(&bytes), [false; 4]);
    }

    #[test]
    fn any_json_is_decoded_or_rejected(value in any_json(), tag in "(ask|tell)") {
        let mut value = value;
        if let Some(object) = value.as_object_mut() {
            object.insert(tag, json!("line"));
        }
        let bytes = serde_json::to_vec(&value).unwrap();
        if let Ok(tell) = protocol::decode::<Notification>(&bytes) {
            prop_assert_eq!(protocol::decode::<Notification>(&protocol::encode(&tell)).unwrap(), tell);
        }
        let _ = decodes_as(&bytes);
    }
}

#[test]
fn host_without_clock_is_left_out_and_released() {
    let refused = Response::Refused { part: None, error: PartError::new("its owner does not want it") };
    let (asked, released) = std::sync::mpsc::channel();
    let answers = honest_except("odd", "probe", vec![protocol::encode(&refused)]);
    let answers = move |instance: &str, ask: Request| {
        if let Request::Release { run } = &ask {
            asked.send(run.clone()).unwrap();
        }
        answers(instance, ask)
    };
    let (coordinator, _odd) = recruit_odd(Arc::new(answers));
    let why = coordinator.err().unwrap().to_string();
    assert!(why.contains("odd: its clock is not known: its owner does not want it"), "{why}");
    assert_eq!(released.try_recv().unwrap(), "run");
}
