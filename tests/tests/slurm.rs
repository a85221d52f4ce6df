//! Placement by Slurm: the agents are started by the user's scheduler, in a real cluster of three nodes.

use std::time::Duration;

use kagiri_tests::{Live, Slurm, need_programs, need_root};

#[test]
fn a_job_runs_on_three_nodes_and_nothing_is_left() {
    need_root!();
    need_programs!("munged", "slurmctld", "slurmd", "srun", "setpriv");
    let slurm = Slurm::start(3);
    let mut srun = slurm.command("srun");
    srun.args(["-N3", "sh", "-c", "echo \"$SLURMD_NODENAME\""]);
    let ended = Live::start(srun).end(Duration::from_secs(20)).code(0);
    let mut names: Vec<&str> = ended.stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["node1", "node2", "node3"]);
    // A job that runs when the cluster goes: its processes are no children of the daemons.
    let mut forgotten = slurm.command("srun");
    forgotten.args(["-N3", "sh", "-c", "echo here; exec sleep 1000"]);
    let mut forgotten = Live::start(forgotten);
    forgotten.wait_for("here\nhere\nhere\n", Duration::from_secs(20));
    assert!(slurm.processes().iter().filter(|(_, name)| name == "sleep").count() == 3);
    let folder = slurm.folder().to_owned();
    drop(slurm);
    forgotten.end(Duration::from_secs(10));
    assert_eq!(Slurm::processes_of(&folder), []);
    assert!(!folder.exists());
}
