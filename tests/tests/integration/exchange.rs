//! `kagiri exchange` as people use it: over loopback, to nginx, and over a lab with planted causes.

use kagiri_tests::{Nginx, UpLab, World, metric, need_programs, need_root};

use crate::daq::PATIENCE;

#[test]
fn plain_command_measures_one_class_and_answers_briefly() {
    let world = World::new();
    let words = ["exchange", "--clients", "2", "--size", "250kB", "--count", "20", "--target", "30s"];
    let brief = world.measure(&words, PATIENCE).code(0);
    let lines: Vec<&str> = brief.stdout.lines().collect();
    // A path that is broken could not be copied.
    let fits = |line: &&str| line.chars().count() <= 80 || line.starts_with("Report");
    assert!(lines.len() <= 15 && lines.iter().all(fits), "{}", brief.stdout);
    assert!(brief.stdout.contains("40 messages answered within 30 s"), "{}", brief.stdout);
    let document = world.measure(&[&words[..], &["--json", "-q"]].concat(), PATIENCE).code(0).json();
    let trial = &document["trials"][0];
    assert_eq!((metric(trial, "answered"), metric(trial, "in_time_ratio")), (40.0, 1.0), "{trial}");
    for name in ["response_mean_ms", "response_p50_ms", "response_p99_ms", "write_mean_ms"] {
        assert!(metric(trial, name) > 0.0, "{name}: {trial}");
    }
}

#[test]
fn url_is_measured_and_requirements_decide_the_exit_code() {
    need_programs!("nginx");
    let world = World::new();
    std::fs::write(world.path("file"), vec![7; 100_000]).expect("a file");
    let nginx = Nginx::start(&world.path(""), 0);
    for (url, require, code) in [
        (nginx.url("file"), "response_p99_ms<=60000", 0),
        (nginx.url("file"), "response_p99_ms<=0.0001", 3),
        (nginx.url("none"), "errors==0", 3),
    ] {
        let words = ["exchange", &url, "--clients", "4", "--count", "25", "--require", require, "-q"];
        let ended = world.measure(&words, PATIENCE).code(code);
        assert!(ended.stdout.contains("100 messages"), "{}", ended.stdout);
    }
}

/// TCP's handshake takes a round trip, before each message on a connection of its own.
#[test]
fn connect_time_is_a_round_trip_of_fresh_connections_and_nothing_of_persistent_ones() {
    need_root!();
    let world = World::new();
    let text = "[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\nrate = '100Mbit/s'\ndelay = '20ms'\n";
    let lab = UpLab::new(&world, "fresh", text);
    let common =
        ["--place", "server=b", "--place", "clients=a", "--size", "1kB", "--count", "10", "--json", "-q"];
    let means = |connections: &str| {
        let words = [&common[..], &["--connections", connections]].concat();
        let document = lab.run("exchange", &words).code(0).json();
        let of = |name: &str| metric(&document["trials"][0], name);
        [of("connect_mean_ms"), of("response_mean_ms"), of("network_mean_ms")]
    };
    let [connect, response, network] = means("fresh");
    assert!((40.0..60.0).contains(&connect), "connect {connect} ms, response {response} ms");
    assert!(response >= connect + network && network >= 40.0, "{connect} + {network} of {response} ms");
    let [connect, response, _] = means("persistent");
    assert!(connect < 1.0 && response >= 40.0, "connect {connect} ms, response {response} ms");
}

/// The kernel reports twice what was asked for (socket(7)).
#[test]
fn class_has_a_send_buffer_of_its_own() {
    need_root!();
    let world = World::new();
    let lab = UpLab::new(&world, "class", "[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\n");
    world.write(
        "plan.toml",
        "workload = 'exchange'\n[place]\nserver = 'b'\nclients = 'a'\n[exchange]\nsize = '1kB'\n\
         rate_per_s = 10.0\n\
         time = '4s'\n[[exchange.class]]\nname = 'own'\nclients = 2\nsend_buffer = '48KiB'\n\
         [[exchange.class]]\nname = 'others'\nclients = 3\n",
    );
    let mut live = world.start(&["run", "plan.toml", "--lab", &lab.name, "--json", "-q"]);
    let words = ["lab", "exec", "a", "--lab", &lab.name, "--", "ss", "-Htnm", "state", "established"];
    let mut most = [0; 2];
    while live.is_running() {
        let shown = world.run(&words).code(0).stdout;
        let buffers = shown.matches(",tb").count();
        most = [most[0].max(shown.matches(",tb98304,").count()), most[1].max(buffers)];
    }
    live.end(PATIENCE).code(0);
    assert_eq!(most, [2, 5], "sockets with this buffer, and all");
}

#[test]
fn small_send_buffer_on_a_long_path_and_slow_server_are_told_apart() {
    need_root!();
    let world = World::new();
    let text = "[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\nrate = '100Mbit/s'\ndelay = '20ms'\n";
    let lab = UpLab::new(&world, "long", text);
    let common =
        ["--place", "server=b", "--place", "clients=a", "--size", "250kB", "--count", "10", "--json", "-q"];
    for (more, resource) in
        [(["--send-buffer", "16KiB"], "send_buffer"), (["--service", "1s"], "server_time")]
    {
        let document = lab.run("exchange", &[&common[..], &more].concat()).code(0).json();
        let trial = &document["trials"][0];
        assert_eq!(document["limit"]["resource"], resource, "{:#}", document["limit"]);
        let share = |name: &str| metric(trial, name) / metric(trial, "response_mean_ms");
        match resource {
            "send_buffer" => assert!(share("write_mean_ms") > 0.7, "{trial}"),
            _ => assert!(share("server_mean_ms") > 0.7 && share("write_mean_ms") < 0.3, "{trial}"),
        }
    }
}
