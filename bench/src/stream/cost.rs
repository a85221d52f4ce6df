//! What kagiri itself costs: its sampler, and starting it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use base::part::{Endpoints, Watch};
use mpegts::RateMode;
use observe::sampler::Sampler;
use stream::settings::Depth;
use sys::clock::monotonic_ns;
use workload::part::{Part, Peers};

use super::fixture::{Kind, Server};
use super::play::{Play, play};
use super::{Fixture, Found, Settings};
use crate::noise::Meter;
use crate::record::Row;
use crate::tools;

const STREAMS: u64 = 400;

pub fn sampler(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let film = fixture.film(60, RateMode::Vbr)?;
    let streams = settings.pace.full_or(STREAMS, 20);
    let mut idle = Row::new("10 samples a second, server idle", "% of a core");
    let mut busy = Row::new(format!("10 samples a second, {streams} streams playing"), "% of a core");
    let mut notes = Vec::new();
    for _ in 0..settings.pairs {
        settings.pace.await_quiet()?;
        let mut server = fixture.serve(Kind::Nginx)?;
        let meter = Meter::start(server.cpu_ns())?;
        let sampler = begin(fixture, &server, &film)?;
        std::thread::sleep(Duration::from_secs(settings.pace.full_or(5, 2)));
        let (cost, what) = end(sampler)?;
        idle.ours.push(cost);
        idle.noise.push(meter.finish(server.cpu_ns())?);
        let sampler = begin(fixture, &server, &film)?;
        let wanted = Play {
            film: film.clone(),
            streams,
            depth: Depth::Discard,
            hold_s: settings.pace.full_or(5, 1),
            warm_up_s: Some(1),
            parsing: 1,
        };
        let played = play(fixture, &mut server, &wanted);
        let (cost, _) = end(sampler)?;
        server.stop();
        busy.noise.push(played?.noise);
        busy.ours.push(cost);
        notes = vec![what];
    }
    Ok(Found::about(
        "CPU time of the sampler's thread (its own clock) while it watches nginx, the disk of the \
             content and the loopback device, ten times a second.",
    )
    .with_rows([idle.goal_ours("<= 0.5 %"), busy.goal_ours("<= 0.5 %")])
    .with_notes(notes))
}

fn begin(fixture: &Fixture, server: &Server, film: &Path) -> anyhow::Result<Sampler> {
    let disk = sys::proc::block_device_of_path(Path::new("/"), film)?;
    let watch = Watch {
        pids: vec![server.pid()],
        block_device: disk.map(|disk| disk.numbers()),
        network_device: Some("lo".into()),
        ..Watch::default()
    };
    let mut sampler = Sampler::new(watch)?;
    sampler.prepare(&Peers::new(&Endpoints::new()), &fixture.host())?;
    sampler.start(monotonic_ns() + 20_000_000)?;
    Ok(sampler)
}

/// Its cost in % of a core, and what it sampled.
fn end(mut sampler: Sampler) -> anyhow::Result<(f64, String)> {
    let report = sampler.stop()?;
    let cost = report.cost_cpu_percent.context("the sampler does not know its cost")?;
    ensure!(report.samples > 0, "the sampler took no sample");
    let (series, late) = (report.series.len(), report.late_ms_max);
    Ok((cost, format!("{series} series; in the last run at most {late:.2} ms late")))
}

const N: u32 = 50;

pub fn help(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let within = Duration::from_secs(10);
    let mut row = Row::new("kagiri --help, warm, against /bin/true", "ms");
    tools::run(Command::new(&fixture.kagiri).arg("--help"), within, &[0])?;
    let ((), noise) = settings.pace.measured(|| {
        for _ in 0..settings.pace.full_or(N, 5) {
            let ours = tools::run(Command::new(&fixture.kagiri).arg("--help"), within, &[0])?.took_s;
            let peer = tools::run(&mut Command::new("true"), within, &[0])?.took_s;
            row.pair(ours * 1000.0, peer * 1000.0);
        }
        Ok(())
    })?;
    row.noise.push(noise);
    Ok(Found::about(
        "From starting the process to having seen its end (known to about 1 ms), in turn with \
             /bin/true, which is what starting any process costs here.",
    )
    .with_rows([row.goal_ours("< 20 ms")]))
}
