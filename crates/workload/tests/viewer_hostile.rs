//! Servers that do not behave: each gives its one clear message, in time.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as tests do")]

#[path = "viewer_common/hold.rs"]
mod hold;
mod viewer_common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use base::part::Endpoints;
use kagiri_workload::stream::content::{ContentSpec, make_file};
use kagiri_workload::stream::viewer::fetch::{FetchError, locate};
use kagiri_workload::stream::viewer::http::{HEAD_BYTES_MAX, HeadReader};
use proptest::prelude::*;
use serde_json::json;

/// A server that does `answer` with every connection, given the request's head; it ends with the test program.
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
fn answers_that_are_none_each_have_their_message() {
    for (answer, part) in [
        (
            "SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n",
            "does not speak HTTP: its answer begins with \"SSH-2.0-OpenSSH_9.2p1",
        ),
        ("", "closed the connection without an answer"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered 404 Not Found; check the path"),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "403 Forbidden; let everybody read the file"),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "503 Busy; look into the server's error log"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "without saying its length (chunked)",
        ),
        ("HTTP/1.0 200 OK\r\n\r\nabc", "without saying its length (up to the connection's close)"),
        ("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "header 'Content-Length: many' makes no sense"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "'Content-Length: 6' makes no sense",
        ),
        (
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\nContent-Range: bytes 7-7/9\r\n\r\nx",
            "asked for bytes from 0 of 1, the server sent bytes 7 to 7 of 9",
        ),
        ("HTTP/1.1 302 Found\r\nLocation: https://nas/film.ts\r\n\r\n", "https is not spoken"),
        ("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "302 Found; give the address that it points to"),
    ] {
        let message = refusal(says(answer));
        assert!(message.contains(part), "{answer:?}: {message}");
    }
}

#[test]
fn nobody_listening_is_said_with_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let message = refusal(address);
    assert!(message.contains(&format!("cannot be reached at {address}")), "{message}");
    assert!(message.contains("refused") && message.contains("is the server running"), "{message}");
}

#[test]
fn a_host_that_is_none_is_said() {
    let within = Duration::from_secs(20);
    let error = locate("http://no-such-host.invalid/film.ts", within, &hold::host()).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("no-such-host.invalid"), "{message}");
}

#[test]
fn a_server_that_spoils_its_index_is_not_asked_where_there_is_one() {
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
fn redirects_in_a_loop_end() {
    let address = serve(|socket, head| {
        let there = if head.starts_with("GET /film.ts") { "/other.ts" } else { "/film.ts" };
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n");
        drop(socket.write_all(answer.as_bytes()));
    });
    let message = refusal(address);
    assert!(message.contains("a loop of redirects"), "{message}");
    let far = serve(|socket, head| {
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {path}x\r\nContent-Length: 0\r\n\r\n");
        drop(socket.write_all(answer.as_bytes()));
    });
    assert!(refusal(far).contains("a loop of redirects"));
}

#[test]
fn a_silent_server_ends_with_the_deadline() {
    let address = serve(|socket, _| {
        // Holds the connection until the client gives up.
        drop(socket.read(&mut [0]));
    });
    let begun = Instant::now();
    let within = Duration::from_millis(300);
    let error = locate(&format!("http://{address}/film.ts"), within, &hold::host()).unwrap_err();
    assert!(matches!(error, FetchError::Deadline { what: "answer", .. }), "{error}");
    assert!(begun.elapsed() >= within);
}

#[test]
fn an_endless_head_is_given_up() {
    let address = serve(|socket, _| {
        drop(socket.write_all(b"HTTP/1.1 200 OK\r\n"));
        while socket.write_all(b"X-Again: and again and again and again and again\r\n").is_ok() {}
    });
    let message = refusal(address);
    assert!(message.contains("a head of more than 32768 bytes"), "{message}");
}

#[test]
fn content_that_is_no_film_or_ends_early_is_said() {
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
    fn no_bytes_in_no_pieces_panic_the_head_reader(
        start in prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 206 P\r\nContent-Range: bytes "]),
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
    fn a_head_reads_the_same_in_any_pieces(piece in 1_usize..80, length in 0_u64..1_000_000) {
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
fn a_head_of_just_the_bound_is_read() {
    let mut text = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    text.resize(HEAD_BYTES_MAX - 4, b'a');
    text.extend_from_slice(b"\r\n\r\n");
    assert_eq!(HeadReader::default().feed(&text).unwrap().unwrap().1, HEAD_BYTES_MAX);
    let mut reader = HeadReader::default();
    text.splice(20..20, [b'a'; 5]);
    assert!(text.chunks(1000).any(|piece| reader.feed(piece).is_err()));
}
