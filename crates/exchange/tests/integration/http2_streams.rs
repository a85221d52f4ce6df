//! Several requests at a time on a connection of HTTP/2, against servers that count them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use base::verdict::Verdict;
use base::workload::Judgement;
use h2::Reason;
use serde_json::{Value, json};

use super::common::{measure, metric, refusal};
use super::http2_server::{Answer, Http2Server};
use super::nginx::{Authority, Nginx, NginxOptions};

const TENTH: Duration = Duration::from_millis(100);

/// A trial of one client with so many streams, with these other settings.
fn measure_streams(host: &str, streams: u64, others: Value) -> Judgement {
    let mut settings = json!({"host": host, "http": {"version": "2", "streams": streams}, "timeout": "20s"});
    let Value::Object(others) = others else { panic!("settings are a table") };
    settings.as_object_mut().unwrap().extend(others);
    measure(settings)
}

fn text_of(judgement: &Judgement) -> String {
    let tables = judgement.account.tables.iter();
    let rows = tables.map(|table| format!("{:?} {}", table.rows, table.notes.concat()));
    rows.collect::<Vec<_>>().concat() + &judgement.reasons.concat()
}

/// Answers each request of HTTP/1.1 after a while, any number of connections at a time.
fn slow_backend(pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move |mut connection: TcpStream| {
        let mut bytes = [0; 4096];
        if matches!(connection.read(&mut bytes), Ok(1..)) {
            std::thread::sleep(pause);
            let _ = connection.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    };
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || serve(connection));
        }
    });
    address
}

#[test]
fn requests_on_the_streams_of_one_connection_wait_for_the_server_together() {
    // A server that takes 100 ms for each request answers 10 a second on a stream.
    for streams in [1_u64, 10] {
        let server = Http2Server::start(None, |_| Answer::After(TENTH));
        let found = measure_streams(&server.url(), streams, json!({"time": "2s"}));
        let (per_s, most) = (metric(&found, "messages_per_s"), 10.0 * streams as f64);
        assert!((0.7 * most..=1.05 * most).contains(&per_s), "{streams} streams: {per_s} per second");
        assert_eq!((server.connections(), server.in_progress_max() as u64), (1, streams));
        assert_eq!(metric(&found, "streams_max"), streams as f64);
        // The replies to the last requests are waited for.
        assert_eq!(metric(&found, "answered"), server.requests() as f64, "{found:?}");
        assert_eq!(metric(&found, "errors"), 0.0, "{:?}", found.reasons);
    }
}

#[test]
fn nginx_answers_streams_at_once_and_its_log_agrees() {
    let backend = slow_backend(TENTH);
    let options =
        NginxOptions { has_http2: true, slow: Some(backend), requests_max: 1000, ..NginxOptions::default() };
    let Some(nginx) = Nginx::start(options) else { return features::skip("needs nginx") };
    let host = format!("http://{}/slow", nginx.address);
    let found = measure_streams(&host, 20, json!({"time": "2s"}));
    let per_s = metric(&found, "messages_per_s");
    assert!((140.0..=210.0).contains(&per_s), "{per_s} per second: {:?}", found.reasons);
    assert_eq!((metric(&found, "errors"), metric(&found, "streams_max")), (0.0, 20.0));
    let answered = metric(&found, "answered") as usize;
    assert_eq!(nginx.lines("200 HTTP/2.0", answered), answered);
    // Its log numbers connections.
    let log = nginx.text("log");
    let connections: BTreeSet<&str> = log.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(connections.len(), 1, "{log}");
}

