//! Which credentials a coordinator admits, over loopback, and the errors for the others.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::identity_common::{
    WITHIN, bundle, fleet, join_within, load, more, session_of as join, start_router,
};
use fleet::identity::connect_error::{ZenohLog, explain};
use fleet::identity::{Auth, Credentials, DAYS_DEFAULT, InitOptions, Login, ServerName, init};

/// Without a certificate or a password, but trusting the fleet in `dir`.
fn stranger(own: &Credentials, dir: &Path) -> Credentials {
    Credentials { pair: None, login: None, ..trusting(own, dir) }
}

fn trusting(own: &Credentials, dir: &Path) -> Credentials {
    Credentials { ca: dir.join("ca/ca.pem"), ..own.clone() }
}

fn refused(endpoint: &str, credentials: Option<&Credentials>, mine: &str, theirs: Option<&str>) {
    refused_within(endpoint, credentials, WITHIN, mine, theirs);
}

/// Expect a session to be refused, and its side and the router's to say why.
fn refused_within(
    endpoint: &str,
    credentials: Option<&Credentials>,
    within: Duration,
    mine: &str,
    theirs: Option<&str>,
) {
    let reasons = ZenohLog::of_process().unwrap();
    reasons.take();
    let joined = join_within(endpoint, credentials, within);
    assert!(joined.is_err(), "{endpoint} admitted a member that it must reject: {mine}");
    let mut lines = reasons.take();
    // The router may see the refusal later than the refused side.
    let deadline = Instant::now() + WITHIN;
    loop {
        let message: Vec<_> = lines.iter().filter_map(|line| explain(std::slice::from_ref(line))).collect();
        let has = |words: &str| message.iter().any(|message| message.contains(words));
        if has(mine) && theirs.is_none_or(has) {
            return;
        }
        assert!(Instant::now() < deadline, "expected '{mine}' and {theirs:?} of {lines:#?}: {message:#?}");
        std::thread::yield_now();
        lines.extend(reasons.take());
    }
}

#[test]
fn certificates_admit_members_only() {
    let _alone = crate::alone();
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fleet(ours.path(), Auth::Certificates, &["a"]);
    fleet(theirs.path(), Auth::Certificates, &["a"]);
    let (own, foreign) = (load(ours.path(), "a"), load(theirs.path(), "a"));
    let (_router, at) = start_router(Some(&load(ours.path(), "coordinator")), "127.0.0.1");
    assert!(join(&at, Some(&own)).is_ok());
    assert!(join(&at.replace("127.0.0.1", "localhost"), Some(&own)).is_ok());

    let untrusting = Some("did not trust this coordinator's");
    refused(&at, Some(&foreign), "not issued by this fleet's authority", untrusting);
    let intruder = trusting(&foreign, ours.path());
    let message = "the authority of its fleet did not issue it";
    refused(&at, Some(&intruder), message, Some("with a certificate of another authority (from 127.0.0.1)"));
    let stranger = stranger(&own, ours.path());
    refused(&at, Some(&stranger), "wants a certificate", Some("without a certificate"));
    refused(&at.replace("tls", "tcp"), None, "it requires TLS", Some("connected without TLS"));
}

#[test]
fn agent_bundle_cannot_listen() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    let (a, b) = (load(dir.path(), "a"), load(dir.path(), "b"));
    let (_router, at) = start_router(Some(&a), "127.0.0.1");
    refused(&at, Some(&b), "has an agent's certificate", Some("did not trust"));
}

#[test]
fn coordinator_certificate_matches_its_names_only() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let (router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.9");
    let own = load(dir.path(), "a");
    refused(&at, Some(&own), "is not for the name it was joined by", None);
    drop(router);
    refused(&at, Some(&own), "nothing listens there", None);
    refused("tls/nowhere.invalid:7447", Some(&own), "cannot be resolved", None);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("tls/{}", silent.local_addr().unwrap());
    refused_within(&at, Some(&own), Duration::from_millis(300), "does not respond", None);
}

#[test]
fn passwords_admit_members_only() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Passwords, &["a"]);
    let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    let own = load(dir.path(), "a");
    assert!(join(&at, Some(&own)).is_ok());
    let login = own.login.clone().unwrap();
    let theirs = Some("without a name and password of this fleet");
    for login in [Login { password: "x".into(), ..login.clone() }, Login { user: "x".into(), ..login }] {
        let wrong = Credentials { login: Some(login), ..own.clone() };
        refused(&at, Some(&wrong), "refused this host's name or password", theirs);
    }
    refused(&at, Some(&stranger(&own, dir.path())), "wants a password", theirs);
    let other = tempfile::tempdir().unwrap();
    fleet(other.path(), Auth::Passwords, &["a"]);
    let foreign = load(other.path(), "a");
    refused(&at, Some(&foreign), "not issued by this fleet's authority", Some("did not trust"));
}

