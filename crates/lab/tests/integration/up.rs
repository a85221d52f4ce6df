//! Labs come up as in their file, run programs, and leave nothing behind.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::{Bench, UpLab, leaves_nothing, soon_leaves_nothing, traces, transfer, wait_until};
use lab::client;
use lab::state::{CONTROL_SOCKET, Request};

const TWO: &str = "agents = false\n[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\n";

#[test]
fn lab_matches_its_file_and_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    let before = traces(&bench);
    let text = "agents = false\nrouter = 'gate'\n\
                [host.robot]\ncount = 3\nsettings = { tcp_rmem = '4096 100000 200000' }\n\
                [host.gate]\n\
                [host.server]\ncpu_quota_percent = 40\nrun = ['echo began; exec sleep 600']\n\
                [host.server.disk]\nsize = '64MiB'\nread_limit = '80Mbit/s'\n\
                [switch.floor]\n[switch.room]\n\
                [[link]]\nbetween = ['robot-*', 'floor']\n[[link]]\nbetween = ['gate', 'floor']\n\
                [[link]]\nbetween = ['gate', 'room']\n[[link]]\nbetween = ['server', 'room']\nrate = \
                '100Mbit/s'\n";
    let lab = UpLab::new(&bench, "full", text);
    // Across two networks and the router between them, both ways.
    transfer(&lab, "robot-3", "server", 300_000);
    transfer(&lab, "server", "robot-1", 300_000);
    let setting = lab.on("robot-2", || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap());
    assert_eq!(setting.split_whitespace().collect::<Vec<_>>(), ["4096", "100000", "200000"]);
    let server = lab.host("server").clone();
    let disk = server.disk.unwrap();
    std::fs::write(disk.join("film"), "x").unwrap();

    let status = lab.status();
    assert_eq!(status.state, lab.state);
    let run = status.processes.iter().find(|process| process.what.contains("sleep 600")).unwrap();
    assert_eq!(run.ended, None);
    // The program is on its host, in its group, on its disk.
    let limits = sys::cgroup::limits_of(std::path::Path::new("/"), run.pid, None).unwrap();
    assert_eq!(limits.cpu_quota_percent, Some(40.0));
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", run.pid)).unwrap(), disk);
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_ne!(namespace(&run.pid.to_string()), namespace("self"));

    // No address of the lab is here.
    "10.77.0.0/16".parse::<sys::netns::Subnet>().unwrap().refuse_if_used().unwrap();
    let again = client::up(&lab.options).unwrap_err().to_string();
    assert!(again.contains("is up already") && again.contains("kagiri lab down"), "{again}");
    assert_eq!(lab.status().state, lab.state, "the one that is up goes on");
    lab.down();
    leaves_nothing(&bench, &before);
}

#[test]
fn two_labs_are_isolated() {
    let Some(bench) = Bench::new() else { return };
    let before = traces(&bench);
    let (one, two) = (UpLab::new(&bench, "one", TWO), UpLab::new(&bench, "two", TWO));
    assert_eq!(one.address("b"), two.address("b"), "the same addresses, in networks of their own");
    assert_eq!(client::list(&bench.folders()), [one.state.lab.clone(), two.state.lab.clone()]);
    let several = client::resolve_name(&bench.folders(), None).unwrap_err().to_string();
    assert!(several.contains("several labs are up"), "{several}");
    one.down();
    transfer(&two, "a", "b", 100_000);
    two.down();
    leaves_nothing(&bench, &before);
    let none = client::down(&bench.folders(), "one").unwrap_err().to_string();
    assert!(none.contains("lab one is not up"), "{none}");
}

#[test]
fn ended_program_is_reported() {
    let Some(bench) = Bench::new() else { return };
    let text = "agents = false\n[host.a]\nrun = ['echo out of paper >&2; exit 7', 'sleep 600']\n";
    let lab = UpLab::new(&bench, "ends", text);
    let ended = || lab.status().processes.into_iter().find(|process| process.ended.is_some());
    wait_until("the program has ended", || ended().is_some());
    let process = ended().unwrap();
    assert!(process.what.contains("exit 7 on a"), "{process:?}");
    assert!(process.ended.unwrap().contains('7') && process.output.unwrap().contains("out of paper"));
    lab.down();
}

#[test]
fn impossible_lab_is_rejected_and_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    let before = traces(&bench);
    let backlog = || std::fs::read_to_string("/proc/sys/net/core/netdev_max_backlog").unwrap();
    let of_machine = backlog();
    let setting = |name: &str| format!("{TWO}[host.c]\nsettings = {{ '{name}' = 77 }}\n");
    // Labs that fail halfway: a setting of the whole machine, an unknown setting, a disk that does not fit,
    // alone and after another disk, an address of this machine, and a disk that is too small.
    for (text, part) in [
        (setting("core.netdev_max_backlog"), "does not exist in a network"),
        (setting("core.no_such_thing"), "does not exist in a network"),
        (format!("subnet = '127.0.0.0/16'\n{TWO}"), "overlaps"),
        (format!("{TWO}[host.c.disk]\nsize = '15TiB'\n"), "does not fit"),
        (format!("{TWO}[host.c.disk]\nsize = '16MiB'\n[host.d.disk]\nsize = '15TiB'\n"), "does not fit"),
        (format!("{TWO}[host.c.disk]\nsize = '17MiB'\nfile_system = 'xfs'\n"), "too small for xfs"),
    ] {
        let error = client::up(&bench.options("wrong", &text)).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
        leaves_nothing(&bench, &before);
    }
    assert_eq!(backlog(), of_machine);
    let missing = client::up(&lab::supervisor::SupervisorOptions {
        file: "/nowhere/lab.toml".into(),
        ..bench.options("wrong", TWO)
    });
    assert!(missing.unwrap_err().is_usage());
}

