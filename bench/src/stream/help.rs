//! How long `kagiri --help` takes.

use std::process::Command;
use std::time::Duration;

use super::{Fixture, Found, Settings};
use crate::record::Row;
use crate::tools;

const N: u32 = 50;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
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
    Ok(Found {
        compared: "From starting the process to having seen its end (known to about 1 ms), in turn with \
             /bin/true, which is what starting any process costs here."
            .into(),
        rows: vec![row.goal_ours("< 20 ms")],
        ..Found::default()
    })
}
