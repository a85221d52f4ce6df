use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::identity::{InitOptions, ServerName, init};

const WITHIN: Duration = Duration::from_secs(10);
const PROTOCOL: &[u8] = b"test/1";

/// A fleet with a coordinator on loopback, and a host.
fn fleet(dir: &Path) -> [Credentials; 2] {
    let coordinator = ServerName { name: "c1".into(), addresses: vec!["127.0.0.1".into()] };
    let options = InitOptions {
        dir: dir.to_owned(),
        coordinator: Some(coordinator),
        routers: Vec::new(),
        hosts: vec!["a".into()],
        revoke: Vec::new(),
        auth: None,
        days: 10,
        replace: false,
    };
    init(&options).unwrap();
    ["coordinator", "a"].map(|name| Credentials::load(&dir.join("bundles").join(name)).unwrap())
}

fn free(scheme: &str) -> Endpoint {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("{scheme}/127.0.0.1:{port}").parse().unwrap()
}

/// Both ends until `is_done`, or until one fails.
fn drive(
    ends: [&mut Channel; 2],
    mut is_done: impl FnMut([&mut Channel; 2]) -> io::Result<bool>,
) -> io::Result<()> {
    let deadline = Deadline::after(WITHIN);
    let [a, b] = ends;
    while !is_done([&mut *a, &mut *b])? {
        assert!(deadline.pause(Duration::from_millis(1)), "nothing happens");
    }
    Ok(())
}

fn connected(listener: &Listener, endpoint: &Endpoint, own: Option<&Credentials>) -> [Channel; 2] {
    let client = Channel::connect(endpoint, own, PROTOCOL, WITHIN).unwrap();
    let deadline = Deadline::after(WITHIN);
    loop {
        if let Some(server) = listener.accept().unwrap() {
            return [client, server];
        }
        assert!(deadline.pause(Duration::from_millis(1)), "no peer connects");
    }
}

/// Sends a message each way.
fn talk([client, server]: &mut [Channel; 2]) -> io::Result<()> {
    let (mut sent, mut got) = ([false; 2], [false; 2]);
    drive([client, server], |[client, server]| {
        for (at, end) in [client, server].into_iter().enumerate() {
            sent[at] = sent[at] || end.send(&[at as u8; 1000])?;
            got[at] |= end.receive()? == Some(vec![1 - at as u8; 1000]);
        }
        Ok(got == [true; 2])
    })
}

#[test]
fn messages_pass_both_ways_and_the_end_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let [coordinator, host] = fleet(dir.path());
    let socket: Endpoint = format!("unixsock-stream/{}", dir.path().join("s").display()).parse().unwrap();
    for (endpoint, secured) in [(free("tcp"), false), (socket.clone(), false), (free("tls"), true)] {
        let own = |credentials| Some(credentials).filter(|_| secured);
        let listener = Listener::bind(&endpoint, own(&coordinator), PROTOCOL).unwrap();
        let mut ends = connected(&listener, &endpoint, own(&host));
        talk(&mut ends).unwrap();
        let second = Listener::bind(&endpoint, own(&coordinator), PROTOCOL).map(drop).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        let names = ends.each_ref().map(|end| end.peer().map(str::to_owned));
        let expected = secured.then(|| ["coordinator@c1", "a"].map(str::to_owned));
        assert_eq!(names, expected.map_or([None, None], |names| names.map(Some)));
        let [client, mut server] = ends;
        drop(client);
        let deadline = Deadline::after(WITHIN);
        while server.receive().is_ok() {
            assert!(deadline.pause(Duration::from_millis(1)), "the end is not seen");
        }
    }
    // A file that a killed listener has left.
    let Endpoint::Unix(path) = &socket else { panic!("a socket file") };
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    assert!(path.exists());
    talk(&mut connected(&Listener::bind(&socket, None, PROTOCOL).unwrap(), &socket, None)).unwrap();
}

#[test]
fn strangers_are_refused_on_both_sides() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [[coordinator, host], [_, stranger]] = dirs.each_ref().map(|dir| fleet(dir.path()));
    let endpoint = free("tls");
    let listener = Listener::bind(&endpoint, Some(&coordinator), PROTOCOL).unwrap();
    let mut ends = connected(&listener, &endpoint, Some(&stranger));
    let error = talk(&mut ends).unwrap_err();
    assert!(explain(&error).contains("different fleets"), "{error}");
    // A host of the fleet that has been removed from the list.
    let fewer = Credentials { members: Vec::new(), ..coordinator.clone() };
    drop(listener);
    let listener = Listener::bind(&endpoint, Some(&fewer), PROTOCOL).unwrap();
    let error = talk(&mut connected(&listener, &endpoint, Some(&host))).unwrap_err();
    assert!(explain_refusal("1.2.3.4", &error).contains("list of members"), "{error}");
    // Another service.
    drop(listener);
    let listener = Listener::bind(&endpoint, Some(&coordinator), b"other/1").unwrap();
    talk(&mut connected(&listener, &endpoint, Some(&host))).unwrap_err();
    // No TLS at all: what arrives is no handshake.
    let plain: Endpoint = endpoint.to_string().replace("tls/", "tcp/").parse().unwrap();
    let error = talk(&mut connected(&listener, &plain, None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn malformed_length_ends_the_channel_and_memory_is_bounded() {
    let endpoint = free("tcp");
    let listener = Listener::bind(&endpoint, None, PROTOCOL).unwrap();
    let [mut client, mut server] = connected(&listener, &endpoint, None);
    assert!(client.send(&[0; MESSAGE_BYTES_MAX + 1]).is_err());
    // No peer reads: sending ends, and holds one message at most.
    let deadline = Deadline::after(WITHIN);
    while client.send(&[7; MESSAGE_BYTES_MAX]).unwrap() {
        assert!(deadline.pause(Duration::ZERO), "it never fills");
    }
    assert!(client.outgoing.len() <= HEAD_BYTES + MESSAGE_BYTES_MAX);
    drive([&mut client, &mut server], |[_, server]| {
        server.receive()?;
        Ok(server.incoming.len() > INCOMING_BYTES_MAX / 2)
    })
    .unwrap();
    assert!(server.incoming.len() <= INCOMING_BYTES_MAX + MESSAGE_BYTES_MAX);
    let [mut client, mut server] = connected(&listener, &endpoint, None);
    client.stream.write_all(&[0xff, 0xff]).unwrap();
    let error = drive([&mut client, &mut server], |[_, server]| server.receive().map(|_| false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}
