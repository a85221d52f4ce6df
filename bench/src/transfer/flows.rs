//! Ten thousand flows in one process.

use super::{Fixture, kagiri_peer};
use crate::record::Row;
use crate::suite::Found;

const FLOWS: u32 = 10_000;

/// A client and a server, a process each: both in one would need more open files than a limit of 20,000
/// allows.
pub(super) fn measure(fixture: &Fixture) -> anyhow::Result<Found> {
    let seconds = fixture.seconds;
    let (told, noise) =
        fixture.pace.measured(|| kagiri_peer::measure(fixture, &["--flows", &FLOWS.to_string()], seconds))?;
    let row =
        |what: &str, unit: &str, value: f64| Row { noise: vec![noise], ..Row::single(what, unit, value) };
    let least = row("slowest flow", "kbit/s", told.metric("flow_least_bit_per_s")? / 1e3);
    Ok(Found {
        compared: format!(
            "`kagiri transfer --flows {FLOWS}` and `kagiri transfer --serve`, a process each, over loopback: \
             all flows send flat out for {seconds} s."
        ),
        rows: vec![
            least.goal_each("> 0: every flow moved"),
            row("received", "Gbit/s", told.metric("goodput_bit_per_s")? / 1e9),
            row("CPU of both ends", "s/GB", told.metric("cpu_s_per_gb")?),
        ],
        ..Found::default()
    })
}
