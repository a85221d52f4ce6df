//! How far send times may be wrong.

use super::Settings;
use super::fixture::{Fixture, Port, SHALLOW, Told, row};
use crate::suite::Found;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(Port { rate: None, ..SHALLOW })?;
    let mut found = Found {
        compared: "8 groups of sources on hosts of a lab are asked for their time before, during and after \
                   the hold, with a trigger every 100 ms (idle) and with 875 sources flat out (loaded). All \
                   hosts have one true clock, so that an estimate that is off by more than its bound is \
                   known as such. There is no peer."
            .to_owned(),
        ..Found::default()
    };
    // Long enough for a slope: a drift shows after tens of seconds.
    let seconds = settings.pace.full_or(u64::from(settings.seconds) * 6, 2);
    for (what, settings_of) in
        [("idle", "sources = 8\ntriggers = '10/s'"), ("loaded", "sources = 875\ntriggers = 'max'")]
    {
        let text = format!("{settings_of}\nsize = '1KiB'\ntime = '{seconds}s'");
        let one = |_| fixture.run(Some(&lab), &text, seconds, &settings.pace);
        let told: Vec<Told> = (0..settings.times()).map(one).collect::<Result<_, _>>()?;
        let name = |of: &str| format!("{what}: {of}");
        let probes = row(&name("answers"), "", &told, "clock_probes", 1.0);
        found.rows.extend([
            row(&name("bound of the worst clock"), "us", &told, "clock_bound_us", 1.0).goal_ours("<= 20"),
            row(&name("estimates off by more than their bound"), "", &told, "clock_violations", 1.0)
                .goal_each("0, each"),
            probes,
        ]);
    }
    Ok(found)
}
