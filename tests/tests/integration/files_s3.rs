//! `kagiri files s3://...` against a real S3 server: results, refusals, and that nothing but kagiri's own
//! objects is touched.

use std::process::Command;
use std::time::{Duration, Instant};

use kagiri_tests::{
    Live, S3_SECRET, World, beside_others, is_s3_untouched, s3_command, s3_measure, s3_server, s3_words,
};
use nix::sys::signal::Signal;
use s3_server::{Faults, Kind};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// A wrong setting or server is found within this time.
const SOON: Duration = Duration::from_secs(10);

fn metric(document: &Value, name: &str) -> f64 {
    let trial = &document["trials"][0];
    trial["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {trial:#}"))
}

#[test]
fn mix_reports_what_the_server_logged_and_leaves_nothing() {
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults { latency: Duration::from_millis(10), ..Faults::default() });
    let words = s3_words(&["--time", "1500ms", "--mix", "get=3,put=1,head=1", "--json"]);
    let ended = s3_measure(&world, s3_command(&world, &server, &words), PATIENCE).code(0);
    is_s3_untouched(&server);
    let document = ended.json();
    let log = server.log();
    let count = |kind| log.iter().filter(|entry| entry.kind == kind).count() as f64;
    let (made, deleted) = (60.0, count(Kind::Delete));
    assert_eq!(deleted, made, "each object is deleted once");
    let requests = metric(&document, "requests");
    assert_eq!(requests, count(Kind::Get) + count(Kind::Head) + count(Kind::Put) - made);
    assert!(requests > 100.0 && metric(&document, "operations") <= requests);
    assert!(metric(&document, "p50_ms") >= 10.0 && metric(&document, "first_byte_p50_ms") >= 10.0);
    assert!(metric(&document, "requests_per_s") > 50.0 && metric(&document, "mb_per_s") > 0.1);
    assert_eq!((metric(&document, "errors"), metric(&document, "slow_downs")), (0.0, 0.0));
    let trial = &document["trials"][0];
    assert_eq!((&trial["verdict"], &trial["metrics"]["durable_after_s"]), (&"pass".into(), &Value::Null));
    assert_eq!(document["limit"]["resource"], "responses", "{:#}", document["limit"]);
    let evidence = document["limit"]["evidence"][0]["statement"].as_str().expect("a statement");
    assert!(evidence.contains("waited for answers"), "{evidence}");
    // The secret is nowhere: not in what is printed, not in what is stored.
    let is_clean = |text: &[u8]| !text.windows(S3_SECRET.len()).any(|window| window == S3_SECRET.as_bytes());
    assert!(is_clean(ended.stdout.as_bytes()) && is_clean(ended.stderr.as_bytes()));
    let stored =
        std::fs::read_dir(world.data()).expect("data").flatten().filter(|entry| entry.path().is_file());
    let stored: Vec<Vec<u8>> = stored.map(|entry| std::fs::read(entry.path()).expect("a file")).collect();
    assert!(!stored.is_empty() && stored.iter().all(|bytes| is_clean(bytes)));
}

#[test]
fn refused_requests_are_results() {
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults { slow_down_share: 0.2, ..Faults::default() });
    let words = s3_words(&["--time", "1s", "--mix", "get=1,put=1", "--json"]);
    let document = s3_measure(&world, s3_command(&world, &server, &words), PATIENCE).json();
    is_s3_untouched(&server);
    let refused = server.log().iter().filter(|entry| entry.status == 503).count() as f64;
    let slow_downs = metric(&document, "slow_downs");
    let share = slow_downs / (slow_downs + metric(&document, "operations"));
    assert!((0.17..0.23).contains(&share) && slow_downs <= refused, "{share} {slow_downs} {refused}");
    assert!(metric(&document, "retries") > 0.0, "objects were made in spite of them");
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], "fail");
    assert!(trial["reasons"][0].as_str().is_some_and(|reason| reason.contains("503 SlowDown")), "{trial:#}");
    assert!(trial["doubts"].to_string().contains("refused"), "{trial:#}");
}

#[test]
fn search_finds_the_most_workers_within_the_objective() {
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults::default());
    let words = ["files", "s3://test/shared", "--objects", "20", "--object-size", "1k", "--mix", "head=1"];
    let words = [&words[..], &["--time", "300ms", "--search", "4", "--p99-max", "10s", "--json"]].concat();
    let document = s3_measure(&world, s3_command(&world, &server, &words), PATIENCE).code(0).json();
    assert_eq!(document["capacity"]["value"].as_f64(), Some(4.0), "{document:#}");
    is_s3_untouched(&server);
}