#[test]
fn open_loop_sends_as_soon_as_a_stream_is_free_and_counts_from_the_schedule() {
    // 40 a second are meant to be sent: 10 streams answer up to 100, and 2 answer 20.
    let rate = json!({"rate_per_s": 40.0, "time": "1s"});
    let enough = Http2Server::start(None, |_| Answer::After(TENTH));
    let found = measure_streams(&enough.url(), 10, rate.clone());
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (40.0, 0.0), "{:?}", found.reasons);
    assert!(metric(&found, "wait_mean_ms") < 50.0, "{found:?}");
    // The requests in progress follow from the rate: 4, and a few more if the machine pauses.
    assert!((4..10).contains(&enough.in_progress_max()), "{}", enough.in_progress_max());
    let few = Http2Server::start(None, |_| Answer::After(TENTH));
    let found = measure_streams(&few.url(), 2, rate);
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (40.0, 0.0), "{:?}", found.reasons);
    assert_eq!(few.in_progress_max(), 2);
    // The last one was meant to be sent after a second, and is sent after two.
    assert!(metric(&found, "response_max_ms") >= 1000.0, "{found:?}");
    assert!(metric(&found, "wait_mean_ms") >= 300.0, "{found:?}");
    assert_eq!(metric(&found, "late_ratio"), 0.0, "the server made them wait: {found:?}");
}

#[test]
fn error_of_one_stream_does_not_hold_up_the_others() {
    // Every tenth request is reset. Its stream pauses for 100 ms: ten requests of a stream take 190 ms.
    let plan = |number: usize| match number % 10 {
        9 => Answer::Reset(Reason::INTERNAL_ERROR),
        _ => Answer::After(Duration::from_millis(10)),
    };
    let server = Http2Server::start(None, plan);
    let found = measure_streams(&server.url(), 20, json!({"time": "2s"}));
    // 2100 in all. Were all streams to pause, 20 would take 110 ms: 360 in all.
    assert!((800..=2200).contains(&server.requests()), "{} requests", server.requests());
    let errors = metric(&found, "errors");
    assert!((errors / server.requests() as f64 - 0.1).abs() < 0.02, "{errors} of {}", server.requests());
}

