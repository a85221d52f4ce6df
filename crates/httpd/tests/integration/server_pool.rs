//! Files in a segment pool, beside plain ones.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::server_common;
use httpd::{Server, ServerConfig};
use pool::Pool;
use server_common::*;

const SEGMENT: u64 = 4096;
const SEGMENTS: u64 = 64;

/// A server with uploads and an empty pool of small segments; the pool is shared with the test.
fn with_pool(root: &Path, change: impl FnOnce(&mut ServerConfig)) -> (Server, Pool) {
    let pool = Pool::open_or_create(&root.join(pool::FOLDER), SEGMENTS * SEGMENT, SEGMENT).unwrap();
    let shared = pool.clone();
    let server = start(root, |c| {
        (c.upload, c.pool) = (true, Some(pool));
        change(c);
    });
    (server, shared)
}

/// Each segment is free or one file's.
fn check(pool: &Pool) {
    let files = pool.list();
    let mut used: Vec<_> = files.iter().flat_map(|(_, file)| file.segments().map(|(at, _)| at)).collect();
    let count = used.len() as u64;
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len() as u64, count, "a segment is in two files");
    assert_eq!(count * SEGMENT + pool.free_bytes(), pool.total_bytes());
}

fn delete(client: &mut Client, path: &str, fields: &str) -> Reply {
    client.send(format!("DELETE {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
    client.reply()
}

fn listed(client: &mut Client, path: &str) -> Vec<(String, String, Option<u64>)> {
    let reply = client.get(&format!("{path}?json"), "");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let listing: serde_json::Value = serde_json::from_str(reply.text()).unwrap();
    let entries = listing["entries"].as_array().unwrap().iter();
    let entry = |e: &serde_json::Value| {
        let text = |key: &str| e[key].as_str().unwrap().to_owned();
        (text("href"), text("kind"), e["size_bytes"].as_u64())
    };
    entries.map(entry).collect()
}

#[test]
fn upload_into_a_pool_round_trips_in_scattered_segments() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let (server, pool) = with_pool(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    // Every other segment is free when the file comes.
    for i in 0..40 {
        assert_eq!(client.put(&format!("/small{i}"), &[1; 100], "").status, 201);
    }
    for i in (0..40).step_by(2) {
        assert_eq!(delete(&mut client, &format!("/small{i}"), "").status, 204);
    }
    let content = pattern(43 * SEGMENT as usize - 1234);
    let created = client.put("/sub/a%20b.ts", &content, "");
    assert_eq!((created.status, created.field("location")), (201, Some("/sub/a%20b.ts")));
    let file = pool.file("sub/a b.ts").unwrap();
    let places: Vec<_> = file.segments().map(|(at, _)| at).collect();
    assert!(places.windows(2).filter(|pair| pair[1] != pair[0] + SEGMENT).count() > 10, "{places:?}");
    let read = client.get("/sub/a%20b.ts", "");
    assert!(read.status == 200 && read.body == content);
    assert_eq!(read.field("etag"), created.field("etag"));
    assert_eq!(read.field("content-type"), Some("video/mp2t"));
    let head = client.head("/sub/a%20b.ts", "");
    for field in ["content-length", "etag", "last-modified", "content-type", "accept-ranges"] {
        assert_eq!(head.field(field), read.field(field), "{field}");
        assert!(head.field(field).is_some(), "{field}");
    }
    // Around the borders of segments, and the ends.
    let len = content.len();
    for start in [0, 1, 4095, 4096, 4097, 8000, len - 4097, len - 1] {
        for end in [start, start + 1, start + 4095, start + 4096, start + 50_000, len - 1] {
            let reply = client.get("/sub/a%20b.ts", &format!("Range: bytes={start}-{end}\r\n"));
            let end = end.min(len - 1);
            assert!(reply.status == 206 && reply.body == content[start..=end], "{start}-{end}");
            assert_eq!(reply.field("content-range").unwrap(), format!("bytes {start}-{end}/{len}"));
        }
    }
    assert_eq!(client.get("/sub/a%20b.ts", &format!("Range: bytes={len}-\r\n")).status, 416);
    let replaced = client.put("/sub/a%20b.ts", b"new", "");
    assert_eq!((replaced.status, replaced.body.len()), (204, 0));
    assert_eq!(client.get("/sub/a%20b.ts", "").body, b"new");
    assert_eq!(client.put("/empty", b"", "").status, 201);
    assert_eq!(client.get("/empty", "").body, b"");
    assert_eq!(client.get("/empty/", "").status, 404);
    assert_eq!(names(dir.path()), [pool::FOLDER, "sub"], "nothing is outside the pool");
    assert_eq!(names(&dir.path().join("sub")), Vec::<String>::new());
    drop((file, client));
    server.stop();
    check(&pool);
    drop(pool);
    let (server, pool) = with_pool(dir.path(), |c| c.upload = false);
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/sub/a%20b.ts", "").body, b"new", "served by the next server, without uploads");
    for reply in [client.put("/x", b"", ""), delete(&mut Client::new(server.local_addr()), "/empty", "")] {
        assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
    check(&pool);
}

#[test]
fn conditions_hold_for_files_of_a_pool() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _pool) = with_pool(dir.path(), |_| ());
    let addr = server.local_addr();
    let mut client = Client::new(addr);
    assert_eq!(client.put("/f", b"one", "If-None-Match: *\r\n").status, 201);
    let read = client.get("/f", "");
    let (tag, date) =
        (read.field("etag").unwrap().to_owned(), read.field("last-modified").unwrap().to_owned());
    for (fields, status) in [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".into(), 200),
        ("If-Match: \"x\"\r\n".into(), 412),
        (format!("If-Range: {tag}\r\nRange: bytes=1-\r\n"), 206),
        ("If-Range: \"x\"\r\nRange: bytes=1-\r\n".into(), 200),
    ] {
        let reply = client.get("/f", &fields);
        assert_eq!(reply.status, status, "{fields}");
        if matches!(status, 200 | 206) {
            assert_eq!(reply.body, if status == 206 { &b"ne"[..] } else { b"one" }, "{fields}");
        }
    }
    assert_eq!(Client::new(addr).put("/f", b"x", "If-None-Match: *\r\n").status, 412);
    // Another content of the same length, within the same second.
    let replaced = client.put("/f", b"two", &format!("If-Match: {tag}\r\n"));
    assert_eq!(replaced.status, 204);
    assert_ne!(replaced.field("etag"), Some(tag.as_str()));
    assert_eq!(Client::new(addr).put("/f", b"x", &format!("If-Match: {tag}\r\n")).status, 412);
    assert_eq!(delete(&mut client, "/f", &format!("If-Match: {tag}\r\n")).status, 412);
    assert_eq!(client.get("/f", &format!("If-Range: {tag}\r\nRange: bytes=1-\r\n")).body, b"two");
    assert_eq!(delete(&mut client, "/f", "If-Match: *\r\n").status, 204);
    assert_eq!(client.get("/f", "").status, 404);
    assert_eq!(Client::new(addr).put("/f", b"x", "If-Match: *\r\n").status, 412);
}

#[test]
fn listings_have_files_of_both_places() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("sub/gone")).unwrap();
    std::fs::write(dir.path().join("plain"), "12345").unwrap();
    std::fs::write(dir.path().join("both"), "plain").unwrap();
    let (server, pool) = with_pool(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    for (path, content) in [("/pooled", "123"), ("/sub/f", "1"), ("/sub/gone/g", "12")] {
        assert_eq!(client.put(path, content.as_bytes(), "").status, 201, "{path}");
    }
    let mut writer = pool.begin().unwrap();
    writer.write_all(b"of the pool").unwrap();
    writer.commit("both").unwrap();
    let of = |href: &str, size: Option<u64>| {
        (format!("./{href}"), if size.is_none() { "directory" } else { "file" }.to_owned(), size)
    };
    let root = [of("sub/", None), of("both", Some(11)), of("plain", Some(5)), of("pooled", Some(3))];
    assert_eq!(listed(&mut client, "/"), root);
    assert_eq!(listed(&mut client, "/sub/"), [of("gone/", None), of("f", Some(1))]);
    let page = client.get("/", "");
    assert!(page.text().contains("pooled") && !page.text().contains(pool::FOLDER), "{}", page.text());
    // A folder that only the pool still has.
    std::fs::remove_dir_all(dir.path().join("sub")).unwrap();
    assert_eq!(listed(&mut client, "/"), root);
    assert_eq!(listed(&mut client, "/sub/"), [of("gone/", None), of("f", Some(1))]);
    assert_eq!(client.get("/sub", "").field("location"), Some("/sub/"));
    assert_eq!(client.get("/sub/gone/g", "").body, b"12");
    assert_eq!(client.put("/sub/gone/h", b"3", "").status, 201);
    assert_eq!(delete(&mut client, "/sub/gone", "").status, 409);
    assert_eq!(Client::new(server.local_addr()).put("/sub/gone", b"3", "").status, 409);
    for path in ["/sub/f", "/sub/gone/g", "/sub/gone/h"] {
        assert_eq!(delete(&mut client, path, "").status, 204, "{path}");
    }
    assert_eq!(client.get("/sub/", "").status, 404);
    assert_eq!(listed(&mut client, "/"), root[1..]);
}

