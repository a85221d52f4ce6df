//! https:// and HTTP/2: nginx with certificates by openssl.

use std::net::TcpListener;

use base::verdict::Verdict;
use serde_json::{Value, json};

use super::common::{measure, metric, refusal};
use super::nginx::{Authority, Certificate, Nginx, NginxOptions};

const LONG_AGO: &str = "20200101";
const FAR_OFF: &str = "20990101";

/// A certificate for loopback that is valid.
fn valid(authority: &Authority) -> Certificate {
    authority.certify("IP:127.0.0.1", LONG_AGO, FAR_OFF)
}

fn needed() -> Option<Authority> {
    let has_nginx = std::process::Command::new("nginx").arg("-v").output().is_ok();
    let authority = Authority::new().filter(|_| has_nginx);
    if authority.is_none() {
        features::skip("needs nginx and openssl");
    }
    authority
}

fn notes_of(found: &base::workload::Judgement) -> String {
    found.account.tables.iter().flat_map(|table| &table.notes).cloned().collect()
}

#[test]
fn https_is_measured_and_its_log_agrees() {
    let Some(authority) = needed() else { return };
    let certificate = valid(&authority);
    let nginx = Nginx::start(NginxOptions {
        certificate: Some(&certificate),
        has_http2: false,
        ..NginxOptions::default()
    })
    .unwrap();
    let ca = authority.file();
    let of = |path: &str, more: Value| {
        let mut settings = json!({
            "host": format!("https://{}{path}", nginx.address),
            "http": {"ca": ca}, "objective": {"p99_max": "20s"}
        });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        measure(settings)
    };
    for connections in ["persistent", "fresh"] {
        let found = of("/file", json!({"clients": 4, "count": 50, "connections": connections}));
        assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.reasons);
        assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (200.0, 0.0), "{connections}");
        assert!(notes_of(&found).contains("The server spoke HTTP/1.1 over TLS"), "{}", notes_of(&found));
        // A handshake of TLS before each message is part of its response time.
        let connect_ms = metric(&found, "connect_mean_ms");
        assert!(connections == "persistent" || connect_ms > 0.0, "{connect_ms}");
    }
    // There nginx reads the whole body before it replies.
    let put = of("/put/a", json!({"count": 5, "size": "3MB", "http": {"ca": ca, "method": "PUT"}}));
    assert_eq!((metric(&put, "answered"), metric(&put, "errors")), (5.0, 0.0), "{:?}", put.reasons);
    assert!(metric(&put, "write_mean_ms") > 0.0, "{put:?}");
    assert_eq!(nginx.lines("200 HTTP/1.1", 405), 405, "{}", nginx.text("log"));
    let log = nginx.text("log");
    let long = |line: &&str| line.split(' ').nth(2).is_some_and(|n| n.parse::<u64>().unwrap() > 3_000_000);
    assert_eq!(log.lines().filter(long).count(), 5, "{log}");
    assert!(log.lines().all(|line| line.contains(" TLSv1.")), "{log}");
}

#[test]
fn certificate_that_is_not_valid_is_refused_by_its_reason() {
    let Some(authority) = needed() else { return };
    let other = Authority::new().unwrap();
    let (good, ca) = (valid(&authority), authority.file());
    let expired = authority.certify("IP:127.0.0.1", "20200102", "20200301");
    let early = authority.certify("IP:127.0.0.1", "20980101", FAR_OFF);
    let misnamed = authority.certify("DNS:nas.example", LONG_AGO, FAR_OFF);
    for (certificate, ca, why) in [
        (&good, Some(other.file()), "certificate is not trusted"),
        (&good, None, "certificate is not trusted"),
        (&expired, Some(ca.clone()), "certificate has expired"),
        (&early, Some(ca.clone()), "certificate is not valid yet"),
        (&misnamed, Some(ca.clone()), "certificate is for another name"),
    ] {
        let nginx = Nginx::start(NginxOptions {
            certificate: Some(certificate),
            has_http2: true,
            ..NginxOptions::default()
        })
        .unwrap();
        let host = format!("https://{}/file", nginx.address);
        let error = refusal(json!({"host": host, "count": 1, "http": {"ca": ca}}));
        assert!(error.contains(why) && error.contains(&nginx.address.to_string()), "{error}");
        // A fresh connection is made later: its message is an error.
        let found = measure(json!({
            "host": host, "count": 1, "http": {"ca": ca}, "connections": "fresh"
        }));
        assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (0.0, 1.0), "{found:?}");
        assert!(notes_of(&found).contains(why), "{}", notes_of(&found));
        assert_eq!(nginx.text("log"), "", "no request went to a server that is not trusted");
    }
    let missing = refusal(json!({"host": "https://127.0.0.1:1/", "http": {"ca": "/none.pem"}}));
    assert!(missing.contains("exchange.http.ca: /none.pem: No such file"), "{missing}");
}

