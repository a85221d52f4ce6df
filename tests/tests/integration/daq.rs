//! `kagiri daq` as people use it: every pattern over loopback, over labs and fleets, with faults made on
//! purpose.

use std::time::Duration;

use kagiri_tests::{
    Ended, FLEET_PATIENCE, Fleet, Live, UpLab, World, metric, need_root, trials, undisturbed, wait_until,
};
use nix::sys::signal::Signal;
use serde_json::Value;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Each fragment that was sent is accounted for, and every event was built, with all that the settings name.
fn assert_balanced(trial: &Value, sources: f64) {
    let of = |name: &str| metric(trial, name);
    assert_eq!(of("events_incomplete"), 0.0, "{trial}");
    assert!(of("events_complete") > 0.0, "{trial}");
    for none in ["fragments_lost", "fragments_unexplained", "fragments_late", "fragments_refused"] {
        assert_eq!(of(none), 0.0, "{none}: {trial}");
    }
    let sent = of("fragments_sent");
    assert!(sent >= sources * of("events_complete") && sent % sources == 0.0, "{sent} of {sources}: {trial}");
}

/// Wait until the builder at a port has received so many bytes, as the kernel counts them.
fn wait_for_bytes(port: u16, bytes: u64) {
    let asked = format!("sport = :{port}");
    wait_until("fragments come", PATIENCE, || {
        let listed = std::process::Command::new("ss").args(["-tinH", &asked]).output().expect("ss starts");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let counts = listed.split_whitespace().filter_map(|word| word.strip_prefix("bytes_received:"));
        counts.filter_map(|count| count.parse::<u64>().ok()).sum::<u64>() >= bytes
    });
}

/// Twenty sources and some events, besides what `more` says.
fn daq(world: &World, more: &[&str]) -> Value {
    let common =
        ["daq", "--sources", "20", "--events", "50", "--timeout", "10s", "--omit", "0s", "--json", "-q"];
    let document = world.run(&[&common[..], more].concat()).code(0).json();
    assert_eq!(document["state"], "complete", "{document}");
    document
}

#[test]
fn events_are_built_in_every_pattern_and_nothing_is_lost() {
    let world = World::new();
    for more in [
        &[][..],
        &["--window", "4", "--size", "40KiB"],
        &["--pattern", "grant"],
        &["--pattern", "grant", "--credit", "5", "--window", "3"],
        &["--pattern", "pull", "--credit", "3"],
        &["--pattern", "pull", "--credit", "8", "--orders", "tcp", "--window", "2"],
        &["--orders", "tcp"],
        &["--stagger", "100us"],
        &["--protocol", "udp", "--size", "5000B"],
        &["--protocol", "udp", "--pattern", "grant", "--credit", "4"],
        &["--size", "uniform 1B..9KiB"],
        &["--size", "0B"],
        &["--no-checksum"],
        &["--threads", "3"],
        &["--builders", "2"],
        &["--builders", "3", "--window", "2", "--builder-choice", "round_robin"],
        &["--builders", "2", "--builder-choice", "least_outstanding", "--pattern", "grant", "--credit", "6"],
        &["--triggers", "poisson 500/s", "--window", "8"],
    ] {
        let document = daq(&world, more);
        let trial = &document["trials"][0];
        assert_eq!(trial["verdict"], "pass", "{more:?}: {trial}");
        assert_balanced(trial, 20.0);
        let counted = metric(trial, "events_complete") + metric(trial, "events_vetoed");
        assert!(counted >= 50.0, "{more:?}: {trial}");
        assert!(metric(trial, "events_per_s") > 0.0 && metric(trial, "completion_p99_ms") > 0.0, "{more:?}");
    }
}

