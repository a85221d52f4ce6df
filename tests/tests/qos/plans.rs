//! Plans that measure with a policy of `kagiri qos` in force, and over links whose rate changes.

use std::sync::PoisonError;
use std::time::Duration;

use kagiri_tests::{World, beside_others, metric, need_root, unique_name, workspace};
use serde_json::Value;

use super::commands::ONE;

const PATIENCE: Duration = Duration::from_secs(90);
/// Robots and the background, which takes 80 % of a link, on one host.
const LAB: &str = "[host.robots]\nsettings = { tcp_congestion_control = 'reno' }\n[host.server]\n\
    [switch.floor]\n[[link]]\nbetween = ['robots', 'floor']\n[[link]]\nfrom = 'server'\nto = 'floor'\n\
    rate = '20Mbit/s'\nbuffer = '300kB'\n";
const POLICY: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = '20Mbit/s'\n[[class]]\nname = 'alarm'\n\
    match = { port = 7101 }\npriority = 1\ntarget = '150ms'\nsize = '50kB'\nclients = 2\n\
    overhead = '10ms'\n[[class]]\nname = 'robots'\nmatch = { port = 7102 }\npriority = 2\ntarget = '1s'\n\
    size = '50kB'\nclients = 6\ninterval = '500ms'\n[[class]]\nname = 'rest'\nmatch = { cgroup = '/' }\n\
    priority = 5\nfloor = '1Mbit/s'\n";
const PLAN: &str = "workload = 'exchange'\nlab = 'lab.toml'\n[place]\nserver = 'server'\nclients = 'robots'\n\
    background = 'robots'\n[qos]\nhosts = ['robots']\n[exchange]\nsize = '50kB'\nrate_per_s = 2.0\n\
    loop = 'closed'\ntime = '5s'\nomit = '2s'\nlink = '20Mbit/s'\nbackground.kind = 'udp'\n\
    background.rate = '16Mbit/s'\n[[exchange.class]]\nname = 'alarm'\nclients = 2\npriority = 1\n\
    target = '150ms'\nport = 7101\n[[exchange.class]]\nname = 'robots'\nclients = 6\npriority = 2\n\
    target = '1s'\nport = 7102\n[[variant]]\nname = 'none'\n[[variant]]\nname = 'qos'\n\
    qos.policy = 'p.toml'\n";

/// The same clients on two hosts behind one link.
const LAB_OF_TWO: &str = "[host.robot-1]\nsettings = { tcp_congestion_control = 'reno' }\n[host.robot-2]\n\
    settings = { tcp_congestion_control = 'reno' }\n[host.server]\n[switch.floor]\n[[link]]\n\
    between = ['robot-1', 'floor']\n[[link]]\nbetween = ['robot-2', 'floor']\n[[link]]\nfrom = 'server'\n\
    to = 'floor'\nrate = '20Mbit/s'\nbuffer = '300kB'\n";

/// The policy on both hosts, coordinated by the server.
fn plan_of_two() -> String {
    PLAN.replace("clients = 'robots'", "clients = 'robot-*'")
        .replace("background = 'robots'", "background = 'robot-1'")
        .replace("hosts = ['robots']", "hosts = ['robot-*']\ncoordinator = 'server'")
}

fn scene(world: &World) {
    world.write("lab.toml", format!("name = '{}'\n{LAB}", unique_name("eq")));
    world.write("p.toml", POLICY);
    world.write("plan.toml", PLAN);
}

fn trial<'a>(document: &'a Value, variant: &str) -> &'a Value {
    let trials = document["trials"].as_array().expect("trials");
    trials.iter().find(|trial| trial["variant"] == variant).expect("a trial of the variant")
}

#[test]
fn urgent_messages_are_in_time_with_a_policy_and_late_without() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    scene(&world);
    let run = world.start(&["run", "plan.toml", "--json", "-q"]);
    let pid = run.pid();
    let document = run.end(PATIENCE).code(0).json();
    let (without, with) = (trial(&document, "none"), trial(&document, "qos"));
    let in_time = |trial: &Value| metric(trial, "in_time_ratio");
    let words = format!("without {without:#}, with {with:#}");
    assert!(in_time(with) > 0.8 && in_time(with) > in_time(without) + 0.3, "{words}");
    assert!(metric(with, "response_p99_ms") < metric(without, "response_p99_ms") / 2.0, "{words}");
    assert!(metric(with, "link_used_ratio") > 0.5, "{words}");
    assert!(metric(with, "qos_verified_ratio") > 0.9, "{words}");
    assert!(without["metrics"].get("qos_verified_ratio").is_none(), "{words}");
    let tables = |trial: &Value| trial["account"]["tables"].as_array().cloned().unwrap_or_default();
    let is_of_policy = |table: &Value| table["title"] == "policy in force on robots: p.toml";
    let table = tables(with).into_iter().find(is_of_policy).expect("the policy's table");
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(3), "{table}");
    assert!(!tables(without).iter().any(is_of_policy), "{words}");
    let stored = &document["environment"]["qos"]["qos"];
    assert_eq!(stored["text"], POLICY, "{stored}");
    assert_eq!(stored["classes"][0]["verdict"], "GUARANTEED", "{stored}");
    // No policy, no discipline, no namespace.
    let status = world.run(&["qos", "status", "--json"]).code(0).json();
    let own = world.path("").display().to_string();
    let is_own = |policy: &Value| policy["policy"].as_str().is_some_and(|file| file.starts_with(&own));
    assert!(!status["policies"].as_array().expect("policies").iter().any(is_own), "{status}");
    world.assert_nothing_left(pid);
}

