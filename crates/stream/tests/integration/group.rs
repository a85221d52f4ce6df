//! Players at real servers: the embedded one, one that is too slow, one that breaks.

use crate::common::hold;
use crate::content_common;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use base::doubt::Doubt;
use base::part::{Endpoints, Progress};
use base::verdict::Verdict;
use content_common::go_on;
use mpegts::{ContentSpec, index_path, make_file};
use serde_json::{Value, json};
use stream::doubt::StreamDoubt;

/// A server of one file that knows ranges and hands each body over to `body`. What asks without `play` gets
/// all.
///
/// It leaves the last byte of each request unread, so that it resets the connection when it closes it, unless
/// `body` reads that byte.
fn serve(file: Vec<u8>, body: impl Fn(&mut TcpStream, &[u8]) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = move |mut socket: TcpStream, file: &[u8]| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r") {
            match socket.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.contains(".kgi") {
            drop(socket.read(&mut byte));
            drop(socket.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"));
            return;
        }
        let range = head.split("bytes=").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap_or("0-");
        let (from, to) = range.split_once('-').unwrap();
        let from: usize = from.parse().unwrap();
        let to = to.parse().unwrap_or(file.len() - 1);
        let (length, total) = (to + 1 - from, file.len());
        let answer = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\n\
             Content-Range: bytes {from}-{to}/{total}\r\n\r\n"
        );
        drop(socket.write_all(answer.as_bytes()));
        if length < 2 || !head.contains("play") {
            drop(socket.read(&mut byte));
            drop(socket.write_all(&file[from..=to]));
        } else {
            body(&mut socket, &file[from..=to]);
        }
    };
    std::thread::spawn(move || {
        let file = std::sync::Arc::new(file);
        for socket in listener.incoming() {
            let (file, answer) = (file.clone(), answer.clone());
            std::thread::spawn(move || answer(socket.unwrap(), &file));
        }
    });
    address
}

/// A content, and the place of its index for players that have the file at hand.
fn content(directory: &Path) -> (Vec<u8>, Value) {
    let path = directory.join("film.ts");
    let spec = ContentSpec { duration_s: 6.0, ..ContentSpec::default() };
    make_file(&spec, &path, &mut go_on).unwrap();
    (std::fs::read(&path).unwrap(), json!(path))
}

#[test]
fn ten_players_of_the_embedded_server_are_undisturbed() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = hold::served(directory.path(), 6.0);
    let settings = json!({
        "url": url, "streams": 10, "depth": "parse", "hold": "6s", "parsing": 2, "threads": 2,
        "receive_buffer": "16KiB",
    });
    let (report, judgement) = hold::until_valid(|| hold::hold(&settings).unwrap());
    assert_eq!((judgement.verdict, &judgement.reasons), (Verdict::Pass, &Vec::new()));
    let metric = |name: &str| judgement.metrics[name];
    assert_eq!((metric("stalls"), metric("streams_broken")), (Some(0.0), Some(0.0)));
    assert_eq!((metric("frames_expected"), metric("frames_played")), (Some(1500.0), Some(1500.0)));
    assert_eq!((metric("continuity_errors"), metric("sync_errors")), (Some(0.0), Some(0.0)));
    // The content is shorter than the hold and its warm-up: every player went round.
    for stream in &report.streams {
        let checks = stream.checks.unwrap();
        assert!(checks.frames > 6 * 25, "{checks:?}");
        assert_eq!(stream.frames_played, 150);
    }
    let first = report.streams[0].checks.unwrap();
    assert!(first.hashes_checked.unwrap() > 12 && first.hash_errors == 0, "{first:?}");
    assert_eq!(report.streams[1].checks.unwrap().hashes_checked, None);
    // 16 KiB would limit the players themselves to 3 Mbit/s; the kernel grants twice what is asked for.
    // Two turns of 40 ms; whole packets make the content a little less than 25 Mbit/s.
    let two_turns_bytes = (report.content_bit_per_s / 8.0 * 0.08) as u64;
    assert!(report.receive_buffer_bytes.unwrap() >= 2 * two_turns_bytes, "{:?}", report.receive_buffer_bytes);
    let (from, to) = report.hold_s.unwrap();
    assert!((to - from - 6.0).abs() < 1e-6);
    let series = report.series();
    assert!(
        series.iter().all(|series| series.at_s.len() as f64 > to * 10.0 - 2.0),
        "{}",
        series[0].at_s.len()
    );
    assert!((series[2].mean(from, to).unwrap() / 250e6 - 1.0).abs() < 0.2);
    // What they used while they filled their buffers is known, too.
    let before = report.threads.iter().map(|thread| thread.cpu_before_percent_max.unwrap());
    assert!(before.clone().count() == 2 && before.clone().all(|percent| percent > 0.0 && percent < 110.0));
    assert!(report.slack_per_s().len() == 6 && !report.slack_trend().unwrap().drains);
}

#[test]
fn calls_are_recorded_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = hold::served(directory.path(), 6.0);
    let settings = |calls: bool| {
        let (hold, warm_up) = ("500ms", "500ms");
        json!({"url": url, "streams": 2, "parsing": 1, "hold": hold, "warm_up": warm_up, "calls": calls})
    };
    let (report, judgement) = hold::hold(&settings(true)).unwrap();
    let calls = |name: &str| -> u64 {
        let rows = report.calls[0].times.calls.iter();
        rows.filter(|row| row.name == name).map(|row| row.count).sum()
    };
    assert_eq!((report.calls[0].times.threads, report.calls[0].times.events_lost), (1, 0));
    // One connection each, and a request; another where the content begins anew.
    assert_eq!(calls("connect"), 2);
    assert!((2..=4).contains(&calls("send")), "{}", calls("send"));
    assert!(calls("recv") > 2 && calls("recv (MSG_TRUNC)") > 2, "a parsing one and one that discards");
    assert!(calls("epoll_pwait2") > 10);
    let [table] = &judgement.account.tables[..] else { panic!("one table: {:?}", judgement.account.tables) };
    assert_eq!(
        (&*table.title, table.rows.len()),
        ("Calls of the players", report.calls[0].times.calls.len())
    );
    assert!(hold::hold(&settings(false)).unwrap().1.account.is_empty());
}