#[test]
fn what_is_due_while_the_window_is_full_is_vetoed() {
    let world = World::new();
    let more = ["daq", "--sources", "5", "--time", "3s", "--omit", "0s", "--json", "-q"];
    let bursts = ["--triggers", "bursts 10 10/s", "--window", "2"];
    let document = world.run(&[&more[..], &bursts].concat()).code(0).json();
    let trial = &document["trials"][0];
    let (complete, vetoed) = (metric(trial, "events_complete"), metric(trial, "events_vetoed"));
    assert!(complete >= 10.0 && vetoed >= complete, "of ten at once two have room: {trial}");
    let dead = 100.0 * vetoed / (vetoed + complete);
    assert!((metric(trial, "dead_time_percent") - dead).abs() < 2.0, "{dead}: {trial}");
    let asked = ["--dead-time-max", "10"];
    // On a host that others fill it is invalid; a pass it never is.
    let document = world.run(&[&more[..], &bursts, &asked].concat()).json();
    let trial = &document["trials"][0];
    assert_ne!(trial["verdict"], "pass", "{trial}");
    assert!(trial["reasons"].to_string().contains("vetoed"), "{trial}");
}

#[test]
fn offered_rate_is_the_reported_rate() {
    let world = World::new();
    let paced =
        ["daq", "--sources", "5", "--triggers", "5/s", "--time", "2s", "--omit", "0s", "--json", "-q"];
    let document = world.run(&paced).code(0).json();
    let trial = &document["trials"][0];
    assert_eq!(metric(trial, "events_complete"), 10.0, "{trial}");
    // Ten events in two seconds: it is no matter that the last one ends before these are over.
    assert!((metric(trial, "events_per_s") - 5.0).abs() < 0.2, "{trial}");
}

#[test]
fn orders_that_are_not_heard_lose_nothing() {
    let world = World::new();
    for more in
        [&[][..], &["--window", "4"], &["--pattern", "grant", "--credit", "5"], &["--protocol", "udp"]]
    {
        let dropped = ["--drop-orders", "10", "--events", "300", "--timeout", "10s"];
        let common = ["daq", "--sources", "20", "--omit", "0s", "--json", "-q"];
        let document = world.run(&[&common[..], &dropped, more].concat()).code(0).json();
        let trial = &document["trials"][0];
        assert_balanced(trial, 20.0);
        assert!(metric(trial, "orders_dropped") > 0.0, "{trial}");
        let late_orders = metric(trial, "orders_repeated") + metric(trial, "orders_missed");
        assert!(late_orders > 0.0, "{trial}");
        assert!(metric(trial, "recovery_p99_ms") > 0.0, "{trial}");
    }
}

/// Where a builder says that front ends find it: address, group, run.
pub fn addresses(live: &mut Live) -> (String, String, String) {
    live.wait_for("waiting for", PATIENCE);
    let said = live.stderr();
    let line = said.lines().find(|line| line.contains("orders ")).expect("just seen").to_owned();
    let after = |words: &str| {
        let rest = line.split_once(words)?.1;
        Some(rest.split([',', ';', ' ']).next().expect("a word").to_owned())
    };
    let told = |words: &str| after(words).unwrap_or_else(|| panic!("no '{words}' in '{line}'"));
    let orders = match line.contains("orders over the connections") {
        true => "-".to_owned(),
        false => told("orders at "),
    };
    (told("builder at "), orders, told("run "))
}

/// A front end of `examples/daq`: three sources in C, two in Python. `None` without a compiler or
/// interpreter.
fn front_end(world: &World, language: &str, at: &(String, String, String), first: u32) -> Live {
    let folder = kagiri_tests::workspace().join("examples/daq");
    let mut command = if language == "c" {
        let program = world.path("frontend");
        if !program.exists() {
            let mut cc = std::process::Command::new("cc");
            cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&program)
                .arg(folder.join("frontend.c"));
            assert!(cc.status().expect("cc starts").success(), "frontend.c compiles without a warning");
        }
        std::process::Command::new(program)
    } else {
        let mut python = std::process::Command::new("python3");
        python.arg("-B").arg(folder.join("frontend.py"));
        python
    };
    let count = if language == "c" { "3" } else { "2" };
    command.args([&at.0, &at.1, &at.2, &first.to_string(), count, "700"]);
    Live::start(command)
}

