//! A fleet of real agents on this machine, each with a folder of its own, and runs over it.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{Live, MachineLock, World, beside_others, wait_until};

/// No step of a fleet's test takes longer, however busy the machine is.
pub const FLEET_PATIENCE: Duration = Duration::from_secs(60);

/// A search that goes up to 16 streams in short trials of light content, so that each phase comes soon;
/// `more` are further lines of `[stream]`.
pub fn search_plan(more: &str) -> String {
    format!(
        "workload = 'stream'\n[place]\nserver = 'nas'\nviewers = {{ hosts = 'pc-*', count = 2, at_least = 1 \
         }}\n\
         [stream]\nmax = 16\nhold = '2s'\nsearch_hold = '1s'\nbitrate = '2Mbit/s'\n\
         player = {{ cap = '8s', warm_up = '1s' }}\n{more}\n"
    )
}

/// Light content, in the words of a plan.
pub const SHORT_FILM: &str = "content.duration = '15s'";

/// A world in which a coordinator and agents meet.
pub struct Fleet {
    /// The coordinator's world; the agents' folders lie in it.
    pub world: World,
    /// Where they meet, as `--listen` and `--join` take it.
    pub endpoint: String,
    /// The folder of credentials, if the fleet uses any.
    bundles: Option<PathBuf>,
    _beside: MachineLock,
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new()
    }
}

/// A port of loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

impl Fleet {
    /// A fleet without credentials, over loopback.
    pub fn new() -> Self {
        let endpoint = format!("tcp/127.0.0.1:{}", free_port());
        Self { world: World::new(), endpoint, bundles: None, _beside: beside_others() }
    }

    /// A fleet without credentials that meets at a UNIX socket, in a folder `bus` of the user's own.
    pub fn at_socket() -> Self {
        let mut fleet = Self::new();
        let folder = fleet.world.path("bus");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("chmod");
        fleet.endpoint = format!("unixsock-stream/{}", text(&folder.join("bus.sock")));
        fleet
    }

    /// A fleet with credentials, which `words` of `kagiri fleet init` describe further, over loopback.
    pub fn with_credentials(words: &[&str]) -> Self {
        let mut fleet = Self::new();
        let always = ["fleet", "init", "fleet", "--coordinator", "desk,127.0.0.1,10.213.77.1"];
        fleet.world.run(&[&always, words].concat()).code(0);
        fleet.bundles = Some(fleet.world.path("fleet/bundles"));
        fleet.endpoint = format!("tls/127.0.0.1:{}", free_port());
        fleet
    }

    /// The same, where its coordinator is reached at another address: on hosts of a network of their own.
    pub fn at(mut self, address: &str) -> Self {
        let scheme = if self.bundles.is_some() { "tls" } else { "tcp" };
        self.endpoint = format!("{scheme}/{address}:7447");
        self
    }

    /// The bundle that was made for a host, or for the `coordinator`.
    pub fn bundle(&self, of: &str) -> PathBuf {
        self.bundles.as_ref().expect("a fleet with credentials").join(of)
    }

    fn credentials(&self, of: &str) -> Vec<String> {
        let Some(bundles) = &self.bundles else { return Vec::new() };
        vec!["--credentials".to_owned(), text(&bundles.join(of))]
    }

    /// An agent, not started yet; it keeps its content in a folder of its own.
    pub fn agent_command(&self, name: &str, more: &[&str]) -> Command {
        let mut command = self.world.command(&["agent", "--join", &self.endpoint, "--name", name]);
        command.arg("--data").arg(self.world.path(&format!("host-{name}")));
        if !more.contains(&"--credentials") {
            command.args(self.credentials(name));
        }
        command.args(more);
        command
    }

    pub fn agent(&self, name: &str) -> Live {
        Live::start(self.agent_command(name, &[]))
    }