#[test]
fn http2_is_chosen_by_the_server_or_demanded() {
    let Some(authority) = needed() else { return };
    let certificate = valid(&authority);
    let ca = authority.file();
    let secure = Nginx::start(NginxOptions {
        certificate: Some(&certificate),
        has_http2: true,
        ..NginxOptions::default()
    })
    .unwrap();
    let plain =
        Nginx::start(NginxOptions { certificate: None, has_http2: true, ..NginxOptions::default() }).unwrap();
    for (nginx, scheme, http, wanted) in [
        (&secure, "https", json!({"ca": ca}), "HTTP/2 over TLS"),
        (&secure, "https", json!({"ca": ca, "version": "2"}), "HTTP/2 over TLS"),
        (&plain, "http", json!({"version": "2"}), "HTTP/2."),
    ] {
        for connections in ["persistent", "fresh"] {
            let found = measure(json!({
                "host": format!("{scheme}://{}/file", nginx.address), "http": http, "clients": 4,
                "count": 50, "connections": connections, "objective": {"p99_max": "20s"}
            }));
            assert_eq!(found.verdict, Verdict::Pass, "{scheme} {connections} {:?}", found.reasons);
            assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (200.0, 0.0));
            assert!(notes_of(&found).contains(&format!("spoke {wanted}")), "{}", notes_of(&found));
        }
    }
    // Bodies that are larger than the server's windows of 64 KiB.
    let http = json!({"ca": ca, "method": "PUT"});
    let host = format!("https://{}/put/b", secure.address);
    let put = measure(json!({"host": host, "http": http, "count": 5, "size": "3MB"}));
    assert_eq!((metric(&put, "answered"), metric(&put, "errors")), (5.0, 0.0), "{:?}", put.reasons);
    let missing = measure(json!({
        "host": format!("https://{}/none", secure.address), "http": {"ca": ca}, "count": 5
    }));
    assert_eq!((metric(&missing, "errors"), missing.verdict), (5.0, Verdict::Fail));
    // An open loop counts from the schedule, as by HTTP/1.1.
    let open = measure(json!({
        "host": format!("https://{}/file", secure.address), "http": {"ca": ca}, "rate_per_s": 100.0,
        "time": "1s", "timeout": "20s"
    }));
    assert_eq!((metric(&open, "answered"), metric(&open, "errors")), (100.0, 0.0), "{:?}", open.reasons);
    // Version 1.1 on the same server.
    let old = measure(json!({
        "host": format!("https://{}/file", secure.address), "http": {"ca": ca, "version": "1.1"}, "count": 3
    }));
    assert!(notes_of(&old).contains("spoke HTTP/1.1 over TLS"), "{}", notes_of(&old));
    assert_eq!(secure.lines("404 HTTP/2.0", 5), 5);
    assert_eq!(secure.lines("200 HTTP/1.1", 3), 3);
    // Four times 200 requests, five bodies and the open loop.
    assert_eq!(secure.lines("200 HTTP/2.0", 905), 905);
    assert_eq!(plain.lines("200 HTTP/2.0", 400), 400);
}

#[test]
fn server_without_tls_or_http2_is_named_so() {
    let Some(authority) = needed() else { return };
    let certificate = valid(&authority);
    let plain = Nginx::start(NginxOptions::default()).unwrap();
    let secure = Nginx::start(NginxOptions {
        certificate: Some(&certificate),
        has_http2: false,
        ..NginxOptions::default()
    })
    .unwrap();
    let ca = authority.file();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for (host, http, why) in [
        (format!("https://{}/", plain.address), json!({"ca": ca}), "does not speak TLS"),
        (format!("http://{}/", plain.address), json!({"version": "2"}), "HTTP/2"),
        (format!("https://{}/", secure.address), json!({"ca": ca, "version": "2"}), "version of HTTP"),
        (
            format!("https://{}/", silent.local_addr().unwrap()),
            json!({"ca": ca}),
            "the handshake did not end in time",
        ),
        (
            format!("https://{}/", secure.address),
            json!({"ca": ca, "version": "2", "headers": ["Connection: close"]}),
            "HTTP/2 has no header field 'Connection'",
        ),
    ] {
        let error = refusal(json!({"host": host, "http": http, "count": 1, "timeout": "1s"}));
        assert!(error.contains(why), "{host}: {error}");
    }
    // A field of HTTP/1.1 alone leaves the choice of HTTP/1.1.
    let found = measure(json!({
        "host": format!("https://{}/file", secure.address), "count": 2,
        "http": {"ca": ca, "headers": ["Connection: keep-alive"]}
    }));
    assert_eq!(metric(&found, "answered"), 2.0, "{:?}", found.reasons);
}
