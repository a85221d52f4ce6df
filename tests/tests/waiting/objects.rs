//! What is left below a prefix of an object store when the server or kagiri dies.

use std::time::{Duration, Instant};

use kagiri_tests::{Live, World, beside_others, is_s3_untouched, s3_command, s3_server, s3_words};
use nix::sys::signal::Signal;
use s3_server::{Config, Faults, Kind, Server};

const PATIENCE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(10);

#[test]
fn server_that_dies_ends_the_run_with_a_reason() {
    let _beside = beside_others();
    let world = World::with_own_journal();
    let server = s3_server(Faults::default());
    let words = s3_words(&["--time", "60s", "--mix", "get=1,put=1", "--json"]);
    let live = Live::start(s3_command(&world, &server, &words));
    let until = Instant::now() + PATIENCE;
    while server.log().iter().filter(|entry| entry.kind == Kind::Get).count() < 20 {
        assert!(Instant::now() < until, "the run began");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    let ended = live.end(Duration::from_secs(30)).code(1);
    let trial = &ended.json()["trials"][0];
    assert_eq!(trial["verdict"], "invalid");
    let reason = trial["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("no request to s3://test/shared/kagiri-files-"), "{reason}");
    assert!(trial["metrics"]["operations"].as_f64().is_some_and(|count| count > 10.0), "{trial:#}");
    assert!(
        ended.stderr.contains("objects are left below s3://test/shared/kagiri-files-"),
        "{}",
        ended.stderr
    );
    // A server that comes back has nothing left, and the journal is closed.
    let again =
        Server::start(Config { listen: server.addr(), ..server.config().clone() }).expect("its port is free");
    let undone = Live::start(s3_command(&world, &again, &["undo"])).end(SOON).code(0);
    assert!(undone.stdout.contains("nothing left to do"), "{}", undone.stdout);
}

#[test]
fn undo_deletes_what_a_killed_run_left_once_it_has_credentials() {
    let _beside = beside_others();
    let world = World::with_own_journal();
    let server = s3_server(Faults { latency: Duration::from_millis(5), ..Faults::default() });
    let words = s3_words(&["--time", "60s"]);
    let live = Live::start(s3_command(&world, &server, &words));
    let until = Instant::now() + PATIENCE;
    while server.keys("test").len() < 61 {
        assert!(Instant::now() < until, "objects are made");
        std::thread::sleep(Duration::from_millis(5));
    }
    live.signal(Signal::SIGKILL);
    drop(live);
    assert!(server.keys("test").len() > 30, "they are left");
    let mut blind = world.command(&["undo"]);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        blind.env_remove(name);
    }
    let ended = Live::start(blind).end(SOON).code(1);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    for part in ["s3://test/shared/kagiri-files-", "there are no credentials", "aws s3 rm --recursive"] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
    // Its endpoint is in the journal.
    let mut undo = s3_command(&world, &server, &["undo"]);
    undo.env_remove("AWS_ENDPOINT_URL");
    let ended = Live::start(undo).end(SOON).code(0);
    assert!(ended.stdout.contains("delete objects below s3://test/shared/kagiri-files-"), "{}", ended.stdout);
    is_s3_untouched(&server);
    assert!(Live::start(world.command(&["undo"])).end(SOON).code(0).stdout.contains("Nothing to undo"));
}
