//! What a paced stream costs: the embedded server against nginx.

use anyhow::Context;
use base::verdict::Verdict;
use mpegts::RateMode;
use stream::settings::Depth;

use super::fixture::Fixture;
use super::play::{Play, Played, play};
use super::{Found, Settings};
use crate::record::Row;
use crate::suite;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
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
    Ok(Found {
        compared: "CPU of `kagiri content serve` (ours) and of nginx (peer) on core 0 while virtual players \
             on core 1 play 25 Mbit/s VBR from memory, each from its own place in a 60 s film. Over loopback \
             part of the receiving side's work is charged to the server: an upper bound."
            .into(),
        rows,
        notes,
        ..Found::default()
    })
}
