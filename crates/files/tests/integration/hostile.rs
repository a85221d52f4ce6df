//! Servers that answer what no S3 server would: small ones of a few lines, because a real one cannot.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use files::objects::access::address::Address;
use files::objects::access::client::{Access, Client, Keys};
use files::objects::access::keys;
use files::objects::access::leftover::{Removed, remove};
use files::objects::mix::Mix;
use files::objects::{ObjectsRun, ObjectsSettings, size};

/// No test waits longer for what must come soon.
const SOON: Duration = Duration::from_secs(20);

/// Answers each request by a function of its first line, with the stream to write to.
fn server(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve(stream, &*answer));
        }
    });
    addr
}

/// Until the client closes the connection.
fn serve(mut stream: TcpStream, answer: &dyn Fn(&str, &mut TcpStream)) {
    let mut requests = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if !requests.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head.push(line);
        }
        let length = head
            .iter()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if requests.read_exact(&mut body).is_err() {
            return;
        }
        answer(&head[0], &mut stream);
    }
}

fn reply(stream: &mut TcpStream, head: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nETag: \"x\"\r\n\
         Last-Modified: Thu, 26 Nov 2026 17:00:00 GMT\r\n\r\n{body}"
    );
}

fn page(listed: &[&str], token: Option<&str>) -> String {
    let token = token.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
    let contents = listed.iter().map(|key| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-26T17:00:00.000Z</LastModified><ETag>x</ETag>\
             <Size>5</Size></Contents>"
        )
    });
    let (is_truncated, token) = (token.is_some(), token.unwrap_or_default());
    let contents = contents.collect::<String>();
    format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{token}{contents}</ListBucketResult>")
}

fn client(addr: SocketAddr, within: Duration) -> Client {
    let access = Access {
        endpoint: Some(format!("http://{addr}")),
        keys: Some(Keys::new("key", "secret")),
        allows_http: false,
        within,
        connections: 4,
    };
    Client::connect("test", &access).unwrap()
}

fn own() -> Address {
    Address::parse("s3://test/a").unwrap().below("kagiri-files-1-1")
}

fn settings() -> ObjectsSettings {
    ObjectsSettings {
        threads: 2,
        objects: 4,
        size: size::parse("4k").unwrap(),
        mix: Mix::parse("get=1").unwrap(),
        omit_ns: 0,
        hold_ns: 500_000_000,
        rate_per_s: None,
        seed: 3,
    }
}

/// Why the removal of objects on this server fails, which it must do soon.
fn failure(addr: SocketAddr) -> String {
    let began = Instant::now();
    let why = remove(&client(addr, Duration::from_secs(10)), &own(), &AtomicBool::new(false)).unwrap_err();
    assert!(began.elapsed() < SOON, "{why}");
    why
}

#[test]
fn listing_that_repeats_its_token_ends_with_an_error() {
    let addr = server(|_, stream| reply(stream, "200 OK", &page(&[], Some("same"))));
    let why = failure(addr);
    assert!(why.contains("same continuation token twice"), "{why}");
    let made = ObjectsRun::prepare(
        settings(),
        client(addr, Duration::from_secs(10)),
        own(),
        &AtomicBool::new(false),
    );
    let why = made.err().expect("no run").to_string();
    assert!(why.contains("same continuation token twice"), "{why}");
}

#[test]
fn listing_without_an_end_obeys_a_stop() {
    let count = AtomicU64::new(0);
    let addr = server(move |_, stream| {
        let token = count.fetch_add(1, Ordering::Relaxed).to_string();
        reply(stream, "200 OK", &page(&[], Some(&token)));
    });
    let stop = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stop);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        raised.store(true, Ordering::Relaxed);
    });
    let began = Instant::now();
    let why = remove(&client(addr, Duration::from_secs(10)), &own(), &stop).unwrap_err();
    assert!(why.contains("interrupted") && began.elapsed() < SOON, "{why}");
}

