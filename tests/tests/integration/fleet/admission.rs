//! Agents without credentials do not join, and agents refuse what their owner forbids: both sides report it.

use std::net::TcpListener;
use std::time::Duration;

use kagiri_tests::{
    Ended, FLEET_PATIENCE, Fleet, Live, SHORT_FILM, SmallDisk, need_root, search_plan, text, wait_until,
};
use nix::sys::signal::Signal;

/// A run that waits for `nas`, which tries to join with these words, and does not come in.
fn kept_out(fleet: &Fleet, words: &[&str]) -> (Ended, Ended) {
    let plan = "workload = 'stream'\n[place]\nserver = 'nas'\n[stream]\nstreams = 1\nhold = '2s'\n";
    let mut run = Live::start(fleet.run_command(plan, "12s"));
    // It listens before an agent tries, which then is refused rather than alone.
    let port = fleet.endpoint.rsplit(':').next().expect("a port").parse::<u16>().expect("a port");
    wait_until("the coordinator listens", FLEET_PATIENCE, || {
        assert!(run.is_running(), "{}", run.stderr());
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let agent = Live::start(fleet.agent_command("nas", &[words, &["--join-within", "5s"]].concat()));
    let agent = agent.end(FLEET_PATIENCE);
    (agent, run.end(FLEET_PATIENCE))
}

#[test]
fn credentials_of_another_fleet_are_named_on_both_sides() {
    let fleet = Fleet::with_credentials(&["--host", "nas"]);
    let other = ["fleet", "init", "other", "--coordinator", "desk,127.0.0.1", "--host", "nas"];
    fleet.world.run(&other).code(0);
    let others = text(&fleet.world.path("other/bundles/nas"));
    let (agent, run) = kept_out(&fleet, &["--credentials", &others]);
    agent.fails(1, &["was not issued by this fleet's authority"]);
    run.fails(
        1,
        &["nas did not join (0 hosts joined)", "a host did not trust this coordinator's certificate"],
    );
    fleet.end(Vec::new(), &[]);
}

#[test]
fn a_wrong_password_is_named_on_both_sides() {
    let fleet = Fleet::with_credentials(&["--host", "nas", "--password"]);
    let bundle = fleet.bundle("nas");
    let login = std::fs::read_dir(&bundle).expect("a bundle").flatten().find(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().contains("password") || name.to_string_lossy().contains("login")
    });
    let login = login.expect("a file with the password").path();
    let right = std::fs::read_to_string(&login).expect("a file");
    // The last character of the password alone is another.
    let trimmed = right.trim_end();
    let last = trimmed.chars().last().expect("a password");
    let wrong = if last == 'a' { 'b' } else { 'a' };
    std::fs::write(&login, format!("{}{wrong}\n", &trimmed[..trimmed.len() - 1])).expect("a file");
    let (agent, run) = kept_out(&fleet, &[]);
    agent.fails(1, &["the coordinator refused this host's name or password"]);
    run.fails(
        1,
        &["nas did not join (0 hosts joined)", "without a name and password of this fleet, or with wrong"],
    );
    fleet.end(Vec::new(), &[]);
}

#[test]
fn listening_or_joining_beyond_this_machine_needs_credentials() {
    let fleet = Fleet::new();
    let plan = fleet.world.write("plan.toml", search_plan(SHORT_FILM));
    let plan = text(&plan);
    for endpoint in ["tcp/0.0.0.0:7447", "tls/0.0.0.0:7447", "tcp/192.0.2.1:7447"] {
        let words = ["run", plan.as_str(), "--listen", endpoint];
        fleet.world.run(&words).fails(2, &[endpoint, "kagiri fleet init"]);
    }
    fleet.world.run(&["agent", "--join", "tcp/192.0.2.1:7447"]).fails(2, &["192.0.2.1", "kagiri fleet init"]);
    fleet.world.run(&["agent", "--join", "tls/127.0.0.1:7447"]).fails(2, &["credentials"]);
    fleet.end(Vec::new(), &[]);
}

/// The coordinator's machine can run an agent, too: with a bundle of its own.
#[test]
fn an_agent_does_not_take_the_coordinators_bundle() {
    for more in [&[][..], &["--password"]] {
        let fleet = Fleet::with_credentials(&[&["--host", "nas", "--router", "hub"], more].concat());
        let bundles =
            [fleet.bundle("coordinator"), fleet.world.path("fleet/routers/hub")].map(|path| text(&path));
        for (bundle, holder) in bundles.iter().zip(["coordinator@desk", "router@hub"]) {
            let words = ["agent", "--join", &fleet.endpoint, "--credentials", bundle, "--join-within", "5s"];
            fleet.world.run(&words).fails(2, &[bundle, holder, "this host's own"]);
        }
        fleet.end(Vec::new(), &[]);
    }
}

/// A command that names hosts without placing a part there would measure this machine without a warning.
#[test]
fn hosts_that_are_named_and_not_used_are_refused() {
    let fleet = Fleet::with_credentials(&["--host", "nas", "--host", "pc-[1-2]"]);
    let credentials = text(&fleet.bundle("coordinator"));
    let place = "--place server=nas --place 'viewers=pc-*'";
    let stream = ["stream", "--streams", "1"];
    for (words, said) in [
        (
            &["--listen", &fleet.endpoint, "--credentials", &credentials][..],
            &[&fleet.endpoint, "nas, pc-1", place],
        ),
        (&["--credentials", &credentials], &["--credentials", "nas, pc-1", place]),
        (
            &["--via", "tcp/127.0.0.1:9"],
            &["--via", "kagiri fleet list --via tcp/127.0.0.1:9", "--place server=HOST"],
        ),
        (&["--wait", "3s", "--place", "server=here"], &["--wait 3s", "kagiri fleet list", "--place"]),
    ] {
        fleet.world.run(&[&stream, words].concat()).fails(2, &[&said[..], &["only this machine"]].concat());
    }
    fleet.world.write("lab.toml", "name = 'some'\n[host.player]\ncount = 2\n[host.server]\n");
    let plan = "workload = 'stream'\nlab = 'lab.toml'\n[stream]\nstreams = 1\n";
    fleet.world.write("plan.toml", plan);
    let said =
        ["lab.toml", "player-1, player-2, server", "place.server = \"server\", place.viewers = \"player-*\""];
    fleet.world.run(&["run", "plan.toml"]).fails(2, &said);
    fleet.world.run(&["run", "plan.toml", "--dry-run"]).fails(2, &said);
    assert!(!fleet.world.path("data/runs.sqlite").exists(), "nothing was begun");
    fleet.end(Vec::new(), &[]);
}

#[test]
fn credentials_are_not_put_aside() {
    let fleet = Fleet::with_credentials(&["--host", "nas"]);
    let credentials = text(&fleet.bundle("coordinator"));
    for words in [&["fleet", "list"][..], &["stream", "--streams", "1", "--place", "server=nas"]] {
        let words = [words, &["--credentials", &credentials]].concat();
        fleet.world.run(&words).fails(2, &["--credentials", "--listen tls/0.0.0.0:7447"]);
    }
    // Where it listened, and how a host comes there by the name that the certificate is for.
    let list = fleet.coordinator_command(&["fleet", "list", "--wait", "1s"]);
    let said = [&format!("no agent joined at {} within 1s", fleet.endpoint), "--credentials BUNDLE"];
    Live::start(list).end(FLEET_PATIENCE).fails(1, &said);
    let port = fleet.endpoint.rsplit(':').next().expect("a port");
    let everywhere = format!("tls/0.0.0.0:{port}");
    let words = ["fleet", "list", "--wait", "1s", "--credentials", &credentials, "--listen", &everywhere];
    fleet.world.run(&words).fails(1, &[&everywhere, &format!("--join tls/desk:{port} --credentials")]);
    fleet.end(Vec::new(), &[]);
}

#[test]
fn who_is_missing_is_named_before_anything_else_is_done() {
    let fleet = Fleet::new();
    let nas = fleet.agent("nas");
    let plan = search_plan(SHORT_FILM).replace("at_least = 1", "at_least = 2");
    let ended = Live::start(fleet.run_command(&plan, "8s")).end(FLEET_PATIENCE);
    let pid = ended.pid;
    assert!(ended.stderr.contains("1 host has joined"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("comparing clocks"), "{}", ended.stderr);
    let join = format!("'kagiri agent --join {} --name NAME'", fleet.endpoint);
    ended.fails(1, &["0 hosts that fit 'pc-*' joined, and 2 are needed (joined: nas)", &join]);
    fleet.end(vec![nas], &[pid]);
}

/// A run whose agent `nas` has this policy, on which everything is to run, and ends refused, on both sides.
fn forbidden(policy: &str, settings: &str, said: &[&str]) {
    let fleet = Fleet::new();
    let file = fleet.world.write("policy.toml", policy);
    let mut agent = Live::start(fleet.agent_command("nas", &["--policy", &text(&file)]));
    let plan = format!(
        "workload = 'stream'\n[place]\nserver = 'nas'\nviewers = 'nas'\n[stream]\nstreams = 1\nhold = \
         '2s'\n{settings}\n"
    );
    let ended = fleet.run(&plan).end(FLEET_PATIENCE);
    assert!(matches!(ended.status.code(), Some(1 | 2)), "{:?}: {}", ended.status, ended.stderr);
    let pid = ended.pid;
    let _ = ended.says(&[&["the policy of host nas"], said].concat());
    agent.wait_for("refused run", FLEET_PATIENCE);
    for word in said {
        assert!(agent.stderr().contains(word), "no '{word}' in\n{}", agent.stderr());
    }
    assert!(fleet.stored()["trials"].as_array().expect("trials").is_empty());
    fleet.end(vec![agent], &[pid]);
}

#[test]
fn an_agent_sends_nothing_to_whom_its_policy_does_not_list() {
    let victim = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = victim.local_addr().expect("it is bound");
    let policy = "[[allow]]\nparts = ['*']\npeers = ['192.0.2.0/24']\ndirectories = ['data']\n";
    forbidden(policy, &format!("url = 'http://{address}/film.ts'"), &["127.0.0.1"]);
    victim.set_nonblocking(true).expect("a socket can be made not to block");
    let came = victim.accept();
    assert!(came.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "a program connected");
}

#[test]
fn an_agent_reads_nothing_that_its_policy_does_not_list() {
    let policy = "[[allow]]\nparts = ['*']\npeers = ['loopback']\ndirectories = ['data']\n";
    forbidden(policy, "content.path = '/etc/hostname'", &["use the directory /etc"]);
}

#[test]
fn an_agent_changes_nothing_that_its_policy_does_not_list() {
    need_root!();
    let policy =
        "[[allow]]\nparts = ['*']\npeers = ['loopback']\ndirectories = ['data']\nsystem_changes = false\n";
    let settings = format!("{SHORT_FILM}\ncold = true");
    forbidden(policy, &settings, &["cache"]);
}

#[test]
fn an_agent_with_a_full_disk_is_named_with_what_to_do() {
    need_root!();
    let fleet = Fleet::new();
    let data = fleet.world.path("small");
    let disk = SmallDisk::mount(&data, 1 << 20);
    let nas = Live::start(fleet.world.command(&[
        "agent",
        "--join",
        &fleet.endpoint,
        "--name",
        "nas",
        "--data",
        &text(&data),
    ]));
    let pc = fleet.agent("pc-1");
    let plan = search_plan(SHORT_FILM).replace("count = 2, at_least = 1", "count = 1");
    let ended = fleet.run(&plan).end(FLEET_PATIENCE);
    let pid = ended.pid;
    let ended = ended.fails(1, &["server on nas", "small"]);
    assert!(ended.stderr.contains("full") || ended.stderr.contains("space"), "{}", ended.stderr);
    fleet.wait_until_free(2);
    let halves: Vec<_> =
        std::fs::read_dir(data.join("content")).map(|all| all.flatten().collect()).unwrap_or_default();
    assert!(halves.is_empty(), "{halves:?}");
    fleet.end_after(vec![nas, pc], &[pid], || drop(disk));
}

#[test]
fn a_name_that_is_taken_twice_is_named() {
    let fleet = Fleet::new();
    let twins = [fleet.agent("nas"), fleet.agent("nas")];
    let pc = fleet.agent("pc-1");
    // Both are there before anybody is asked: the run waits for a third, who never comes.
    let plan = search_plan(SHORT_FILM).replace("count = 2, at_least = 1", "count = 2");
    let ended = Live::start(fleet.run_command(&plan, "8s")).end(FLEET_PATIENCE);
    let pid = ended.pid;
    ended.fails(1, &["two agents have the name nas: end one, or give it another --name"]);
    let [one, other] = twins;
    fleet.end(vec![one, other, pc], &[pid]);
}

#[test]
fn a_second_coordinator_learns_whom_the_agent_works_for() {
    let fleet = Fleet::with_credentials(&["--host", "nas", "--host", "pc-[1-2]"]);
    let agents = ["nas", "pc-1", "pc-2"].map(|name| fleet.agent(name)).into();
    let mut first = fleet.run(&search_plan(SHORT_FILM));
    first.wait_for("measuring 1 stream", FLEET_PATIENCE);
    let run = fleet.stored()["run"].as_str().expect("an id").to_owned();
    let credentials = text(&fleet.bundle("coordinator"));
    // On the first one's port there is no room; through its router the same agents are seen.
    let second = |place: &str, words: &[&str]| {
        let own = ["run", "plan.toml", "--wait", "5s", "--credentials", &credentials, place, &fleet.endpoint];
        fleet.world.run(&own).fails(1, words);
    };
    second("--listen", &["in use by another kagiri run", "--listen another port"]);
    second("--via", &[&format!("is busy with run {run}")]);
    first.wait_for("measuring 2 streams", FLEET_PATIENCE);
    first.signal(Signal::SIGINT);
    let ended = first.end(FLEET_PATIENCE).code(130);
    assert!(!ended.stderr.contains("was lost"), "the first is not disturbed: {}", ended.stderr);
    fleet.end(agents, &[ended.pid]);
}

#[test]
fn ctrl_c_frees_the_agents_at_once() {
    let fleet = Fleet::new();
    let mut agents = vec![fleet.agent("nas"), fleet.agent("pc-1")];
    let mut pids = Vec::new();
    let mut interrupt = |mut run: Live, seen: &str| {
        run.wait_for(seen, FLEET_PATIENCE);
        run.signal(Signal::SIGINT);
        let began = std::time::Instant::now();
        let ended = run.end(Duration::from_secs(20)).code(130);
        eprintln!("{seen}: ended {:.0} ms after Ctrl-C", began.elapsed().as_secs_f64() * 1e3);
        assert!(!ended.stderr.contains("was lost"), "{}", ended.stderr);
        pids.push(ended.pid);
        ended
    };
    // While it waits for a third host, while content is made, and while a trial runs.
    let gathering = search_plan(SHORT_FILM).replace("at_least = 1", "at_least = 2");
    interrupt(Live::start(fleet.run_command(&gathering, "60s")), "2 hosts have joined");
    agents.push(fleet.agent("pc-2"));
    interrupt(fleet.run(&search_plan("content.duration = '5h'")), "of content");
    let finished = interrupt(fleet.run(&search_plan(SHORT_FILM)), "measuring 2 streams").trials_shown();
    let document = fleet.stored();
    assert!(finished >= 1, "the first trial was whole");
    assert_eq!(
        (document["state"].as_str(), document["trials"].as_array().map(Vec::len)),
        (Some("interrupted"), Some(finished))
    );
    let known: Vec<&Live> = agents.iter().collect();
    wait_until("no server is left", FLEET_PATIENCE, || fleet.others(&known).is_empty());
    fleet.wait_until_free(3);
    fleet.end(agents, &pids);
}
