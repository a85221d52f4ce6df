//! The workers on a real S3 server, whose access log is the witness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use files::engine::report::{Ended, RunReport};
use files::objects::access::address::Address;
use files::objects::access::client::{Access, Client, Keys};
use files::objects::access::keys;
use files::objects::access::leftover::{Removed, remove};
use files::objects::mix::Mix;
use files::objects::{ObjectsRun, ObjectsSettings, size};
use files::report::ObjectsReport;
use s3_server::{Config, Faults, Kind, Server};

fn server(faults: Faults) -> Server {
    Server::start(Config { faults, ..Config::default() }).unwrap()
}

fn client(server: &Server) -> Client {
    let config = server.config();
    let access = Access {
        endpoint: Some(server.endpoint()),
        keys: Some(Keys::new(&config.access_key, &config.secret_key)),
        allows_http: false,
        within: Duration::from_secs(5),
        connections: 64,
    };
    Client::connect("test", &access).unwrap()
}

fn own() -> Address {
    Address::parse("s3://test/a").unwrap().below("kagiri-files-1-1")
}

fn settings(threads: u64, mix: &str) -> ObjectsSettings {
    ObjectsSettings {
        threads,
        objects: 40,
        size: size::parse("randvar(type=uniform,min=1k,mean=8k)").unwrap(),
        mix: if mix.is_empty() { Mix::fileserver() } else { Mix::parse(mix).unwrap() },
        omit_ns: 0,
        hold_ns: 700_000_000,
        rate_per_s: None,
        seed: 3,
    }
}

fn prepared(server: &Server, settings: ObjectsSettings) -> ObjectsRun {
    ObjectsRun::prepare(settings, client(server), own(), &AtomicBool::new(false)).unwrap()
}

fn run(server: &Server, settings: ObjectsSettings) -> (RunReport, ObjectsReport) {
    let run = prepared(server, settings);
    server.clear_log();
    run.wait(sys::clock::monotonic_ns() + 20_000_000, &AtomicBool::new(false))
}

fn sent(report: &RunReport) -> BTreeMap<&str, u64> {
    report.rows.iter().map(|row| (row.name.as_str(), row.all_count)).collect()
}

fn logged(server: &Server) -> BTreeMap<Kind, u64> {
    let mut all = BTreeMap::new();
    for entry in server.log() {
        *all.entry(entry.kind).or_default() += 1;
    }
    all
}

#[test]
fn requests_are_those_of_the_server_s_log() {
    let server = server(Faults::default());
    for mix in ["get=4,put=2,head=1,delete=1,list=1", ""] {
        let (report, facts) = run(&server, settings(6, mix));
        assert_eq!((report.ended.clone(), facts.failed, report.hanging), (Ended::Time, 0, 0));
        let (sent, logged) = (sent(&report), logged(&server));
        let of = |names: &[&str]| names.iter().map(|name| sent[name]).sum::<u64>();
        let log = |kind| logged.get(&kind).copied().unwrap_or(0);
        assert_eq!(of(&["get", "append: get"]), log(Kind::Get), "{sent:?} {logged:?}");
        assert_eq!(of(&["put", "append: put"]), log(Kind::Put), "{sent:?} {logged:?}");
        assert_eq!(of(&["head"]), log(Kind::Head), "{sent:?} {logged:?}");
        assert_eq!(of(&["delete"]), log(Kind::Delete), "{sent:?} {logged:?}");
        assert_eq!(of(&["list"]), log(Kind::List), "{sent:?} {logged:?}");
        let all: u64 = logged.values().sum();
        assert_eq!(facts.requests, all);
        assert!(all > 20, "{logged:?}");
        assert!(server.log().iter().all(|entry| entry.status < 300), "no request met a deleted object");
        // Rounds in the mix's ratio, but for the last one of each worker.
        let (gets, heads) = if mix.is_empty() { (2, 1) } else { (4, 1) };
        let difference = of(&["get", "append: get"]).abs_diff(gets * heads * of(&["head"]));
        assert!(difference <= 6 * gets, "{sent:?}");
        // Bytes of bodies of what was answered: those of the log, but for requests after the end.
        let bytes: u64 = report.rows.iter().map(|row| row.bytes).sum();
        let carried = |entry: &s3_server::Entry| match entry.kind {
            Kind::Get => entry.bytes_out,
            Kind::Put => entry.bytes_in,
            _ => 0,
        };
        let logged_bytes: u64 = server.log().iter().map(carried).sum();
        assert!(bytes <= logged_bytes && logged_bytes - bytes < 6 * 64 * 1024, "{bytes} {logged_bytes}");
    }
}