/// The coordinator refuses all certificates that a revoked host ever had, and only those.
#[test]
fn revoked_certificate_is_refused() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a", "b"]);
    let keep = |name: &str| {
        let kept = dir.path().join(name);
        std::fs::rename(bundle(dir.path(), "a"), &kept).unwrap();
        Credentials::load(&kept).unwrap()
    };
    let first = keep("first");
    init(&InitOptions { days: 7, ..more(dir.path(), &["a"]) }).unwrap();
    let second = keep("second");
    let made = init(&InitOptions { revoke: vec!["a".into()], ..more(dir.path(), &[]) }).unwrap();
    assert_eq!(made.revoked, [("a".parse().unwrap(), 2)]);
    let list = bundle(dir.path(), "coordinator").join("revoked.pem");
    assert!(made.updated.contains(&list), "{:?}", made.updated);
    init(&more(dir.path(), &["a"])).unwrap();

    let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    for revoked in [&first, &second] {
        refused(&at, Some(revoked), "it was revoked", Some("with a revoked certificate"));
    }
    for valid in ["a", "b"] {
        assert!(join(&at, Some(&load(dir.path(), valid))).is_ok(), "{valid}");
    }
    // What is not revoked in the end, and who was never there.
    let again = InitOptions { revoke: vec!["a".into()], ..more(dir.path(), &[]) };
    assert_eq!(init(&again).unwrap().revoked, [("a".parse().unwrap(), 1)], "the third one");
    for (name, problem) in [("a", "no such member"), ("coordinator@c2", "no such member")] {
        let wrong = InitOptions { revoke: vec![name.into()], ..more(dir.path(), &[]) };
        let why = init(&wrong).unwrap_err().to_string();
        assert!(why.contains(problem), "{why}");
    }
    assert_eq!(load(dir.path(), "b").expiry_warning(SystemTime::now()), None);
    let warning = second.expiry_warning(SystemTime::now()).unwrap();
    assert!(warning.contains("in 6 days") && warning.contains("--host a --replace"), "{warning}");
    assert_eq!(DAYS_DEFAULT, 90);
}

/// Agents that have the list refuse a coordinator whose key was stolen, in either kind of fleet.
#[test]
fn revoked_coordinator_is_refused_by_agents() {
    let _alone = crate::alone();
    for auth in [Auth::Certificates, Auth::Passwords] {
        let dir = tempfile::tempdir().unwrap();
        fleet(dir.path(), auth, &["a", "b"]);
        let stolen = dir.path().join("stolen");
        std::fs::rename(bundle(dir.path(), "coordinator"), &stolen).unwrap();
        let (before, stolen) = (load(dir.path(), "a"), Credentials::load(&stolen).unwrap());
        // A revoked host is no concern of the others.
        let of_host = init(&InitOptions { revoke: vec!["b".into()], ..more(dir.path(), &[]) }).unwrap();
        let list = bundle(dir.path(), "a").join("revoked.pem");
        assert!(!of_host.updated.contains(&list) && !list.exists(), "{:?}", of_host.updated);
        let revoke = vec!["coordinator@c1".into()];
        let made = init(&InitOptions { revoke, ..more(dir.path(), &[]) }).unwrap();
        assert_eq!(made.revoked, [("coordinator@c1".parse().unwrap(), 1)]);
        assert!(made.updated.contains(&list), "{:?}", made.updated);

        let (router, at) = start_router(Some(&stolen), "127.0.0.1");
        assert!(join(&at, Some(&before)).is_ok(), "an agent without the list");
        let own = load(dir.path(), "a");
        let theirs = Some("refused this coordinator's certificate: it was revoked");
        refused(&at, Some(&own), "the coordinator's certificate was revoked", theirs);
        drop(router);
        // The next one has another certificate; new hosts have the list from the beginning.
        let coordinator = ServerName { name: "c1".into(), addresses: Vec::new() };
        init(&InitOptions { coordinator: Some(coordinator), ..more(dir.path(), &["c"]) }).unwrap();
        assert!(bundle(dir.path(), "c").join("revoked.pem").exists());
        let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
        assert!(join(&at, Some(&own)).is_ok());
    }
}

/// zenoh's TLS could verify no IPv6 address.
#[test]
fn coordinator_is_joined_by_ipv6_address() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "::1");
    assert!(join(&at, Some(&load(dir.path(), "a"))).is_ok(), "{at}");
}