#[test]
fn name_in_use_is_rejected() {
    let Some(bench) = Bench::new() else { return };
    let options = bench.options("taken", TWO);
    // A foreign folder of that name.
    let folder = bench.folders().lab_data(&bench.lab_name("taken"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("precious"), "x").unwrap();
    let before = traces(&bench);
    let error = client::up(&options).unwrap_err().to_string();
    assert!(error.contains("belongs to no lab that is up"), "{error}");
    assert!(folder.join("precious").exists());
    leaves_nothing(&bench, &before);
}

#[test]
fn control_socket_survives_invalid_requests() {
    let Some(bench) = Bench::new() else { return };
    let lab = UpLab::new(&bench, "socket", TWO);
    let socket = lab.state.folder.join(CONTROL_SOCKET);
    let answer_to = |garbage: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (sent, mut answer) = (stream.write_all(garbage), String::new());
        (sent.and_then(|()| stream.read_to_string(&mut answer).map(drop)), answer)
    };
    for garbage in [&b"\n"[..], b"{\"do\":\"dance\"}\n", b"\xff\n"] {
        let (whole, answer) = answer_to(garbage);
        whole.unwrap();
        assert!(answer.contains("invalid request") && answer.contains("send {"), "{answer}");
    }
    // Longer than the limit: it is refused while it is still being sent, and the unread rest can cut off the
    // answer.
    let (whole, answer) = answer_to(&[b'x'; 1 << 20]);
    assert!(whole.is_err() || answer.contains("invalid request"), "{answer}");
    // A silent client does not block others for long.
    let silent = UnixStream::connect(&socket).unwrap();
    assert_eq!(lab.status().state, lab.state);
    drop(silent);
    assert_eq!(serde_json::to_string(&Request::Down).unwrap(), r#"{"do":"down"}"#);
    lab.down();
}

/// All programs on a host end with the lab, also those that the supervisor did not start.
#[test]
fn programs_on_a_host_end_with_it() {
    let Some(bench) = Bench::new() else { return };
    let lab = UpLab::new(&bench, "visit", TWO);
    let mut visitor = lab.on("a", || std::process::Command::new("sleep").arg("600").spawn().unwrap());
    lab.down();
    wait_until("the visitor has ended", || visitor.try_wait().unwrap().is_some());
}

#[test]
fn signal_takes_the_lab_down() {
    let Some(bench) = Bench::new() else { return };
    let before = traces(&bench);
    let lab = UpLab::new(&bench, "signal", TWO);
    sys::child::terminate(
        lab.state.supervisor.pid,
        lab.state.supervisor.start_ticks,
        Duration::from_secs(20),
    )
    .unwrap();
    soon_leaves_nothing(&bench, &before);
}

#[test]
fn disks_report_their_io() {
    let Some(bench) = Bench::new() else { return };
    let text = "agents = false\n[host.a]\n[host.plain.disk]\nsize = '32MiB'\n\
                [host.slow.disk]\nsize = '32MiB'\nmodel = 'hdd-7200'\n";
    let lab = UpLab::new(&bench, "counts", text);
    let counts = || {
        let disks = lab.status().disks;
        assert_eq!(disks.iter().map(|disk| disk.host.as_str()).collect::<Vec<_>>(), ["plain", "slow"]);
        disks
    };
    const BYTES: usize = 4 << 20;
    let before = counts();
    let target = lab.host("slow").disk.clone().unwrap();
    let mut file = std::fs::File::create(target.join("film")).unwrap();
    file.write_all(&vec![7; BYTES]).unwrap();
    file.sync_all().unwrap();
    // An open file would prevent the unmount of the disk.
    drop(file);
    let after = counts();
    assert!(after[1].written_bytes >= before[1].written_bytes + BYTES as u64, "{before:?} {after:?}");
    assert!(after[1].writes > before[1].writes && after[1].busy_ns > before[1].busy_ns, "{after:?}");
    assert!(after[0].written_bytes < BYTES as u64, "the other's are its own: {after:?}");
    // Through the model, from the disk's making on.
    let model = after[1].model.unwrap();
    assert!(model.written_bytes >= BYTES as u64 && model.paced && after[0].model.is_none(), "{after:?}");
    sys::disk::drop_file_cache(&target.join("film")).unwrap();
    assert_eq!(std::fs::read(target.join("film")).unwrap().len(), BYTES);
    assert!(counts()[1].read_bytes >= after[1].read_bytes + BYTES as u64);
    lab.down();
}
