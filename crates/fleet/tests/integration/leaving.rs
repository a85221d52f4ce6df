//! A host that joins during a run disturbs no other; a host that leaves during work leaves nothing behind.

use std::path::Path;
use std::time::Instant;

use crate::common::{
    Agent, GUARD, bus, coordinator, endpoint, error_text, fleet, spec, start_in_time, until, wish,
};
use base::part::{Endpoints, Progress};
use fleet::Bus;
use fleet::protocol::{self, Request, Response};
use fleet::session::{self, Role};
use serde_json::json;
use zenoh::Wait;

fn slow(name: &str, host: &str, file: &Path) -> base::part::PartSpec {
    spec(name, host, json!({ "fails_in": "prepare-slowly", "leaves": file }))
}

/// Whether the other end of a local connection has read everything that was sent (proc(5), net/tcp).
fn is_read(sent: &std::net::TcpStream) -> bool {
    let port = |address: std::net::SocketAddr| format!("0100007F:{:04X}", address.port());
    let ends = [port(sent.peer_addr().unwrap()), port(sent.local_addr().unwrap())];
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_other_side = |words: &[&str]| words.get(1..3) == Some(&[ends[0].as_str(), ends[1].as_str()][..]);
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| is_other_side(words)).any(|words| words[4].ends_with(":00000000"))
}

#[test]
fn unfinished_join_does_not_block_the_coordinators_end() {
    use std::io::Write;
    let endpoint = endpoint();
    let coordinator = coordinator(&endpoint, "run");
    // It begins a message and does not end it, like a TLS client of a server without TLS; it has 10 s.
    let mut joining = std::net::TcpStream::connect(endpoint.trim_start_matches("tcp/")).unwrap();
    joining.write_all(&[0x16, 0x03, 0x01]).unwrap();
    until("it is listened to", || is_read(&joining));
    let began = Instant::now();
    drop(coordinator);
    let within = began.elapsed();
    assert!(within.as_secs() < 7, "{within:?}");
}

#[test]
fn second_agent_of_a_name_ends_the_trial_and_disturbs_none_once_it_left() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let _first = Agent::start("nas", &endpoint, dir.path(), false);
    let mut coordinator = coordinator(&endpoint, "run");
    coordinator.recruit(&[wish("nas")], GUARD, &|_| {}).unwrap();
    let roster = coordinator.membership().clone();
    let mut bus = bus(coordinator, dir.path());
    let second = Agent::start("nas", &endpoint, dir.path(), false);
    let instances = |number| roster.known("nas").is_some_and(|known| known.instances.len() == number);
    until("it joins", || instances(2));
    let why = bus.place(vec![spec("a", "nas", json!({}))]).unwrap_err().to_string();
    assert_eq!(why, "two agents have the name nas: end one, or give it another --name");
    drop(second);
    until("it leaves", || instances(1));
    // Often: the agent of the run, and no other, gets the requests.
    for round in 0..10 {
        start_in_time(&mut bus, &[spec("a", "nas", json!({}))], &Endpoints::new());
        until("it finishes", || bus.progress("a").unwrap() == Progress::Finished);
        assert!(bus.timing().is_some(), "round {round}");
        let report = bus.stop(&["a"]).remove("a").unwrap().unwrap();
        assert!(report["started_ns"].is_u64(), "round {round}: {report}");
    }
}

#[test]
fn failed_prepare_on_one_host_ends_all() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let file = dir.path().join("made");
    let _agents = ["nas", "pc"].map(|name| Agent::start(name, &endpoint, dir.path(), false));
    let mut bus = fleet(&endpoint, &["nas", "pc"], dir.path());
    let fails = spec("b", "pc", json!({ "fails_in": "prepare" }));
    bus.place(vec![slow("a", "nas", &file), fails]).unwrap();
    let began = Instant::now();
    assert_eq!(error_text(bus.prepare(&["a", "b"], &Endpoints::new())), "b on pc: the disk is full");
    until("the other prepares", || file.exists());
    let ended = bus.stop(&["a", "b"]);
    assert!(ended.contains_key("a") && ended.contains_key("b"));
    until("the other gave up", || !file.exists());
    assert!(began.elapsed() < GUARD, "{:?}", began.elapsed());
}