#[test]
fn front_ends_in_c_and_python_take_part() {
    kagiri_tests::need_programs!("cc", "python3");
    let world = World::new();
    for (pattern, credit, orders) in [
        ("push", None, "multicast"),
        ("grant", Some("4"), "multicast"),
        ("pull", Some("4"), "multicast"),
        ("grant", Some("4"), "tcp"),
    ] {
        let listen = format!("127.0.0.1:{}", kagiri_tests::free_port());
        let common = ["daq", "--sources", "10", "--front-ends", "5", "--listen", &listen, "--events", "100"];
        let how = ["--json", "--omit", "0s", "--drop-orders", "2", "--timeout", "10s", "--pattern", pattern];
        let how = [&how[..], &["--orders", orders]].concat();
        let credit = credit.map_or_else(Vec::new, |credit| vec!["--credit", credit]);
        let mut live = world.start(&[&common[..], &how, &credit].concat());
        let at = addresses(&mut live);
        assert_eq!((at.0.as_str(), at.1 == "-"), (listen.as_str(), orders == "tcp"));
        let (c, python) = (front_end(&world, "c", &at, 5), front_end(&world, "python", &at, 8));
        let document = live.end(PATIENCE).code(0).json();
        let trial = &document["trials"][0];
        assert_eq!(
            (trial["verdict"].as_str(), metric(trial, "events_incomplete")),
            (Some("pass"), 0.0),
            "{trial}"
        );
        let complete = metric(trial, "events_complete");
        assert!(complete >= 100.0 && metric(trial, "fragments_refused") == 0.0, "{trial}");
        for (front_end, sources) in [(c, 3.0), (python, 2.0)] {
            let said = front_end.end(PATIENCE).code(0).stdout;
            let sent: f64 = said.split(' ').next().and_then(|n| n.parse().ok()).expect(&said);
            assert!(sent >= sources * complete, "{sent} of {complete} events");
        }
    }
}

#[test]
fn a_killed_front_end_is_named_and_delays_no_other() {
    kagiri_tests::need_programs!("cc", "python3");
    let world = World::new();
    kagiri_tests::need_programs!("ss");
    let port = kagiri_tests::free_port();
    let listen = format!("127.0.0.1:{port}");
    let common = ["daq", "--sources", "6", "--front-ends", "5", "--listen", &listen, "--time", "4s"];
    let how = ["--json", "--triggers", "50/s", "--timeout", "100ms", "--window", "20", "--omit", "0s"];
    let mut live = world.start(&[&common[..], &how].concat());
    let at = addresses(&mut live);
    let (c, python) = (front_end(&world, "c", &at, 1), front_end(&world, "python", &at, 4));
    wait_for_bytes(port, 30_000);
    c.signal(Signal::SIGKILL);
    let document = live.end(PATIENCE).json();
    python.end(PATIENCE).code(0);
    let trial = &document["trials"][0];
    assert_ne!(trial["verdict"], "pass", "{trial}");
    assert!(metric(trial, "events_incomplete") > 0.0, "{trial}");
    let tables = trial["account"]["tables"].to_string();
    assert!(["1", "2", "3"].iter().all(|source| tables.contains(source)), "{tables}");
    drop(c);
}

#[test]
fn a_front_end_names_what_is_wrong() {
    kagiri_tests::need_programs!("cc", "python3");
    let world = World::new();
    let unused = format!("127.0.0.1:{}", kagiri_tests::free_port());
    let at = (unused.clone(), "-".to_owned(), "1".to_owned());
    for language in ["c", "python"] {
        let ended = front_end(&world, language, &at, 0).end(PATIENCE).code(1);
        assert!(ended.stderr.contains(&unused) && ended.stderr.contains("refused"), "{ended:?}");
        let nonsense = ("here".to_owned(), "-".to_owned(), "1".to_owned());
        let ended = front_end(&world, language, &nonsense, 0).end(PATIENCE).code(1);
        assert!(ended.stderr.contains("ADDR:PORT") || ended.stderr.contains("10.0.0.1:7500"), "{ended:?}");
    }
}

