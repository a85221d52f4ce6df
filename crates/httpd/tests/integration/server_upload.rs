//! PUT: whole or not at all, and never where it must not.

use crate::server_common;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use server_common::*;

#[test]
fn upload_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let server = start(dir.path(), |c| c.upload = true);
    let mut client = Client::new(server.local_addr());
    let content = pattern(20 << 20);
    let created = client.put("/sub/a%20b.ts", &content, "");
    assert_eq!((created.status, created.field("location")), (201, Some("/sub/a%20b.ts")));
    let read = client.get("/sub/a%20b.ts", "");
    assert!(read.body == content);
    assert_eq!(read.field("etag"), created.field("etag"));
    let replaced = client.put("/sub/a%20b.ts", b"new", "");
    assert_eq!((replaced.status, replaced.body.len()), (204, 0));
    assert_eq!(client.get("/sub/a%20b.ts", "").body, b"new");
    assert_eq!(client.put("/empty", b"", "").status, 201);
    assert_eq!(names(dir.path()), ["empty", "sub"]);
    assert_eq!(names(&dir.path().join("sub")), ["a b.ts"]);
    assert_eq!(server.stop().uploaded_bytes, (20 << 20) + 3);
}

#[test]
fn chunked_upload_and_pipelined_request_are_separated() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), |c| c.upload = true);
    let content = pattern(300_000);
    let mut raw = b"PUT /f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in content.chunks(7001) {
        raw.extend_from_slice(format!("{:x};ext=1\r\n", piece.len()).as_bytes());
        raw.extend_from_slice(piece);
        raw.extend_from_slice(b"\r\n");
    }
    raw.extend_from_slice(b"0\r\nTrailer: yes\r\n\r\nGET /f HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut client = Client::new(server.local_addr());
    client.send(&raw);
    assert_eq!(client.reply().status, 201);
    assert!(client.reply().body == content);
    let file = std::fs::metadata(dir.path().join("f")).unwrap();
    assert!(file.blocks() * 512 < 2 << 20, "space reserved ahead is given back: {} blocks", file.blocks());
    // With a length, and the next request in the same packet.
    client.send(
        "PUT /g HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /g HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    assert_eq!(client.reply().status, 201);
    assert_eq!(client.reply().body, b"hello");
    for bad in ["zz\r\n", "5\r\nhelloX", "5\nhello", "0\r\nno end of trailers"] {
        let answer = exchange(
            server.local_addr(),
            format!("PUT /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{bad}"),
        );
        assert!(matches!(status(&answer), 400 | 0), "{bad:?}: {answer}");
    }
    until("nothing is under way", || server.stats().connections == 1);
    assert_eq!(names(dir.path()), ["f", "g"]);
}

#[test]
fn expect_continue_is_answered_before_the_body() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), |c| {
        c.upload = true;
        c.limits.upload_bytes_max = 1000;
    });
    let mut client = Client::new(server.local_addr());
    let ask = |len: u32| {
        format!("PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n")
    };
    client.send(ask(5));
    assert_eq!(client.reply().status, 100);
    client.send("hello");
    assert_eq!(client.reply().status, 201);
    client.send(ask(1001));
    assert_eq!(client.reply().status, 413);
    assert!(client.is_closed());
}

#[test]
fn uploads_outside_permitted_places_are_refused() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir_all(root.join("dir")).unwrap();
    std::fs::create_dir(outer.path().join("elsewhere")).unwrap();
    symlink("../elsewhere", root.join("out")).unwrap();
    std::fs::write(outer.path().join("target"), "old").unwrap();
    symlink("../target", root.join("link")).unwrap();
    let server = start(&root, |c| {
        c.upload = true;
        c.limits.upload_bytes_max = 1000;
    });
    let addr = server.local_addr();
    for (path, expected) in [
        ("/dir", 409),
        ("/dir/", 403),
        ("/", 403),
        ("/none/f", 409),
        ("/out/f", 403),
        ("/.kagiri/load", 403),
        ("/../f", 400),
        ("/%2e%2e/f", 400),
        ("/.kagiri-pending-1-1", 403),
        ("/dir/.kagiri-pending-x", 403),
        (&format!("/{}", "n".repeat(256)), 414),
        (&format!("/{}/f", "n".repeat(256)), 414),
    ] {
        assert_eq!(Client::new(addr).put(path, b"x", "").status, expected, "{path}");
    }
    assert_eq!(Client::new(addr).put("/f", &[0; 1001], "").status, 413);
    let chunks = format!("{:x}\r\n{}\r\n", 1001, "x".repeat(1001));
    let chunked = format!("PUT /f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    assert_eq!(status(&exchange(addr, chunked)), 413);
    assert_eq!(status(&exchange(addr, "PUT /f HTTP/1.1\r\nHost: x\r\n\r\n")), 411);
    // A link is replaced, not followed.
    assert_eq!(Client::new(addr).put("/link", b"new", "").status, 204);
    assert_eq!(std::fs::read(outer.path().join("target")).unwrap(), b"old");
    assert_eq!(names(&outer.path().join("elsewhere")), Vec::<String>::new());
    assert_eq!(names(&root), ["dir", "link", "out"]);
    // Conditions.
    assert_eq!(Client::new(addr).put("/link", b"x", "If-None-Match: *\r\n").status, 412);
    assert_eq!(Client::new(addr).put("/new", b"x", "If-None-Match: *\r\n").status, 201);
    assert_eq!(Client::new(addr).put("/other", b"x", "If-Match: *\r\n").status, 412);
    let tag = Client::new(addr).head("/new", "").field("etag").unwrap().to_owned();
    assert_eq!(Client::new(addr).put("/new", b"y", &format!("If-Match: {tag}\r\n")).status, 204);
    assert_eq!(Client::new(addr).put("/new", b"z", &format!("If-Match: {tag}\r\n")).status, 412);
}

