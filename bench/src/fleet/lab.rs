//! Labs with an agent on each host: one of 17 hosts up, down and undone, and a run on a large one.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use base::statistics::{median, quantile};
use lab::state::ProcessId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sys::clock::Deadline;

use super::fixture::{Fixture, Lab};
use super::{Found, Settings};
use crate::noise::{Meter, Noise};
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
    Ok(Found::about(
        "Hosts on a switch, one of them behind 50 Mbit/s, each with a real agent; from asking for \
                   it until the keeper says that all is there, and until it has ended. Then once more, its \
                   keeper killed by SIGKILL, and put back by `kagiri undo`. The work of the lab's own \
                   processes counts as noise here. There is no peer.",
    )
    .with_rows([
        up.goal_each("<= 3 s, each"),
        down.goal_each("<= 2 s, each"),
        undo,
        left.goal_each("0, each"),
    ])
    .with_notes(notes))
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

const RUN_WITHIN: Duration = Duration::from_secs(300);

pub fn large(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let hosts = settings.pace.full_or(200, 6);
    let text = format!(
        "[host.server]\n[host.viewer]\ncount = {}\n[switch.hall]\n[[link]]\nbetween = [\"viewer-*\", \
         \"hall\"]\n[[link]]\n\
         between = [\"server\", \"hall\"]\n",
        hosts - 1
    );
    let mut found = Found::about(format!(
        "A lab of {hosts} hosts, each with a real agent, on one machine; `kagiri run` of one trial of \
             the workload stream in it, the server on one host, one player of 2 Mbit/s on each of the \
             others, 5 s. What is said of clocks is what the run itself says; all hosts have one true clock, \
             so that the difference that is found between two of them is the error of their common start. \
             There is no peer."
    ));
    let mut up = Row::new(format!("lab of {hosts} hosts: up"), "s");
    let mut down = Row::new(format!("lab of {hosts} hosts: down"), "s");
    settings.pace.await_quiet()?;
    let lab = fixture.lab("bench-large", &text)?;
    up.ours.push(lab.up_s);
    let times = settings.pace.full_or(settings.repeat.min(3), 1);
    runs(fixture, &lab, settings, hosts - 1, times, &mut found)?;
    runs(fixture, &lab, settings, (hosts - 1).min(100), times, &mut found)?;
    let (took_s, left) = lab.down()?;
    down.ours.push(took_s);
    found.notes.extend(left);
    found.rows.splice(0..0, [up, down]);
    Ok(found)
}

fn runs(
    fixture: &Fixture,
    lab: &Lab,
    settings: &Settings,
    viewers: u32,
    times: u32,
    found: &mut Found,
) -> anyhow::Result<()> {
    let row = |what: &str, unit| Row::new(format!("{viewers} agents with players: {what}"), unit);
    let mut took = row("from starting kagiri run to its end", "s");
    let mut bounds = row("clock bounds of hosts, median", "us");
    let mut worst = row("clock bound of the worst host", "us");
    let mut apart = row("start moments truly apart", "us");
    let mut printed = row("printed bound (clock_bound_us)", "us");
    let mut late = row("threads apart by their own clocks (start_skew_us)", "us");
    let mut within = row("moments within the printed bound", "of 1");
    for _ in 0..times {
        settings.pace.await_quiet()?;
        let (document, took_s, noise) = run(fixture, lab, viewers)?;
        let trial = &document["trials"][0];
        found.notes.push(format!("{viewers} agents with players: {} {}", trial["verdict"], trial["reasons"]));
        took.ours.push(took_s);
        took.noise.push(noise);
        let clocks = clocks(&document)?;
        let of = |pick: fn(&(f64, f64)) -> f64| clocks.iter().map(pick).collect::<Vec<_>>();
        let (offsets, each) = (of(|clock| clock.0), of(|clock| clock.1));
        let spread = quantile(&offsets, 1.0).zip(quantile(&offsets, 0.0)).map(|(most, least)| most - least);
        let spread = spread.context("no clocks")?;
        bounds.ours.extend(median(&each));
        worst.ours.extend(quantile(&each, 1.0));
        apart.ours.push(spread);
        let bound = metric(&document, "clock_bound_us").context("the run does not say its clocks' bound")?;
        printed.ours.push(bound);
        late.ours.extend(metric(&document, "start_skew_us"));
        within.ours.push(f64::from(u8::from(spread <= bound)));
    }
    let worst = worst.goal_ours("<= 20 us");
    let within = within.goal_each("1, each");
    found.rows.extend([took, bounds, worst, apart, printed, within, late]);
    Ok(())
}

fn run(fixture: &Fixture, lab: &Lab, viewers: u32) -> anyhow::Result<(Value, f64, Noise)> {
    let plan = fixture.dir.join("large.toml");
    std::fs::write(
        &plan,
        format!(
            "schema = 1\nworkload = 'stream'\n[place]\nserver = 'server'\nviewers = \
             'viewer-[1-{viewers}]'\n[stream]\n\
             bitrate = '2Mbit/s'\nstreams = {viewers}\nhold = '5s'\ncontent.duration = '60s'\n"
        ),
    )?;
    let mut command = Command::new(&fixture.kagiri);
    command.arg("run").arg(&plan).args(["--lab", &lab.state.lab, "--json", "--quiet"]);
    command.env("KAGIRI_DATA", fixture.dir.join("data"));
    let meter = Meter::start(0)?;
    // Whether the players were content is not what is asked here.
    let ran = tools::run(&mut command, RUN_WITHIN, &[0, 1, 3, 4])?;
    let noise = meter.finish(0)?;
    let document = serde_json::from_str(&ran.stdout);
    Ok((document.with_context(|| format!("no JSON document: {}", ran.stderr))?, ran.took_s, noise))
}

/// Of each host: its clock minus the coordinator's, and how far that may be wrong, in us.
fn clocks(document: &Value) -> anyhow::Result<Vec<(f64, f64)>> {
    let hosts = document["environment"]["hosts"].as_object().context("the run names no hosts")?;
    let us = |clock: &Value, key: &str| Some(clock[key].as_f64()? / 1e3);
    let clock = |facts: &Value| Some((us(&facts["clock"], "offset_ns")?, us(&facts["clock"], "bound_ns")?));
    Ok(hosts.values().filter_map(clock).collect())
}

/// A number of the only trial.
fn metric(document: &Value, name: &str) -> Option<f64> {
    document["trials"][0]["metrics"][name].as_f64()
}