#[test]
fn a_front_end_of_another_run_learns_that_it_is_not_wanted() {
    kagiri_tests::need_programs!("cc", "python3");
    let world = World::new();
    let listen = format!("127.0.0.1:{}", kagiri_tests::free_port());
    let common = ["daq", "--sources", "6", "--front-ends", "5", "--listen", &listen, "--time", "60s"];
    let mut live = world.start(&common);
    let (builder, group, run) = addresses(&mut live);
    let other_run = run.parse::<u32>().expect("a number") ^ 1;
    for language in ["c", "python"] {
        let at = (builder.clone(), group.clone(), other_run.to_string());
        let ended = front_end(&world, language, &at, 1).end(PATIENCE).code(1);
        let said = "the builder closed the connection before any order: is RUN right?";
        assert!(ended.stderr.contains(said) && !ended.stdout.contains("sent"), "{ended:?}");
    }
    live.signal(Signal::SIGINT);
    live.end(PATIENCE).code(130);
}

#[test]
fn an_interrupted_run_keeps_what_it_measured() {
    let world = World::new();
    kagiri_tests::need_programs!("ss");
    let port = kagiri_tests::free_port();
    let listen = format!("127.0.0.1:{port}");
    let words = ["daq", "--sources", "10", "--time", "60s", "--omit", "0s", "--json", "--listen", &listen];
    let live = world.start(&words);
    // Ten hellos are 1280 bytes; the rest are fragments.
    wait_for_bytes(port, 200_000);
    live.signal(Signal::SIGINT);
    let ended = live.end(PATIENCE);
    world.assert_nothing_left(ended.pid);
    let document = ended.code(130).json();
    assert_eq!(document["state"], "interrupted");
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], "invalid", "{trial}");
    assert!(metric(trial, "events_complete") > 0.0, "{trial}");
    let listed = world.run(&["runs", "list", "--json"]).code(0).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn a_run_is_listed_shown_and_reported() {
    let world = World::new();
    daq(&world, &["--link", "1Gbit/s", "--buffer", "64KiB"]);
    let listed = world.run(&["runs", "list"]).code(0).stdout;
    assert!(listed.contains("daq"), "{listed}");
    let explained = world.run(&["explain", "last"]).code(0).stdout;
    assert!(explained.contains("20 sources"), "{explained}");
    let page = world.run(&["report", "-o", "-"]).code(0).stdout;
    assert!(page.contains("20 sources") && page.contains("<svg"), "the figures are drawn");
}

#[test]
fn the_number_of_sources_is_searched() {
    let world = World::new();
    let words =
        ["daq", "--search", "sources", "--max", "17", "--time", "300ms", "--omit", "0s", "--json", "-q"];
    let (_, document) = undisturbed(
        |document| document["capacity"]["value"] == 17.0,
        || world.measure(&words, PATIENCE * 2).code(0),
    );
    assert_eq!(document["capacity"]["value"], 17.0, "{}", document["capacity"]);
    assert_eq!(document["capacity"]["unit"], "sources");
    assert!(trials(&document).len() > 1, "{document}");
}

/// A shallow port: 50 Mbit/s and 64 KiB. 200 fragments of 1 KiB are 230 kB on the wire.
const LAB: &str = "[host.source]\ncount = 2\n[host.builder]\n[switch.s]\n\
    [[link]]\nbetween = ['source-*', 's']\nrate = '1Gbit/s'\nbuffer = '1MiB'\n\
    [[link]]\nfrom = 'builder'\nto = 's'\nrate = '50Mbit/s'\nbuffer = '64KiB'\n";

