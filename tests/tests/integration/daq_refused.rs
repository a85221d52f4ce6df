//! Impossible settings of `kagiri daq`: one message that names the flag or the host, before anything is
//! measured.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{FLEET_PATIENCE, Fleet, Live, UpLab, World, is_root, need_programs, need_root, set_like};
use nix::sys::signal::Signal;

/// Longer than front ends are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn mistakes_are_named_by_their_flags() {
    let world = World::new();
    for (wrong, words) in [
        (&["--sources", "0"][..], &["--sources: 0"][..]),
        (&["--size", "65MiB"], &["--size: ", "64MiB"]),
        (&["--size", "big"], &["big", "128KiB"]),
        (&["--triggers", "sometimes"], &["sometimes", "poisson"]),
        (&["--credit", "5"], &["--credit: ", "push"]),
        (&["--pattern", "shove"], &["shove", "grant"]),
        (&["--protocol", "udp", "--congestion-control", "reno"], &["--congestion-control: UDP"]),
        (&["--listen", "here"], &["here"]),
        (&["--builder-choice", "round_robin"], &["--builder-choice: "]),
        (&["--search", "rate", "--max", "5"], &["--search: ", "set --dead-time-max"]),
        (&["--front-ends", "200"], &["--front-ends: 200"]),
        (&["--size", "file no-such-file.txt"], &["--size: cannot read 'no-such-file.txt'"]),
        (&["--time", "0s"], &["--time: 0s is not within"]),
        (&["--link", "0bit/s"], &["--link: 0bit/s is not within 1bit/s or more"]),
        (&["--dead-time-max", "150"], &["--dead-time-max: 150 is not within 0 to 100"]),
        (&["--dead-time-max", "150%"], &["--dead-time-max: 150 is not within 0 to 100"]),
        (&["--sources", "-5"], &["'-5'", "--sources", "must be positive"]),
        (&["--front-ends", "-5"], &["'-5'", "--front-ends", "must not be negative"]),
        (&["--time", "-5s"], &["'-5s'", "--time", "must not be negative"]),
        (&["--search", "sources", "--max", "64KiB"], &["--max: expected a number of sources", "1000"]),
        (
            &["--search", "rate", "--max", "64KiB", "--dead-time-max", "1%"],
            &["--max: expected triggers per second"],
        ),
        (&["--search", "sources", "--max", "-5"], &["--max", "must be positive"]),
    ] {
        let ended = world.run(&[&["daq"][..], wrong].concat()).code(2);
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{wrong:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("daq."), "{wrong:?}: {}", ended.stderr);
    }
}

#[test]
fn what_this_machine_does_not_have_is_named() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("its address").to_string();
    world.run(&["daq", "--listen", &listen, "-q"]).fails(1, &[&listen]);
    let refusal = "no interface of this machine has the address 192.0.2.99";
    world.run(&["daq", "--listen", "192.0.2.99:7500", "-q"]).fails(2, &["--listen: ", refusal]);
    let quantum = ["daq", "--congestion-control", "quantum", "-q"];
    world.run(&quantum).fails(2, &["--congestion-control: ", "'quantum'", "this kernel offers", "reno"]);
    world.write("sizes.txt", "1KiB\n2KiB\nlarge\n");
    world.run(&["daq", "--size", "file sizes.txt", "-q"]).fails(2, &["--size: sizes.txt: line 3", "large"]);
    world.write("plan.toml", "workload = 'daq'\n[daq]\nfront_ends = 200\n");
    world.run(&["run", "plan.toml"]).fails(2, &["plan.toml:3: daq.front_ends: 200"]);
}

/// The same program where it may open only so many files, and no more if it is root.
pub fn with_files(program: &Command, files: u32) -> Command {
    let mut limited = Command::new("sh");
    let drop = "setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource";
    let drop = if is_root() { drop } else { "" };
    limited.args(["-c", &format!("ulimit -n {files}; exec {drop} \"$0\" \"$@\"")]);
    limited.arg(program.get_program()).args(program.get_args());
    set_like(&mut limited, program);
    limited
}

/// Otherwise the last sources would wait for a builder that cannot accept them.
#[test]
fn a_builder_that_may_not_open_enough_files_says_so_before_anything_is_sent() {
    need_programs!("setpriv");
    let fleet = Fleet::new();
    let builder = Live::start(with_files(&fleet.agent_command("daq", &[]), 600));
    let sources = fleet.agent("pc-1");
    let plan = "workload = 'daq'\n[place]\nbuilder = 'daq'\nsources = 'pc-1'\n[daq]\nsources = 1000\n";
    let ended = fleet.run(plan).end(FLEET_PATIENCE);
    let pid = ended.pid;
    ended.fails(
        1,
        &["builder", "daq", "1000 connections", "as many open files", "have 600", "raise the limit"],
    );
    fleet.end(vec![builder, sources], &[pid]);
}

/// Both ends of each connection are files of one process.
#[test]
fn more_sources_than_files_can_be_open_are_refused_with_advice() {
    need_programs!("setpriv");
    let world = World::new();
    let mut limited = with_files(&world.command(&["daq", "--sources", "1000", "-q"]), 1500);
    let ended = limited.output().expect("sh starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    for part in ["1000 connections", "twice as many open files", "raise the limit"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn front_ends_that_do_not_come_end_the_trial() {
    let world = World::new();
    let listen = format!("127.0.0.1:{}", kagiri_tests::free_port());
    let words = ["daq", "--sources", "8", "--front-ends", "2", "--listen", &listen, "--time", "1s"];
    let said = format!(
        "2 of 2 front ends did not connect to {listen} within 30 s (sources 6-7 are missing; the builder \
         turned away bad header: 1): "
    );
    let mut live = world.start(&words);
    live.wait_for("waiting for", PATIENCE);
    // A program of another protocol.
    let mut stranger = std::net::TcpStream::connect(&listen).expect("the builder listens");
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    let ended = live.end(PATIENCE).fails(1, &[&said, "start them, or leave --front-ends out"]);
    assert!(!ended.stdout.contains("events/s"), "nothing was measured: {}", ended.stdout);
    // Waiting is ended by Ctrl-C, too.
    let mut live = world.start(&words);
    live.wait_for("waiting for", PATIENCE);
    live.signal(Signal::SIGINT);
    live.end(PATIENCE).code(130);
}

#[test]
fn a_side_that_stays_outside_of_the_lab_is_refused() {
    need_root!();
    let world = World::new();
    let lab = UpLab::new(&world, "outside", "[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\n");
    let (name, said) = (&lab.name, &lab.up.stdout);
    let refused = |more: &[&str]| lab.run("daq", &[&["-q"][..], more].concat()).code(2).stderr;
    let without_sources = refused(&["--place", "builder=a"]);
    let without_builder = refused(&["--place", "sources=b"]);
    let too_few = refused(&["--place", "builder=a", "--place", "sources=a, b", "--sources", "1"]);
    let advice = "sources are not placed on a host of the lab: add --place 'sources=...'";
    assert!(without_sources.contains(advice), "{without_sources}");
    let advice = "builder is not placed on a host of the lab: add --place builder=...";
    assert!(without_builder.contains(advice), "{without_builder}");
    assert!(too_few.contains("--sources: 1 source cannot be split over 2 hosts"), "{too_few}");
    assert!(said.contains(&format!("kagiri daq --lab {name} --place ")), "{said}");
}
