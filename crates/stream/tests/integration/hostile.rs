//! Servers that do not behave: each gives its one clear message, in time.

use crate::common::hold;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use base::part::Endpoints;
use mpegts::{ContentSpec, make_file};
use proptest::prelude::*;
use serde_json::json;
use stream::http::fetch::locate;
use stream::http::fetch_error::FetchError;
use stream::http::{HEAD_BYTES_MAX, HeadReader};

/// A server that does `answer` with every connection, given the request's head; it ends with the test
/// program.
fn serve(answer: impl Fn(&mut TcpStream, &str) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            answer(&mut socket, &String::from_utf8_lossy(&head));
        }
    });
    address
}

/// A server that says the same whatever it is asked.
fn says(text: &'static str) -> SocketAddr {
    serve(move |socket, _| drop(socket.write_all(text.as_bytes())))
}

/// What preparing players for that server says.
fn refusal(address: SocketAddr) -> String {
    let mut part = hold::part(&json!({"url": format!("http://{address}/film.ts")}));
    let error = part.prepare(&Endpoints::new(), &hold::host()).unwrap_err();
    assert!(!error.usage, "the world was at fault: {error}");
    error.message
}

#[test]
fn unusable_responses_are_rejected_with_the_reason() {
    for (answer, part) in [
        (
            "SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n",
            "does not speak HTTP: its response begins with \"SSH-2.0-OpenSSH_9.2p1",
        ),
        ("", "closed the connection without a response"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered 404 Not Found; check the path"),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
            "403 Forbidden; make the file readable without a login",
        ),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "503 Busy; check the server's error log"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "without its length (chunked)"),
        ("HTTP/1.0 200 OK\r\n\r\nabc", "without its length (until the connection closes)"),
        ("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "header 'Content-Length: many' is malformed"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "'Content-Length: 6' is malformed",
        ),
        (
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\nContent-Range: bytes 7-7/9\r\n\r\nx",
            "requested bytes from 0 of 1, the server sent bytes 7 to 7 of 9",
        ),
        ("HTTP/1.1 302 Found\r\nLocation: https://nas/film.ts\r\n\r\n", "https is not supported"),
        (
            "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
            "302 Found; give the address that it redirects to",
        ),
    ] {
        let message = refusal(says(answer));
        assert!(message.contains(part), "{answer:?}: {message}");
    }
}

#[test]
fn refused_connection_names_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let message = refusal(address);
    assert!(message.contains(&format!("cannot be reached at {address}")), "{message}");
    assert!(message.contains("refused") && message.contains("is the server running"), "{message}");
}

#[test]
fn unknown_host_is_named() {
    let within = Duration::from_secs(20);
    let error = locate("http://no-such-host.invalid/film.ts", within, &hold::host()).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("no-such-host.invalid"), "{message}");
}

#[test]
fn local_index_is_preferred_to_the_servers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("film.ts");
    let spec = ContentSpec { duration_s: 2.0, ..ContentSpec::default() };
    let total = make_file(&spec, &path, &mut |_| ControlFlow::Continue(())).unwrap().total_bytes();
    let address = serve(move |socket, head| {
        // It breaks every connection on which the index is asked for.
        if head.starts_with("GET /film.ts ") {
            let range = format!("Content-Range: bytes 0-0/{total}");
            drop(write!(socket, "HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n{range}\r\n\r\nG"));
        }
    });
    let url = format!("http://{address}/film.ts");
    let message = hold::part(&json!({ "url": url })).prepare(&Endpoints::new(), &hold::host()).unwrap_err();
    assert!(message.to_string().contains("closed the connection"), "{message}");
    let mut beside = hold::part(&json!({ "url": url, "content_path": path }));
    let facts = beside.prepare(&Endpoints::new(), &hold::host()).unwrap();
    assert_eq!(facts["content_bytes"], total);
}

