//! `kagiri tune auto` where no setting helps, and with wrong plans.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, World, beside_others, need_root};

const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn loopback_is_not_limited_by_buffers_and_no_difference_is_an_answer() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let net = Namespaces::new(&["a"]);
    world.write("plan.toml", "workload = 'exchange'\n[exchange]\nclients = 2\nsize = '1kB'\ntime = '1s'\n");
    let auto = |words: &[&str]| {
        let words = [&["tune", "auto", "plan.toml", "--json", "--quiet"], words].concat();
        Live::start(net.on_with_mounts("a", &world.command(&words))).end(PATIENCE).code(0).json()
    };
    let stopped = auto(&[]);
    assert_eq!(stopped["conclusion"], "buffers_not_the_limit", "{stopped:#}");
    assert_eq!(stopped["runs"].as_array().map(Vec::len), Some(0), "{stopped:#}");
    let same = auto(&["--try", "tcp_no_metrics_save=1", "--blocks", "6", "--goal", "response_p50_ms"]);
    let conclusion = same["conclusion"].as_str().expect("a text");
    assert!(["no_difference", "not_confirmed"].contains(&conclusion), "{same:#}");
    let detectable = same["candidates"][0]["detectable_change"].as_f64().expect("a number");
    assert!(detectable <= -0.05, "{same:#}");
    let words = ["tune", "auto", "plan.toml", "--try", "tcp_no_metrics_save=1", "--blocks", "2", "--export"];
    let words = [&words[..], &["sysctl.d"]].concat();
    let nothing = Live::start(net.on_with_mounts("a", &world.command(&words))).end(PATIENCE);
    assert_eq!(nothing.stdout, "", "{}", nothing.stderr);
    nothing.fails(1, &["nothing is exported", "Undecided"]);
    let mut cat = Command::new("cat");
    cat.arg("/proc/sys/net/ipv4/tcp_no_metrics_save").current_dir(world.path(""));
    assert_eq!(Live::start(net.on("a", &cat)).end(PATIENCE).stdout.trim(), "0");
}

#[test]
fn wrong_plans_and_candidates_are_refused() {
    let _beside = beside_others();
    let world = World::new();
    world.write("plan.toml", "workload = 'exchange'\n[tune]\nsettings.tcp_wmen = '1 2 3'\n");
    world.run(&["run", "plan.toml", "--dry-run"]).fails(2, &["unknown setting 'tcp_wmen'", "did you mean"]);
    world.write("plan.toml", "workload = 'exchange'\n[tune]\nsettings.tcp_sack = 2\n");
    world.run(&["run", "plan.toml", "--dry-run"]).fails(2, &["0 (off) or 1 (on)"]);
    world.write(
        "plan.toml",
        "workload = 'exchange'\n[tune]\nsettings.tcp_sack = 1\nsettings.'net.ipv4.tcp_sack' = 0\n",
    );
    world.run(&["run", "plan.toml", "--dry-run"]).fails(2, &["net.ipv4.tcp_sack is set twice"]);
    world.write("plan.toml", "workload = 'exchange'\n[[variant]]\nname = 'x'\n[[variant]]\nname = 'y'\n");
    let auto = |words: &[&str]| world.run(&[&["tune", "auto", "plan.toml"], words].concat());
    auto(&[]).fails(2, &["2 variants", "--variant", "x, y"]);
    auto(&["--variant", "z"]).fails(2, &["no variant 'z'"]);
    auto(&["--variant", "x", "--goal", "speed"]).fails(2, &["--goal speed", "response_p99_ms"]);
    auto(&["--variant", "x", "--try", "tcp_sack=9"]).fails(2, &["0 (off) or 1 (on)"]);
    auto(&["--variant", "x", "--try", "tcp_sakc=0"]).fails(2, &["did you mean 'net.ipv4.tcp_sack'?"]);
    world.run(&["tune", "auto", "no-plan.toml"]).fails(2, &["cannot read the plan"]);
}
