//! Endpoints as people write them, and where it is safe to listen.

use std::os::unix::fs::PermissionsExt;

use crate::identity_common::{fleet, load};
use fleet::endpoint::{Endpoint, check_join, check_listen};
use fleet::identity::{Auth, Credentials};

fn endpoint(text: &str) -> Endpoint {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn endpoint_defaults_are_filled_in() {
    let cases = [
        ("nas", "tls/nas:7447"),
        ("nas:1", "tls/nas:1"),
        ("tcp/127.0.0.1", "tcp/127.0.0.1:7447"),
        ("tls/nas.lab:7000", "tls/nas.lab:7000"),
        ("10.0.0.1", "tls/10.0.0.1:7447"),
        ("[::1]", "tls/[::1]:7447"),
        ("::1", "tls/[::1]:7447"),
        ("tcp/[fd00::1]:80", "tcp/[fd00::1]:80"),
        ("unixsock-stream//run/kagiri/bus.sock", "unixsock-stream//run/kagiri/bus.sock"),
    ];
    for (text, written) in cases {
        assert_eq!(endpoint(text).to_string(), written, "{text}");
        assert_eq!(endpoint(written), endpoint(text));
    }
}

#[test]
fn invalid_endpoint_is_rejected() {
    let long = format!("unixsock-stream//{}", "a".repeat(107));
    let cases = [
        ("udp/nas:1", "the scheme 'udp' is not supported"),
        ("quic/nas", "the scheme 'quic' is not supported"),
        ("http://nas", "the scheme 'http:' is not supported"),
        ("", "neither a host name nor an address"),
        ("tls/", "neither a host name nor an address"),
        ("tls/nas:x", "'x' is no port"),
        ("tls/nas:70000", "'70000' is no port"),
        ("tls/[x]:1", "'x' is no IPv6 address"),
        ("tls/a/b:1", "neither a host name"),
        ("tls/nas:1#iface=eth0", "an endpoint cannot contain '#'"),
        ("tls/nas:1?prio=1", "an endpoint cannot contain '?'"),
        ("tls/n as", "an endpoint cannot contain ' '"),
        ("/run/bus.sock", "Write unixsock-stream//run/bus.sock"),
        ("unixsock-stream/run/bus.sock", "must be absolute"),
        ("unixsock-stream//run/", "must name a file"),
        (long.as_str(), "at most 107 bytes"),
    ];
    for (text, problem) in cases {
        let message = text.parse::<Endpoint>().unwrap_err().to_string();
        assert!(message.contains(problem), "{text}: {message}");
    }
}

#[test]
fn remote_listen_requires_credentials() {
    let listen = |text: &str, credentials: Option<&Credentials>| {
        check_listen(&endpoint(text), credentials).map_err(|error| error.to_string())
    };
    for loopback in
        ["tcp/127.0.0.1", "tcp/127.5.5.5:1", "tcp/[::1]:0", "tcp/localhost", "tcp/[::ffff:127.0.0.1]:1"]
    {
        assert_eq!(listen(loopback, None), Ok(()), "{loopback}");
    }
    for open in ["tcp/0.0.0.0", "tcp/[::]", "tcp/192.0.2.1", "tcp/[fd00::1]:1", "tcp/[::ffff:192.0.2.1]:1"] {
        let message = listen(open, None).unwrap_err();
        assert!(
            message.contains("tcp has no authentication") && message.contains("kagiri fleet init"),
            "{message}"
        );
    }
    for encrypted in ["tls/0.0.0.0", "tls/127.0.0.1"] {
        let message = listen(encrypted, None).unwrap_err();
        assert!(
            message.contains("tls/... needs --credentials DIR") && message.contains("kagiri fleet init"),
            "{message}"
        );
    }
    assert!(listen("tcp/nowhere.invalid", None).unwrap_err().contains("cannot resolve the host name"));

    for auth in [Auth::Certificates, Auth::Passwords] {
        let dir = tempfile::tempdir().unwrap();
        fleet(dir.path(), auth, &["a"]);
        let (coordinator, agent) = (load(dir.path(), "coordinator"), load(dir.path(), "a"));
        for endpoint in ["tls/0.0.0.0", "tls/[::]", "tls/127.0.0.1", "tcp/127.0.0.1"] {
            assert_eq!(listen(endpoint, Some(&coordinator)), Ok(()), "{endpoint}");
        }
        assert!(listen("tls/0.0.0.0", Some(&agent)).unwrap_err().contains("the bundle of host a"));
        assert!(listen("tcp/0.0.0.0", Some(&coordinator)).unwrap_err().contains("tcp does not encrypt"));
    }
}

#[test]
fn remote_join_requires_credentials() {
    let dir = tempfile::tempdir().unwrap();
    fleet(dir.path(), Auth::Certificates, &["a"]);
    let agent = load(dir.path(), "a");
    let join = |text: &str, credentials: Option<&Credentials>| {
        check_join(&endpoint(text), credentials).map_err(|error| error.to_string())
    };
    for (text, credentials) in [
        ("tls/192.0.2.1", Some(&agent)),
        ("tls/[fd00::1]", Some(&agent)),
        ("tcp/127.0.0.1", None),
        ("unixsock-stream//run/x/bus.sock", None),
    ] {
        assert_eq!(join(text, credentials), Ok(()), "{text}");
    }
    assert!(join("tcp/192.0.2.1", None).unwrap_err().contains("tcp has no authentication"));
    assert!(join("tcp/192.0.2.1", Some(&agent)).unwrap_err().contains("join tls/192.0.2.1:7447"));
    assert!(join("tls/192.0.2.1", None).unwrap_err().contains("--credentials"));
}

#[test]
fn socket_folder_must_be_private() {
    let dir = tempfile::tempdir().unwrap();
    let socket = endpoint(&format!("unixsock-stream/{}/bus.sock", dir.path().display()));
    let mode = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o700);
    assert_eq!(check_listen(&socket, None), Ok(()));
    for open in [0o755, 0o710, 0o770] {
        mode(open);
        assert!(
            check_listen(&socket, None).unwrap_err().to_string().contains("other users can access"),
            "{open:o}"
        );
    }
    mode(0o700);
    let _left = std::os::unix::net::UnixListener::bind(dir.path().join("bus.sock")).unwrap();
    assert_eq!(check_listen(&socket, None), Ok(()), "as a killed coordinator leaves it");
    std::fs::write(dir.path().join("letter"), "x").unwrap();
    let file = endpoint(&format!("unixsock-stream/{}/letter", dir.path().display()));
    assert!(check_listen(&file, None).unwrap_err().to_string().contains("a file of this name exists"));
    let missing = endpoint(&format!("unixsock-stream/{}/x/bus.sock", dir.path().display()));
    assert!(check_listen(&missing, None).unwrap_err().to_string().contains("cannot be used"));
}
