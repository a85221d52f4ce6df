//! `kagiri timeline` on real programs: what it tells, what it writes, how it ends.

use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use kagiri_tests::{
    Ended, Live, Nginx, World, alone, is_any_loaded, loaded_programs, need_root, program, wait_until,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

mod programs;
mod reports;

fn calls(document: &Value) -> &Vec<Value> {
    document["calls"].as_array().expect("calls")
}

fn doubts(document: &Value) -> String {
    document["doubts"].to_string()
}

/// How many calls of these names were seen, in either state.
fn count(document: &Value, names: &[&str]) -> u64 {
    let of = |row: &&Value| names.contains(&row["name"].as_str().expect("a name"));
    calls(document).iter().filter(of).map(|row| row["count"].as_u64().expect("a count")).sum()
}

/// Every row has the keys that scripts rely on, with plausible values, and kept and lost events add up.
fn check(document: &Value) {
    assert_eq!(document["schema"], 1);
    for row in calls(document) {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
        assert!(["ready", "blocked"].contains(&row["state"].as_str().expect("a state")), "{row}");
        assert!(number("count") >= 1.0 && number("mean_us") > 0.0 && number("wall_share") >= 0.0, "{row}");
        assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("max_us"), "{row}");
    }
    let number = |key: &str| document[key].as_u64().unwrap_or_else(|| panic!("{key} in {document}"));
    assert_eq!(number("events") + number("events_lost"), number("events_counted"));
    assert!(["bpf", "perf"].contains(&document["backend"].as_str().expect("a backend")));
    assert!(document["cost_ns_per_call"].is_number() || document["cost_ns_per_call"].is_null());
}

fn document_of(ended: Ended) -> Value {
    let document = ended.code(0).json();
    check(&document);
    document
}

#[test]
fn both_backends_trace_a_program() {
    need_root!();
    let world = World::new();
    for backend in ["auto", "bpf", "perf"] {
        let words = ["timeline", "--json", "--backend", backend, "--"];
        let program = ["dd", "if=/dev/zero", "of=/dev/null", "bs=100", "count=4000"];
        let document = document_of(world.measure(&[&words[..], &program].concat(), PATIENCE));
        assert!(count(&document, &["read"]) >= 4000 && count(&document, &["write"]) >= 4000, "{document:#}");
        assert!(backend == "auto" || document["backend"] == backend);
        assert!(document["ended"].as_str().expect("how").contains("exit status: 0"));
    }
    // Without --json: the same as text, after the program's own output.
    let ended = world.measure(&["timeline", "--", "sh", "-c", "echo its own words"], PATIENCE).code(0);
    assert!(ended.stdout.starts_with("its own words\n"), "{}", ended.stdout);
    for part in ["call", "state", "p50", "of wall", "write", "Traced by "] {
        assert!(ended.stdout.contains(part), "no '{part}' in\n{}", ended.stdout);
    }
}

#[test]
fn pictures_are_written_whole() {
    need_root!();
    let world = World::new();
    let files = ["--html", "it.html", "--pftrace", "it.pftrace"];
    let ended = world
        .measure(
            &[&["timeline"][..], &files, &["--", "dd", "if=/dev/zero", "of=/dev/null", "count=500"]].concat(),
            PATIENCE,
        )
        .code(0);
    assert!(ended.stderr.contains("wrote it.html"), "{}", ended.stderr);
    let page = std::fs::read_to_string(world.path("it.html")).expect("a page");
    assert!(page.contains("</html>") && page.contains("class=\"spans\"") && page.contains("dd if=/dev/zero"));
    for outside in ["http://", "https://", "src=", "@import"] {
        assert!(!page.contains(outside), "the page needs nothing from elsewhere: {outside}");
    }
    assert!(std::fs::metadata(world.path("it.pftrace")).is_ok_and(|facts| facts.len() > 1000 * 20));
    world
        .run(&["timeline", "--html", "none/such.html", "--", "touch", "made"])
        .fails(2, &["none/such.html", "no such folder"]);
    assert!(!world.path("made").exists(), "the program is not started");
}

#[test]
fn missing_targets_and_calls_are_named() {
    let world = World::new();
    world.run(&["timeline"]).fails(2, &["nothing to trace"]);
    world.run(&["timeline", "--trace", "frobnicate", "--", "true"]).fails(2, &["'frobnicate'", "recvfrom"]);
    need_root!();
    world.run(&["timeline", "-p", "2000000000"]).fails(1, &["no process 2000000000"]);
    let missing = world.run(&["timeline", "--", "/nowhere/at-all"]);
    let missing = missing.fails(1, &["/nowhere/at-all", "no such program"]);
    assert!(!missing.stderr.contains("tracing"), "{}", missing.stderr);
    let killed =
        document_of(world.measure(&["timeline", "--json", "--", "sh", "-c", "kill -9 $$"], PATIENCE));
    assert!(killed["ended"].as_str().expect("how").contains("signal: 9"), "{killed:#}");
}