#[test]
fn content_without_index_is_read_once_with_a_doubt() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = hold::served(directory.path(), 6.0);
    std::fs::remove_file(index_path(&directory.path().join("film.ts"))).unwrap();
    let settings = json!({"url": url, "streams": 1, "hold": "500ms", "warm_up": "500ms"});
    let (report, judgement) = hold::hold(&settings).unwrap();
    assert!(report.index_made_by_reading);
    assert!(judgement.doubts.contains(&StreamDoubt::IndexMadeByReading.into()), "{:?}", judgement.doubts);
    assert!(report.streams[0].checks.unwrap().hash_errors == 0);
}

#[test]
fn slow_server_stalls_one_stream() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, path) = content(directory.path());
    // 20 Mbit/s for a content of 25.
    let address = serve(bytes, |socket, body| {
        drop(socket.read(&mut [0]));
        let begun = Instant::now();
        for (i, piece) in body.chunks(25_000).enumerate() {
            let due = Duration::from_millis(10) * u32::try_from(i).unwrap();
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            if socket.write_all(piece).is_err() {
                return;
            }
        }
    });
    let settings = json!({
        "url": format!("http://{address}/film.ts?play"), "content_path": path, "hold": "20s",
        "abort_early": true,
    });
    let (report, judgement) = hold::hold(&settings).unwrap();
    assert!(judgement.verdict != Verdict::Pass, "{report:?}");
    if judgement.verdict == Verdict::Fail {
        assert!(judgement.reasons[0].contains("stream 0 "), "{:?}", judgement.reasons);
        let (from, to) = report.hold_s.unwrap();
        assert!(report.aborted && to - from >= 1.0 && to - from < 20.0, "{:?}", report.hold_s);
    }
    let stream = &report.streams[0];
    assert!(stream.stall_count > 0 && stream.stalled_s > 0.0, "{stream:?}");
    assert!(stream.frames_played < stream.frames_expected, "{stream:?}");
    assert_eq!(stream.p1203_stalling[0][0], 0.0);
}

/// Waits until the peer's kernel has all that was written.
fn wait_until_acknowledged(socket: &TcpStream) {
    let socket = sys::net::TcpSocket::try_from(socket.try_clone().unwrap()).unwrap();
    let give_up = Instant::now() + Duration::from_secs(20);
    while socket.unacked_bytes().is_ok_and(|bytes| bytes > 0) && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn broken_stream_is_reported_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, path) = content(directory.path());
    let whole = bytes.len();
    let part_of = |body: &[u8]| body.len().min(5_000_000);
    let early = serve(bytes.clone(), move |socket, body| {
        drop(socket.read(&mut [0]));
        drop(socket.write_all(&body[..part_of(body)]));
    });
    // The request is never read: closing resets, and drops what was not sent, so that all must be with the
    // player.
    let reset = serve(bytes, move |socket, body| {
        drop(socket.write_all(&body[..part_of(body)]));
        wait_until_acknowledged(socket);
    });
    for (address, part) in [(early, "the server ended"), (reset, "Connection reset by peer")] {
        let settings = json!({
            "url": format!("http://{address}/film.ts?play{whole}"), "content_path": path, "streams": 2,
            "hold": "3s", "abort_early": true, "warm_up": "2s",
        });
        let (_, judgement) = hold::hold(&settings).unwrap();
        let reasons = judgement.reasons.join("\n");
        assert!(reasons.contains("broke") && reasons.contains(part), "{part}: {reasons}");
        assert_eq!(judgement.metrics["streams_broken"], Some(2.0));
        assert_ne!(judgement.verdict, Verdict::Pass);
    }
}

#[test]
fn vanished_server_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (server, url) = hold::served(directory.path(), 6.0);
    let mut part = hold::part(&json!({"url": url, "streams": 3, "hold": "500ms", "warm_up": "0s"}));
    let facts = part.prepare(&Endpoints::new(), &hold::host()).unwrap();
    assert_eq!(facts["content_url"], json!(url));
    drop(server);
    hold::start(part.as_mut()).unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    while !matches!(part.progress(), Progress::Finished) && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(10));
    }
    let message = part.stop().unwrap_err().message;
    assert!(message.contains("no stream showed a picture") && message.contains("refused"), "{message}");
}

#[test]
fn early_stop_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = hold::served(directory.path(), 6.0);
    let mut part = hold::part(&json!({"url": url, "streams": 2, "hold": "60s"}));
    assert!(part.start(u64::MAX).is_err(), "unprepared");
    part.prepare(&Endpoints::new(), &hold::host()).unwrap();
    assert!(part.start(1).is_err(), "the moment has passed");
    hold::start(part.as_mut()).unwrap();
    assert!(matches!(part.progress(), Progress::Running { done: Some(_) }));
    let report = part.stop().unwrap();
    let report = serde_json::from_value(report).unwrap();
    let judgement = stream::judge::judge(&report, stream::judge::Players::Trusted);
    assert_eq!(judgement.verdict, Verdict::Invalid);
    assert!(judgement.doubts.contains(&Doubt::Interrupted));
    assert!(judgement.metrics["stalls"].is_none(), "unknown is not zero");
    drop(part);
}