#[test]
fn limit_of_the_server_holds_and_is_said() {
    let server = Http2Server::start(Some(3), |_| Answer::After(Duration::from_millis(20)));
    let found = measure_streams(&server.url(), 20, json!({"count": 60}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (60.0, 0.0), "{:?}", found.reasons);
    assert_eq!((server.in_progress_max(), metric(&found, "streams_max")), (3, 3.0));
    let text = text_of(&found);
    assert!(
        text.contains("The server allows 3 streams at a time on a connection; 20 were wanted."),
        "{text}"
    );
    // Several clients have their own connections, each with its own streams.
    let server = Http2Server::start(Some(3), |_| Answer::After(TENTH));
    let found = measure_streams(&server.url(), 2, json!({"count": 10, "clients": 4}));
    assert_eq!((server.connections(), server.in_progress_max(), server.requests()), (4, 8, 40));
    assert!(!text_of(&found).contains("were wanted"), "{}", text_of(&found));
}

#[test]
fn announced_end_of_a_connection_costs_no_request() {
    // Every seventh request is the last of its connection.
    let server = Http2Server::start(None, |number| match number % 7 {
        6 => Answer::Last(Duration::from_millis(5)),
        _ => Answer::After(Duration::from_millis(5)),
    });
    let found = measure_streams(&server.url(), 4, json!({"count": 70}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (70.0, 0.0), "{:?}", found.reasons);
    assert_eq!(server.requests(), 70, "each was sent once");
    assert!(server.connections() >= 5, "{}", server.connections());
    // nginx ends a connection after 30 requests, and ignores those that it has not begun by then.
    let options = NginxOptions { has_http2: true, ..NginxOptions::default() };
    let Some(nginx) = Nginx::start(options) else { return features::skip("needs nginx") };
    let found = measure_streams(&format!("http://{}/file", nginx.address), 16, json!({"count": 300}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (300.0, 0.0), "{:?}", found.reasons);
    assert_eq!(nginx.lines("200 HTTP/2.0", 300), 300);
}

#[test]
fn reset_stream_is_an_error_of_its_request_alone() {
    let server = Http2Server::start(None, |number| match number % 5 {
        4 => Answer::Reset(Reason::INTERNAL_ERROR),
        _ => Answer::After(Duration::from_millis(10)),
    });
    let found = measure_streams(&server.url(), 5, json!({"count": 50}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (40.0, 10.0), "{:?}", found.reasons);
    assert_eq!((server.connections(), server.requests()), (1, 50));
    assert_eq!(found.verdict, Verdict::Fail);
    let text = text_of(&found);
    assert!(text.contains("request reset by the server: 10") && text.contains("INTERNAL_ERROR"), "{text}");
}

#[test]
fn refused_request_is_sent_again_but_not_forever() {
    // The server refuses each third request that comes.
    let server = Http2Server::start(None, |number| match number % 3 {
        2 => Answer::Reset(Reason::REFUSED_STREAM),
        _ => Answer::After(Duration::from_millis(10)),
    });
    let found = measure_streams(&server.url(), 4, json!({"count": 40}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (40.0, 0.0), "{:?}", found.reasons);
    assert_eq!((server.connections(), server.requests()), (1, 59), "40 were answered, 19 refused");
    let server = Http2Server::start(None, |_| Answer::Reset(Reason::REFUSED_STREAM));
    let found = measure_streams(&server.url(), 2, json!({"count": 4}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (0.0, 4.0), "{found:?}");
    assert_eq!(server.requests(), 16, "each is sent again three times");
}

#[test]
fn stream_that_never_ends_is_cancelled_at_its_deadline_and_the_others_go_on() {
    let server = Http2Server::start(None, |number| match number {
        3 => Answer::Never,
        _ => Answer::After(Duration::from_millis(20)),
    });
    let found = measure_streams(&server.url(), 4, json!({"count": 200, "timeout": "500ms"}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (199.0, 1.0), "{:?}", found.reasons);
    assert!(text_of(&found).contains("no reply in time: 1"), "{:?}", found.reasons);
    assert_eq!((server.connections(), server.requests(), server.cancelled()), (1, 200, 1));
}

#[test]
fn silent_server_gets_another_connection_and_every_request_its_own_deadline() {
    let server = Http2Server::start(None, |number| match number {
        0..4 => Answer::Never,
        _ => Answer::After(Duration::from_millis(1)),
    });
    let found = measure_streams(&server.url(), 4, json!({"count": 20, "timeout": "300ms"}));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (16.0, 4.0), "{:?}", found.reasons);
    assert!(text_of(&found).contains("no reply in time: 4"), "{:?}", found.reasons);
    assert_eq!((server.connections(), server.requests()), (2, 20));
}

#[test]
fn bodies_larger_than_the_window_share_a_connection() {
    let options = NginxOptions { has_http2: true, requests_max: 1000, ..NginxOptions::default() };
    let Some(nginx) = Nginx::start(options) else { return features::skip("needs nginx") };
    let found = measure(json!({
        "host": format!("http://{}/put/a", nginx.address), "count": 12, "size": "3MB", "timeout": "20s",
        "http": {"version": "2", "streams": 4, "method": "PUT"}
    }));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (12.0, 0.0), "{:?}", found.reasons);
    assert!(metric(&found, "write_mean_ms") > 0.0, "{found:?}");
    assert_eq!((nginx.lines("200 HTTP/2.0", 12), metric(&found, "streams_max")), (12, 4.0));
}

#[test]
fn streams_demand_http2_of_a_server_that_may_choose() {
    let Some(authority) = Authority::new() else { return features::skip("needs openssl") };
    let certificate = authority.certify("IP:127.0.0.1", "20200101", "20990101");
    for (has_http2, wanted) in [(true, "spoke HTTP/2 over TLS"), (false, "version of HTTP")] {
        let options = NginxOptions { certificate: Some(&certificate), has_http2, ..NginxOptions::default() };
        let Some(nginx) = Nginx::start(options) else { return features::skip("needs nginx") };
        let settings = json!({
            "host": format!("https://{}/file", nginx.address), "count": 20,
            "http": {"ca": authority.file(), "streams": 4}
        });
        let said = if has_http2 { text_of(&measure(settings)) } else { refusal(settings) };
        assert!(said.contains(wanted), "{said}");
    }
}
