//! Placement by Slurm: the agents are started by the user's scheduler, in a real cluster of three nodes.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use kagiri_tests::{
    Live, Slurm, World, beside_others, names, need_programs, need_root, program, wait_until, workspace,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// The environment in which kagiri's own files lie in a world.
fn within(world: &World, mut command: Command) -> Command {
    for (name, value) in world.command(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// A plan of one trial: a server on the first of three hosts, players on the others.
fn plan(host: &str, first: u32, hold: &str) -> String {
    format!(
        "schema = 1\nworkload = 'stream'\n\
         [place]\nserver = '{host}{first}'\nviewers = '{host}[{}-{}]'\n\
         [stream]\nbitrate = '2Mbit/s'\nstreams = 2\nhold = '{hold}'\ncontent.duration = '60s'\n\
         player = {{ cap = '8s', start = '200ms', resume = '200ms', warm_up = '3s' }}\n",
        first + 1,
        first + 2
    )
}

/// Credentials for a coordinator of this machine, and for three hosts.
fn credentials(world: &World, hosts: [&str; 3]) {
    let mut words = vec!["fleet", "init", "fleet", "--coordinator", "coordinator"];
    words.extend(hosts.iter().flat_map(|host| ["--host", host]));
    world.run(&words).code(0);
}

/// Agents on all nodes, as a user starts them.
fn srun_agents(slurm: &Slurm, world: &World, port: u16) -> Live {
    let script = "exec \"$1\" agent --join \"$2\" --join-within 30s --once --name \"$SLURMD_NODENAME\" \
                  --credentials \"fleet/bundles/$SLURMD_NODENAME\" --data \"$PWD/agents/$SLURMD_NODENAME\"";
    let mut srun = within(world, slurm.command("srun"));
    srun.current_dir(world.path(""));
    srun.args(["-N3", "--label", "bash", "-c", script, "agent"]).arg(program());
    srun.arg(format!("tls/127.0.0.1:{port}"));
    Live::start(srun)
}

/// A run has trials, and in each of them something was played.
#[track_caller]
fn assert_measured(run: &Value) {
    let trials = run["trials"].as_array().expect("trials");
    assert!(!trials.is_empty(), "{run}");
    for trial in trials {
        assert!(trial["metrics"]["frames_played"].as_f64() > Some(0.0), "{trial}");
    }
}

#[test]
fn a_job_runs_on_three_nodes_and_nothing_is_left() {
    need_root!();
    need_programs!("munged", "slurmctld", "slurmd", "srun", "setpriv");
    let slurm = Slurm::start(3);
    let mut srun = slurm.command("srun");
    srun.args(["-N3", "sh", "-c", "echo \"$SLURMD_NODENAME\""]);
    let ended = Live::start(srun).end(PATIENCE).code(0);
    let mut names: Vec<&str> = ended.stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["node1", "node2", "node3"]);
    // A job that runs when the cluster goes: its processes are no children of the daemons.
    let mut forgotten = slurm.command("srun");
    forgotten.args(["-N3", "sh", "-c", "echo here; exec sleep 1000"]);
    let mut forgotten = Live::start(forgotten);
    forgotten.wait_for("here\nhere\nhere\n", PATIENCE);
    let asleep = || slurm.processes().iter().filter(|(_, name)| name == "sleep").count();
    wait_until("all three sleep", PATIENCE, || asleep() == 3);
    let folder = slurm.folder().to_owned();
    drop(slurm);
    forgotten.end(PATIENCE);
    wait_until("its processes end", PATIENCE, || Slurm::processes_of(&folder).is_empty());
    assert!(!folder.exists());
}

#[test]
fn agents_that_srun_started_run_a_plan() {
    need_root!();
    need_programs!("munged", "slurmctld", "slurmd", "srun", "setpriv");
    let _beside = beside_others();
    let (world, slurm, port) = (World::new(), Slurm::start(3), free_port());
    credentials(&world, ["node1", "node2", "node3"]);
    world.write("plan.toml", plan("node", 1, "2s"));
    let listen = format!("tls/127.0.0.1:{port}");
    let words = ["run", "plan.toml", "--listen", &listen, "--credentials", "fleet/bundles/coordinator"];
    let coordinator = world.start(&[&words[..], &["--wait", "30s", "--json"]].concat());
    let agents = srun_agents(&slurm, &world, port);
    let ended = coordinator.end(PATIENCE).code(0);
    assert_measured(&ended.json());
    // The agents end with their run, and the job with them.
    let agents = agents.end(PATIENCE).code(0);
    for node in ["node1", "node2", "node3"] {
        assert!(agents.stderr.contains(&format!("as {node}")), "{}", agents.stderr);
    }
    slurm.wait_until_empty(PATIENCE);
    wait_until("all processes of the job end", PATIENCE, || slurm.processes().is_empty());
    world.assert_nothing_left(ended.pid);
}

#[test]
fn a_cancelled_job_ends_the_run_and_says_why() {
    need_root!();
    need_programs!("munged", "slurmctld", "slurmd", "srun", "scancel", "setpriv");
    let _beside = beside_others();
    let (world, slurm, port) = (World::new(), Slurm::start(3), free_port());
    credentials(&world, ["node1", "node2", "node3"]);
    world.write("plan.toml", plan("node", 1, "50s"));
    let listen = format!("tls/127.0.0.1:{port}");
    let words = ["run", "plan.toml", "--listen", &listen, "--credentials", "fleet/bundles/coordinator"];
    let mut coordinator = world.start(&words);
    let agents = srun_agents(&slurm, &world, port);
    coordinator.wait_for("measuring 2 streams", PATIENCE);
    for job in slurm.jobs() {
        slurm.ask("scancel", &[&job]);
    }
    let ended = coordinator.end(PATIENCE).says(&["host node", "was lost: its agent ended"]);
    // The interrupted trial does not pass.
    assert!(!ended.stderr.contains(" pass "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    agents.end(PATIENCE);
    slurm.wait_until_empty(PATIENCE);
    wait_until("all processes of the job end", PATIENCE, || slurm.processes().is_empty());
    world.assert_nothing_left(ended.pid);
}

/// Submit the ready job for a plan; returns its id.
fn submit(slurm: &Slurm, world: &World, port: u16, plan: &str) -> String {
    let mut sbatch = within(world, slurm.command("sbatch"));
    sbatch.current_dir(world.path("")).args(["--parsable", "--output=job.out"]);
    sbatch.env("KAGIRI", program()).env("KAGIRI_PORT", port.to_string()).env("KAGIRI_ADDRESS", "127.0.0.1");
    sbatch.arg(workspace().join("deploy/slurm/kagiri.sbatch")).args([plan, "--out", "result"]);
    Live::start(sbatch).end(PATIENCE).code(0).stdout.trim().to_owned()
}

/// Wait for the end of a job; returns its state and exit code as Slurm has them.
fn ended(slurm: &Slurm, job: &str) -> (String, String) {
    slurm.wait_until_empty(PATIENCE);
    let facts = slurm.ask("scontrol", &["show", "job", job]);
    let fact = |name: &str| {
        let found = facts.split_whitespace().find_map(|fact| fact.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in\n{facts}")).to_owned()
    };
    (fact("JobState="), fact("ExitCode="))
}

fn job_said(world: &World) -> String {
    std::fs::read_to_string(world.path("job.out")).unwrap_or_default()
}

/// Wait until the ready job has said this; it must not have ended before.
fn job_says(slurm: &Slurm, world: &World, part: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !job_said(world).contains(part) {
        let goes_on = Instant::now() < deadline && !slurm.is_idle();
        let facts = || slurm.ask("scontrol", &["show", "jobs"]);
        assert!(goes_on, "no '{part}' in\n{}\n{}", job_said(world), facts());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_ready_job_runs_a_plan() {
    need_root!();
    need_programs!("munged", "slurmctld", "slurmd", "srun", "sbatch", "setpriv");
    let _beside = beside_others();
    let (world, slurm, port) = (World::new(), Slurm::start(3), free_port());
    world.write("plan.toml", plan("agent-", 0, "2s"));
    let job = submit(&slurm, &world, port, "plan.toml");
    let (_, code) = ended(&slurm, &job);
    assert_eq!(code, "0:0", "{}", job_said(&world));
    let results = names(&world.path("result"));
    let run = results.iter().find(|name| name.ends_with(".json")).unwrap_or_else(|| panic!("{results:?}"));
    let run = std::fs::read(world.path("result").join(run)).expect("the result");
    assert_measured(&serde_json::from_slice(&run).expect("JSON"));
    // The job's exit code is the run's.
    let job = submit(&slurm, &world, port, "no-such-plan.toml");
    assert_eq!(ended(&slurm, &job).1, "2:0", "{}", job_said(&world));
    // Cancelled in the middle.
    world.write("plan.toml", plan("agent-", 0, "50s"));
    let job = submit(&slurm, &world, port, "plan.toml");
    job_says(&slurm, &world, "measuring 2 streams");
    slurm.ask("scancel", &[&job]);
    assert_eq!(ended(&slurm, &job).0, "CANCELLED");
    // Agents, their files and the jobs' credentials went with the jobs.
    wait_until("all processes of the jobs end", PATIENCE, || slurm.processes().is_empty());
    assert_eq!(names(&world.path("tmp")), [""; 0]);
    assert!(
        !names(&world.path("")).iter().any(|name| name.starts_with("kagiri-")),
        "{:?}",
        names(&world.path(""))
    );
}