#[test]
fn name_in_both_places_is_the_pools() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("f");
    std::fs::write(&plain, "plain").unwrap();
    let (server, pool) = with_pool(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/f", "").body, b"plain");
    let tag = client.head("/f", "").field("etag").unwrap().to_owned();
    let created = client.put("/f", b"pooled", &format!("If-Match: {tag}\r\n"));
    assert_eq!(created.status, 204, "replaced: {}", created.head);
    assert!(!plain.exists() && client.get("/f", "").body == b"pooled");
    std::fs::write(&plain, "plain again").unwrap();
    assert_eq!(client.get("/f", "").body, b"pooled");
    assert_eq!(delete(&mut client, "/f", "").status, 204);
    assert!(!plain.exists() && pool.file("f").is_none());
    assert_eq!((client.get("/f", "").status, delete(&mut client, "/f", "").status), (404, 404));
    // A directory with the name of a file in the pool.
    assert_eq!(client.put("/f", b"pooled", "").status, 201);
    std::fs::create_dir(&plain).unwrap();
    assert_eq!((client.get("/f", "").body, client.get("/f/", "").status), (b"pooled".to_vec(), 200));
    assert_eq!(delete(&mut client, "/f", "").status, 204);
    assert!(plain.is_dir() && pool.file("f").is_none());
    assert_eq!(delete(&mut client, "/f", "").status, 409);
    check(&pool);
}