    /// A verb that listens for agents, not started yet.
    pub fn coordinator_command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        command.args(["--listen", &self.endpoint]);
        if !words.contains(&"--credentials") {
            command.args(self.credentials("coordinator"));
        }
        command
    }

    pub fn run(&self, plan: &str) -> Live {
        Live::start(self.run_command(plan, "20s"))
    }

    /// A run of a plan that waits so long for its hosts, not started yet.
    pub fn run_command(&self, plan: &str, wait: &str) -> Command {
        self.world.write("plan.toml", plan);
        self.coordinator_command(&["run", "plan.toml", "--wait", wait])
    }

    pub fn stored(&self) -> Value {
        let newest = self.world.run(&["runs", "list", "--json"]).code(0).json()[0]["run"].clone();
        let newest = newest.as_str().expect("a run's id");
        self.world.run(&["runs", "show", newest, "--json"]).code(0).json()
    }

    /// The agents that are there, as `kagiri fleet list` has them, once there are `count`.
    pub fn listed(&self, count: usize) -> Vec<Value> {
        let mut agents = Vec::new();
        wait_until("all agents are there", FLEET_PATIENCE, || {
            agents = self.listed_now();
            agents.len() == count
        });
        agents
    }

    /// Those that are there now; one that comes back a second after the others is not among them.
    fn listed_now(&self) -> Vec<Value> {
        let all = Live::start(self.coordinator_command(&["fleet", "list", "--json", "--wait", "15s"]));
        let document = all.end(FLEET_PATIENCE).code(0).json();
        document["agents"].as_array().expect("agents").clone()
    }

    /// Wait until none of `count` agents works for a run, not as long as a lease lasts: an agent learns of
    /// the coordinator's end a moment after the processes of the run are gone.
    pub fn wait_until_free(&self, count: usize) {
        wait_until("all agents are free", Duration::from_secs(4), || {
            let agents = self.listed_now();
            agents.len() == count && agents.iter().all(|agent| agent["busy"].is_null())
        });
    }

    /// Processes of this fleet other than these: servers, and what was forgotten.
    pub fn others(&self, known: &[&Live]) -> Vec<(u32, String)> {
        let mut others = self.world.traces(0).processes;
        others.retain(|(pid, _)| known.iter().all(|live| live.pid() != *pid));
        others
    }

    pub fn players_connected(&self) -> usize {
        let server = self.others(&[]).into_iter().find(|(_, line)| line.contains("serve"));
        server.map_or(0, |(pid, _)| connections(pid))
    }

    /// End agents in good order, then check that nothing is left of any of them, though some were killed.
    pub fn end(self, agents: Vec<Live>, gone: &[u32]) {
        self.end_after(agents, gone, || ());
    }

    /// The same; `put_back` removes what the test itself made, once no agent works there any more.
    pub fn end_after(self, agents: Vec<Live>, gone: &[u32], put_back: impl FnOnce()) {
        for agent in &agents {
            agent.signal(Signal::SIGTERM);
        }
        let mut pids = gone.to_vec();
        for agent in agents {
            let ended = agent.end(FLEET_PATIENCE);
            assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
            pids.push(ended.code(0).pid);
        }
        put_back();
        self.world.run(&["undo"]).code(0);
        for pid in pids {
            self.world.assert_nothing_left(pid);
        }
        let halves = halves(&self.world.path(""));
        assert!(halves.is_empty(), "halves of files: {halves:?}");
    }
}

pub fn text(path: &Path) -> String {
    path.to_str().expect("a path of the tests").to_owned()
}

/// What is in a folder, in order.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Files below a folder that were begun and not finished.
fn halves(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let below = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("a folder that can be read").path();
        match path.is_dir() && !path.is_symlink() {
            true => halves(&path),
            false => vec![path],
        }
    };
    let is_half = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".part") || name.ends_with(".partial")
    };
    entries.flat_map(below).filter(is_half).collect()
}

/// Established TCP connections of a process, apart from those that it listens on.
fn connections(pid: u32) -> usize {
    let held: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .map(|all| {
            all.flatten().filter_map(|fd| Some(fd.path().read_link().ok()?.to_string_lossy().into_owned()))
        })
        .map(Iterator::collect)
        .unwrap_or_default();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let is_held = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"01")
            && words.get(9).is_some_and(|inode| held.contains(&format!("socket:[{inode}]")))
    };
    table.lines().filter(is_held).count()
}

/// The trials of a document in the words `2 pass`.
pub fn trials(document: &Value) -> Vec<String> {
    let trials = document["trials"].as_array().expect("trials").iter();
    trials.map(|trial| format!("{} {}", trial["load"], trial["verdict"].as_str().unwrap_or("?"))).collect()
}