#[test]
fn rate_that_is_kept_has_no_limit() {
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults::default());
    let words = s3_words(&["--time", "1500ms", "--rate", "60", "--mix", "get=1", "--json"]);
    let measure = || s3_measure(&world, s3_command(&world, &server, &words), PATIENCE).json();
    let is_kept = |document: &Value| document["trials"][0]["verdict"] == "pass";
    // Where others have the CPUs, a request can end after the end of the run.
    let mut document = measure();
    for _ in 0..2 {
        if !is_kept(&document) {
            document = measure();
        }
    }
    assert!(is_kept(&document), "{document:#}");
    let rate = metric(&document, "requests_per_s");
    assert!((59.4..=62.0).contains(&rate), "{rate}");
    assert_eq!(document["limit"]["resource"], "none", "{:#}", document["limit"]);
}

#[test]
fn wrong_server_and_credentials_get_one_message_each() {
    let _beside = beside_others();
    let world = World::new();
    let skewed = s3_server(Faults { clock_ahead_s: 3600, ..Faults::default() });
    let server = s3_server(Faults::default());
    let plain = s3_words(&["--time", "1s"]);
    let check = |mut command: Command, change: &dyn Fn(&mut Command), parts: &[&str]| {
        change(&mut command);
        let began = Instant::now();
        let ended = s3_measure(&world, command, SOON).fails(1, parts);
        assert!(began.elapsed() < SOON && !ended.stderr.contains(S3_SECRET), "{}", ended.stderr);
    };
    let valid = || s3_command(&world, &server, &plain);
    let wrong = |name: &'static str, value: &'static str| {
        move |command: &mut Command| {
            command.env(name, value);
        }
    };
    check(
        valid(),
        &wrong("AWS_SECRET_ACCESS_KEY", "wrong"),
        &["SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"],
    );
    check(valid(), &wrong("AWS_ACCESS_KEY_ID", "nobody"), &["403", "AWS_ACCESS_KEY_ID"]);
    check(
        valid(),
        &wrong("AWS_SECRET_ACCESS_KEY", ""),
        &["there are no credentials", "set AWS_ACCESS_KEY_ID"],
    );
    check(
        valid(),
        &wrong("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        &["connection refused", "running there"],
    );
    check(valid(), &wrong("AWS_ENDPOINT_URL", "http://192.0.2.7"), &["is not encrypted", "--allow-http"]);
    check(s3_command(&world, &skewed, &plain), &|_| {}, &["RequestTimeTooSkewed", "set the clock"]);
    let missing = ["files", "s3://nothing-there/x", "--time", "1s"];
    check(s3_command(&world, &server, &missing), &|_| {}, &["NoSuchBucket", "make the bucket"]);
    is_s3_untouched(&server);
    let two = ["files", "s3://test/shared", "--mix", "get=1", "--cold"];
    s3_measure(&world, s3_command(&world, &server, &two), SOON).fails(2, &["--cold: it is for directories"]);
    let other = ["files", ".", "--objects", "5"];
    s3_measure(&world, s3_command(&world, &server, &other), SOON)
        .fails(2, &["--objects: it is for object stores"]);
}

#[test]
fn interrupt_while_objects_are_made_deletes_them() {
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults { latency: Duration::from_millis(20), ..Faults::default() });
    let words = ["files", "s3://test/shared", "--objects", "100000", "--object-size", "1k"];
    let live = Live::start(s3_command(&world, &server, &words));
    let until = Instant::now() + PATIENCE;
    while server.keys("test").len() < 200 {
        assert!(Instant::now() < until, "objects are made");
        std::thread::sleep(Duration::from_millis(5));
    }
    live.signal(Signal::SIGINT);
    let ended = live.end(Duration::from_secs(20)).code(130);
    world.assert_nothing_left(ended.pid);
    is_s3_untouched(&server);
}

#[test]
fn objects_that_are_left_fail_the_run() {
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults { refuses_deletes: true, ..Faults::default() });
    let words = s3_words(&["--time", "500ms", "--mix", "get=1"]);
    let ended = Live::start(s3_command(&world, &server, &words)).end(PATIENCE).code(1);
    assert!(ended.stderr.contains("objects are left below"), "{}", ended.stderr);
    // They are still there for the next attempt.
    server.set_faults(Faults::default());
    let undone = Live::start(s3_command(&world, &server, &["undo"])).end(PATIENCE).code(0);
    world.assert_nothing_left(undone.pid);
    is_s3_untouched(&server);
}
