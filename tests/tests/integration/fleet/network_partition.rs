//! Hosts that differ, whose clocks are off, and whose cables are pulled: real agents in namespaces, over TLS.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kagiri_tests::{
    FLEET_PATIENCE, Fleet, Live, Namespaces, SHORT_FILM, World, need_programs, need_root, search_plan, text,
    trials, wait_until,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const HOSTS: [&str; 4] = ["desk", "nas", "pc-1", "pc-2"];

fn fleet() -> (Namespaces, Fleet) {
    let net = Namespaces::new(&HOSTS);
    let fleet = Fleet::with_credentials(&["--host", "nas", "--host", "pc-[1-2]"]).at(&net.address("desk"));
    (net, fleet)
}

fn agents(net: &Namespaces, fleet: &Fleet) -> Vec<Live> {
    HOSTS[1..].iter().map(|name| Live::start(net.on(name, &fleet.agent_command(name, &[])))).collect()
}

#[test]
fn a_cable_that_is_pulled_names_its_host_and_the_run_goes_on() {
    need_root!();
    need_programs!("ip");
    let (net, fleet) = fleet();
    let agents = agents(&net, &fleet);
    let mut run = Live::start(net.on("desk", &fleet.run_command(&search_plan(SHORT_FILM), "20s")));
    run.wait_for("measuring 2 streams", FLEET_PATIENCE);
    let began = Instant::now();
    net.cable("pc-1", false);
    run.wait_for("host pc-1 was lost", FLEET_PATIENCE);
    let within = began.elapsed();
    eprintln!("a pulled cable is named after {:.0} ms", within.as_secs_f64() * 1e3);
    assert!(within < Duration::from_secs(10), "{within:?}");
    run.wait_for("measuring 3 streams", FLEET_PATIENCE);
    // Back again, it serves the next run; this one goes on without it.
    net.cable("pc-1", true);
    run.signal(Signal::SIGINT);
    let ended = run.end(FLEET_PATIENCE).code(130);
    let document = fleet.stored();
    assert!(trials(&document).contains(&"2.0 invalid".to_owned()), "{:?}", trials(&document));
    let list = fleet.coordinator_command(&["fleet", "list", "--json", "--wait", "15s"]);
    wait_until("pc-1 is back, and free", FLEET_PATIENCE, || {
        let listed = Live::start(net.on("desk", &list)).end(FLEET_PATIENCE).code(0).json();
        let all = listed["agents"].as_array().expect("agents");
        all.len() == 3 && all.iter().all(|agent| agent["busy"].is_null())
    });
    fleet.end(agents, &[ended.pid]);
}

/// Shorter than the bus takes a link for dead, with room for TCP to send again what it took.
const SHORT_CUT: Duration = Duration::from_millis(600);

#[test]
fn a_short_cut_is_survived() {
    need_root!();
    need_programs!("ip");
    // A machine that stands still makes a long cut of a short one.
    assert!(
        (0..3).any(|_| a_cut_was_short_and_survived()),
        "three cuts all took much longer than {SHORT_CUT:?}"
    );
}

/// `false` if the cut was no short one.
fn a_cut_was_short_and_survived() -> bool {
    let (net, fleet) = fleet();
    let agents = agents(&net, &fleet);
    let plan = search_plan(SHORT_FILM).replace("hold = '2s'", "streams = 2\nhold = '6s'");
    let mut run = Live::start(net.on("desk", &fleet.run_command(&plan, "20s")));
    run.wait_for("measuring 2 streams", FLEET_PATIENCE);
    // While the trial is armed its start would be missed, and the trial spoilt: players are at work when it
    // comes.
    wait_until("players are at work", FLEET_PATIENCE, || fleet.players_connected() >= 2);
    let began = Instant::now();
    net.cable("pc-1", false);
    std::thread::sleep(SHORT_CUT);
    net.cable("pc-1", true);
    let cut = began.elapsed();
    eprintln!("cut for {:.0} ms", cut.as_secs_f64() * 1e3);
    let ended = run.end(FLEET_PATIENCE * 2);
    let short = cut < SHORT_CUT * 3 / 2;
    if short {
        assert!(!ended.stderr.contains("was lost"), "{}", ended.stderr);
        assert_eq!(fleet.stored()["state"], "complete");
    }
    fleet.end(agents, &[ended.pid]);
    short
}

/// A library that moves the calendar clock of a program by so many seconds.
fn calendar_off(world: &World, seconds: i64) -> PathBuf {
    let library = world.path(&format!("calendar-{seconds}.so"));
    let source = format!(
        "#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
         int clock_gettime(clockid_t id, struct timespec *t) {{\n\
         int r = syscall(SYS_clock_gettime, id, t);\n\
         if (!r && id == CLOCK_REALTIME) t->tv_sec += {seconds};\nreturn r; }}\n"
    );
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(&library).stdin(Stdio::piped());
    let mut compiler = cc.spawn().expect("cc can be started");
    compiler.stdin.take().expect("piped").write_all(source.as_bytes()).expect("cc reads");
    assert!(compiler.wait().expect("a child").success(), "cc");
    library
}

fn doubts(document: &Value) -> String {
    document["doubts"].to_string()
}