#[test]
fn planted_latency_and_slow_downs_appear() {
    let latency = Duration::from_millis(20);
    let server = server(Faults { latency, ..Faults::default() });
    let plan = ObjectsSettings { hold_ns: 1_500_000_000, ..settings(8, "get=3,put=1") };
    let run = prepared(&server, plan);
    server.clear_log();
    server.set_faults(Faults { latency, slow_down_share: 0.1, ..Faults::default() });
    let (report, facts) = run.wait(sys::clock::monotonic_ns() + 20_000_000, &AtomicBool::new(false));
    let log = server.log();
    let refused = log.iter().filter(|entry| entry.status == 503).count() as u64;
    assert_eq!(facts.requests, log.len() as u64, "a refused request is not sent again");
    assert!(
        refused >= facts.slow_downs && refused <= facts.slow_downs + 8 && refused > 20,
        "{refused} {facts:?}"
    );
    let share = facts.slow_downs as f64 / (facts.requests as f64);
    assert!((0.07..0.13).contains(&share), "{share}");
    let errors: BTreeMap<_, _> =
        report.rows.iter().flat_map(|row| row.errors.keys()).map(|key| (key, ())).collect();
    assert_eq!(errors.into_keys().collect::<Vec<_>>(), ["503 SlowDown"]);
    for row in report.rows.iter().filter(|row| row.count > 0) {
        let p50 = row.times.percentile_ns(50.0).unwrap();
        assert!((20_000_000..60_000_000).contains(&p50), "{}: {p50}", row.name);
    }
    assert!(facts.first_byte.percentile_ns(50.0).unwrap() >= 20_000_000);
    let waiting = facts.waited_s / (8.0 * (report.to_s - report.from_s));
    assert!(waiting > 0.8, "{waiting}");
}

#[test]
fn open_loop_counts_from_the_intended_start() {
    let server = server(Faults { latency: Duration::from_millis(10), ..Faults::default() });
    // Two workers carry 200 requests a second at most.
    let kept = ObjectsSettings { rate_per_s: Some(100.0), hold_ns: 1_500_000_000, ..settings(2, "get=1") };
    let (report, _) = run(&server, kept.clone());
    let row = |report: &RunReport| report.rows.iter().find(|row| row.name == "get").cloned().unwrap();
    let count = row(&report).count;
    assert!((140..=152).contains(&count), "{count}");
    assert!(row(&report).times.percentile_ns(50.0).unwrap() < 40_000_000);
    let (report, _) = run(&server, ObjectsSettings { rate_per_s: Some(1000.0), ..kept });
    let p99 = row(&report).times.percentile_ns(99.0).unwrap();
    assert!(p99 > 800_000_000, "what is late is counted: {p99}");
    assert!(report.late_rounds * 10 > report.rounds * 9, "{} of {}", report.late_rounds, report.rounds);
}

#[test]
fn server_that_dies_ends_the_run_with_a_reason() {
    let server = server(Faults::default());
    let run = prepared(&server, ObjectsSettings { hold_ns: 60_000_000_000, ..settings(4, "get=1,put=1") });
    let began = Instant::now();
    let (report, _) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(400));
            server.kill();
        });
        run.wait(sys::clock::monotonic_ns(), &AtomicBool::new(false))
    });
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let Ended::Failed(why) = &report.ended else { panic!("{:?}", report.ended) };
    assert!(why.contains("no request to s3://test/a") && why.contains("refused"), "{why}");
    assert!(report.rows.iter().map(|row| row.count).sum::<u64>() > 50, "what was done is reported");
}

#[test]
fn exactly_what_was_made_is_deleted() {
    let server = server(Faults::default());
    let foreign = ["a/precious", "a/kagiri-files-1-1/o/mine", "a/kagiri-files-1-10/o/000000/00000000", "b"];
    foreign.iter().for_each(|key| server.put("test", key, b"not kagiri's").unwrap());
    let plan = ObjectsSettings { objects: 2500, size: size::parse("1k").unwrap(), ..settings(4, "") };
    let _run = prepared(&server, plan.clone());
    assert_eq!(server.keys("test").len(), 2500 + foreign.len());
    assert!(server.keys("test").contains_key(&keys::key(&own(), 2499)));
    // A second preparation finds them.
    server.clear_log();
    let _run = prepared(&server, plan);
    assert_eq!(logged(&server).keys().copied().collect::<Vec<_>>(), [Kind::List]);
    server.set_faults(Faults { slow_down_share: 0.05, ..Faults::default() });
    assert_eq!(
        remove(&client(&server), &own(), &AtomicBool::new(false)),
        Ok(Removed { deleted: 2500, foreign: 1 })
    );
    let mut left: Vec<String> = server.keys("test").into_keys().collect();
    left.sort();
    let mut expected = foreign.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn making_objects_can_be_stopped() {
    let server = server(Faults { latency: Duration::from_millis(5), ..Faults::default() });
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let made = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        let plan = ObjectsSettings { objects: 1_000_000, ..settings(4, "") };
        ObjectsRun::prepare(plan, client(&server), own(), &stop).err()
    });
    assert_eq!(made, Some(files::objects::ObjectsError::Stopped));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(server.keys("test").len() > 64);
}
