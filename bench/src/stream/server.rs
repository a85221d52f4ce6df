//! The embedded server against nginx, as fast as one core can.

use std::time::Duration;

use mpegts::RateMode;

use super::fixture::{Fixture, Server};
use super::load_client::{Pull, pull};
use super::{Found, Settings};
use crate::noise::Noise;
use crate::record::Row;
use crate::suite::fill;

const CONNECTIONS: usize = 16;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let film = fixture.film(60, RateMode::Vbr)?;
    let one = |server: &mut Server| -> anyhow::Result<([f64; 3], Noise)> {
        let how = Pull {
            url: server.url(&film)?,
            connections: CONNECTIONS,
            warm: Duration::from_secs(1),
            hold: Duration::from_secs(settings.pace.full_or(4, 1)),
        };
        let pulled = pull(server, &how)?;
        let values = [pulled.bit_per_cpu_s / 1e9, pulled.bit_per_s / 1e9, pulled.client_cpu_percent];
        Ok((values, pulled.noise))
    };
    let rows = [
        Row::new("content per second of server CPU", "Gbit/s"),
        Row::new("content per second", "Gbit/s"),
        Row::new("client's core", "%"),
    ];
    let [per_core, wall, client] = fill(rows, settings.pairs, |is_ours| {
        settings.pace.await_quiet()?;
        fixture.with_server(is_ours, one)
    })?;
    let per_core = per_core.goal_ratio("ratio >= 0.9");
    Ok(Found {
        compared: format!(
            "`kagiri content serve` (ours) and nginx with sendfile and one worker (peer), each alone on core \
             0, serve the same 60 s film of 188 MB from memory over loopback to the same client on core 1: \
             {CONNECTIONS} connections that ask for it again and again and drop it in the kernel \
             (MSG_TRUNC). CPU by schedstat of all of the server's threads; the receiving side's softirq runs \
             partly on the server's core, so the figure is the cost of sending and part of receiving."
        ),
        rows: vec![per_core, wall, client],
        ..Found::default()
    })
}