#[test]
fn users_without_permission_get_advice() {
    need_root!();
    let world = World::of_nobody();
    // A process that it starts, then another user's.
    for words in [&["timeline", "--", "true"][..], &["timeline", "-p", "1"]] {
        world.run(words).fails(1, &["does not permit tracing", "run as root", "setcap"]);
    }
}

#[test]
fn advised_capabilities_suffice_and_none_is_refused() {
    need_root!();
    kagiri_tests::need_programs!("setpriv", "unshare");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let with = |rights: &str, backend: &str| {
        let capabilities = [format!("--inh-caps={rights}"), format!("--ambient-caps={rights}")];
        // In a copy of the mounts, so that tracefs is there and nothing stays.
        let mounted =
            "[ -d /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mounted, "sh", "setpriv"]);
        command.args(nobody).args(capabilities).arg(program()).args([
            "timeline",
            "--json",
            "--backend",
            backend,
            "--",
            "dd",
        ]);
        command.args(["if=/dev/zero", "of=/dev/null", "bs=100", "count=400"]).current_dir("/");
        command.output().expect("setpriv starts")
    };
    for (rights, backend) in [("+bpf,+perfmon", "bpf"), ("+perfmon,+dac_read_search", "perf")] {
        let ended = with(rights, backend);
        let document: Value =
            serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        check(&document);
        assert!(count(&document, &["write"]) >= 400, "{document:#}");
    }
    // Refused: root without capabilities (a container, a service with a bounded set), and the user nobody.
    for command in [&["--inh-caps=-all", "--bounding-set=-all"][..], &nobody] {
        let mut command = {
            let mut setpriv = Command::new("setpriv");
            setpriv.args(command);
            setpriv
        };
        let refused = command.arg(program()).args(["timeline", "--", "true"]).current_dir("/").output();
        let refused = refused.expect("setpriv starts");
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && errors.contains("setcap"), "{errors}");
    }
}

#[test]
fn too_few_open_files_are_named_as_the_reason() {
    need_root!();
    let over = Arc::new(Barrier::new(21));
    let threads: Vec<_> =
        (0..20).map(|_| Arc::clone(&over)).map(|over| std::thread::spawn(move || over.wait())).collect();
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -n 40; exec \"$0\" timeline --backend perf -p \"$1\""]).arg(program());
    let refused = command.arg(std::process::id().to_string()).output().expect("bash starts");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && errors.contains("ulimit -n"), "{errors}");
    over.wait();
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

#[test]
fn for_option_ends_the_started_program() {
    need_root!();
    let world = World::new();
    let words = ["timeline", "--json", "--for", "3s", "--trace", "+clock_nanosleep", "--", "sleep", "60"];
    let document = document_of(world.measure(&words, PATIENCE));
    let wall_s = document["wall_s"].as_f64().expect("a length");
    assert!((2.9..30.0).contains(&wall_s), "{wall_s}");
    assert_eq!(document["unfinished"][0]["name"], "clock_nanosleep", "{document:#}");
    assert!(document["ended"].as_str().expect("why").contains("--for"), "{document:#}");
    // Where that call is not watched, it says in which one the time went.
    let words = ["timeline", "--json", "--for", "3s", "--", "sleep", "60"];
    let document = document_of(world.measure(&words, PATIENCE));
    assert!(doubts(&document).contains("1 of 1 threads waited in clock_nanosleep"), "{document:#}");
}

#[test]
fn children_that_ran_before_are_traced() {
    need_root!();
    let world = World::new();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 60 & echo its child is $! >&2; wait"]);
    let mut parent = Live::start(command);
    parent.wait_for("its child is ", PATIENCE);
    let both = ["--trace", "+clock_nanosleep"];
    let words = ["timeline", "--json", "--for", "200ms", "-p", &parent.pid().to_string()];
    let document = document_of(world.measure(&[&words[..], &both].concat(), PATIENCE));
    assert_eq!(document["processes"], 2, "{document:#}");
    assert_eq!(document["unfinished"][0]["name"], "clock_nanosleep", "its child sleeps: {document:#}");
}