/// Beside UDP that a policy holds, bbr keeps an estimate of what was left before the policy made room.
#[test]
fn urgent_messages_of_bbr_are_in_time_beside_datagrams_that_a_policy_holds() {
    need_root!();
    let controls = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !controls.is_ok_and(|controls| controls.contains("bbr")) {
        return kagiri_tests::skip("needs bbr");
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    scene(&world);
    world.write("lab.toml", format!("name = '{}'\n{}", unique_name("eb"), LAB.replace("'reno'", "'bbr'")));
    let run = world.start(&["run", "plan.toml", "--json", "-q"]);
    let pid = run.pid();
    let document = run.end(PATIENCE).code(0).json();
    let (without, with) = (trial(&document, "none"), trial(&document, "qos"));
    eprintln!(
        "bbr: in time {} without, {} with; 99 % within {} and {} ms",
        metric(without, "in_time_ratio"),
        metric(with, "in_time_ratio"),
        metric(without, "response_p99_ms"),
        metric(with, "response_p99_ms"),
    );
    assert!(metric(with, "in_time_ratio") > 0.9, "without {without:#}, with {with:#}");
    world.assert_nothing_left(pid);
}

#[test]
fn hosts_of_a_plan_follow_its_coordinator() {
    need_root!();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    scene(&world);
    world.write("lab.toml", format!("name = '{}'\n{LAB_OF_TWO}", unique_name("e2")));
    world.write("plan.toml", plan_of_two());
    let run = world.start(&["run", "plan.toml", "--json", "-q"]);
    let pid = run.pid();
    let document = run.end(PATIENCE).code(0).json();
    let (without, with) = (trial(&document, "none"), trial(&document, "qos"));
    let words = format!("without {without:#}, with {with:#}");
    assert!(metric(with, "in_time_ratio") > metric(without, "in_time_ratio") + 0.3, "{words}");
    assert!(metric(with, "qos_verified_ratio") > 0.9, "{words}");
    let tables = with["account"]["tables"].as_array().expect("tables");
    for host in ["robot-1", "robot-2"] {
        let title = format!("policy in force on {host}: p.toml");
        let table = tables.iter().find(|table| table["title"] == title.as_str()).expect("the policy's table");
        let is_led = |note: &Value| {
            let note = note.as_str().unwrap_or_default();
            note.starts_with("tls/") && note.ends_with(" granted this host its rates, as one of 2.")
        };
        assert!(table["notes"].as_array().expect("notes").iter().any(is_led), "{table}");
    }
    let is_alone = |doubt: &Value| doubt["kind"] == "host_alone";
    assert!(!with["doubts"].as_array().expect("doubts").iter().any(is_alone), "{words}");
    assert_eq!(document["environment"]["qos"]["qos"]["coordinator"], "server");
    world.assert_nothing_left(pid);
}

#[test]
fn ready_plans_are_valid_and_their_policies_promise_the_targets() {
    let world = World::new();
    let plans = workspace().join("plans");
    for (plan, policies) in [
        ("qos-robots.toml", &["qos/robots-reserve.toml", "qos/robots-borrowing.toml"][..]),
        ("qos-stepping.toml", &["qos/stepping.toml"]),
    ] {
        let path = plans.join(plan);
        let resolved = world.run(&["run", path.to_str().expect("a path"), "--dry-run"]).code(0).json();
        let variants = resolved["variants"].as_array().expect("variants");
        let enforced: Vec<_> =
            variants.iter().filter_map(|variant| variant["qos"]["policy"].as_str()).collect();
        let expected: Vec<_> =
            policies.iter().map(|policy| plans.join(policy).display().to_string()).collect();
        assert_eq!(enforced, expected, "{plan}");
        for policy in enforced {
            let judged = world.run(&["qos", "check", policy, "--json"]).code(0).json();
            let verdict = &judged["classes"][0]["verdict"];
            let is_known = !policy.contains("stepping");
            assert_eq!(verdict, if is_known { "GUARANTEED" } else { "UNKNOWN" }, "{policy}");
        }
    }
}

#[test]
fn wrong_policy_is_refused_before_anything_starts() {
    let world = World::new();
    scene(&world);
    world.write("p.toml", POLICY.replace("overhead", "overheat"));
    let refused = world.run(&["run", "plan.toml"]).fails(2, &["p.toml:11: overheat: ", "expected one of"]);
    assert!(!refused.stderr.contains("is up"), "{}", refused.stderr);
    world.write("p.toml", POLICY);
    for (from, to, part) in [
        ("'p.toml'", "'none.toml'", "none.toml"),
        ("hosts = ['robots']", "hosts = ['robot-*']", "names the host 'robot-*'"),
        ("hosts = ['robots']", "", "qos.hosts"),
        ("hosts = ['robots']", "hosts = 5", "expected a list of hosts"),
        ("qos.policy", "qos.policies", "expected one of policy, hosts, coordinator"),
        ("hosts = ['robots']", "hosts = ['robots']\ncoordinator = 'here'", "outside of the lab"),
        ("hosts = ['robots']", "hosts = ['robots']\ncoordinator = 'nas'", "names the host 'nas'"),
    ] {
        world.write("plan.toml", PLAN.replace(from, to));
        let refused = world.run(&["run", "plan.toml"]).fails(2, &[part]);
        assert!(!refused.stderr.contains("is up"), "{}", refused.stderr);
    }
}

#[test]
fn host_that_does_not_enforce_a_policy_ends_the_run_before_it_measures() {
    let nobody = World::of_nobody();
    let plan = "workload = 'exchange'\n[exchange]\ntime = '1s'\n[qos]\npolicy = 'p.toml'\n";
    for (name, text) in [("p.toml", POLICY), ("plan.toml", plan)] {
        let path = nobody.write(name, text);
        nobody.give_to_nobody(&path);
    }
    let refused = nobody.run(&["run", "plan.toml"]).fails(1, &["needs root"]);
    assert!(!refused.stdout.contains("messages"), "{}", refused.stdout);
    need_root!();
    let _beside = beside_others();
    // The server has no interface of this name.
    let world = World::new();
    scene(&world);
    world.write("p.toml", POLICY.replace("eth0", "eth7"));
    world.run(&["run", "plan.toml"]).fails(1, &["qos on robots", "no interface \"eth7\""]);
}

#[test]
fn link_steps_with_each_trial_and_the_report_has_each_rate() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let steps = "steps = [{ after = '3s', rate = '4Mbit/s' }]\n";
    world.write("lab.toml", format!("name = '{}'\n{LAB}{steps}", unique_name("st")));
    let plan = "workload = 'exchange'\nlab = 'lab.toml'\nrepeats = 2\n[place]\nserver = 'server'\n\
                clients = 'robots'\nbackground = 'robots'\n[exchange]\nsize = '2kB'\nrate_per_s = 5.0\n\
                target = '1s'\ntime = '6s'\nbackground.kind = 'udp'\nbackground.rate = '30Mbit/s'\n";
    world.write("plan.toml", plan);
    // Messages are late behind the flood.
    let run = world.start(&["run", "plan.toml", "--json", "-q"]);
    let pid = run.pid();
    let document = run.end(PATIENCE).code(0).json();
    let trials = document["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 2);
    for trial in trials {
        let series = |name: &str| {
            let all = trial["series"].as_array().expect("series");
            all.iter().find(|series| series["name"] == name).unwrap_or_else(|| panic!("no {name}"))
        };
        let rates = series("link_rate_bit_per_s");
        assert_eq!(rates["values"], serde_json::json!([20e6, 20e6, 4e6]), "{rates}");
        assert_eq!(rates["at_s"], serde_json::json!([0.0, 3.0, 3.0]), "{rates}");
        let background = series("background_bit_per_s");
        let mean = |from: f64, to: f64| {
            let at =
                background["at_s"].as_array().expect("times").iter().map(|at| at.as_f64().expect("a time"));
            let values = background["values"].as_array().expect("values").iter().map(Value::as_f64);
            let known = at.zip(values).filter(|(at, _)| (from..to).contains(at));
            let known: Vec<f64> = known.filter_map(|(_, value)| value).collect();
            known.iter().sum::<f64>() / known.len() as f64
        };
        // 1472 of 1514 bytes are payload.
        for (from, to, expected) in [(1.0, 2.9, 19.4e6), (3.5, 5.9, 3.9e6)] {
            let found = mean(from, to);
            assert!((found / expected - 1.0).abs() < 0.1, "{found} from {from} s: {background}");
        }
        let tables = trial["account"]["tables"].as_array().expect("tables");
        let table = tables.iter().find(|table| table["title"] == "By the rate of the link").expect("phases");
        assert_eq!(table["rows"].as_array().map(Vec::len), Some(2), "{table}");
    }
    world.assert_nothing_left(pid);
}
