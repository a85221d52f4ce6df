//! HTTP servers: nginx, and small ones with planted faults.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use base::verdict::Verdict;
use serde_json::json;

use super::common::{measure, metric};
use super::nginx::{Nginx, NginxOptions};

#[test]
fn nginx_is_measured_and_its_log_agrees() {
    let Some(nginx) = Nginx::start(NginxOptions::default()) else { return features::skip("needs nginx") };
    let url = |path: &str| format!("http://{}{path}", nginx.address);
    for connections in ["persistent", "fresh"] {
        let found = measure(json!({
            "host": url("/file"), "clients": 4, "count": 50, "connections": connections,
            "objective": {"p99_max": "20s"}
        }));
        assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.reasons);
        assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (200.0, 0.0), "{connections}");
    }
    let posted = measure(json!({ "host": url("/post"), "count": 10, "size": "20kB" }));
    assert_eq!(metric(&posted, "answered"), 10.0, "{:?}", posted.reasons);
    let missing = measure(json!({ "host": url("/none"), "count": 5 }));
    assert_eq!((metric(&missing, "errors"), missing.verdict), (5.0, Verdict::Fail));
    assert!(missing.reasons[0].contains("status of 400 or above: 5"), "{:?}", missing.reasons);
    assert_eq!((nginx.lines("200", 410), nginx.lines("404", 5)), (410, 5));
}

#[test]
fn body_of_the_given_size_arrives_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut connection = listener.accept().unwrap().0;
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        let end = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        while end(&bytes).is_none_or(|end| bytes.len() < end + 20_000) {
            let read = connection.read(&mut part).unwrap();
            bytes.extend_from_slice(&part[..read]);
        }
        connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        let head = end(&bytes).unwrap();
        (String::from_utf8(bytes[..head].to_vec()).unwrap(), bytes.len() - head)
    });
    let found = measure(json!({
        "host": format!("http://{address}/in?x=1"), "count": 1, "size": "20kB",
        "http": {"method": "PUT", "headers": ["X-Robot: 7"]}
    }));
    assert_eq!(metric(&found, "answered"), 1.0, "{:?}", found.reasons);
    let (head, body) = server.join().unwrap();
    assert!(head.starts_with("PUT /in?x=1 HTTP/1.1\r\n") && head.contains("\r\nX-Robot: 7\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Length: 20000\r\n") && body == 20_000, "{head} {body}");
}

/// Serves one connection after the other: `reply` for each request, after a while.
fn serve(reply: &'static [u8], after: Duration, requests: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut left = requests;
        while left > 0 {
            let Ok((mut connection, _)) = listener.accept() else { return };
            let mut bytes = [0; 4096];
            while left > 0 && matches!(connection.read(&mut bytes), Ok(1..)) {
                std::thread::sleep(after);
                let _ = connection.write_all(reply);
                left -= 1;
            }
        }
    });
    address
}

const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";

#[test]
fn slow_server_is_not_flattered_by_waiting_for_it() {
    // 20 a second were meant to be sent, and 10 are answered: the last one waits for a second.
    let address = serve(CHUNKED, Duration::from_millis(100), 20);
    let found = measure(json!({
        "host": format!("http://{address}/"), "rate_per_s": 20.0, "time": "1s", "timeout": "20s"
    }));
    assert_eq!(metric(&found, "answered"), 20.0, "{:?}", found.reasons);
    assert!(metric(&found, "response_max_ms") >= 1000.0, "{found:?}");
    assert!(metric(&found, "wait_mean_ms") >= 300.0, "{found:?}");
    assert_eq!(metric(&found, "late_ratio"), 0.0, "the server made them wait: {found:?}");
}

#[test]
fn silent_http_server_gives_errors_at_the_deadline() {
    let address = serve(b"", Duration::ZERO, 2);
    let found = measure(json!({
        "host": format!("http://{address}/"), "count": 2, "timeout": "200ms"
    }));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (0.0, 2.0), "{found:?}");
}
