//! What an agent may send on the bus, and what the router refuses: real routers and sessions over loopback.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::identity_common::{fleet, load, session_of, start_router};
use fleet::identity::{Auth, Credentials};
use fleet::protocol::{agent_key, coordinator_key, notification_key, request_key};
use zenoh::handlers::FifoChannelHandler;
use zenoh::sample::Sample;
use zenoh::{Session, Wait};

/// Longer than anything takes that is let through.
const WITHIN: Duration = Duration::from_secs(5);
type Samples = zenoh::pubsub::Subscriber<FifoChannelHandler<Sample>>;

/// Put until a subscriber receives it: declarations take a moment to arrive.
fn hears(samples: &Samples, put: impl Fn()) -> String {
    let deadline = std::time::Instant::now() + WITHIN;
    while std::time::Instant::now() < deadline {
        put();
        if let Ok(Some(sample)) = samples.recv_timeout(Duration::from_millis(50)) {
            return sample.key_expr().to_string();
        }
    }
    panic!("nothing was heard within {WITHIN:?}");
}

/// The keys of all messages received up to `last`; the messages of one session arrive in order.
fn heard_until(samples: &Samples, last: &str) -> Vec<String> {
    let mut keys = Vec::new();
    loop {
        let sample = samples.recv_timeout(WITHIN).unwrap().expect("what is allowed arrives");
        keys.push(sample.key_expr().to_string());
        if keys.last().unwrap() == last {
            return keys;
        }
    }
}

fn answers_on(session: &Session, key: &str) -> Receiver<String> {
    let (sender, receiver) = channel();
    let queryable = session.declare_queryable(key.to_owned()).callback(move |query| {
        let _ = sender.send(query.key_expr().to_string());
        // An agent can answer only on its own key; the answer under another key is tried first.
        for key in [request_key("b", "1"), request_key("a", "1")] {
            let _ = query.reply(key, "answer").wait();
        }
    });
    queryable.background().wait().unwrap();
    receiver
}

fn ask(session: &Session, key: &str) -> Vec<String> {
    let replies = session
        .get(key.to_owned())
        // By default a session answers its own queries.
        .allowed_destination(zenoh::sample::Locality::Remote)
        .accept_replies(zenoh::query::ReplyKeyExpr::Any)
        .timeout(Duration::from_millis(500))
        .wait()
        .unwrap();
    replies.into_iter().filter_map(|reply| Some(reply.result().ok()?.key_expr().to_string())).collect()
}

/// An agent `a` tries everything; `coordinator` is the router's own session.
fn check(coordinator: &Session, a: &Session, other: &Session, names_are_proven: bool) {
    let message = coordinator.declare_subscriber("kagiri/**").wait().unwrap();
    let there = coordinator.liveliness().declare_subscriber("kagiri/**").wait().unwrap();
    let spied = other.declare_subscriber("**").wait().unwrap();

    // It may publish on its own key, and declare itself under its own name.
    assert_eq!(hears(&message, || a.put(notification_key("a"), "x").wait().unwrap()), notification_key("a"));
    let tokens: Vec<_> = [agent_key("b", "1"), coordinator_key("a"), agent_key("a", "1")]
        .map(|key| a.liveliness().declare_token(key).wait().unwrap())
        .into();
    let seen = heard_until(&there, &agent_key("a", "1"));
    let allowed =
        |key: &String| key == &agent_key("a", "1") || !names_are_proven && key == &agent_key("b", "1");
    assert!(seen.iter().all(allowed), "{seen:?}");
    // Its own session shows them to itself.
    drop(tokens);

    // It cannot speak for another, nor for the coordinator, nor elsewhere.
    let forbidden = [
        notification_key("b"),
        coordinator_key("c"),
        request_key("a", "1"),
        "kagiri/2/tell/a".into(),
        "else".into(),
    ];
    for key in forbidden.iter().cloned() {
        a.put(key, "x").congestion_control(zenoh::qos::CongestionControl::Block).wait().unwrap();
    }
    a.delete(notification_key("a")).wait().unwrap();
    // Not to be dropped by the sender, which it would be on a busy machine.
    let block = zenoh::qos::CongestionControl::Block;
    a.put(notification_key("a"), vec![0; (16 << 20) + 1]).congestion_control(block).wait().unwrap();
    a.put(notification_key("a"), "last").congestion_control(block).wait().unwrap();
    let mut heard = Vec::new();
    loop {
        let sample = message.recv_timeout(WITHIN).unwrap().expect("what is allowed arrives");
        assert!(sample.kind() == zenoh::sample::SampleKind::Put && sample.payload().len() <= 16 << 20);
        heard.push(sample.key_expr().to_string());
        if sample.payload().try_to_string().unwrap() == "last" {
            break;
        }
    }
    heard.retain(|key| key != &notification_key("a"));
    assert!(heard.is_empty() || !names_are_proven && heard == [notification_key("b")], "{heard:?}");

    // It is asked on its own key, and answers on it alone.
    let asked = answers_on(a, &request_key("a", "1"));
    let stolen = names_are_proven.then(|| answers_on(a, &request_key("b", "1")));
    let deadline = std::time::Instant::now() + WITHIN;
    let replies = loop {
        let replies = ask(coordinator, &request_key("*", "*"));
        if !replies.is_empty() || std::time::Instant::now() > deadline {
            break replies;
        }
    };
    assert!(!names_are_proven || replies == [request_key("a", "1")], "{replies:?}");
    assert!(replies.contains(&request_key("a", "1")));
    assert!(asked.try_recv().is_ok());
    if let Some(stolen) = stolen {
        // Its own session may have delivered the request to all.
        while stolen.try_recv().is_ok() {}
        ask(coordinator, &request_key("b", "1"));
        assert!(stolen.try_recv().is_err(), "it was asked for another");
    }

    // It receives from the coordinator; it can query no host, and sees no other host.
    let leases = a.declare_subscriber(coordinator_key("*")).wait().unwrap();
    let lease = coordinator_key("c1");
    assert_eq!(hears(&leases, || coordinator.put(&lease, "lease").wait().unwrap()), lease);
    let _token = coordinator.liveliness().declare_token(&lease).wait().unwrap();
    let alive = a.liveliness().declare_subscriber(coordinator_key("*")).history(true).wait().unwrap();
    assert_eq!(heard_until(&alive, &lease), std::slice::from_ref(&lease));
    let asked_of_other = answers_on(other, &request_key("b", "1"));
    assert!(
        ask(a, &request_key("*", "*")).is_empty()
            && ask(a, &request_key("b", "1")).is_empty()
            && ask(a, "**").is_empty()
    );
    assert!(asked_of_other.try_recv().is_err());
    let others = a.liveliness().get("kagiri/*/agent/**").timeout(Duration::from_millis(300)).wait().unwrap();
    assert_eq!(others.into_iter().filter(|reply| reply.result().is_ok()).count(), 0);
    assert!(spied.drain().next().is_none(), "another agent received a request");
}

