//! A thousand sources in one process, over loopback.

use std::collections::BTreeMap;

use base::statistics::median;

use super::fixture::{Fixture, MeasuredTrial, none, row};
use super::{Settings, peers};
use crate::record::Row;
use crate::suite::{self, Found};

const SOURCES: u32 = 1000;
const BYTES: u32 = 1024;
/// Events under way at once: one is being built while another's fragments are on their way.
const WINDOW: u32 = 4;

fn flat_out(end: &str) -> String {
    format!("sources = {SOURCES}\nsize = '{BYTES}B'\ntriggers = 'max'\nwindow = {WINDOW}\n{end}")
}

/// How many events, at which cost.
pub fn rate(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let Settings { seconds, pace, .. } = settings;
    let end = flat_out(&format!("time = '{seconds}s'"));
    let mut fragments = Row::new("fragments, against neper's answers", "1/s");
    let mut trials: Vec<MeasuredTrial> = Vec::new();
    for number in 0..settings.times() {
        let (ours, theirs) = suite::pair(number, |is_ours| {
            if is_ours {
                let ours = fixture.run(None, &end, (*seconds).into(), pace)?;
                fragments.noise.push(ours.noise);
                let per_s = ours.metric("events_per_s")? * f64::from(SOURCES);
                trials.push(ours);
                return Ok(Some(per_s));
            }
            let Some(program) = &settings.neper else { return Ok(None) };
            pace.await_quiet()?;
            peers::answers_per_s(program, fixture.dir(), SOURCES, BYTES, *seconds).map(Some)
        })?;
        match (ours, theirs) {
            (Some(ours), Some(theirs)) => fragments.pair(ours, theirs),
            (ours, _) => fragments.ours.extend(ours),
        }
    }
    let rows = vec![
        row("events", "1/s", &trials, "events_per_s", 1.0).goal_ours(">= 200"),
        fragments.goal_ratio("ratio >= 1.5"),
        row("builder's CPU for a fragment", "us", &trials, "builder_cpu_us_per_fragment", 1.0)
            .goal_ours("<= 3"),
        row("sources' CPU for a fragment", "us", &trials, "source_cpu_us_per_fragment", 1.0),
        row("goodput", "Gbit/s", &trials, "goodput_bit_per_s", 1e-9),
        row("completion, p99", "ms", &trials, "completion_p99_ms", 1.0),
        none("fragments lost", &trials, "fragments_lost"),
    ];
    let versions = match &settings.neper {
        Some(_) => BTreeMap::from([("neper".to_owned(), "tcp_rr of its main branch".to_owned())]),
        None => BTreeMap::new(),
    };
    Ok(Found {
        compared: format!(
            "{SOURCES} sources push {BYTES} bytes each to one builder over loopback as fast as {WINDOW} \
             events under way allow, in one process, for {seconds} s. The peer is neper's tcp_rr with \
             {SOURCES} flows, in two processes of a thread each: a byte asks, {BYTES} bytes answer; a flow \
             waits for no other flow, but for the answer before it asks again, where our sources send for \
             two events in one write if both are due. With more threads the peer answers less."
        ),
        rows,
        versions,
        ..Found::default()
    })
}

/// None of very many fragments may be lost, and no more memory be taken than the events under way need.
pub fn long(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let events = settings.thousand_fragments * 1000 / u64::from(SOURCES);
    // A hundred events a second are half of what is expected.
    let within_s = events / 100 + 60;
    let end = flat_out(&format!("events = {events}\ntime = '{within_s}s'"));
    let trials = [fixture.run(None, &end, within_s, &settings.pace)?];
    let most_bytes = f64::from(WINDOW) * f64::from(SOURCES) * f64::from(BYTES);
    let rows = vec![
        row("fragments sent", "", &trials, "fragments_sent", 1.0),
        none("lost", &trials, "fragments_lost"),
        none("received, but never sent", &trials, "fragments_unexplained"),
        none("duplicate", &trials, "fragments_duplicate"),
        none("late", &trials, "fragments_late"),
        none("refused", &trials, "fragments_refused"),
        none("events incomplete", &trials, "events_incomplete"),
        row("events", "1/s", &trials, "events_per_s", 1.0),
        row("memory of fragments, at most", "KiB", &trials, "builder_memory_bytes_max", 1.0 / 1024.0)
            .goal_each(&format!("<= {:.0} KiB: {WINDOW} events", most_bytes / 1024.0)),
    ];
    Ok(Found::about(format!(
        "{SOURCES} sources push {BYTES} bytes each to one builder over loopback, {events} events, every \
             payload with a checksum. There is no peer."
    ))
    .with_rows(rows))
}

/// Orders that get lost lose no event.
pub fn dropped(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    const PERCENT: u32 = 1;
    const FEW: u32 = 100;
    let Settings { seconds, pace, .. } = settings;
    let mut found = Found::about(format!(
        "{FEW} sources of {BYTES} bytes over loopback; each group of sources overhears {PERCENT} % of \
             the orders, by chance, for {seconds} s. Recovery counts from the trigger to the arrival of a \
             fragment whose order came by repetition, or by a later one. There is no peer."
    ));
    for (what, triggers) in [("flat out", "max"), ("100 triggers/s", "100/s")] {
        for pattern in ["push", "grant"] {
            let credit = if pattern == "grant" { "credit = 50\n" } else { "" };
            let trials: Vec<MeasuredTrial> = (0..settings.times())
                .map(|_| {
                    let text = format!(
                        "sources = {FEW}\nsize = '{BYTES}B'\ntriggers = '{triggers}'\npattern = \
                         '{pattern}'\n{credit}drop_orders_percent = {PERCENT}\nwindow = {WINDOW}\ntime = \
                         '{seconds}s'"
                    );
                    fixture.run(None, &text, (*seconds).into(), pace)
                })
                .collect::<Result<_, _>>()?;
            let name = |of: &str| format!("{pattern}, {what}: {of}");
            found.rows.extend([
                row(&name("orders dropped"), "", &trials, "orders_dropped", 1.0),
                none(&name("events incomplete"), &trials, "events_incomplete"),
                none(&name("fragments lost"), &trials, "fragments_lost"),
                row(&name("recovery, p99"), "ms", &trials, "recovery_p99_ms", 1.0).goal_ours("<= 10"),
            ]);
            let events =
                median(&trials.iter().filter_map(|trial| trial.known("events_complete")).collect::<Vec<_>>());
            found.notes.push(format!("{pattern}, {what}: {} events, median", events.unwrap_or(0.0)));
        }
    }
    Ok(found)
}