fn through_the_port(lab: &UpLab, more: &[&str]) -> Ended {
    let place = ["--place", "builder=builder", "--place", "sources=source-*"];
    let common = ["--link", "50Mbit/s", "--buffer", "64KiB", "--json", "-q"];
    lab.run("daq", &[&place[..], &common, more].concat())
}

#[test]
fn a_shallow_port_loses_what_is_pushed_and_holds_what_is_granted() {
    need_root!();
    let world = World::new();
    let lab = UpLab::new(&world, "shallow", LAB);
    let common = ["--sources", "200", "--time", "3s"];
    let push = through_the_port(&lab, &common).code(0).json();
    let push = &push["trials"][0];
    let overflows = metric(push, "events_incomplete") + metric(push, "retransmits") + metric(push, "nacks");
    assert!(overflows > 0.0, "three and a half times what the port holds came at once: {push}");
    assert!(metric(push, "cliff_sources") < 200.0, "{push}");

    let granted = ["--pattern", "grant", "--credit", "30", "--window", "4", "--timeout", "10s"];
    let unscathed = |document: &Value| document["trials"][0]["verdict"] == "pass";
    let (_, grant) =
        undisturbed(unscathed, || through_the_port(&lab, &[&common[..], &granted].concat()).code(0));
    let grant = &grant["trials"][0];
    assert_balanced(grant, 200.0);
    assert_eq!(grant["verdict"], "pass", "{grant}");
    assert!(metric(grant, "events_per_s") > metric(push, "events_per_s"), "{grant} {push}");

    let pulled = through_the_port(
        &lab,
        &[&common[..], &["--pattern", "pull", "--credit", "30", "--window", "4", "--timeout", "10s"]]
            .concat(),
    );
    assert_balanced(&pulled.code(0).json()["trials"][0], 200.0);
}

#[test]
fn several_hosts_of_sources_and_builders_work_together() {
    let fleet = Fleet::new();
    let agents: Vec<Live> = ["b-1", "b-2", "s-1", "s-2"].map(|name| fleet.agent(name)).into();
    let plan = "workload = 'daq'\n[place]\nbuilder = 'b-*'\nsources = 's-*'\n\
                [daq]\nsources = 31\nevents = 60\nomit = '0s'\nwindow = 2\ntimeout = '10s'\n";
    fleet.run(plan).end(FLEET_PATIENCE).code(0);
    let document = fleet.stored();
    assert_balanced(&document["trials"][0], 31.0);
    fleet.end(agents, &[]);
}

#[test]
fn a_host_of_sources_that_is_killed_is_named_and_its_events_end() {
    kagiri_tests::need_programs!("ss");
    let fleet = Fleet::new();
    let port = kagiri_tests::free_port();
    let (builder, one, other) = (fleet.agent("b"), fleet.agent("s-1"), fleet.agent("s-2"));
    let plan = format!(
        "workload = 'daq'\n[place]\nbuilder = 'b'\nsources = 's-*'\n[daq]\nsources = 20\ntime = '20s'\n\
         omit = '0s'\ntriggers = '50/s'\nwindow = 20\ntimeout = '100ms'\nlisten = '127.0.0.1:{port}'\n"
    );
    let mut run = fleet.run(&plan);
    wait_for_bytes(port, 100_000);
    other.signal(Signal::SIGKILL);
    run.wait_for("s-2", FLEET_PATIENCE);
    let pids = [run.pid(), other.pid()];
    let ended = run.end(FLEET_PATIENCE);
    assert!(ended.stderr.contains("host s-2 was lost"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let _ = other.end(FLEET_PATIENCE);
    let document = fleet.stored();
    let ended = document["trials"].as_array().expect("trials");
    assert!(ended.iter().all(|trial| trial["verdict"] != "pass"), "{document}");
    wait_until("no other process is left", FLEET_PATIENCE, || fleet.others(&[&builder, &one]).is_empty());
    fleet.end(vec![builder, one], &pids);
}