fn fleet_of(auth: Auth) {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), auth, &["a", "b"]);
    let credentials: Vec<Credentials> = ["coordinator", "a", "b"].map(|name| load(dir.path(), name)).into();
    let (router, at) = start_router(Some(&credentials[0]), "127.0.0.1");
    let [a, b] = [1, 2].map(|index| session_of(&at, Some(&credentials[index])).unwrap());
    check(&router, &a, &b, true);
}

#[test]
fn certificate_restricts_agent_to_its_name() {
    fleet_of(Auth::Certificates);
}

#[test]
fn password_restricts_agent_to_its_name() {
    fleet_of(Auth::Passwords);
}

#[test]
fn local_agent_cannot_send_requests() {
    let (router, at) = start_router(None, "127.0.0.1");
    let [a, b] = [1, 2].map(|_| session_of(&at, None).unwrap());
    check(&router, &a, &b, false);
}

/// With an external router the coordinator is a client like others, and may do everything.
#[test]
fn coordinator_works_through_a_router() {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    let (coordinator, a) = (load(dir.path(), "coordinator"), load(dir.path(), "a"));
    let (_router, at) = start_router(Some(&coordinator), "127.0.0.1");
    let (coordinator, a) = (session_of(&at, Some(&coordinator)).unwrap(), session_of(&at, Some(&a)).unwrap());
    let message = coordinator.declare_subscriber(notification_key("*")).wait().unwrap();
    assert_eq!(hears(&message, || a.put(notification_key("a"), "x").wait().unwrap()), notification_key("a"));
    let _asked = answers_on(&a, &request_key("a", "1"));
    let deadline = std::time::Instant::now() + WITHIN;
    while ask(&coordinator, &request_key("*", "*")) != [request_key("a", "1")] {
        assert!(std::time::Instant::now() < deadline, "the agent never answered");
    }
}

/// A member that is not on the coordinator's list is refused before it reaches the bus.
#[test]
fn unlisted_member_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    let members = crate::identity_common::bundle(dir.path(), "coordinator").join("members");
    let text = std::fs::read_to_string(&members).unwrap();
    std::fs::write(&members, text.replace("b\n", "")).unwrap();
    let (router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    let join = |name: &str| session_of(&at, Some(&load(dir.path(), name)));
    let why = join("b").map(drop).unwrap_err();
    assert!(why.contains("not in the coordinator's list of members"), "{why}");
    let a = join("a").unwrap();
    let message = router.declare_subscriber("kagiri/**").wait().unwrap();
    assert_eq!(hears(&message, || a.put(notification_key("a"), "x").wait().unwrap()), notification_key("a"));
}
