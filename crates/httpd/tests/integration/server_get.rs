//! GET, HEAD, ranges, conditions, listings, log and load page.

use crate::server_common;
use std::os::unix::fs::symlink;

use httpd::{AccessLog, Server, ServerConfig};
use proptest::prelude::*;
use server_common::*;

const KEEP: &str = "";

#[test]
fn get_sends_the_file_and_head_only_its_head() {
    let dir = tempfile::tempdir().unwrap();
    let content = pattern(3 << 20);
    std::fs::write(dir.path().join("a b.ts"), &content).unwrap();
    std::fs::write(dir.path().join("empty"), "").unwrap();
    let server = start(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    let whole = client.get("/a%20b.ts", KEEP);
    assert_eq!((whole.status, whole.body == content), (200, true), "{}", whole.head);
    assert_eq!(whole.field("content-type"), Some("video/mp2t"));
    assert_eq!(whole.field("accept-ranges"), Some("bytes"));
    let head = client.head("/a%20b.ts", KEEP);
    for field in ["content-length", "etag", "last-modified", "content-type"] {
        assert_eq!(head.field(field), whole.field(field), "{field}");
        assert!(head.field(field).is_some(), "{field}");
    }
    assert_eq!(client.get("/empty", KEEP).body, b"");
    assert_eq!(client.get("/none", KEEP).status, 404);
    assert_eq!(client.get("/empty/", KEEP).status, 404);
    assert_eq!(client.get("/empty/below", KEEP).status, 404);
    let stats = server.stop();
    assert_eq!((stats.accepted, stats.requests, stats.refused, stats.streams), (1, 6, 3, 0));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let content = pattern(100_000);
    let dir = root_with(&content);
    let server = start(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    let ask = |i: usize| {
        format!("GET /f HTTP/1.1\r\nHost: x\r\nRange: bytes={}-{}\r\n\r\n", i * 500, i * 500 + 499)
    };
    client.send((0..200).map(ask).collect::<String>());
    for i in 0..200 {
        assert_eq!(client.reply().body, content[i * 500..(i + 1) * 500], "answer {i}");
    }
    // An empty line before a request, and one that comes byte by byte.
    client.send("\r\n\r\n");
    for byte in ask(3).bytes() {
        client.send([byte]);
    }
    assert_eq!(client.reply().body, content[1500..2000]);
    let old = exchange(server.local_addr(), "GET /f HTTP/1.0\r\n\r\n");
    assert!(old.contains("Connection: close") && old.len() > 100_000);
    let kept = exchange(server.local_addr(), "HEAD /f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".repeat(2));
    assert_eq!(kept.matches("200 OK").count(), 2);
    let closed =
        exchange(server.local_addr(), "HEAD /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".repeat(2));
    assert_eq!(closed.matches("200 OK").count(), 1);
}

/// What RFC 9110 says a range of a file is, written as slowly and plainly as possible.
fn reference(content: &[u8], first: Option<u64>, last: Option<u64>) -> Option<Option<(u64, &[u8])>> {
    let len = content.len() as u64;
    let wanted: Vec<u64> = match (first, last) {
        (None, None) => return None,
        (Some(a), Some(b)) if b < a => return None,
        (None, Some(n)) => (len.saturating_sub(n)..len).collect(),
        (Some(a), b) => (0..len).filter(|i| *i >= a && b.is_none_or(|b| *i <= b)).collect(),
    };
    Some(wanted.first().map(|&a| (a, &content[a as usize..a as usize + wanted.len()])))
}

#[test]
fn range_responses_are_slices() {
    let content = pattern(1000);
    let dir = root_with(&content);
    let server = start(dir.path(), |_| ());
    let client = std::cell::RefCell::new(Client::new(server.local_addr()));
    let bound = || prop_oneof![8 => (0..1100_u64).prop_map(Some), 1 => Just(Some(u64::MAX)), 2 => Just(None)];
    proptest!(ProptestConfig::with_cases(400), |(first in bound(), last in bound())| {
        let show = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        let field = format!("Range: bytes={}-{}\r\n", show(first), show(last));
        let reply = client.borrow_mut().get("/f", &field);
        match reference(&content, first, last) {
            None => prop_assert_eq!((reply.status, &reply.body), (200, &content)),
            Some(None) => {
                prop_assert_eq!(reply.status, 416);
                prop_assert_eq!(reply.field("content-range"), Some("bytes */1000"));
            }
            Some(Some((start, slice))) => {
                prop_assert_eq!((reply.status, reply.body.as_slice()), (206, slice));
                let range = format!("bytes {}-{}/1000", start, start + slice.len() as u64 - 1);
                prop_assert_eq!(reply.field("content-range"), Some(range.as_str()));
            }
        }
    });
    let mut client = client.into_inner();
    for field in ["bytes=0-1,5-6", "bytes=a-b", "lines=1-2", "bytes", "bytes=--5", "bytes=1-2x", "bytes=-"] {
        let reply = client.get("/f", &format!("Range: {field}\r\n"));
        assert_eq!((reply.status, reply.body.len()), (200, 1000), "{field}");
    }
    assert_eq!(client.get("/f", "Range: bytes=99999999999999999999999-\r\n").status, 416);
    assert_eq!(client.head("/f", "Range: bytes=0-1\r\n").status, 200);
}

#[test]
fn file_beyond_4_gib_is_read_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("big")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"the end", 5 << 30).unwrap();
    let server = start(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/big", "Range: bytes=-7\r\n").body, b"the end");
    assert_eq!(client.head("/big", "").field("content-length"), Some("5368709127"));
}

#[test]
fn conditional_requests_follow_rfc_9110() {
    let dir = root_with(&pattern(100));
    let server = start(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    let first = client.get("/f", "");
    let (tag, date) =
        (first.field("etag").unwrap().to_owned(), first.field("last-modified").unwrap().to_owned());
    assert!(tag.starts_with('"') && tag.ends_with('"'), "strong: {tag}");
    let old = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (fields, status) in [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: \"x\", W/{tag}\r\n"), 304),
        ("If-None-Match: *\r\n".into(), 304),
        ("If-None-Match: \"x\"\r\n".into(), 200),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        (format!("If-Modified-Since: {old}\r\n"), 200),
        ("If-Modified-Since: nonsense\r\n".into(), 200),
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"), 200),
        (format!("If-Match: {tag}\r\n"), 200),
        (format!("If-Match: W/{tag}\r\n"), 412),
        ("If-Match: \"x\"\r\n".into(), 412),
        (format!("If-Unmodified-Since: {old}\r\n"), 412),
        (format!("If-Unmodified-Since: {date}\r\n"), 200),
        (format!("Range: bytes=0-9\r\nIf-Range: {tag}\r\n"), 206),
        (format!("Range: bytes=0-9\r\nIf-Range: W/{tag}\r\n"), 200),
        ("Range: bytes=0-9\r\nIf-Range: \"x\"\r\n".into(), 200),
        (format!("Range: bytes=0-9\r\nIf-Range: {date}\r\n"), 206),
        (format!("Range: bytes=0-9\r\nIf-Range: {old}\r\n"), 200),
    ] {
        let reply = client.get("/f", &fields);
        assert_eq!(reply.status, status, "{fields}");
        assert_eq!(reply.body.is_empty(), status == 304, "{fields}");
    }
    std::fs::write(dir.path().join("f"), pattern(101)).unwrap();
    assert_eq!(client.get("/f", &format!("If-None-Match: {tag}\r\n")).status, 200);
}