#[test]
fn several_processes_are_traced_and_idle_ones_wait() {
    need_root!();
    kagiri_tests::need_programs!("nginx");
    let world = World::new();
    let web = [Nginx::start(&world.path(""), 0), Nginx::start(&world.path(""), 0)];
    // The masters; their workers wait for connections.
    let masters: Vec<String> = web.iter().map(|nginx| nginx.pid().to_string()).collect();
    let ended = world.measure(&["timeline", "--for", "500ms", "-p", &masters.join(",")], PATIENCE).code(0);
    let said = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("4 processes") && said.contains("Most time: epoll_wait (unfinished,"), "{said}");
    assert!(!said.contains("outside traced calls"), "{said}");
}

#[test]
fn the_calls_of_kagiri_itself_are_drawn() {
    let _alone = alone();
    let world = World::new();
    let files = ["--calls-html", "own.html", "--calls-pftrace", "own.pftrace"];
    let ended =
        world.measure(&[&["transfer", "--time", "300ms", "--full"][..], &files].concat(), PATIENCE).code(0);
    assert!(ended.stdout.contains("Calls of the sender up"), "{}", ended.stdout);
    let page = std::fs::read_to_string(world.path("own.html")).expect("a page");
    for part in ["Timed inside the program", "recv", "\"kind\":\"thread\""] {
        assert!(page.contains(part), "no '{part}'");
    }
    assert!(std::fs::metadata(world.path("own.pftrace")).is_ok_and(|facts| facts.len() > 1000));
    world
        .run(&["transfer", "--calls-html", "none/such.html"])
        .fails(2, &["none/such.html", "no such folder"]);
}

#[test]
fn an_interrupted_watching_prints_what_there_is() {
    need_root!();
    let world = World::new();
    let loops = "import os\nfd = os.open('/dev/null', 1)\nfor n in range(1000): os.pwrite(fd, b'x', 0)\n\
                 os.write(2, b'it writes\\n')\nwhile True: os.pwrite(fd, b'x', 0)";
    let mut command = Command::new("python3");
    command.args(["-c", loops]);
    let mut target = Live::start(command);
    target.wait_for("it writes", PATIENCE);
    let pid = target.pid().to_string();
    // One that was there before goes on; one that was started is ended.
    for (subject, sign) in
        [(&["-p", &pid][..], "tracing process"), (&["--", "python3", "-c", loops], "it writes")]
    {
        let mut live = world.start(&[&["timeline", "--json"][..], subject].concat());
        live.wait_for(sign, PATIENCE);
        // How often a process has written, proc(5), "io": the earlier process keeps writing.
        let io = format!("/proc/{pid}/io");
        let writes = || {
            let text = std::fs::read_to_string(&io).expect("it runs");
            let line = text.lines().find_map(|line| line.strip_prefix("syscw: "));
            line.and_then(|count| count.parse::<u64>().ok()).expect("a count")
        };
        let before = writes();
        wait_until("it writes on", PATIENCE, || writes() > before + 100);
        live.signal(Signal::SIGINT);
        let ended = live.end(PATIENCE).code(130);
        world.assert_nothing_left(ended.pid);
        let document = ended.json();
        check(&document);
        assert!(count(&document, &["pwrite64"]) >= 100, "{document:#}");
        assert!(target.is_running(), "the process that was there before goes on");
    }
}

#[test]
fn a_killed_target_and_a_killed_kagiri_leave_nothing() {
    need_root!();
    kagiri_tests::need_programs!("python3");
    let world = World::new();
    let target = Live::start({
        let mut command = Command::new("sleep");
        command.arg("60");
        command
    });
    let mut live = world.start(&["timeline", "--json", "-p", &target.pid().to_string()]);
    live.wait_for("tracing process", PATIENCE);
    target.signal(Signal::SIGKILL);
    drop(target);
    let document = document_of(live.end(PATIENCE));
    assert!(document["ended"].as_str().expect("how").contains("ended meanwhile"), "{document:#}");
    let mut live = world.start(&["timeline", "--backend", "bpf", "--", "sleep", "60"]);
    live.wait_for("tracing sleep", PATIENCE);
    let programs = loaded_programs(live.pid());
    assert!(programs.len() >= 6, "what it has loaded can be seen: {programs:?}");
    live.signal(Signal::SIGKILL);
    let ended = live.end(PATIENCE);
    world.assert_nothing_left(ended.pid);
    // Programs are unloaded some time after the last descriptor of them is closed.
    wait_until("the kernel has let go of its programs", PATIENCE, || !is_any_loaded(&programs));
}
