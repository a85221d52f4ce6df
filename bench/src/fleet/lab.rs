//! A lab of 17 hosts with their agents: up, down, and what is left after its keeper was killed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::state::ProcessId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::clock::Deadline;

use super::fixture::{Fixture, Lab};
use super::{Found, Settings};
use crate::noise::Meter;
use crate::record::Row;
use crate::tools;

const HOSTS: u32 = 17;
const WITHIN: Duration = Duration::from_secs(60);

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let text = format!(
        "[host.robot]\ncount = {}\n[host.server]\n[switch.floor]\n[[link]]\nbetween = [\"robot-*\", \
         \"floor\"]\n\
         [[link]]\nbetween = [\"server\", \"floor\"]\nrate = \"50Mbit/s\"\nbuffer = \"750kB\"\n",
        HOSTS - 1
    );
    let mut up = Row::new(format!("lab of {HOSTS} hosts: up"), "s");
    let mut down = Row::new(format!("lab of {HOSTS} hosts: down"), "s");
    let mut undo = Row::new("kagiri undo after kill -9 of its keeper", "s");
    let mut left = Row::new("left after kill -9 and undo: processes, namespaces, folders, groups", "");
    let mut notes = Vec::new();
    for _ in 0..settings.pace.full_or(settings.repeat, 2) {
        settings.pace.await_quiet()?;
        let meter = Meter::start(0)?;
        let lab = fixture.lab("bench-lab", &text)?;
        up.ours.push(lab.up_s);
        let (took_s, unsettled) = lab.down()?;
        down.ours.push(took_s);
        notes.extend(unsettled);
        up.noise.push(meter.finish(0)?);

        let (took_s, remains) = kill_and_undo(fixture, fixture.lab("bench-lab", &text)?)?;
        undo.ours.push(took_s);
        left.ours.push(remains.len() as f64);
        notes.extend(remains);
    }
    Ok(Found {
        compared: "Hosts on a switch, one of them behind 50 Mbit/s, each with a real agent; from asking for \
                   it until the keeper says that all is there, and until it has ended. Then once more, its \
                   keeper killed by SIGKILL, and put back by `kagiri undo`. The work of the lab's own \
                   processes counts as noise here. There is no peer."
            .to_owned(),
        rows: vec![
            up.goal_each("<= 3 s, each"),
            down.goal_each("<= 2 s, each"),
            undo,
            left.goal_each("0, each"),
        ],
        notes,
        ..Found::default()
    })
}

/// How long `kagiri undo` took, s, and what is still there.
fn kill_and_undo(fixture: &Fixture, lab: Lab) -> anyhow::Result<(f64, Vec<String>)> {
    let state = lab.state.clone();
    // While they live: what has ended and waits for init to notice is nothing that is left.
    let agents = state.hosts.iter().filter_map(|host| ProcessId::of_pid(host.agent_pid?)).collect::<Vec<_>>();
    kill(Pid::from_raw(state.supervisor.pid), Signal::SIGKILL)?;
    lab.forget();
    let deadline = Deadline::after(WITHIN);
    while state.supervisor.is_running() && deadline.pause(Duration::from_millis(1)) {}
    let began = Instant::now();
    tools::run(Command::new(&fixture.kagiri).arg("undo"), WITHIN, &[0])?;
    let took_s = began.elapsed().as_secs_f64();
    let namespaces = state.hosts.iter().map(|host| &host.namespace).chain([&state.switches]);
    let mut remains: Vec<_> = namespaces.map(|name| Path::new("/run/netns").join(name)).collect();
    remains.extend(
        agents.iter().filter(|agent| agent.is_running()).map(|agent| format!("/proc/{}", agent.pid).into()),
    );
    remains.extend(state.hosts.iter().flat_map(|host| host.cgroup.clone()));
    remains.extend([fixture.folders.lab(&state.lab), fixture.folders.lab_data(&state.lab)]);
    let there = remains.iter().filter(|path| path.exists()).map(|path| format!("left: {}", path.display()));
    Ok((took_s, there.collect()))
}