#[test]
fn delete_without_a_pool_removes_plain_files_only() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir_all(root.join("dir")).unwrap();
    std::fs::write(outer.path().join("outside"), "x").unwrap();
    std::fs::write(root.join("dir/f"), "x").unwrap();
    std::fs::write(root.join("target"), "x").unwrap();
    symlink("../outside", root.join("out")).unwrap();
    symlink("target", root.join("link")).unwrap();
    symlink("dir", root.join("other")).unwrap();
    std::fs::create_dir(root.join(pool::FOLDER)).unwrap();
    std::fs::write(root.join(pool::FOLDER).join("index"), "x").unwrap();
    let server = start(&root, |c| c.upload = true);
    let mut client = Client::new(server.local_addr());
    for (path, status) in [
        ("/none", 404),
        ("/none/f", 404),
        ("/dir", 409),
        ("/dir/", 403),
        ("/", 403),
        ("/out", 403),
        ("/other/f", 403),
        ("/.kagiri/load", 403),
        ("/.kagiri-pending-1-1", 403),
        ("/.kagiri-pool", 403),
        ("/.kagiri-pool/index", 403),
        ("/link", 204),
        ("/dir/f", 204),
        ("/dir/f", 404),
    ] {
        let reply = delete(&mut client, path, "");
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
    }
    assert_eq!(
        names(&root),
        [pool::FOLDER, "dir", "other", "out", "target"],
        "a link is removed, not followed"
    );
    assert_eq!(names(outer.path()), ["outside", "root"]);
    client.send("OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.reply().field("allow"), Some("GET, HEAD, OPTIONS, PUT, DELETE"));
    // Content that is not expected ends the connection.
    let raw = "DELETE /target HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nGET ";
    let answer = exchange(server.local_addr(), raw);
    assert!(answer.starts_with("HTTP/1.1 204") && answer.contains("Connection: close"), "{answer}");
}

#[test]
fn reserved_and_impossible_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    symlink("sub", dir.path().join("link")).unwrap();
    let (server, pool) = with_pool(dir.path(), |_| ());
    let addr = server.local_addr();
    assert_eq!(Client::new(addr).put("/sub/f", b"x", "").status, 201);
    let index = std::fs::read(dir.path().join(pool::FOLDER).join("index")).unwrap();
    for (path, got, put) in [
        ("/.kagiri-pool", 404, 403),
        ("/.kagiri-pool/", 404, 403),
        ("/.kagiri-pool/index", 404, 403),
        ("/%2ekagiri-pool/./segments", 404, 403),
        ("/.KAGIRI-Pool/segments", 404, 403),
        ("/sub/../.kagiri-pool/index", 400, 400),
        ("/sub", 301, 409),
        ("/sub/", 200, 403),
        ("/none/f", 404, 409),
        ("/sub/f/g", 404, 409),
        ("/link/f", 404, 403),
        ("/%ff", 404, 403),
        (&format!("/{}", "n".repeat(256)), 414, 414),
        ("/.kagiri-pending-1-1", 404, 403),
    ] {
        assert_eq!(Client::new(addr).get(path, "").status, got, "GET {path}");
        assert_eq!(Client::new(addr).put(path, b"x", "").status, put, "PUT {path}");
        assert!(delete(&mut Client::new(addr), path, "").status >= 400, "DELETE {path}");
    }
    assert_eq!(std::fs::read(dir.path().join(pool::FOLDER).join("index")).unwrap(), index);
    // Elsewhere the name is like any other.
    assert_eq!(Client::new(addr).put("/sub/.kagiri-pool", b"x", "").status, 201);
    assert_eq!(Client::new(addr).get("/sub/.kagiri-pool", "").body, b"x");
    assert_eq!(pool.list().len(), 2);
}

