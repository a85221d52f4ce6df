//! Players ask the host's owner first, and let go at once of what they hold.

use crate::common::{hold, permit};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::part::{Endpoints, HostContext, PartError};
use mpegts::index_path;
use permit::Owner;
use serde_json::{Value, json};

/// No condition is waited for longer.
const GUARD: Duration = Duration::from_secs(20);

fn host(owner: &Arc<Owner>) -> HostContext {
    HostContext { permit: owner.clone(), ..hold::host() }
}

fn prepare(settings: &Value, owner: &Arc<Owner>) -> Result<Value, PartError> {
    hold::part(settings).prepare(&Endpoints::new(), &host(owner))
}

fn none_connected(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn nothing_is_sent_to_forbidden_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let owner = Owner::refusing("peer 127.0.0.1");
    let url = format!("http://{}/film.ts", listener.local_addr().unwrap());
    let error = prepare(&json!({ "url": url }), &owner).unwrap_err();
    assert_eq!(error.message, format!("refused: peer {}", listener.local_addr().unwrap()));
    assert!(none_connected(&listener));
}

#[test]
fn redirect_to_forbidden_address_is_refused() {
    let victim = TcpListener::bind("127.0.0.2:0").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (there, here) = (victim.local_addr().unwrap(), server.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut socket, _) = server.accept().unwrap();
        drop(socket.read(&mut [0; 4096]));
        let answer =
            format!("HTTP/1.1 302 Found\r\nLocation: http://{there}/x.ts\r\nContent-Length: 0\r\n\r\n");
        socket.write_all(answer.as_bytes()).unwrap();
    });
    let error =
        prepare(&json!({"url": format!("http://{here}/film.ts")}), &Owner::refusing("peer 127.0.0.2"));
    assert_eq!(error.unwrap_err().message, format!("refused: peer {there}"));
    assert!(none_connected(&victim));
}

#[test]
fn rate_and_directory_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let (server, url) = hold::served(directory.path(), 2.0);
    let path = directory.path().join("film.ts");
    let settings = json!({"url": url, "content_path": path, "streams": 3, "first": 1, "step": 2, "of": 7});

    let refused = |what| prepare(&settings, &Owner::refusing(what)).unwrap_err().message;
    assert_eq!(refused("directory"), format!("refused: directory {}", path.display()));
    let rate: f64 = refused("rate").strip_prefix("refused: rate ").unwrap().parse().unwrap();
    assert!((rate / 75e6 - 1.0).abs() < 0.05, "that of the players here, not of all: {rate}");

    let owner = Owner::refusing("");
    prepare(&settings, &owner).unwrap();
    let asked = owner.asked();
    let peers: Vec<_> = asked.iter().filter(|what| what.starts_with("peer")).collect();
    assert_eq!(peers, [&format!("peer {}", server.local_addr())], "{asked:?}");
}

#[test]
fn content_without_index_is_not_read_under_rate_limit() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = hold::served(directory.path(), 2.0);
    std::fs::remove_file(index_path(&directory.path().join("film.ts"))).unwrap();
    let owner = Owner::refusing("rate");
    let error = prepare(&json!({ "url": url }), &owner).unwrap_err().message;
    assert!(error.contains("'kagiri content index'"), "{error}");
    assert!(error.ends_with(&format!("refused: rate {}", u64::MAX)), "{error}");
    prepare(&json!({ "url": url }), &Owner::refusing("")).unwrap();
}

#[test]
fn dropped_players_close_their_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (server, url) = hold::served(directory.path(), 2.0);
    let until = |connections| {
        let give_up = Instant::now() + GUARD;
        while server.stats().connections != connections {
            assert!(Instant::now() < give_up, "{:?}", server.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut part = hold::part(&json!({"url": url, "streams": 20, "hold": "10min", "warm_up": "0s"}));
    part.prepare(&Endpoints::new(), &hold::host()).unwrap();
    hold::start(part.as_mut()).unwrap();
    until(20);
    let begun = Instant::now();
    drop(part);
    until(0);
    eprintln!("20 players were gone {:?} after they had been dropped", begun.elapsed());
}

#[test]
fn waiting_for_server_ends_with_the_run() {
    // It takes connections, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = hold::host();
    let stop = Arc::clone(&host.stop);
    let url = format!("http://{}/film.ts", listener.local_addr().unwrap());
    let ender = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // The request has been sent, so the answer is waited for.
        drop(socket.read(&mut [0; 4096]));
        stop.store(true, Ordering::Relaxed);
        socket
    });
    let error = hold::part(&json!({ "url": url })).prepare(&Endpoints::new(), &host).unwrap_err();
    assert!(error.message.contains("the run was ended before the server had answered"), "{error}");
    drop(ender.join());
}
