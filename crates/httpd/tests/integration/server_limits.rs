//! What strangers can make the server hold or wait for, and for how long.

use crate::server_common;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use server_common::*;

#[test]
fn slow_and_silent_clients_time_out() {
    let dir = root_with(b"x");
    let lines = Lines::default();
    let server = start(dir.path(), |c| {
        c.access_log = lines.log();
        c.limits.header_deadline = Duration::from_millis(200);
        c.limits.idle_deadline = Duration::from_millis(300);
    });
    let mut silent = Client::new(server.local_addr());
    let mut slow = Client::new(server.local_addr());
    let mut idle = Client::new(server.local_addr());
    assert_eq!(idle.get("/f", "").status, 200);
    // One byte after the other, for as long as the server listens.
    let mut drip = b"GET /f HTTP/1.1\r\nHost: x\r\nA: ".iter().copied().chain(std::iter::repeat(b'a'));
    slow.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut first = [0; 12];
    until("a refusal", || {
        slow.try_send([drip.next().unwrap()]);
        slow.stream.peek(&mut first).is_ok_and(|n| n == 12)
    });
    assert_eq!(&first, b"HTTP/1.1 408");
    assert!(silent.rest().starts_with(b"HTTP/1.1 408"));
    assert!(idle.is_closed());
    assert!(good(&server));
    let stats = server.stop();
    assert_eq!(stats.timed_out, 3);
    let log = lines.text();
    assert_eq!(log.matches("reason=\"no complete request before the deadline\"").count(), 2, "{log}");
    assert_eq!(log.matches("reason=\"idle for too long\"").count(), 1, "{log}");
    assert!(log.contains("\"GET /f") && log.contains("\" 408 61 "), "{log}");
}

#[test]
fn half_open_connections_do_not_block_good_clients() {
    let dir = root_with(&pattern(5000));
    let lines = Lines::default();
    let server = start(dir.path(), |c| {
        c.access_log = lines.log();
        c.limits.connections_max = 500;
    });
    let addr = server.local_addr();
    let mut streaming = Client::new(addr);
    assert_eq!(streaming.get("/f", "").status, 200);
    let mut half_open = Vec::new();
    for i in 0..2000 {
        let mut client = Client::new(addr);
        if i % 2 == 0 {
            client.try_send("GET /f HTTP/1.1\r\nHos");
        }
        half_open.push(client);
        if i % 100 == 0 {
            assert_eq!(Client::new(addr).get("/f", "").body.len(), 5000, "after {i}");
        }
    }
    // An established connection outlives them all: it is not the oldest without a complete request.
    assert_eq!(streaming.get("/f", "").body.len(), 5000);
    until("all have been accepted, and all but the newest dropped", || server.stats().evicted >= 1500);
    until("the table holds no more than it may", || server.stats().connections <= 500);
    drop(half_open);
    until("the table empties", || server.stats().connections <= 1);
    assert!(good(&server));
    let stats = server.stop();
    let log = lines.text();
    let logged = log.matches("dropped for a newer connection").count() as u64;
    assert_eq!(
        logged + stats.log_lines_dropped,
        stats.evicted,
        "every dropped connection is logged or counted"
    );
}

#[test]
fn full_table_of_busy_connections_refuses_new_ones() {
    let dir = root_with(b"");
    let file = std::fs::File::create(dir.path().join("big")).unwrap();
    file.set_len(1 << 30).unwrap();
    let lines = Lines::default();
    let server = start(dir.path(), |c| {
        c.access_log = lines.log();
        c.limits.connections_max = 3;
    });
    let mut busy: Vec<_> = (0..3).map(|_| Client::new(server.local_addr())).collect();
    for client in &mut busy {
        client.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    until("three streams", || server.stats().streams == 3);
    assert!(Client::new(server.local_addr()).rest().starts_with(b"HTTP/1.1 503"));
    drop(busy.pop());
    until("a free place", || server.stats().connections == 2);
    assert!(good(&server));
    until("the streams are counted", || server.stats().streams == 2);
    drop(server);
    let log = lines.text();
    assert!(log.contains(" 503 ") && log.contains("all connections are being served"), "{log}");
    assert!(log.contains("client left before the answer was sent"), "{log}");
    assert_eq!(log.matches("reason=\"server stopped\"").count(), 2, "{log}");
}

#[test]
fn connections_per_peer_are_limited() {
    let dir = root_with(b"x");
    let server = start(dir.path(), |c| c.limits.connections_per_peer_max = Some(2));
    let first = Client::new(server.local_addr());
    let mut second = Client::new(server.local_addr());
    assert_eq!(second.get("/f", "").status, 200);
    assert!(Client::new(server.local_addr()).rest().starts_with(b"HTTP/1.1 503"));
    drop(first);
    until("a free place", || server.stats().connections == 1);
    assert!(good(&server));
}

#[test]
fn stalled_reader_is_dropped() {
    let dir = root_with(b"x");
    std::fs::File::create(dir.path().join("big")).unwrap().set_len(1 << 30).unwrap();
    let lines = Lines::default();
    let server = start(dir.path(), |c| {
        c.access_log = lines.log();
        c.limits.send_stall_deadline = Duration::from_millis(400);
    });
    let mut stuck = Client::new(server.local_addr());
    stuck.send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    until("the stream begins", || server.stats().streams == 1 || server.stats().timed_out == 1);
    until("it is given up", || server.stats().streams == 0);
    assert_eq!((server.stats().timed_out, server.stats().connections), (1, 0));
    assert!(good(&server));
    drop(server);
    assert!(lines.text().contains("reason=\"no progress before the deadline\""), "{}", lines.text());
}

#[test]
fn slow_steady_reader_is_served_to_the_end() {
    let deadline = Duration::from_secs(3);
    let dir = root_with(&pattern(7 << 20));
    let server = start(dir.path(), |c| {
        c.send_buffer_bytes = Some(64 << 10);
        c.limits.send_stall_deadline = deadline;
    });
    let mut client = Client::new(server.local_addr());
    // Little is under way, so that the server has to wait for the reader all along.
    let socket = sys::net::TcpSocket::try_from(client.stream.try_clone().unwrap()).unwrap();
    socket.set_receive_buffer(256 << 10).unwrap();
    client.stream.set_nonblocking(false).unwrap();
    let began = Instant::now();
    client.send("GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut total = 0;
    let mut piece = vec![0; 64 << 10];
    while let Ok(n @ 1..) = client.stream.read(&mut piece) {
        total += n;
        // Longer in all than the stall deadline, but never that long without a byte.
        std::thread::sleep(Duration::from_millis(30));
    }
    assert!(total > 7 << 20, "{total}");
    assert!(began.elapsed() > deadline, "{:?}", began.elapsed());
    until("the connection ends", || server.stats().connections == 0);
    assert_eq!(server.stats().timed_out, 0);
}

#[test]
fn upload_that_trickles_is_given_up() {
    let dir = root_with(b"x");
    let server = start(dir.path(), |c| {
        c.upload = true;
        c.limits.send_stall_deadline = Duration::from_millis(800);
        c.limits.slow_upload_grace = Duration::from_millis(500);
    });
    let mut slow = Client::new(server.local_addr());
    slow.send("PUT /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
    // Never without a byte for as long as the stall deadline, and far below the least rate.
    until("it is given up", || {
        let _ = slow.stream.write_all(b"x");
        server.stats().timed_out == 1
    });
    until("it has left nothing", || server.stats().connections == 0);
    assert_eq!(names(dir.path()), ["f"]);
    assert!(good(&server));
}
