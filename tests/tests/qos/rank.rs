//! `kagiri qos run` ranks urgent classes: real programs that send at the same moments.

use std::sync::PoisonError;
use std::time::Duration;

use kagiri_tests::{Live, UpLab, World, beside_others, need_programs, need_root, program, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::commands::{ONE, field, on};

const PATIENCE: Duration = Duration::from_secs(60);
const LAB: &str = "[host.robots]\n[host.base]\n[switch.s]\n[[link]]\nbetween = ['robots', 's']\n\
    delay = '2ms'\n[[link]]\nbetween = ['s', 'base']\nrate = '20Mbit/s'\nbuffer = '256KiB'\n";
const SERVER: &str = include_str!("../../fixtures/qos/server.py");
const BURST: &str = include_str!("../../fixtures/qos/burst.py");
const TARGET_MS: f64 = 200.0;
/// Seconds between messages, and of how many rounds.
const EVERY: &str = "1.0";

struct Scene<'a> {
    world: &'a World,
    lab: UpLab<'a>,
    base: String,
    _server: Live,
}

impl<'a> Scene<'a> {
    /// The needs of alarm and robots, 4.7 and 11.3 Mbit/s, fit together.
    fn new(world: &'a World) -> Self {
        let lab = UpLab::new(world, "qosrank", LAB);
        world.write("server.py", SERVER);
        world.write("burst.py", BURST);
        let base = field(world, &lab, "base", 3).split('/').next().expect("an address").to_owned();
        let interface = field(world, &lab, "robots", 1);
        for (name, priority, ceiling) in
            [("ranked", 2, ""), ("equal", 1, ""), ("capped", 1, "ceiling = '4Mbit/s'\n")]
        {
            let policy = format!(
                "[bottleneck]\ninterface = '{interface}'\ncapacity = '20Mbit/s'\n\
                 [[class]]\nname = 'alarm'\nmatch = {{ command = 'burst.py alarm' }}\npriority = 1\n\
                 target = '{TARGET_MS}ms'\nsize = '100kB'\n\
                 [[class]]\nname = 'robots'\nmatch = {{ command = 'burst.py robots' }}\n\
                 priority = {priority}\ntarget = '1s'\nsize = '150kB'\nclients = 8\n{ceiling}"
            );
            world.write(&format!("{name}.toml"), policy);
        }
        let mut server = on(world, &lab, "base", &["python3", "server.py", &base]);
        server.wait_for("ready", PATIENCE);
        Self { world, lab, base, _server: server }
    }

    fn on_robots(&self, words: &[&str]) -> Live {
        on(self.world, &self.lab, "robots", words)
    }

    fn burst(&self, name: &str, connections: &str, bytes: &str, rounds: &str) -> Live {
        let words = ["python3", "burst.py", name, &self.base, connections, bytes, rounds, EVERY];
        let mut burst = self.on_robots(&words);
        burst.wait_for("ready", PATIENCE);
        burst
    }

    /// Response times of the alarms, and of robots that send at the same moments, in milliseconds.
    fn at_once(&self, rounds: &str) -> [Vec<f64>; 2] {
        let robots = self.burst("robots", "8", "150000", rounds);
        let alarm = self.burst("alarm", "1", "100000", rounds);
        [alarm, robots].map(times)
    }

    fn enforce(&self, policy: &str) -> Live {
        let program = program();
        let words = [program.to_str().expect("a path"), "qos", "run", policy, "--json"];
        let mut daemon = self.on_robots(&words);
        daemon.wait_for("is in force", PATIENCE);
        daemon
    }

    fn sockets(&self) -> Vec<Value> {
        let status = self.world.run(&["qos", "status", "--json"]).code(0).json();
        status["policies"][0]["status"]["sockets"].as_array().cloned().unwrap_or_default()
    }

    /// Connections with a limit of their pacing rate, as ss(8) shows them: `rate/limit`.
    fn paced(&self) -> usize {
        let text = self.on_robots(&["ss", "-tinH", "dport = :7000"]).end(PATIENCE).code(0).stdout;
        let rates = text.split("pacing_rate ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        rates.filter(|rate| rate.contains('/')).count()
    }
}

fn times(burst: Live) -> Vec<f64> {
    let text = burst.end(PATIENCE).code(0).stdout;
    let line = text.lines().find(|line| line.starts_with("times")).expect("the times");
    line.split_whitespace().skip(1).map(|word| word.parse().expect("a time")).collect()
}

fn in_time(times: &[f64], target_ms: f64) -> f64 {
    times.iter().filter(|ms| **ms <= target_ms).count() as f64 / times.len() as f64
}

#[test]
fn alarms_are_in_time_beside_less_urgent_messages_that_are_sent_at_once() {
    need_root!();
    need_programs!("python3", "ss");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    let scene = Scene::new(&world);
    let daemon = scene.enforce("equal.toml");
    let [alarms, robots] = scene.at_once("2");
    eprintln!("of one priority: alarms {alarms:?}, robots {robots:?}");
    assert!(in_time(&alarms, TARGET_MS) < 0.5, "without ranking: {alarms:?}");
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);

    let daemon = scene.enforce("ranked.toml");
    let kept = scene.burst("robots", "1", "1000", "30");
    wait_until("the less urgent connection is paced", PATIENCE, || scene.paced() == 1);
    wait_until("its rate is verified", PATIENCE, || {
        let of = |socket: &Value, key: &str| socket[key].as_f64();
        let is_same = |socket: &Value| {
            of(socket, "enforced_bit_per_s")
                .zip(of(socket, "verified_bit_per_s"))
                .is_some_and(|(set, read)| (read / set - 1.0).abs() < 0.001)
        };
        let sockets = scene.sockets();
        sockets.len() == 1 && sockets[0]["class"] == "robots" && is_same(&sockets[0])
    });
    let [alarms, robots] = scene.at_once("8");
    eprintln!("ranked: alarms {alarms:?}, robots {robots:?}");
    assert!(in_time(&alarms, TARGET_MS) >= 0.97, "ranked: {alarms:?}, robots {robots:?}");
    assert!(in_time(&robots, 1000.0) >= 0.97, "ranked: alarms {alarms:?}, robots {robots:?}");
    daemon.signal(Signal::SIGINT);
    let ended = daemon.end(PATIENCE).code(0).json();
    assert_eq!(ended["status"]["problems"].as_array().map(Vec::len), Some(0), "{ended}");
    assert_eq!(scene.paced(), 0, "every connection has its own rate again");
    drop(kept);
}

#[test]
fn ceiling_of_the_most_urgent_class_is_kept() {
    need_root!();
    need_programs!("python3");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _beside = beside_others();
    let world = World::new();
    let scene = Scene::new(&world);
    let daemon = scene.enforce("capped.toml");
    let robots = times(scene.burst("robots", "8", "55000", "3"));
    daemon.signal(Signal::SIGINT);
    daemon.end(PATIENCE).code(0);
    eprintln!("a ceiling of 4 Mbit/s: {robots:?}");
    // 3.52 Mbit of payload take 0.88 s; without the ceiling 0.2 s.
    let longest = robots.iter().copied().fold(0.0, f64::max);
    assert!((750.0..1100.0).contains(&longest), "{robots:?}");
}
