//! The limit of requests to an object store that is behind a slow link.

use std::time::{Duration, Instant};

use kagiri_tests::{UpLab, World, beside_others, need_root, s3_server_program};

const PATIENCE: Duration = Duration::from_secs(60);
const LINK_BIT_PER_S: f64 = 50e6;
/// Between two readings of an interface.
const WITNESS_EVERY: Duration = Duration::from_millis(1000);

fn lab() -> String {
    let server = s3_server_program();
    format!(
        "[host.store]\naddress = '10.77.0.1'\n\
         run = ['exec {} --listen 10.77.0.1:9000 --bucket one']\n\
         [host.client]\nenvironment = {{ AWS_ACCESS_KEY_ID = 'test-access-key', \
         AWS_SECRET_ACCESS_KEY = 'test-secret-key', AWS_ENDPOINT_URL = 'http://10.77.0.1:9000' }}\n\
         [[link]]\nbetween = ['client', 'store']\nrate = '50Mbit/s'\n",
        server.display()
    )
}

/// Bytes that the interfaces of a host, `lo` left out, received and sent until now.
fn interface_bytes(world: &World, lab: &UpLab<'_>, host: &str) -> [f64; 2] {
    let script = "cat /proc/net/dev";
    let shown =
        world.run(&["lab", "exec", host, "--lab", &lab.name, "--", "sh", "-c", script]).code(0).stdout;
    let mut sums = [0.0; 2];
    for line in shown.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo")
    {
        let fields: Vec<f64> = line.1.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
        sums[0] += fields[0];
        sums[1] += fields[8];
    }
    sums
}

#[test]
fn slow_link_to_an_object_store_is_named() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let lab = UpLab::new(&world, "link", &lab());
    for (mix, way) in [("get=1", 0), ("put=1", 1)] {
        let words =
            ["files", "s3://one/x", "--lab", &lab.name, "--place", "workers=client", "--threads", "8"];
        let more = ["--objects", "40", "--object-size", "256k", "--mix", mix, "--time", "6s", "--json"];
        let before = interface_bytes(&world, &lab, "client");
        let mut live = world.start(&[&words[..], &more].concat());
        let mut fastest: f64 = 0.0;
        let (mut last, mut at) = (before, Instant::now());
        while live.is_running() {
            std::thread::sleep(WITNESS_EVERY);
            let (now, now_at) = (interface_bytes(&world, &lab, "client"), Instant::now());
            fastest = fastest.max((now[way] - last[way]) * 8.0 / (now_at - at).as_secs_f64());
            (last, at) = (now, now_at);
        }
        let ended = live.end(PATIENCE);
        let document = ended.code(0).json();
        let limit = &document["limit"];
        // Predicted in place of confirmed where other programs used the CPUs.
        assert_eq!(limit["resource"], "network", "{limit:#}");
        let evidence = &limit["evidence"][0];
        let statement = evidence["statement"].as_str().expect("a statement");
        assert!(statement.contains("of 50 Mbit/s (its counters)"), "{statement}");
        // The interface's own counters, read beside kagiri.
        let used = evidence["values"]["used_percent"].as_f64().expect("a share");
        let seen = 100.0 * fastest / LINK_BIT_PER_S;
        assert!((used - seen).abs() < 10.0, "{mix}: {used} % by the answer, {seen} % by the interface");
        let moved = document["trials"][0]["metrics"]["mb_per_s"].as_f64().expect("a rate") * 8.0 * 1.048_576;
        assert!((40.0..=50.0).contains(&moved), "{mix}: {moved} Mbit/s of objects over a link of 50 Mbit/s");
    }
}