#[test]
fn file_that_cannot_be_opened_is_not_taken_for_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), |c| c.upload = true);
    let addr = server.local_addr();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    symlink("/etc/passwd", dir.path().join("link")).unwrap();
    for (path, fields) in [
        ("/socket", ""),
        ("/socket", "If-None-Match: *\r\n"),
        ("/socket", "If-None-Match: \"x\"\r\n"),
        ("/link", "If-None-Match: *\r\n"),
    ] {
        assert_eq!(Client::new(addr).put(path, b"x", fields).status, 403, "{path} {fields}");
    }
    assert!(!std::fs::symlink_metadata(dir.path().join("socket")).unwrap().is_file());
    assert!(std::fs::symlink_metadata(dir.path().join("link")).unwrap().is_symlink());
    // A link to nothing is a name that is taken.
    symlink("nothing", dir.path().join("dangling")).unwrap();
    assert_eq!(Client::new(addr).put("/dangling", b"x", "If-None-Match: *\r\n").status, 412);
}

#[test]
fn conditions_hold_when_the_upload_ends() {
    let (plain, pooled) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pool = pool::Pool::create(&pooled.path().join(pool::FOLDER), 64 << 12, 1 << 12).unwrap();
    let servers = [
        start(plain.path(), |c| c.upload = true),
        start(pooled.path(), |c| (c.upload, c.pool) = (true, Some(pool))),
    ];
    for server in servers {
        let addr = server.local_addr();
        let begin = |fields: &str| {
            let before = server.stats().uploaded_bytes;
            let mut client = Client::new(addr);
            client.send(format!("PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n{fields}\r\n1"));
            until("the upload is under way", || server.stats().uploaded_bytes > before);
            client
        };
        let end = |mut client: Client| {
            client.send("2");
            client.reply().status
        };
        let (one, other) = (begin("If-None-Match: *\r\n"), begin("If-None-Match: *\r\n"));
        assert_eq!((end(one), end(other)), (201, 412));
        let tag = Client::new(addr).head("/f", "").field("etag").unwrap().to_owned();
        let fields = format!("If-Match: {tag}\r\n");
        let (one, other) = (begin(&fields), begin(&fields));
        assert_eq!((end(one), end(other)), (204, 412));
        assert_eq!(Client::new(addr).get("/f", "").body, b"12");
    }
}

#[test]
fn interrupted_upload_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "old").unwrap();
    let lines = Lines::default();
    let server = start(dir.path(), |c| {
        c.upload = true;
        c.access_log = lines.log();
        c.limits.send_stall_deadline = Duration::from_millis(300);
    });
    let begin = |len: usize| {
        let before = server.stats().uploaded_bytes;
        let mut client = Client::new(server.local_addr());
        client.send(format!("PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n"));
        client.send(pattern(100_000));
        until("some of it is stored", || server.stats().uploaded_bytes >= before + 100_000);
        client
    };
    drop(begin(200_000));
    until("it is noticed", || server.stats().connections == 0);
    let mut stuck = begin(200_000);
    assert!(stuck.is_closed(), "a stalled upload is given up");
    until("it is noticed", || server.stats().connections == 0);
    let under_way = begin(1 << 20);
    server.stop();
    drop(under_way);
    assert_eq!(names(dir.path()), ["f"]);
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"old");
    let log = lines.text();
    for reason in
        ["client left before its upload was complete", "no progress before the deadline", "server stopped"]
    {
        assert!(log.contains(reason), "{reason} is not in\n{log}");
    }
}

/// A small file system of its own; unmounted however the test ends.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let mount = ["-t", "tmpfs", "-o", "size=4m", "kagiri-test"];
        let made =
            Command::new("mount").args(mount).arg(dir.path()).stderr(std::process::Stdio::null()).status();
        made.is_ok_and(|s| s.success()).then_some(Self(dir))
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn full_disk_is_507_and_leaves_nothing() {
    let Some(disk) = SmallDisk::new() else {
        return features::skip("needs root to mount a small file system");
    };
    let server = start(disk.path(), |c| c.upload = true);
    let addr = server.local_addr();
    let large = pattern(6 << 20);
    let reply = Client::new(addr).put("/large", &large, "");
    assert_eq!(reply.status, 507, "{}", reply.head);
    // A length beyond what is free takes nothing meanwhile, and one beyond half of it never more than half.
    for (len, answer) in [(1_u64 << 39, Some(507)), (3 << 20, None)] {
        let free = || sys::disk::space(disk.path()).unwrap().available_bytes;
        let before = free();
        let mut client = Client::new(addr);
        client.send(format!("PUT /long HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\nx"));
        match answer {
            Some(status) => assert_eq!(client.reply().status, status),
            None => until("the upload is under way", || server.stats().uploaded_bytes > 0),
        }
        assert!(before - free() <= before / 2, "{len}: {before} and {}", free());
    }
    let mut raw = b"PUT /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    raw.extend_from_slice(format!("{:x}\r\n", large.len()).as_bytes());
    raw.extend_from_slice(&large);
    assert_eq!(status(&exchange(addr, raw)), 507);
    until("nothing is under way", || server.stats().connections == 0);
    assert_eq!(names(disk.path()), Vec::<String>::new());
    // The space is free again.
    assert_eq!(Client::new(addr).put("/fits", &large[..3 << 20], "").status, 201);
    assert!(Client::new(addr).get("/fits", "").body == large[..3 << 20]);
    drop(server);
}
