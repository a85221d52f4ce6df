//! Servers and content that are not what they should be: each one clear message, nothing left behind.

use std::time::Duration;

use kagiri_tests::{Ended, HostileServer, Live, Manner, World, beside_others, valid, with_verdict};

use crate::daq_refused::with_files;

const PATIENCE: Duration = Duration::from_secs(60);

/// One short trial against a URL.
fn stream(world: &World, url: &str) -> Ended {
    world.measure(&["stream", url, "--streams", "1", "--hold", "2s"], PATIENCE)
}

fn against(manner: Manner) -> (World, Ended) {
    let _beside = beside_others();
    let world = World::new();
    let server = HostileServer::start(|_| manner);
    let ended = stream(&world, &server.url());
    (world, ended)
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat()
}

#[test]
fn a_server_that_refuses() {
    let _beside = beside_others();
    // No program listens at port 1 of loopback.
    let refused = stream(&World::new(), "http://127.0.0.1:1/film.ts");
    refused.fails(1, &["http://127.0.0.1:1/film.ts", "Connection refused", "is the server running"]);
}

#[test]
fn a_host_that_does_not_exist() {
    let _beside = beside_others();
    // RFC 6761 keeps this name from ever being one.
    stream(&World::new(), "http://nowhere.invalid/film.ts")
        .fails(1, &["nowhere.invalid", "not found", "check the name"]);
}

#[test]
fn an_address_that_is_none() {
    let _beside = beside_others();
    for (url, part) in
        [("ftp://127.0.0.1/film.ts", "only http"), ("http://", "http://"), ("http://[::1/film.ts", "[::1")]
    {
        stream(&World::new(), url).fails(2, &[part]);
    }
}

#[test]
fn a_server_that_says_not_found() {
    let (_, ended) = against(Manner::Says(answer("404 Not Found\r\nContent-Length: 0", b"")));
    ended.fails(1, &["film.ts", "404 Not Found", "check the path"]);
}

#[test]
fn a_server_that_says_nothing() {
    let (_, ended) = against(Manner::Silent);
    ended.fails(1, &["film.ts", "no response within"]);
}

#[test]
fn a_server_that_hangs_up() {
    let (_, ended) = against(Manner::Says(Vec::new()));
    ended.fails(1, &["film.ts", "without a response"]);
}

#[test]
fn a_server_that_speaks_garbage() {
    for (garbage, part) in [
        (&(0..=255).collect::<Vec<u8>>()[..], "does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (&[b'A'; 100_000], "does not speak HTTP"),
        (b"HTTP/1.1 200", "the connection broke"),
    ] {
        let (_, ended) = against(Manner::Says(garbage.to_vec()));
        ended.fails(1, &["film.ts", part]);
    }
}

#[test]
fn a_server_that_redirects_in_a_circle() {
    let (_, ended) =
        against(Manner::Says(answer("302 Found\r\nLocation: /film.ts\r\nContent-Length: 0", b"")));
    ended.fails(1, &["film.ts", "redirect loop"]);
}

#[test]
fn a_server_that_resets_or_ends_within_the_index() {
    let begun = answer("200 OK\r\nContent-Length: 10000000", &[0x47; 5000]);
    let (_, reset) = against(Manner::SaysAndResets(begun.clone()));
    reset.fails(1, &["film.ts", "after 5000 bytes", "reset by peer"]);
    let (_, ended) = against(Manner::Says(begun));
    ended.fails(1, &["film.ts", "ended after 5000 of 10000000 bytes"]);
}

#[test]
fn a_server_that_lies_about_the_length() {
    for (length, part) in
        [("-5", "'Content-Length: -5' is malformed"), ("5, 6", "Content-Length"), ("9e9", "Content-Length")]
    {
        let (_, ended) = against(Manner::Says(answer(&format!("200 OK\r\nContent-Length: {length}"), b"x")));
        ended.fails(1, &["film.ts", part]);
    }
}

#[test]
fn content_that_is_no_transport_stream() {
    let (_, ended) =
        against(Manner::Says(answer("200 OK\r\nContent-Length: 5000", &b"<html>".repeat(1000)[..5000])));
    ended.fails(1, &["film.ts", "not an MPEG transport stream", "ffmpeg"]);
}

/// A film of some seconds with its index, made by the program itself.
fn film(world: &World) -> (Vec<u8>, Vec<u8>) {
    let made = ["content", "make", "film.ts", "--duration", "15s", "--bitrate", "5Mbit/s", "--quiet"];
    world.run(&made).code(0);
    let read = |name| std::fs::read(world.path(name)).expect("just made");
    (read("film.ts"), read("film.ts.kgi"))
}

#[test]
fn a_server_that_resets_within_the_film_fails_the_trial() {
    let _beside = beside_others();
    let world = World::new();
    let (film, index) = film(&world);
    // Enough for the play to begin, not for the hold.
    let server = HostileServer::start(|_| Manner::BreaksFilm { film, index, after_bytes: 2_000_000 });
    let words = ["stream", &server.url(), "--streams", "1", "--hold", "3s", "--json"];
    let (ended, document) = with_verdict("fail", || world.measure(&words, PATIENCE));
    ended.code(0);
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], "fail", "{trial}");
    assert!(trial["reasons"][0].as_str().unwrap().contains("broke"), "{}", trial["reasons"]);
    assert_eq!(document["capacity"]["value"], 0.0);
}

