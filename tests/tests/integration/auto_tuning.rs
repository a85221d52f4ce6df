//! `kagiri tune auto`, and kernel settings of a plan's variants. The harness begins tests in the order of their
//! names, and one of these takes minutes: named like this, it is not the last one.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Live, Namespaces, UpLab, World, beside_others, need_root};

const PATIENCE: Duration = Duration::from_secs(300);
const LAB: &str = "[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\nrate = '50Mbit/s'\ndelay = '20ms'\n";
/// A path that holds 250 kB, and a send buffer of at most 64 KiB.
const PLAN: &str = "workload = 'transfer'\n[place]\nserver = 'b'\nclients = 'a'\n[transfer]\ntime = '1s'\n\
    flows = 1\n[tune]\nhosts = ['a']\nsettings.tcp_wmem = '4096 16384 65536'\n";

fn wmem_of(lab: &UpLab<'_>, world: &World, host: &str) -> String {
    let words = ["lab", "exec", "--lab", &lab.name, host, "--", "cat", "/proc/sys/net/ipv4/tcp_wmem"];
    world.run(&words).code(0).stdout
}

#[test]
fn small_largest_buffer_on_a_long_path_is_found_by_trials_and_nothing_is_kept() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    world.write("plan.toml", PLAN);
    let lab = UpLab::new(&world, "tune-auto", LAB);
    let before = wmem_of(&lab, &world, "a");
    let words = ["tune", "auto", "plan.toml", "--lab", &lab.name, "--json", "--blocks", "6"];
    let words = [&words[..], &["--try", "tcp_wmem=4096 16384 1MiB"]].concat();
    let ended = Live::start(world.command(&words)).end(PATIENCE).code(0);
    let answer = ended.json();
    assert_eq!(answer["conclusion"], "better", "{answer:#}\n{}", ended.stderr);
    let diagnosis = &answer["diagnosis"];
    assert!(diagnosis["sndbuf_limited_ratio"].as_f64() > Some(0.05), "{answer:#}");
    assert_eq!(answer["winner"]["net.ipv4.tcp_wmem"], "4096 16384 1048576", "{answer:#}");
    let interval = answer["confirmation"]["interval"].as_array().expect("an interval");
    assert!(interval[0].as_f64() > Some(0.05), "{answer:#}");
    assert!(ended.stderr.contains("scatter of a block"), "{}", ended.stderr);
    // The random order can be repeated: its seed is stored with the run.
    let run =
        world.run(&["runs", "show", answer["runs"][0].as_str().expect("a run"), "--json"]).code(0).json();
    assert_eq!(run["environment"]["trial_order"]["random_blocks_seed"], answer["order_seed"], "{answer:#}");
    let trials = run["trials"].as_array().expect("trials").iter();
    let mut order: Vec<_> = trials.map(|trial| (&trial["repetition"], &trial["variant"])).collect();
    // A disturbed trial is measured again.
    order.dedup();
    assert_eq!(order.len(), 24, "{order:?}");
    assert!(order.chunks(4).all(|block| block[0].1 == block[3].1), "{order:?}");
    let guards = answer["guards"].as_array().expect("guards");
    assert!(guards.contains(&"retransmits".into()), "{answer:#}");
    assert_eq!(wmem_of(&lab, &world, "a"), before);
}

#[test]
fn settings_of_variants_are_set_on_their_hosts_and_restored() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let variants = "[[variant]]\nname = 'small'\n[[variant]]\nname = 'large'\n\
                    tune.settings.tcp_wmem = '4096 16384 4MiB'\n";
    world.write("plan.toml", format!("{PLAN}{variants}"));
    let lab = UpLab::new(&world, "tune-plan", LAB);
    let before = wmem_of(&lab, &world, "a");
    let run = Live::start(world.command(&["run", "plan.toml", "--lab", &lab.name, "--json"]));
    let document = run.end(PATIENCE).code(0).json();
    let metric = |at: usize, name: &str| document["trials"][at]["metrics"][name].as_f64();
    let (small, large) = (metric(0, "goodput_bit_per_s"), metric(1, "goodput_bit_per_s"));
    assert!(large > small.map(|rate| 1.5 * rate), "{small:?} {large:?}");
    assert!(metric(0, "tune_sndbuf_limited_ratio") > Some(0.05), "{document:#}");
    assert_eq!(document["environment"]["tune"]["large"]["hosts"], "a", "{document:#}");
    assert_eq!(wmem_of(&lab, &world, "a"), before);
}

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
