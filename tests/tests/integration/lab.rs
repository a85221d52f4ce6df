//! `kagiri lab`: up, status, exec and down, as people use them.

use std::time::Duration;

use kagiri_tests::{Ended, UpLab, World, need_root, wait_until};
use nix::sys::signal::Signal;

const LAB: &str = "[host.a]\n[host.b.disk]\nsize = '16MiB'\n[[link]]\nbetween = ['a', 'b']\ndelay = '1ms'\n";

fn shows(ended: &Ended, parts: &[&str]) {
    for part in parts {
        assert!(ended.stdout.contains(part), "no '{part}' in\n{}", ended.stdout);
    }
}

#[test]
fn a_lab_comes_up_runs_programs_and_goes() {
    need_root!();
    let world = World::new();
    let held = UpLab::new(&world, "whole", LAB);
    let lab = held.name.clone();
    shows(&held.up, &[&lab, "2 hosts and 1 link", "10.77.0.1/24"]);
    shows(&held.up, &[&format!("  kagiri stream --lab {lab} --place server=a --place viewers=b\n")]);
    let on =
        |host: &str, script: &str| world.run(&["lab", "exec", host, "--lab", &lab, "--", "sh", "-c", script]);
    on("a", "exit 7").code(7);
    let script = "echo $KAGIRI_LAB_HOST of $KAGIRI_LAB; ls $KAGIRI_LAB_DISK; cat /proc/net/dev";
    shows(&on("b", script).code(0), &[&format!("b of {lab}"), "lost+found", "eth0"]);
    on("b", "dd if=/dev/zero of=$KAGIRI_LAB_DISK/some bs=1000 count=100 conv=fsync").code(0);
    on("c", "true").fails(1, &["no host 'c'", "a, b"]);
    // A plan that names another host is refused before its lab is made.
    world.write("plan.toml", "workload = 'files'\nlab = 'lab.toml'\n[place]\nworkers = 'hd'\n");
    world.run(&["run", "plan.toml"]).fails(2, &["'hd'", "its hosts are a, b"]);
    world.run(&["lab", "exec", "a", "--lab", &lab, "--", "no-such-program"]).fails(1, &["no-such-program"]);
    // Signals reach the program.
    let sleep = ["lab", "exec", "a", "--lab", &lab, "--", "sh", "-c", "echo begun; exec sleep 600"];
    let mut live = world.start(&sleep);
    wait_for(|| live.stdout().contains("begun"));
    live.signal(Signal::SIGTERM);
    wait_for(|| !live.is_running());

    let status = world.run(&["lab", "status", &lab, "--json"]).code(0).json();
    assert_eq!(status["lab"], lab.as_str());
    // Both agents and the delay line.
    let processes = status["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 3, "{status}");
    assert!(processes.iter().all(|process| process["ended"].is_null()), "{status}");
    assert!(status["lines"][0]["up"]["forwarded"].is_u64());
    assert_eq!(status["disks"][0]["host"], "b");
    assert!(status["disks"][0]["written_bytes"].as_u64().is_some_and(|bytes| bytes >= 100_000), "{status}");
    let shown = world.run(&["lab", "ls", &lab]).code(0);
    shows(
        &shown,
        &[
            "delay 1 ms",
            "a to b: ",
            " packets (",
            "; back: ",
            "lost on purpose",
            "writes (",
            " kB), busy for",
        ],
    );
    world.run(&["lab", "up", "lab.toml"]).fails(1, &["is up already", "kagiri lab down"]);
    // Without a part on its hosts this machine would be measured.
    let not_used = world.run(&["stream", "--lab", &lab, "--streams", "1"]);
    not_used.fails(2, &[&lab, "its hosts are a, b", "--place server=a --place viewers=b"]);
    let down = world.run(&["lab", "down", &lab]).code(0);
    shows(&down, &["is down"]);
    world.run(&["lab", "status", &lab]).fails(1, &["is not up"]);
    let keeper = status["keeper"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    world.assert_nothing_left(keeper.expect("a process"));
}

fn wait_for(condition: impl FnMut() -> bool) {
    wait_until("the program on the host does as it should", Duration::from_secs(20), condition);
}

#[test]
fn a_wrong_lab_file_is_refused_with_its_line() {
    let world = World::new();
    world.write("lab.toml", "name = 'x'\n[host.a]\nquota = 3\n");
    world.measure(&["lab", "up", "lab.toml"], Duration::from_secs(30)).fails(2, &["lab.toml:3: ", "quota"]);
    world.measure(&["lab", "up", "nowhere.toml"], Duration::from_secs(30)).fails(2, &["nowhere.toml"]);
}

#[test]
fn without_root_it_is_said_what_needs_it() {
    // To become nobody.
    need_root!();
    let world = World::of_nobody();
    world.write("lab.toml", format!("name = 'nobody'\n{LAB}"));
    world
        .measure(&["lab", "up", "lab.toml"], Duration::from_secs(30))
        .fails(1, &["needs root", "Without root"]);
    // What is up is not to be seen without, which is not the same as nothing.
    for words in [
        &["lab", "status"][..],
        &["lab", "status", "nobody"],
        &["lab", "exec", "a", "--", "true"],
        &["lab", "down"],
        &["fleet", "list", "--lab", "nobody"],
    ] {
        world.run(words).fails(1, &["needs root", "sudo"]);
    }
}

#[test]
fn large_lab_is_shown_in_15_lines() {
    need_root!();
    let world = World::new();
    let file = "[host.robot]\ncount = 9\n[host.server]\n[switch.floor]\n[[link]]\n\
                between = ['robot-*', 'floor']\n[[link]]\nbetween = ['server', 'floor']\n";
    let lab = UpLab::new(&world, "large", file);
    shows(&lab.up, &["10 hosts and 10 links", "and 5 more", "lab down"]);
    let brief = world.run(&["lab", "status", &lab.name]).code(0);
    shows(
        &brief,
        &["Hosts", "Switches: floor", "Links", " more lines", "running, 0 ended", "Everything: --full"],
    );
    for shown in [&lab.up.stdout, &brief.stdout] {
        assert!(shown.lines().count() <= 15, "{shown}");
    }
    let full = world.run(&["lab", "status", &lab.name, "--full"]).code(0);
    shows(&full, &["robot-9  ", "server to floor: "]);
    assert!(full.stdout.lines().count() > 15 && !full.stdout.contains("--full"), "{}", full.stdout);
}