#[test]
fn agent_stopped_while_preparing_cleans_up() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let file = dir.path().join("made");
    let agent = Agent::start("nas", &endpoint, dir.path(), false);
    let mut bus = fleet(&endpoint, &["nas"], dir.path());
    bus.place(vec![slow("a", "nas", &file)]).unwrap();
    let stop = agent.stop.clone();
    std::thread::scope(|scope| {
        let preparing = scope.spawn(|| {
            until("it prepares", || file.exists());
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            agent.end().unwrap();
            // At the end of the agent, not some time after.
            assert!(!file.exists(), "a part was left behind");
        });
        assert!(error_text(bus.prepare(&["a"], &Endpoints::new())).contains("nas"));
        preparing.join().unwrap();
    });
}

/// Asks an agent whatever one likes, as a coordinator that was taken over could.
fn ask(session: &zenoh::Session, ask: &Request) -> Response {
    let replies = session
        .get(protocol::request_key("nas", "*"))
        .payload(protocol::encode(ask))
        .timeout(GUARD)
        .wait()
        .unwrap();
    let reply = replies.recv().unwrap();
    protocol::decode(&reply.result().unwrap().payload().to_bytes()).unwrap()
}

fn busy_with(session: &zenoh::Session) -> Option<String> {
    match ask(session, &Request::Describe) {
        Response::Description(description) => description.busy,
        other => panic!("{other:?}"),
    }
}

fn run() -> String {
    "run".to_owned()
}

fn taken(endpoint: &str, dir: &Path) -> (session::BusSession, Agent) {
    let session =
        session::open(&Role::Router { listen: vec![endpoint.to_owned()] }, None, &[], GUARD).unwrap();
    let agent = Agent::start("nas", endpoint, dir, false);
    let tokens = || session.liveliness().get(protocol::agents_key()).wait().unwrap();
    until("it joins", || tokens().iter().count() == 1);
    let take = Request::Take {
        run: run(),
        coordinator: "c".into(),
        name: "desk".into(),
        fleet: Vec::new(),
        lease_ms: 60_000,
    };
    assert!(matches!(ask(&session, &take), Response::Taken { .. }));
    (session, agent)
}

#[test]
fn slow_progress_does_not_delay_responses() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let file = dir.path().join("may-say");
    let (session, _agent) = taken(&endpoint, dir.path());
    let specs = vec![spec("a", "nas", json!({ "says_after": file }))];
    assert_eq!(ask(&session, &Request::Place { run: run(), specs }), Response::Done);
    until("it is asked how far it is", || dir.path().join("may-say.asked").exists());
    assert_eq!(busy_with(&session), Some(run()));
    std::fs::write(&file, "").unwrap();
}

#[test]
fn start_far_ahead_is_refused() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let (session, _agent) = taken(&endpoint, dir.path());
    let place = Request::Place { run: run(), specs: vec![spec("a", "nas", json!({}))] };
    assert_eq!(ask(&session, &place), Response::Done);
    for at_ns in [sys::clock::monotonic_ns() + 3_600_000_000_000, u64::MAX] {
        let answer = ask(&session, &Request::Start { run: run(), parts: vec!["a".into()], at_ns });
        let Response::Refused { part: None, error } = answer else { panic!("{answer:?}") };
        assert!(error.message.contains("s ahead, more than 60s"), "{error}");
    }
}

#[test]
fn release_waits_for_parts_and_checks_the_run() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let file = dir.path().join("made");
    let (session, _agent) = taken(&endpoint, dir.path());
    let place = Request::Place { run: run(), specs: vec![slow("a", "nas", &file)] };
    assert_eq!(ask(&session, &place), Response::Done);
    std::thread::scope(|scope| {
        let prepare = Request::Prepare { run: run(), parts: vec!["a".into()], peers: Endpoints::new() };
        let prepared = scope.spawn(|| ask(&session, &{ prepare }));
        until("it prepares", || file.exists());
        let other = ask(&session, &Request::Release { run: "other".into() });
        assert!(matches!(other, Response::Refused { .. }) && file.exists(), "{other:?}");
        assert_eq!(ask(&session, &Request::Release { run: run() }), Response::Done);
        assert!(!file.exists(), "released before its part was gone");
        assert!(matches!(prepared.join().unwrap(), Response::Refused { .. }));
    });
    assert_eq!(busy_with(&session), None);
}