/// A content server of the world's own folder.
fn serve(world: &World) -> (Live, String) {
    let mut live = world.start(&["content", "serve", ".", "--listen", "127.0.0.1:0"]);
    live.wait_for(" at http://", Duration::from_secs(10));
    let url = live.stdout().split(" at ").nth(1).expect("a ready line").trim().to_owned();
    (live, url)
}

#[test]
fn content_without_an_index_works_with_a_doubt() {
    let _beside = beside_others();
    let world = World::new();
    film(&world);
    std::fs::remove_file(world.path("film.ts.kgi")).unwrap();
    let (_live, url) = serve(&world);
    // The server shares the world, so what it runs is not what the measurement left.
    let own = World::new();
    let words = ["stream", &format!("{url}film.ts"), "--streams", "1", "--hold", "3s", "--json"];
    let (ended, document) = valid(|| own.measure(&words, PATIENCE));
    ended.code(0);
    let trial = &document["trials"][0];
    assert!(trial["metrics"]["frames_played"].as_f64().unwrap() > 0.0, "{trial}");
    assert!(trial["doubts"].to_string().contains("no index"), "{trial}");
    let shown = own.run(&["runs", "show"]).code(0).stdout;
    assert!(shown.contains("had no index"), "the summary says so too: {shown}");
}

#[test]
fn content_that_was_cut_after_it_was_indexed() {
    let _beside = beside_others();
    let world = World::new();
    let (film, _) = film(&world);
    std::fs::write(world.path("film.ts"), &film[..film.len() / 2 / 188 * 188]).unwrap();
    let (_live, url) = serve(&world);
    // The index belongs to another film now: it is not believed, but made anew.
    let own = World::new();
    let words = ["stream", &format!("{url}film.ts"), "--streams", "1", "--hold", "2s", "--json"];
    let (ended, document) = with_verdict("pass", || own.measure(&words, PATIENCE));
    ended.code(0);
    assert_eq!(document["trials"][0]["verdict"], "pass", "{}", document["trials"][0]["reasons"]);
    assert!(document["variants"][0]["doubts"].to_string().contains("index"), "{document}");
}

#[test]
fn content_of_ones_own_that_cannot_be_played() {
    let _beside = beside_others();
    let world = World::new();
    let (film, _) = film(&world);
    std::fs::remove_file(world.path("film.ts.kgi")).unwrap();
    world.write("cut.ts", &film[..film.len() - 100]);
    world.write("junk.ts", [0x5a; 300_000]);
    world.write("empty.ts", []);
    for (name, part) in
        [("cut.ts", "ends inside a packet"), ("junk.ts", "not an MPEG"), ("empty.ts", "not an MPEG")]
    {
        let words = ["stream", "--content", name, "--streams", "1", "--hold", "2s"];
        world.measure(&words, PATIENCE).fails(2, &[name, part]);
        world.measure(&["content", "index", name], PATIENCE).fails(2, &[name, part]);
        assert!(!world.path(&format!("{name}.kgi")).exists(), "no index of what cannot be played");
    }
    for (name, part) in [("missing.ts", "No such file"), (".", "not a file")] {
        let words = ["stream", "--content", name, "--streams", "1"];
        let ended = world.measure(&words, PATIENCE).fails(2, &[name, part]);
        assert!(!ended.stderr.contains("at most"), "refused before anything is begun: {}", ended.stderr);
        world.measure(&["content", "index", name], PATIENCE).fails(2, &[name, part]);
    }
}

/// 40 wake-ups need 40 descriptors, and each worker's event loop some more.
#[test]
fn content_server_without_descriptors_for_all_its_threads_ends_with_the_reason() {
    let world = World::new();
    let program = world.command(&["content", "serve", ".", "--listen", "127.0.0.1:0", "--threads", "40"]);
    Live::start(with_files(&program, 60)).end(PATIENCE).fails(1, &["Too many open files", "ulimit -n"]);
}
