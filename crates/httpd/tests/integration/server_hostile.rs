//! Strangers who mean harm, or behave as if: each is bounded, answered where it can be, and logged.

use crate::server_common;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use server_common::*;

#[test]
fn files_outside_the_root_are_never_sent() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(root.join("f"), "fine").unwrap();
    std::fs::write(outer.path().join("secret"), "TOP-SECRET").unwrap();
    symlink("../secret", root.join("link")).unwrap();
    symlink(outer.path(), root.join("outer")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    let server = start(&root, |_| ());
    let secret = outer.path().join("secret");
    let absolute = secret.to_str().unwrap();
    for target in [
        "/../secret",
        "/sub/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/sub/..%2f..%2fsecret",
        "/.%2e/secret",
        "//../secret",
        "/..\\secret",
        "/%c0%ae%c0%ae/secret",
        "/link",
        "/outer/secret",
        "/link/",
        "/outer/",
        absolute,
        &format!("/{absolute}"),
        &format!("//{absolute}"),
        &format!("/magic{absolute}"),
        "/f%00/../../secret",
        "http://x/../secret",
        "../secret",
        "/f/../../secret",
        "/%252e%252e/secret",
        "/?../secret",
        "/f;/../../secret",
    ] {
        let answer = exchange(server.local_addr(), format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(!answer.contains("TOP-SECRET"), "{target}: {answer}");
        assert!((200..500).contains(&status(&answer)), "{target}: {answer}");
    }
    assert!(
        exchange(server.local_addr(), "GET /link HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 403 ")
    );
    assert!(good(&server));
}

#[test]
fn malformed_requests_are_refused_and_closed() {
    let dir = root_with(b"x");
    let lines = Lines::default();
    let server = start(dir.path(), |c| c.access_log = lines.log());
    let long = "a".repeat(20_000);
    let cases = [
        ("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n".to_owned(), 400, "malformed request"),
        ("GET /f\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET /f HTTP/2.0\r\n\r\n".to_owned(), 505, "only HTTP/1.0"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505, "only HTTP/1.0"),
        ("GET /f HTTP/0.9\r\n\r\n".to_owned(), 505, "only HTTP/1.0"),
        ("GET /f FTP/1.1\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET /f HTTP/1.1\r\n\r\n".to_owned(), 400, "exactly one Host"),
        ("GET /f HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400, "exactly one Host"),
        ("DELETE /f HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 405, "deleting is not enabled"),
        ("POST /f HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".to_owned(), 405, "method not allowed"),
        (
            "PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
            405,
            "uploads are not enabled",
        ),
        ("BREW /f HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 501, "unknown method"),
        ("get /f HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 501, "unknown method"),
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414, "request line is too long"),
        (format!("GET /f HTTP/1.1\r\nHost: x\r\nA: {long}\r\n\r\n"), 431, "head is too long"),
        (
            format!("GET /f HTTP/1.1\r\nHost: x\r\n{}\r\n", "a: b\r\n".repeat(101)),
            431,
            "too many header fields",
        ),
        ("GET /f HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET /f HTTP/1.1\r\nHost : x\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 400, "percent sign"),
    ];
    for (raw, expected, reason) in &cases {
        // Anything smuggled in behind must not be answered.
        let answer = exchange(server.local_addr(), format!("{raw}GET /f HTTP/1.1\r\nHost: x\r\n\r\n"));
        let shown = &raw[..raw.len().min(60)];
        assert_eq!(status(&answer), *expected, "{shown:?}: {answer}");
        assert!(answer.contains(reason), "{shown:?}: {answer}");
        assert_eq!(
            answer.matches("HTTP/1.1 ").count() - usize::from(*expected == 505),
            1,
            "{shown:?}: {answer}"
        );
    }
    assert!(good(&server));
    server.stop();
    let log = lines.text();
    for (_, expected, reason) in &cases {
        let is_logged = |line: &str| line.contains(&format!("\" {expected} ")) && line.contains(reason);
        assert!(log.lines().any(is_logged), "{expected} {reason} is not in\n{log}");
    }
}

/// RFC 9110, 9.3.2: whatever the status, a response to HEAD has no content.
#[test]
fn refused_head_requests_get_no_content() {
    let dir = root_with(b"x");
    let server = start(dir.path(), |_| ());
    let (name, line) = ("n".repeat(256), "a".repeat(20_000));
    for (target, fields, expected) in [
        ("/../x", "Host: x\r\n", 400),
        ("/%zz", "Host: x\r\n", 400),
        ("/f", "", 400),
        ("/f", "Host: x\r\nbad header\r\n", 400),
        ("/none", "Host: x\r\n", 404),
        (&format!("/{name}"), "Host: x\r\n", 414),
        (&format!("/{line}"), "Host: x\r\n", 414),
        ("/f", "Host: a.example\r\n", 421),
    ] {
        let shown = &target[..target.len().min(20)];
        let answer = exchange(server.local_addr(), format!("HEAD {target} HTTP/1.1\r\n{fields}\r\n"));
        assert_eq!(status(&answer), expected, "{shown}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{shown}: {answer}");
    }
}

/// A page of another site whose name was pointed at this host after it was loaded (DNS rebinding).
#[test]
fn names_of_other_sites_are_refused_on_loopback() {
    let dir = root_with(b"x");
    let ask = |addr, host: &str| {
        let get = exchange(addr, format!("GET /f HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let put = format!("PUT /g HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\nx");
        (status(&get), status(&exchange(addr, put)))
    };
    let server = start(dir.path(), |c| c.upload = true);
    for host in ["evil.example", "evil.example:8080", "EVIL.example.:80", "127.0.0.1.evil.example"] {
        assert_eq!(ask(server.local_addr(), host), (421, 421), "{host}");
    }
    assert!(!dir.path().join("g").exists());
    for host in
        ["127.0.0.1", "127.0.0.1:80", "[::1]:80", "localhost", "LocalHost.:80", "a.localhost", "nas", ""]
    {
        assert!(matches!(ask(server.local_addr(), host), (200, 201 | 204)), "{host}");
    }
    // Who listens for other hosts has other names, too.
    let server = start(dir.path(), |c| {
        c.upload = true;
        c.listen.set_ip(std::net::Ipv4Addr::UNSPECIFIED.into());
    });
    let addr = (std::net::Ipv4Addr::LOCALHOST, server.local_addr().port()).into();
    assert_eq!(ask(addr, "nas.example"), (200, 204));
}

#[test]
fn smuggled_requests_are_not_answered() {
    let dir = root_with(b"x");
    let server = start(dir.path(), |c| c.upload = true);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    for (fields, body) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        ("Content-Length: 0\r\nContent-Length: 40\r\n", ""),
        ("Content-Length: 0, 40\r\n", ""),
        ("Content-Length: +0\r\n", ""),
        ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding:\x0bchunked\r\n", "0\r\n\r\n"),
        ("X: y\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ] {
        for method in ["GET", "PUT"] {
            let raw = format!("{method} /f HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}{hidden}");
            let answer = exchange(server.local_addr(), raw);
            assert!(matches!(status(&answer), 400 | 501), "{fields}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{fields}: {answer}");
        }
    }
    // Content with a GET is legal and ignored; what follows it is not trusted.
    let answer = exchange(
        server.local_addr(),
        format!("GET /f HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd{hidden}"),
    );
    assert_eq!((status(&answer), answer.matches("HTTP/1.1 ").count()), (200, 1), "{answer}");
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"x");
}

#[test]
fn shrinking_file_ends_the_response() {
    let dir = root_with(b"x");
    let path = dir.path().join("big");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let lines = Lines::default();
    let server = start(dir.path(), |c| {
        c.access_log = lines.log();
        c.limits.send_stall_deadline = Duration::from_secs(2);
    });
    let mut client = Client::new(server.local_addr());
    client.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    until("the stream begins", || server.stats().streams == 1);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1).unwrap();
    assert!(client.rest().len() < 1 << 30);
    drop(server);
    assert!(
        lines.text().contains("reason=\"the file became shorter while it was sent\""),
        "{}",
        lines.text()
    );
}

#[test]
fn fifo_is_refused_without_blocking() {
    let dir = root_with(b"x");
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status();
    assert!(made.expect("mkfifo starts").success());
    let server = start(dir.path(), |_| ());
    assert_eq!(Client::new(server.local_addr()).get("/fifo", "").status, 403);
    assert!(good(&server));
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&[u8]] = &[
        b"GET /f HTTP/1.1\r\n",
        b"Host: x\r\n",
        b"\r\n",
        b"PUT /g HTTP/1.1\r\n",
        b"Content-Length: 7\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"Range: bytes=0-0\r\n",
        b"\0\0\0",
        b"\xff",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"HEAD / HTTP/1.0\r\n",
        b"ffffffffffffffff\r\n",
    ];
    let raw = proptest::collection::vec(any::<u8>(), 0..100);
    let pieces = proptest::collection::vec(proptest::sample::select(PIECES), 0..12).prop_map(|p| p.concat());
    prop_oneof![1 => raw, 4 => pieces]
}

#[test]
fn arbitrary_bytes_do_not_stop_the_server() {
    let dir = root_with(b"x");
    let server = start(dir.path(), |c| {
        c.upload = true;
        c.limits.header_deadline = Duration::from_millis(100);
        c.limits.send_stall_deadline = Duration::from_millis(100);
    });
    let addr = server.local_addr();
    proptest!(ProptestConfig::with_cases(150), |(bytes in noise(), cut in 0_usize..100)| {
        let mut client = Client::new(addr);
        let cut = cut.min(bytes.len());
        client.try_send(&bytes[..cut]);
        client.try_send(&bytes[cut..]);
        client.finish_sending();
        let answer = client.rest();
        prop_assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "));
        prop_assert!(good(&server));
    });
    // Connections that come and go without a word, some reset.
    for _ in 0..200 {
        drop(TcpStream::connect(addr).unwrap());
    }
    until("they are gone", || server.stats().connections == 0);
    assert!(good(&server));
    assert!(names(dir.path()).iter().all(|n| n == "f" || n == "g"), "{:?}", names(Path::new(dir.path())));
}
