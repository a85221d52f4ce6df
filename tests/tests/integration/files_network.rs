//! The limit of requests to an object store that is behind a slow link.

use std::time::Duration;

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

/// Bytes that the interfaces of a host, `lo` left out, received and sent until a time, and this time in
/// seconds: read at once, because the program that reads them takes its time to start and to end.
fn interface_bytes(world: &World, lab: &UpLab<'_>, host: &str) -> ([f64; 2], f64) {
    let script = "cat /proc/uptime /proc/net/dev";
    let shown =
        world.run(&["lab", "exec", host, "--lab", &lab.name, "--", "sh", "-c", script]).code(0).stdout;
    let uptime = shown.split_whitespace().next().and_then(|word| word.parse().ok()).expect("an uptime");
    let mut sums = [0.0; 2];
    for line in shown.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo")
    {
        let fields: Vec<f64> = line.1.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
        sums[0] += fields[0];
        sums[1] += fields[8];
    }
    (sums, uptime)
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
        let mut live = world.start(&[&words[..], &more].concat());
        let mut fastest: f64 = 0.0;
        let (mut last, mut at) = interface_bytes(&world, &lab, "client");
        while live.is_running() {
            std::thread::sleep(WITNESS_EVERY);
            let (now, now_at) = interface_bytes(&world, &lab, "client");
            fastest = fastest.max((now[way] - last[way]) * 8.0 / (now_at - at));
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
        let carried = fastest / 1e6;
        assert!(
            (0.75 * carried..=carried).contains(&moved),
            "{mix}: {moved} Mbit/s of objects, {carried} Mbit/s by the interface"
        );
    }
}