#[test]
fn no_redirect_is_followed() {
    let stolen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&stolen);
    let other = server(move |_, stream| {
        count.fetch_add(1, Ordering::Relaxed);
        reply(stream, "200 OK", &page(&[], None));
    });
    let addr = server(move |_, stream| {
        reply(stream, &format!("307 Temporary Redirect\r\nLocation: http://{other}/stolen"), "");
    });
    let why = failure(addr);
    assert!(why.contains(&format!("307 redirect to http://{other}/stolen")), "{why}");
    assert!(why.contains("set AWS_ENDPOINT_URL and AWS_REGION"), "{why}");
    assert_eq!(stolen.load(Ordering::Relaxed), 0);
}

/// Bytes that a client takes of a chunked body without an end.
fn taken(head: &'static str) -> u64 {
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let addr = server(move |_, stream| {
        let _ = write!(stream, "HTTP/1.1 {head}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [b"10000\r\n".as_slice(), &[b'A'; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {
            count.fetch_add(0x10000, Ordering::Relaxed);
        }
    });
    // One request: a failed one may be sent again.
    let within = Duration::from_secs(10);
    let made = ObjectsRun::prepare(settings(), client(addr, within), own(), &AtomicBool::new(false));
    assert!(made.is_err());
    sent.load(Ordering::Relaxed)
}

#[test]
fn bodies_of_listings_and_errors_are_bounded() {
    // What the kernel's socket buffers take comes on top.
    for head in ["200 OK", "403 Forbidden"] {
        let bytes = taken(head);
        assert!(bytes < 64 << 20, "{head}: {bytes}");
    }
}

#[test]
fn object_of_another_length_is_refused_by_its_head() {
    let addr = server(|request, stream| match request {
        list if list.contains("list-type") => reply(stream, "200 OK", &page(&[], None)),
        get if get.starts_with("GET") => {
            // Its body never ends.
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\nETag: \"x\"\r\n\
                 Last-Modified: Thu, 26 Nov 2026 17:00:00 GMT\r\n\r\nA"
            );
        }
        _ => reply(stream, "200 OK", ""),
    });
    let never = AtomicBool::new(false);
    let run = ObjectsRun::prepare(settings(), client(addr, Duration::from_secs(30)), own(), &never).unwrap();
    let (report, facts) = run.wait(sys::clock::monotonic_ns() + 20_000_000, &never);
    assert_eq!(report.hanging, 0);
    assert!(facts.failed > 2, "{facts:?}");
    let errors: Vec<&String> = report.rows.iter().flat_map(|row| row.errors.keys()).collect();
    assert!(errors.iter().all(|error| error.contains("99999999999999 bytes in place of 4096")), "{errors:?}");
}

#[test]
fn requests_that_are_unanswered_after_the_end_are_failures() {
    let addr = server(|request, stream| match request {
        list if list.contains("list-type") => reply(stream, "200 OK", &page(&[], None)),
        get if get.starts_with("GET") => std::thread::sleep(SOON),
        _ => reply(stream, "200 OK", ""),
    });
    let never = AtomicBool::new(false);
    // Longer than the run.
    let run = ObjectsRun::prepare(settings(), client(addr, Duration::from_secs(2)), own(), &never).unwrap();
    let (report, facts) = run.wait(sys::clock::monotonic_ns() + 20_000_000, &never);
    assert_eq!((report.hanging, facts.failed), (0, 2), "one of each worker: {:?}", report.ended);
}

#[test]
fn foreign_keys_do_not_keep_own_objects() {
    let mine = keys::key(&own(), 0);
    let is_there = AtomicBool::new(true);
    let addr = server(move |request, stream| {
        if request.starts_with("DELETE") {
            is_there.store(false, Ordering::Relaxed);
            return reply(stream, "204 No Content", "");
        }
        let odd = format!("{}/../x", own().prefix);
        let escape = format!("{}/&#27;[31m", own().prefix);
        let mut all = vec![odd.as_str(), escape.as_str()];
        if is_there.load(Ordering::Relaxed) {
            all.push(&mine);
        }
        reply(stream, "200 OK", &page(&all, None));
    });
    let removed = remove(&client(addr, Duration::from_secs(10)), &own(), &AtomicBool::new(false));
    assert_eq!(removed, Ok(Removed { deleted: 1, foreign: 2 }));
}
