//! Whether the cause of a fault that was made is named.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::clock::Deadline;

use super::Settings;
use super::fixture::{Fixture, MeasuredTrial, Port, SHALLOW};
use crate::fleet::fixture::Lab;
use crate::record::Row;
use crate::suite::Found;

/// How long a process is frozen, and how long it then runs.
const FROZEN: Duration = Duration::from_millis(60);
const RUNNING: Duration = Duration::from_millis(700);
/// Faults happen now and then: in less time, none may.
const LEAST_S: u32 = 4;
const WIDE: Port = Port { rate: None, buffer: "1MiB", ..SHALLOW };

/// A fault, and by which words an account names it.
struct Fault {
    what: &'static str,
    port: Port,
    settings: &'static str,
    /// The times of its triggers, one a line, where no rate says them.
    times: Option<fn() -> String>,
    freezes: Option<&'static str>,
    words: &'static [&'static str],
}

const FAULTS: [Fault; 4] = [
    Fault {
        what: "a host of sources frozen for 60 ms, again and again",
        port: WIDE,
        settings: "sources = 80\ntriggers = '100/s'\nwindow = 16",
        times: None,
        freezes: Some("source-3"),
        words: &["sent late"],
    },
    Fault {
        what: "one packet in a thousand lost on the builder's link",
        port: Port { link: "loss = \"0.1%\"\n", ..WIDE },
        settings: "sources = 80\ntriggers = '50/s'\nwindow = 32",
        times: None,
        freezes: None,
        // Orders take that link too.
        words: &[
            "lost, tail-loss probe",
            "lost, retransmission timeout",
            "lost, sent again quickly",
            "order lost",
        ],
    },
    Fault {
        what: "now and then six triggers at once, into a port of 100 Mbit/s with room for all",
        port: Port { rate: Some("100Mbit/s"), buffer: "8MiB", ..WIDE },
        settings: "sources = 80\nwindow = 32",
        times: Some(bunched),
        freezes: None,
        words: &["queueing"],
    },
    Fault {
        what: "the builder's host frozen for 60 ms, again and again",
        port: WIDE,
        settings: "sources = 80\ntriggers = '100/s'\nwindow = 16",
        times: None,
        freezes: Some("builder"),
        words: &["builder"],
    },
];

/// A trigger every 40 ms for two seconds, the last of them six times.
fn bunched() -> String {
    let single = (1..50).map(|at| at * 40);
    single.chain([2000; 6]).map(|ms| format!("{}\n", f64::from(ms) / 1e3)).collect()
}

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let mut found = Found::about(
        "A fault is made while events of 1 KiB fragments are built on a lab, and the causes that \
                   the account gives for the events that took long are held against it. Longer than 4 x the \
                   median or 20 ms more is long. There is no peer.",
    );
    let (mut right, mut all) = (0, 0);
    for fault in &FAULTS {
        let mut row = Row::new(fault.what, "% right");
        let mut found_causes: Vec<String> = Vec::new();
        for _ in 0..settings.times() {
            let lab = fixture.lab(fault.port)?;
            let trial = trial(fixture, &lab, settings, fault)?;
            let causes = trial.causes();
            let is_right = |word: &str| fault.words.iter().any(|right| word.contains(right));
            let slow: u64 = causes.iter().map(|(_, count)| count).sum();
            let named: u64 = causes.iter().filter(|(word, _)| is_right(word)).map(|(_, count)| count).sum();
            (right, all) = (right + named, all + slow);
            if slow > 0 {
                row.ours.push(100.0 * named as f64 / slow as f64);
            }
            row.noise.push(trial.noise);
            found_causes.extend(causes.iter().map(|(word, count)| format!("{word}: {count}")));
        }
        found.rows.push(row.goal_ours(">= 95").note(found_causes.join(", ")));
    }
    let mut together = Row::new("all of them together", "% right");
    together.ours.extend((all > 0).then(|| 100.0 * right as f64 / all as f64));
    found.rows.push(together.goal_ours(">= 95"));
    found.notes.push(format!("{right} of {all} slow events were put down to the fault that was made"));
    Ok(found)
}

fn trial(fixture: &Fixture, lab: &Lab, settings: &Settings, fault: &Fault) -> anyhow::Result<MeasuredTrial> {
    let mut text = format!("{}\nsize = '1KiB'\ntime = '{}s'", fault.settings, settings.seconds.max(LEAST_S));
    if let Some(times) = fault.times {
        text += &format!("\ntriggers = 'file {}'", fixture.file("times.txt", &times())?.display());
    }
    let run = || fixture.run(Some(lab), &text, settings.seconds.into(), &settings.pace);
    let Some(host) = fault.freezes else { return run() };
    let pid = Pid::from_raw(lab.host(host)?.agent_pid.with_context(|| format!("{host} has no agent"))?);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let freezer = scope.spawn(|| freeze(pid, &over));
        let trial = run();
        over.store(true, Ordering::Relaxed);
        let frozen = freezer.join().unwrap_or(Ok(()));
        trial.and_then(|trial| frozen.map(|()| trial))
    })
}

/// Freezes a process for a moment, again and again, until it is over.
fn freeze(pid: Pid, over: &AtomicBool) -> anyhow::Result<()> {
    while !over.load(Ordering::Relaxed) {
        Deadline::after(RUNNING).pause(RUNNING);
        kill(pid, Signal::SIGSTOP)?;
        Deadline::after(FROZEN).pause(FROZEN);
        kill(pid, Signal::SIGCONT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base::plan::Plan;
    use daq::settings::DaqSettings;
    use lab::file::Lab;

    use super::super::fixture::plan_text;
    use super::*;

    #[test]
    fn faults_are_labs_and_plans_that_can_be_read() {
        for fault in &FAULTS {
            let text = format!("name = \"bench-daq\"\nsubnet = \"10.78.0.0/16\"\n{}", fault.port.lab());
            Lab::read(&text).unwrap_or_else(|error| panic!("{}: {error}", fault.what));
            let read = |_: &str, settings| {
                DaqSettings::read(settings).and_then(|settings| {
                    serde_json::to_value(settings)
                        .map_err(|error| base::plan::PlanError::new(error.to_string()))
                })
            };
            Plan::from_toml(&plan_text(true, fault.settings), read)
                .unwrap_or_else(|error| panic!("{}: {error}", fault.what));
        }
    }
}
