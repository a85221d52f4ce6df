//! The embedded server against nginx, as fast as one core can.

use std::time::Duration;

use mpegts::RateMode;

use super::fixture::{Fixture, Kind};
use super::load_client::{Pull, Pulled, pull};
use super::{Found, Settings};
use crate::record::Row;

const CONNECTIONS: usize = 16;

/// Measures.
pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let film = fixture.film(60, RateMode::Vbr)?;
    let one = |kind: Kind| -> anyhow::Result<Pulled> {
        settings.pace.await_quiet()?;
        let mut server = fixture.serve(kind)?;
        let how = Pull {
            url: server.url(&film)?,
            connections: CONNECTIONS,
            warm: Duration::from_secs(1),
            hold: Duration::from_secs(settings.pace.full_or(4, 1)),
        };
        let pulled = pull(&mut server, &how);
        server.stop();
        pulled
    };
    let mut per_core = Row::new("content per second of server CPU", "Gbit/s");
    let mut wall = Row::new("content per second", "Gbit/s");
    let mut client = Row::new("client's core", "%");
    for pair in 0..settings.pairs {
        let (ours, peer) = super::fixture::abba(pair, one)?;
        per_core.pair(ours.bit_per_cpu_s / 1e9, peer.bit_per_cpu_s / 1e9);
        wall.pair(ours.bit_per_s / 1e9, peer.bit_per_s / 1e9);
        client.pair(ours.client_cpu_percent, peer.client_cpu_percent);
        for row in [&mut per_core, &mut wall, &mut client] {
            row.noise.extend([ours.noise, peer.noise]);
        }
    }
    let per_core = per_core.goal_ratio("ratio >= 0.9", |ratio| ratio >= 0.9);
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
