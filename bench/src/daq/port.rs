//! Events through a port with a rate and a small buffer.

use super::Settings;
use super::fixture::{Fixture, HOSTS, Port, SHALLOW, Told, none, row};
use crate::fleet::fixture::Lab;
use crate::record::Row;
use crate::suite::Found;

const GIGABIT: Port = Port { rate: Some("1Gbit/s"), ..SHALLOW };

/// Several trials with the same settings.
fn runs(fixture: &Fixture, lab: &Lab, settings: &Settings, text: &str) -> anyhow::Result<Vec<Told>> {
    let text = format!("{text}\ntime = '{}s'", settings.seconds);
    let one = |_| fixture.run(Some(lab), &text, settings.seconds.into(), &settings.pace);
    (0..settings.times()).map(one).collect()
}

/// What is told of a way of asking for fragments.
fn told_of(name: &str, told: &[Told]) -> [Row; 4] {
    let of = |what: &str| format!("{name}: {what}");
    [
        row(&of("of ideal"), "%", told, "ideal_percent", 1.0),
        row(&of("completion, p99"), "ms", told, "completion_p99_ms", 1.0),
        row(&of("events incomplete"), "", told, "events_incomplete", 1.0),
        row(&of("segments sent again"), "", told, "retransmits", 1.0),
    ]
}

fn where_(sources: u32, size: &str, port: &Port) -> String {
    format!(
        "{sources} sources of {size} on {HOSTS} hosts of a lab send to one builder, whose port carries {} \
         and holds {}",
        port.rate.unwrap_or("what it can"),
        port.buffer
    )
}

/// A small port, all at once and scheduled.
pub fn shallow(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let text = |pattern| {
        format!("sources = 80\nsize = '1KiB'\nlink = '200Mbit/s'\nbuffer = '64KiB'\npattern = '{pattern}'")
    };
    let push = told_of("push", &runs(fixture, &lab, settings, &text("push"))?);
    let grant = told_of("grant", &runs(fixture, &lab, settings, &text("grant"))?);
    let with_goal =
        |[ideal, rest @ ..]: [Row; 4], words: &str| std::iter::once(ideal.goal_ours(words)).chain(rest);
    let push = with_goal(push, "<= 10");
    let grant = with_goal(grant, ">= 90");
    Ok(Found {
        compared: format!(
            "{}: all at once (push), and by multicast grants with a credit that is found by itself (grant). \
             Ideal is what the rate carries with all headers. There is no peer.",
            where_(80, "1 KiB", &SHALLOW)
        ),
        rows: push.chain(grant).collect(),
        ..Found::default()
    })
}

pub fn thousand(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(GIGABIT)?;
    let text = "sources = 1000\nsize = '1KiB'\nlink = '1Gbit/s'\nbuffer = '64KiB'\npattern = 'grant'";
    let told = runs(fixture, &lab, settings, text)?;
    let [ideal, p99, incomplete, again] = told_of("grant", &told);
    Ok(Found {
        compared: format!(
            "{}, by multicast grants with a credit that is found by itself. There is no peer.",
            where_(1000, "1 KiB", &GIGABIT)
        ),
        rows: vec![
            ideal.goal_ours(">= 90"),
            p99.goal_ours("<= 20"),
            incomplete.goal_each("0, each"),
            again.goal_each("0, each"),
            row("credit", "fragments", &told, "credit", 1.0),
            row("builder's CPU for a fragment", "us", &told, "builder_cpu_us_per_fragment", 1.0),
        ],
        ..Found::default()
    })
}

pub fn large(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let text = |pattern| {
        format!(
            "sources = 40\nsize = '32KiB'\nwindow = 2\nlink = '200Mbit/s'\nbuffer = '64KiB'\npattern = \
             '{pattern}'"
        )
    };
    let [ideal, rest @ ..] = told_of("pull", &runs(fixture, &lab, settings, &text("pull"))?);
    let push = told_of("push", &runs(fixture, &lab, settings, &text("push"))?);
    let ideal = ideal.goal_ours(">= 98");
    Ok(Found {
        compared: format!(
            "{}, two events under way: asked one by one with a credit that is found by itself (pull), and \
             all at once (push). There is no peer.",
            where_(40, "32 KiB", &SHALLOW)
        ),
        rows: std::iter::once(ideal).chain(rest).chain(push).collect(),
        ..Found::default()
    })
}

/// Triggers at random moments.
pub fn poisson(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(GIGABIT)?;
    let text = |pattern| {
        format!(
            "sources = 1000\nsize = '1KiB'\nwindow = 8\nlink = '1Gbit/s'\nbuffer = '64KiB'\ntriggers = \
             'poisson 60/s'\n\
             pattern = '{pattern}'"
        )
    };
    let mut found = Found {
        compared: format!(
            "{}, at 60 triggers a second at random moments, of which eight events may be under way; what \
             comes on top is dead time. There is no peer.",
            where_(1000, "1 KiB", &GIGABIT)
        ),
        ..Found::default()
    };
    for pattern in ["grant", "push"] {
        let told = runs(fixture, &lab, settings, &text(pattern))?;
        let dead = row(&format!("{pattern}: dead time"), "%", &told, "dead_time_percent", 1.0);
        let dead = if pattern == "grant" { dead.goal_ours("<= 2") } else { dead };
        found.rows.push(dead);
        found.rows.push(row(&format!("{pattern}: completion, p99"), "ms", &told, "completion_p99_ms", 1.0));
    }
    Ok(found)
}

/// Ten thousand sources: on a host that is linked to the builder's directly, and on eight behind a switch.
pub fn many(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    const SOURCES: u32 = 10_000;
    let of = |hosts| -> anyhow::Result<Vec<Told>> {
        let lab = fixture.lab(Port { rate: None, hosts, ..SHALLOW })?;
        let text =
            format!("sources = {SOURCES}\nsize = '1KiB'\npattern = 'push'\nwindow = 3\ntimeout = '5s'");
        runs(fixture, &lab, settings, &text)
    };
    let (direct, switched) = (of(1)?, of(HOSTS)?);
    let held = |name: &str, told: &[Told]| {
        let of = |what: &str| format!("{name}: {what}");
        let memory = row(&of("memory of a source"), "KB", told, "source_memory_bytes_each", 1e-3);
        vec![
            row(&of("connected in"), "s", told, "connect_s", 1.0).goal_ours("<= 1"),
            memory.goal_ours("<= 20"),
            row(&of("completion, p99"), "ms", told, "completion_p99_ms", 1.0),
            none(&of("events incomplete"), told, "events_incomplete"),
            none(&of("fragments lost"), told, "fragments_lost"),
        ]
    };
    let events = |name: &str, told| row(&format!("{name}: events"), "1/s", told, "events_per_s", 1.0);
    let mut rows = vec![events("direct", &direct).goal_ours(">= 14")];
    rows.extend(held("direct", &direct));
    rows.push(events("switch", &switched));
    rows.extend(held("switch", &switched));
    Ok(Found {
        compared: format!(
            "{SOURCES} sources of 1 KiB push to one builder over unshaped links of a lab, three events under \
             way: on one host that is linked to the builder's directly, and on {HOSTS} hosts behind a \
             switch, each with an agent, all on the CPUs of this machine. There is no peer."
        ),
        rows,
        ..Found::default()
    })
}
