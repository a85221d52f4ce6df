//! `kagiri tune auto` on a long path, and kernel settings of a plan's variants.

use std::time::Duration;

use kagiri_tests::{Live, UpLab, World, beside_others, need_root};

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