#[test]
fn redirect_loop_is_rejected() {
    let address = serve(|socket, head| {
        let there = if head.starts_with("GET /film.ts") { "/other.ts" } else { "/film.ts" };
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n");
        drop(socket.write_all(answer.as_bytes()));
    });
    let message = refusal(address);
    assert!(message.contains("a redirect loop"), "{message}");
    let far = serve(|socket, head| {
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {path}x\r\nContent-Length: 0\r\n\r\n");
        drop(socket.write_all(answer.as_bytes()));
    });
    assert!(refusal(far).contains("a redirect loop"));
}

#[test]
fn silent_server_times_out() {
    let address = serve(|socket, _| {
        // Holds the connection until the client gives up.
        drop(socket.read(&mut [0]));
    });
    let begun = Instant::now();
    let within = Duration::from_millis(300);
    let error = locate(&format!("http://{address}/film.ts"), within, &hold::host()).unwrap_err();
    assert!(matches!(error, FetchError::Timeout { what: "response", .. }), "{error}");
    assert!(begun.elapsed() >= within);
}

#[test]
fn endless_head_is_rejected() {
    let address = serve(|socket, _| {
        drop(socket.write_all(b"HTTP/1.1 200 OK\r\n"));
        while socket.write_all(b"X-Again: and again and again and again and again\r\n").is_ok() {}
    });
    let message = refusal(address);
    assert!(message.contains("a head of more than 32768 bytes"), "{message}");
}

#[test]
fn unusable_or_truncated_content_is_rejected() {
    let body = |claimed: usize, sent: Vec<u8>| {
        serve(move |socket, head| {
            let answer = match head.contains(".kgi") {
                true => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
                false => format!("HTTP/1.1 200 OK\r\nContent-Length: {claimed}\r\n\r\n"),
            };
            drop(socket.write_all(answer.as_bytes()));
            if !head.contains(".kgi") {
                drop(socket.write_all(&sent));
            }
        })
    };
    let message = refusal(body(500_000, vec![b'x'; 500_000]));
    assert!(message.contains("not an MPEG transport stream"), "{message}");
    let packet: Vec<u8> = [0x47, 0x1f, 0xff, 0x10].into_iter().chain([0xff; 184]).collect();
    let message = refusal(body(188_000, packet.repeat(100)));
    assert!(message.contains("the server ended after 18800 of 188000 bytes"), "{message}");
}

proptest! {
    #[test]
    fn head_reader_never_panics(
        start in prop::sample::select(
            vec!["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 206 P\r\nContent-Range: bytes "]
        ),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        piece in 1_usize..40,
    ) {
        let mut reader = HeadReader::default();
        for piece in [start.as_bytes(), &bytes].concat().chunks(piece) {
            match reader.feed(piece) {
                Ok(None) => {}
                Ok(Some((head, used))) => {
                    prop_assert!(used <= piece.len());
                    let _ = head.body_from(0, 10);
                    break;
                }
                Err(_) => break,
            }
        }
    }

    #[test]
    fn head_reads_the_same_in_any_pieces(piece in 1_usize..80, length in 0_u64..1_000_000) {
        let text = format!(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\n\
             content-range: bytes 0-9/10\r\nETag: \"a\"\r\nConnection: close\r\n\r\n"
        );
        let whole = format!("{text}the body");
        let mut reader = HeadReader::default();
        let mut before = 0;
        for bytes in whole.as_bytes().chunks(piece) {
            if let Some((head, used)) = reader.feed(bytes).unwrap() {
                prop_assert_eq!(before + used, text.len());
                prop_assert_eq!(head.length, Some(length));
                prop_assert_eq!(head.range, Some((0, 9, Some(10))));
                prop_assert_eq!(head.etag.as_deref(), Some("\"a\""));
                prop_assert!(!head.keep_alive);
                break;
            }
            before += bytes.len();
        }
    }
}

#[test]
fn head_of_maximum_length_is_read() {
    let mut text = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    text.resize(HEAD_BYTES_MAX - 4, b'a');
    text.extend_from_slice(b"\r\n\r\n");
    assert_eq!(HeadReader::default().feed(&text).unwrap().unwrap().1, HEAD_BYTES_MAX);
    let mut reader = HeadReader::default();
    text.splice(20..20, [b'a'; 5]);
    assert!(text.chunks(1000).any(|piece| reader.feed(piece).is_err()));
}
