//! Labs of the tests' own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::program::Ended;
use crate::{Live, World};

/// A lab's name that no other test uses: the labs of all users of this machine stand side by side.
pub fn unique_name(what: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// A lab that is up, and is taken down whatever comes of its test.
pub struct UpLab<'a> {
    world: &'a World,
    pub name: String,
    pub up: Ended,
}

impl<'a> UpLab<'a> {
    /// Brings up what `file` says, which does not name it.
    pub fn new(world: &'a World, what: &str, file: &str) -> Self {
        let name = unique_name(what);
        world.write("lab.toml", format!("name = '{name}'\n{file}"));
        let up = world.run(&["lab", "up", "lab.toml"]).code(0);
        Self { world, name, up }
    }

    pub fn run(&self, verb: &str, arguments: &[&str]) -> Ended {
        self.world.run(&[&[verb, "--lab", &self.name][..], arguments].concat())
    }
}

impl Drop for UpLab<'_> {
    fn drop(&mut self) {
        // It may be down already.
        let _ = self.world.command(&["lab", "down", &self.name]).output();
    }
}

/// A search in a lab that changes everything that can be changed: disk, control group, link, namespace.
pub struct RunInLab {
    pub live: Live,
    pub lab: LabHosts,
}

impl RunInLab {
    pub fn start(world: &World) -> Self {
        let lab = unique_name("it");
        let file = format!(
            "name = '{lab}'\n[host.server]\ncpu_quota_percent = 90\n[host.server.disk]\nsize = '200MB'\n\
             read_limit = '100Mbit/s'\n[host.viewer]\n[[link]]\nbetween = ['server', 'viewer']\n\
             rate = '100Mbit/s'\n"
        );
        world.write("lab.toml", file);
        let plan = "workload = 'stream'\nlab = 'lab.toml'\n[place]\nserver = 'server'\nviewers = 'viewer'\n\
                    [stream]\nmax = 3\nhold = '2s'\nsearch_hold = '1s'\nbitrate = '5Mbit/s'\n\
                    content.duration = '60s'\n";
        world.write("plan.toml", plan);
        Self { live: world.start(&["run", "plan.toml"]), lab: LabHosts(lab) }
    }

    /// Start it, and wait until its first trial has ended. Returns the process that supervises the lab, too.
    pub fn measured(world: &World, within: Duration) -> (Self, u32) {
        let mut run = Self::start(world);
        run.live.wait_for("1 stream   ", within);
        let processes = world.traces(run.live.pid()).processes;
        let keeper = processes.iter().find(|(_, words)| words.contains(" lab keep "));
        let keeper = keeper.unwrap_or_else(|| panic!("no supervisor of the lab: {processes:?}")).0;
        (run, keeper)
    }
}

pub struct LabHosts(String);

impl LabHosts {
    pub fn of(lab: &str) -> Self {
        Self(lab.to_owned())
    }

    pub fn namespaces(&self) -> Vec<String> {
        let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&format!("kagiri-{}-", self.0))).collect()
    }
}