#[test]
fn directories_are_listed_as_html_and_json() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir_all(root.join("sub dir/deep")).unwrap();
    std::fs::write(outer.path().join("secret"), "s").unwrap();
    std::fs::write(root.join("sub dir/<b>&\".ts"), "12345").unwrap();
    symlink("../../secret", root.join("sub dir/out")).unwrap();
    symlink("deep", root.join("sub dir/in")).unwrap();
    std::fs::write(root.join("sub dir/.kagiri-pending-1-1"), "").unwrap();
    let server = start(&root, |_| ());
    let mut client = Client::new(server.local_addr());
    let moved = client.get("/sub%20dir", "");
    assert_eq!((moved.status, moved.field("location")), (301, Some("/sub%20dir/")));
    let reply = client.get("/sub%20dir/", "Accept: application/json\r\n");
    let listing: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(listing["path"], "/sub dir/");
    let entries = listing["entries"].as_array().unwrap();
    let found: Vec<_> =
        entries.iter().map(|e| (e["name"].as_str().unwrap(), e["kind"].as_str().unwrap())).collect();
    assert_eq!(found, [("deep", "directory"), ("in", "directory"), ("<b>&\".ts", "file")]);
    assert_eq!(entries[2]["size_bytes"], 5);
    assert!(entries[2]["modified"].as_str().unwrap().ends_with('Z'));
    let href = entries[2]["href"].as_str().unwrap().trim_start_matches("./").to_owned();
    assert_eq!(client.get(&format!("/sub%20dir/{href}"), "").body, b"12345");
    assert_eq!(client.get("/?json", "").field("content-type"), Some("application/json"));
    let page = client.get("/sub%20dir/", "");
    assert!(page.field("content-type").unwrap().starts_with("text/html"));
    assert!(
        page.text().contains("&lt;b&gt;&amp;&quot;.ts") && !page.text().contains("<b>"),
        "{}",
        page.text()
    );
    assert_eq!(client.get("/sub%20dir/out", "").status, 403);
    assert_eq!(client.get("/.kagiri/other", "").status, 404);
}

