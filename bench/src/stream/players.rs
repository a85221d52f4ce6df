//! How many virtual players one core carries, and what a paced stream costs the server.

use anyhow::Context;
use base::verdict::Verdict;
use mpegts::RateMode;
use stream::settings::Depth;

use super::fixture::Fixture;
use super::play::{Play, Played, play};
use super::{Found, Settings};
use crate::record::Row;
use crate::suite;

/// A player reads at most this late.
const LATE_MS_MAX: f64 = 500.0;
/// Depth, what must be carried, and the loads to go on with.
const DEPTHS: [(&str, Depth, u64, &[u64]); 3] = [
    ("discard", Depth::Discard, 1500, &[1800, 2100, 2400, 2800, 3200]),
    ("copy", Depth::Copy, 800, &[900, 1000, 1200, 1400, 1600]),
    ("parse", Depth::Parse, 600, &[700, 800, 900, 1000, 1200]),
];
/// How often the load that must be carried is tried.
const TRIES: u32 = 3;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let film = fixture.film(60, RateMode::Vbr)?;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (name, depth, goal, above) in DEPTHS {
        let mut one = |streams: u64| -> anyhow::Result<Played> {
            settings.pace.await_quiet()?;
            let hold_s = settings.pace.full_or(10, 1);
            let wanted = Play { film: film.clone(), streams, depth, hold_s, warm_up_s: None, parsing: 1 };
            let played = fixture.with_server(false, |server| play(fixture, server, &wanted))?;
            notes.push(describe(name, streams, &played));
            eprintln!("  {}", notes.last().map_or("", String::as_str));
            Ok(played)
        };
        let goal = settings.pace.full_or(goal, 20);
        let mut most = Row::new(format!("{name}: streams without a stall, at most"), "streams");
        let mut late = Row::new(format!("{name}: latest read at {goal} streams"), "ms");
        let mut cpu = Row::new(format!("{name}: players' core at {goal} streams"), "%");
        let mut carried = 0;
        for _ in 0..settings.pace.full_or(TRIES, 1) {
            let played = one(goal)?;
            carried += u32::from(is_carried(&played));
            late.ours.extend(played.metric("tick_late_max_ms"));
            cpu.ours.extend(played.metric("player_cpu_percent"));
            late.noise.push(played.noise);
            most.noise.push(played.noise);
        }
        let mut reached = if carried > 0 { goal } else { 0 };
        for &streams in above.iter().take(settings.pace.full_or(above.len(), 1)) {
            let streams = settings.pace.full_or(streams, 30);
            let played = one(streams)?;
            if !is_carried(&played) {
                break;
            }
            reached = reached.max(streams);
        }
        most.ours.push(reached as f64);
        let tries = settings.pace.full_or(TRIES, 1);
        let most = most.note(format!("{carried} of {tries} trials at {goal} streams went without a stall"));
        rows.push(most.goal_ours(&format!(">= {goal}")));
        rows.push(late.goal_each("<= 500 ms, each"));
        rows.push(cpu);
    }
    Ok(Found::about(
        "Virtual players on core 1 (one thread) play 25 Mbit/s VBR from nginx on core 0, each from \
             its own place in a 60 s film in memory; 10 s hold after start-up and two full buffers. \
             `discard` drops the bytes in the kernel and counts them against the index, `copy` copies them \
             to user memory, `parse` checks every packet. Carried means: no stall, no broken stream, no read \
             later than 500 ms. No peer paces a body by frames; the prototypes before this program, in C, \
             had been shown with 1600 (discard), 800 (copy) and 400 (parse) streams.",
    )
    .with_rows(rows)
    .with_notes(notes))
}

fn is_carried(played: &Played) -> bool {
    let zero = |name: &str| played.metric(name) == Some(0.0);
    let in_time = played.metric("tick_late_max_ms").is_some_and(|ms| ms <= LATE_MS_MAX);
    zero("stalls") && zero("streams_broken") && in_time
}

fn describe(depth: &str, streams: u64, played: &Played) -> String {
    let metric = |name: &str| played.metric(name).map_or("?".to_owned(), crate::render::number);
    let why = match played.judgement.verdict {
        Verdict::Pass => String::new(),
        _ => format!(" ({})", played.judgement.reasons.first().map_or("", String::as_str)),
    };
    format!(
        "{depth} {streams}: {}{why}; stalls {}, latest read {} ms, players' core {} %, server {} %, least \
         slack {} s, others {:.0} %",
        played.judgement.verdict,
        metric("stalls"),
        metric("tick_late_max_ms"),
        metric("player_cpu_percent"),
        played.server_cpu_percent.map_or("?".to_owned(), crate::render::number),
        metric("slack_min_s"),
        played.noise.other_cpu_percent,
    )
}

pub fn paced(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let film = fixture.film(60, RateMode::Vbr)?;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for streams in settings.pace.full_or([100, 400], [10, 20]) {
        let mut row = Row::new(format!("server CPU per stream, {streams} streams"), "% of a core");
        for pair in 0..settings.pairs {
            let one = |is_ours| -> anyhow::Result<Played> {
                settings.pace.await_quiet()?;
                let wanted = Play {
                    film: film.clone(),
                    streams,
                    depth: Depth::Discard,
                    hold_s: settings.pace.full_or(6, 1),
                    warm_up_s: Some(3),
                    parsing: 1,
                };
                fixture.with_server(is_ours, |server| play(fixture, server, &wanted))
            };
            let (ours, peer) = suite::pair(pair, one)?;
            let per_stream = |played: &Played| {
                let percent = played.server_cpu_percent.context("the server's CPU time is not known")?;
                anyhow::Ok(percent / streams as f64)
            };
            row.pair(per_stream(&ours)?, per_stream(&peer)?);
            row.noise.extend([ours.noise, peer.noise]);
            for (name, played) in [("ours", &ours), ("nginx", &peer)] {
                if played.judgement.verdict != Verdict::Pass {
                    let reasons = played.judgement.reasons.join("; ");
                    let verdict = played.judgement.verdict;
                    notes
                        .push(format!("{streams} streams, pair {}, {name}: {verdict} ({reasons})", pair + 1));
                }
            }
        }
        rows.push(row.goal_ours("<= 0.03 %"));
    }
    Ok(Found::about(
        "CPU of `kagiri content serve` (ours) and of nginx (peer) on core 0 while virtual players \
             on core 1 play 25 Mbit/s VBR from memory, each from its own place in a 60 s film. Over loopback \
             part of the receiving side's work is charged to the server: an upper bound.",
    )
    .with_rows(rows)
    .with_notes(notes))
}