#[test]
fn hosts_that_differ_or_whose_clocks_are_off_are_named_and_start_together() {
    need_root!();
    need_programs!("ip", "unshare", "cc");
    let (net, fleet) = fleet();
    let calendar = calendar_off(&fleet.world, 300);
    net.congestion_control("pc-1", "reno");
    let other =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").expect("the machine's own");
    let is_other = other.trim() != "reno";
    let nas = Live::start(net.on("nas", &fleet.agent_command("nas", &[])));
    let mut command = net.on("pc-1", &fleet.agent_command("pc-1", &[]));
    command.env("LD_PRELOAD", &calendar);
    let pc_1 = Live::start(command);
    // A host that has been up five minutes longer: its monotonic clock is ahead of all others.
    let agent = fleet.agent_command("pc-2", &[]);
    let mut later = fleet.world.command(&[]);
    let own = text(agent.get_program().as_ref());
    later = {
        let mut unshare = Command::new("unshare");
        unshare.args(["--time", "--monotonic", "300", "--boottime", "300", "--fork", "--kill-child", &own]);
        unshare.args(agent.get_args()).current_dir(later.get_current_dir().expect("a world"));
        for (key, value) in later.get_envs() {
            if let Some(value) = value {
                unshare.env(key, value);
            }
        }
        unshare
    };
    let pc_2 = Live::start(net.on("pc-2", &later));
    let plan = search_plan(SHORT_FILM).replace("hold = '2s'", "streams = 2\nhold = '2s'");
    let run = Live::start(net.on("desk", &fleet.run_command(&plan, "20s")));
    let ended = run.end(FLEET_PATIENCE * 2);
    let document = fleet.stored();
    assert_eq!(document["state"], "complete", "{}", ended.stderr);
    let said = doubts(&document);
    assert!(!is_other || said.contains("congestion control") && said.contains("pc-1"), "{said}");
    assert!(said.contains("wall_clock_off") && said.contains("pc-1"), "{said}");
    let clock = &document["environment"]["hosts"]["pc-2"]["clock"];
    let offset_s = clock["offset_ns"].as_f64().expect("a known clock") / 1e9;
    assert!((offset_s - 300.0).abs() < 1.0, "{clock}");
    let metrics = &document["trials"][0]["metrics"];
    let metric = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("no {name}: {metrics}"));
    eprintln!("start skew {} us, clocks known to {} us", metric("start_skew_us"), metric("clock_bound_us"));
    assert!(metric("clock_bound_us") < 1e6, "five minutes are not in it: {metrics}");
    // What `unshare` started is its child.
    let pids: Vec<u32> = vec![ended.pid];
    drop(pc_2);
    fleet.end(vec![nas, pc_1], &pids);
}

/// A run of a coordinator with these credentials, once it listens.
fn listening(fleet: &Fleet, credentials: &str) -> Live {
    fleet.world.write("plan.toml", search_plan(SHORT_FILM));
    let words = ["run", "plan.toml", "--wait", "8s", "--credentials", credentials];
    let mut run = Live::start(fleet.coordinator_command(&words));
    let place = fleet.endpoint.strip_prefix("tls/").expect("a fleet with credentials");
    wait_until("the coordinator listens", FLEET_PATIENCE, || {
        assert!(run.is_running(), "{}", run.stderr());
        std::net::TcpStream::connect(place).is_ok()
    });
    run
}

#[test]
fn certificates_that_have_ended_are_named_on_both_sides() {
    need_programs!("cc");
    const HOUR_S: i64 = 3600;
    let fleet = Fleet::with_credentials(&[]);
    // Hosts' certificates of one day that ended half an hour ago; the coordinator's is renewed.
    let made = calendar_off(&fleet.world, -(24 * HOUR_S + HOUR_S / 2));
    let coordinator = ["fleet", "init", "old", "--coordinator", "desk,127.0.0.1"];
    let mut init = fleet.world.command(&[&coordinator[..], &["--host", "nas", "--days", "1"]].concat());
    init.env("LD_PRELOAD", &made);
    Live::start(init).end(FLEET_PATIENCE).code(0);
    fleet.world.run(&[&coordinator[..], &["--replace"]].concat()).code(0);
    let bundle = |of: &str| text(&fleet.world.path("old/bundles").join(of));
    let old_agent = || fleet.agent_command("nas", &["--credentials", &bundle("nas"), "--join-within", "5s"]);
    let failed = |agent: Command, said: &str| {
        let ended = Live::start(agent).end(FLEET_PATIENCE);
        assert!(ended.status.code().is_some_and(|code| code != 0), "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    };
    failed(old_agent(), "ended");
    // A host whose clock is an hour behind takes its own for a good one; the coordinator does not.
    let an_hour_behind = calendar_off(&fleet.world, -HOUR_S);
    let run = listening(&fleet, &bundle("coordinator"));
    let mut behind = old_agent();
    behind.env("LD_PRELOAD", an_hour_behind);
    failed(behind, "the coordinator refused this host's certificate: it has expired");
    run.end(FLEET_PATIENCE).fails(1, &["nas did not join", "tried to join with an expired certificate"]);
    // One whose clock is a day and a half ahead takes the coordinator's, which holds for a day, for one that
    // has ended.
    let init = |words: &[&str]| fleet.world.run(&[&["fleet", "init", "short"], words].concat()).code(0);
    init(&["--coordinator", "desk,127.0.0.1", "--days", "1"]);
    init(&["--host", "nas"]);
    let bundle = |of: &str| text(&fleet.world.path("short/bundles").join(of));
    let days_ahead = calendar_off(&fleet.world, 36 * HOUR_S);
    let run = listening(&fleet, &bundle("coordinator"));
    let mut ahead = fleet.agent_command("nas", &["--credentials", &bundle("nas"), "--join-within", "5s"]);
    ahead.env("LD_PRELOAD", days_ahead);
    failed(ahead, "the coordinator's certificate has expired, or this host's clock is ahead");
    run.end(FLEET_PATIENCE)
        .fails(1, &["nas did not join", "a host did not trust this coordinator's certificate"]);
    fleet.end(Vec::new(), &[]);
}