/// In either kind of fleet: zenoh keeps memory for each link, and its sum over all links has no other bound.
#[test]
fn links_are_bounded_by_members() {
    let _alone = crate::alone();
    for auth in [Auth::Certificates, Auth::Passwords] {
        let dir = tempfile::tempdir().unwrap();
        fleet(dir.path(), auth, &["a"]);
        let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
        let own = load(dir.path(), "a");
        let mut links: Vec<_> = (0..8).map(|_| join(&at, Some(&own)).unwrap()).collect();
        assert!(join_within(&at, Some(&own), Duration::from_secs(1)).is_err(), "{auth:?}: a ninth link");
        links.pop();
        let deadline = Instant::now() + WITHIN;
        while join_within(&at, Some(&own), Duration::from_secs(1)).is_err() {
            assert!(Instant::now() < deadline, "{auth:?}: one that left makes room");
        }
    }
}

/// The version of a TLS record's handshake is the one that the server chose, or there is an alert.
#[test]
fn older_tls_is_refused() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    let mut socket = TcpStream::connect(at.strip_prefix("tls/").unwrap()).unwrap();
    // A ClientHello of TLS 1.2 (RFC 5246, 7.4.1.2) with ECDHE-ECDSA-AES128-GCM-SHA256, P-256 and
    // ecdsa_secp256r1_sha256; without the extension supported_versions.
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3];
    let hello = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0, 0, 22], &extensions].concat();
    let handshake = [&[1, 0, 0, u8::try_from(hello.len()).unwrap()][..], &hello].concat();
    let record = [&[22, 3, 1, 0, u8::try_from(handshake.len()).unwrap()][..], &handshake].concat();
    socket.write_all(&record).unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    let mut answer = [0; 7];
    socket.read_exact(&mut answer).unwrap();
    // A fatal alert: protocol_version.
    assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{answer:?}");
}

/// One TLS session carries traffic in both directions at once, undamaged, and what one side sends it gets.
#[test]
fn link_carries_both_directions_at_once() {
    use zenoh::Wait;
    use zenoh::qos::CongestionControl::Block;
    const MESSAGES: u64 = 400;
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let (router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    let agent = join(&at, Some(&load(dir.path(), "a"))).unwrap();
    let (up, down) = (fleet::protocol::notification_key("a"), fleet::protocol::coordinator_key("c"));
    let at_router = router.declare_subscriber(up.clone()).wait().unwrap();
    let at_agent = agent.declare_subscriber(down.clone()).wait().unwrap();
    // Declarations take a moment to arrive.
    for (session, key, samples) in [(&*agent, &up, &at_router), (&*router, &down, &at_agent)] {
        let deadline = Instant::now() + WITHIN;
        while !matches!(samples.recv_timeout(Duration::from_millis(20)), Ok(Some(_))) {
            assert!(Instant::now() < deadline, "nothing arrives on {key}");
            session.put(key, [0; 8]).congestion_control(Block).wait().unwrap();
        }
        while samples.recv_timeout(Duration::from_millis(100)).unwrap().is_some() {}
    }
    std::thread::scope(|scope| {
        for (session, key) in [(&*agent, &up), (&*router, &down)] {
            scope.spawn(move || {
                for number in 1..=MESSAGES {
                    let message = number.to_le_bytes().repeat(8 << 10);
                    session.put(key, message).congestion_control(Block).wait().unwrap();
                }
            });
        }
        for samples in [&at_router, &at_agent] {
            scope.spawn(move || {
                for number in 1..=MESSAGES {
                    let sample = samples.recv_timeout(WITHIN).unwrap().expect("all arrive");
                    let message = sample.payload().to_bytes();
                    assert!(message.chunks(8).all(|chunk| chunk == number.to_le_bytes()), "message {number}");
                }
            });
        }
    });
}

/// Many connections that send nothing neither keep hosts out nor stay open.
#[test]
fn silent_connections_do_not_keep_hosts_out() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let (_router, at) = start_router(Some(&load(dir.path(), "coordinator")), "127.0.0.1");
    sys::thread::raise_file_limit(8192).unwrap();
    let silent: Vec<TcpStream> =
        (0..1500).map(|_| TcpStream::connect(at.strip_prefix("tls/").unwrap()).unwrap()).collect();
    let began = Instant::now();
    assert!(join_within(&at, Some(&load(dir.path(), "a")), WITHIN * 2).is_ok());
    // All earlier ones had their turn: 1500 with 512 at a time, each for a second.
    assert!(began.elapsed() < WITHIN, "{:?}", began.elapsed());
    let mut oldest = &silent[0];
    oldest.set_read_timeout(Some(WITHIN)).unwrap();
    assert_eq!(oldest.read(&mut [0]).unwrap(), 0, "the oldest one is closed");
}