#[test]
fn full_pool_is_507_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (server, pool) = with_pool(dir.path(), |_| ());
    let addr = server.local_addr();
    assert_eq!(Client::new(addr).put("/f", &pattern(4 * SEGMENT as usize), "").status, 201);
    let free = (SEGMENTS - 4) * SEGMENT;
    assert_eq!(Client::new(addr).put("/large", &vec![1; free as usize + 1], "").status, 507);
    let mut raw = b"PUT /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    raw.extend_from_slice(format!("{:x}\r\n", free + 1).as_bytes());
    raw.extend_from_slice(&vec![1; free as usize + 1]);
    assert_eq!(status(&exchange(addr, raw)), 507);
    until("nothing is under way", || server.stats().connections == 0);
    assert_eq!((pool.free_bytes(), pool.list().len()), (free, 1));
    // One upload that is announced takes no more than half of what is free before its content comes.
    let mut slow = Client::new(addr);
    slow.send(format!("PUT /slow HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\nx", free - SEGMENT));
    until("the upload is under way", || pool.free_bytes() < free);
    assert_eq!(pool.free_bytes(), free / 2);
    assert_eq!(Client::new(addr).put("/fits", &vec![2; free as usize / 2], "").status, 201);
    // Now there is too little left for the slow one.
    slow.try_send(vec![3; free as usize]);
    assert_eq!(slow.reply().status, 507);
    assert_eq!(Client::new(addr).put("/f", b"replaced", "").status, 204);
    assert!(Client::new(addr).get("/fits", "").body == vec![2; free as usize / 2]);
    until("nothing is under way", || server.stats().connections == 0);
    check(&pool);
}

#[test]
fn upload_of_unknown_length_takes_few_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let (server, pool) = with_pool(dir.path(), |_| ());
    let mut client = Client::new(server.local_addr());
    for i in 0..SEGMENTS {
        assert_eq!(client.put(&format!("/{i}"), b"x", "").status, 201);
    }
    // 20 segments each for itself, and 20 together.
    for i in (0..40).step_by(2).chain(44..64) {
        assert_eq!(delete(&mut client, &format!("/{i}"), "").status, 204);
    }
    let content = pattern(15 * SEGMENT as usize);
    client.send("PUT /f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in content.chunks(5000) {
        client.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.reply().status, 201);
    let places: Vec<_> = pool.file("f").unwrap().segments().map(|(at, _)| at / SEGMENT).collect();
    assert_eq!(places, (44..59).collect::<Vec<_>>());
    assert!(client.get("/f", "").body == content);
    check(&pool);
}

#[test]
fn client_that_vanishes_leaves_nothing_in_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let (server, pool) = with_pool(dir.path(), |c| c.limits.send_stall_deadline = Duration::from_millis(300));
    assert_eq!(Client::new(server.local_addr()).put("/f", b"old", "").status, 201);
    let free = pool.free_bytes();
    let begin = || {
        let mut client = Client::new(server.local_addr());
        client.send("PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
        client.send(pattern(30_000));
        until("some of it is stored", || pool.free_bytes() <= free - 7 * SEGMENT);
        client
    };
    drop(begin());
    until("its segments are free", || pool.free_bytes() == free);
    assert!(begin().is_closed(), "a stalled upload is given up");
    until("its segments are free", || pool.free_bytes() == free);
    let _under_way = begin();
    server.stop();
    check(&pool);
    assert_eq!((pool.free_bytes(), pool.file("f").unwrap().len_bytes()), (free, 3));
}

#[test]
fn file_that_is_replaced_while_it_is_sent_arrives_whole() {
    let dir = tempfile::tempdir().unwrap();
    // More than sockets hold.
    let (segment, content) = (1 << 20, pattern(48 << 20));
    let folder = dir.path().join(pool::FOLDER);
    let pool = Pool::create(&folder, 100 * segment, segment).unwrap();
    let shared = pool.clone();
    let server = start(dir.path(), |c| {
        (c.upload, c.pool, c.send_buffer_bytes) = (true, Some(pool), Some(64 << 10));
    });
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.put("/f", &content, "").status, 201);
    client.send("GET /f HTTP/1.1\r\nHost: x\r\n\r\n");
    until("it is being sent", || server.stats().streams == 1);
    let mut other = Client::new(server.local_addr());
    assert_eq!(other.put("/f", b"new", "").status, 204);
    assert_eq!(other.put("/g", &vec![0xAA; 51 << 20], "").status, 201, "into all that is free");
    assert_eq!(shared.free_bytes(), 0);
    let reply = client.reply();
    assert!(reply.body == content, "the old content");
    assert_eq!(client.get("/f", "").body, b"new");
    until("its segments are free", || shared.free_bytes() == 48 << 20);
}