#[test]
fn load_page_and_access_log_report_requests() {
    let dir = root_with(&pattern(1000));
    let lines = Lines::default();
    let server = start(dir.path(), |c| c.access_log = lines.log());
    let mut client = Client::new(server.local_addr());
    client.get("/f", "User-Agent: tester \"1\"\r\nReferer: http://r/\r\n");
    client.get("/missing", "");
    let load: serde_json::Value = serde_json::from_slice(&client.get("/.kagiri/load?json", "").body).unwrap();
    assert_eq!(
        (load["connections"].as_u64(), load["requests"].as_u64(), load["refused"].as_u64()),
        (Some(1), Some(2), Some(1))
    );
    until("a rate", || server.stats().rate_bit_per_s.is_some());
    let stats = server.stats();
    assert!(stats.process_cpu_percent.is_some() && stats.uptime_s > 0.0 && stats.sent_bytes > 1000);
    assert!(client.get("/.kagiri/load", "").text().contains("CPU of the process"));
    client.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.reply().field("allow"), Some("GET, HEAD, OPTIONS"));
    drop(client);
    server.stop();
    let text = lines.text();
    let log: Vec<_> = text.lines().collect();
    assert_eq!(log.len(), 5, "{text}");
    assert!(log[0].starts_with("127.0.0.1 - - ["), "{text}");
    assert!(
        log[0].contains("] \"GET /f HTTP/1.1\" 200 1000 \"http://r/\" \"tester \\x221\\x22\" sent_bytes="),
        "{text}"
    );
    assert!(log[0].contains("duration_s=0.") && log[0].ends_with("reason=-"), "{text}");
    assert!(
        log[1].contains("\"GET /missing HTTP/1.1\" 404 ") && log[1].ends_with("reason=\"no such file\""),
        "{text}"
    );
}

#[test]
fn workers_share_the_connections() {
    let content = pattern(1 << 20);
    let dir = root_with(&content);
    let server = start(dir.path(), |c| c.threads = 3);
    let addr = server.local_addr();
    std::thread::scope(|scope| {
        for i in 0..12_usize {
            let content = &content;
            scope.spawn(move || {
                let mut client = Client::new(addr);
                for round in 0..10 {
                    let at = (i * 7919 + round * 104_729) % 500_000;
                    let reply = client.get("/f", &format!("Range: bytes={at}-\r\n"));
                    assert!(reply.body == content[at..], "client {i} round {round}");
                }
            });
        }
    });
    until("every worker has begun", || server.thread_ids().len() == 3);
    until("every connection has ended", || server.stats().connections == 0);
    assert_eq!(server.stop().requests, 120);
}

#[test]
fn sent_bytes_cost_the_configured_cpu_time() {
    let content = pattern(1 << 20);
    let dir = root_with(&content);
    let server = start(dir.path(), |c| c.cost_ns_per_byte = 100.0);
    let mut client = Client::new(server.local_addr());
    assert!(client.get("/f", "").body == content);
    let thread = server.thread_ids()[0];
    let cpu_ns = || {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    // The last slice is paid for after it was sent.
    until("the bytes are paid for", || cpu_ns() >= (1 << 20) * 100);
}

#[test]
fn start_error_names_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), |_| ());
    let taken = server.local_addr();
    let refused = |change: &dyn Fn(&mut ServerConfig)| {
        let mut config = ServerConfig::loopback(dir.path());
        change(&mut config);
        Server::start(config).expect_err("must not start").to_string()
    };
    assert!(refused(&|c| c.listen = taken).contains(&taken.to_string()));
    assert!(refused(&|c| c.root = "/no/such/dir".into()).contains("/no/such/dir"));
    assert!(refused(&|c| c.threads = 0).contains("0 threads"));
    assert!(refused(&|c| c.cpus = vec![4000]).contains("CPU 4000"));
    assert!(refused(&|c| c.cost_ns_per_byte = f64::NAN).contains("NaN"));
    let log = AccessLog::Path("/no/such/log".into());
    let mut config = ServerConfig::loopback(dir.path());
    config.access_log = Some(log);
    let error = Server::start(config).expect_err("must not start").to_string();
    assert!(error.contains("/no/such/log"), "{error}");
}
