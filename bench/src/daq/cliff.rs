//! How many sources a small port takes at once, against what arithmetic says.

use anyhow::Context;
use daq::settings::Carrier;
use daq::theory;

use super::Settings;
use super::fixture::{Fixture, SHALLOW, Told, middle};
use crate::record::Row;
use crate::suite::Found;

const BYTES: u32 = 1024;
const RATE_BIT_PER_S: f64 = 200e6;
const BUFFER_BYTES: u64 = 64 << 10;
/// The share of ideal below which a port has broken down: stalls of 200 ms leave a few percent of it.
const BROKEN_PERCENT: f64 = 50.0;
/// Far enough below the cliff to tell the skew of sources that do not hinder one another.
const FEW: u32 = 24;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let push = |sources: u32| -> anyhow::Result<Told> {
        let text = format!(
            "sources = {sources}\nsize = '{BYTES}B'\nlink = '200Mbit/s'\nbuffer = '64KiB'\ntime = '{}s'",
            settings.seconds
        );
        fixture.run(Some(&lab), &text, settings.seconds.into(), &settings.pace)
    };
    let carries = |sources: u32| Ok(push(sources)?.metric("ideal_percent")? >= BROKEN_PERCENT);
    let frame = theory::fragment_wire_bytes(BYTES, Carrier::Tcp) as f64;
    let mut row = Row::new("sources at which it breaks down, measured and predicted", "");
    let mut found = Found::default();
    for _ in 0..settings.times() {
        let few = [push(FEW)?];
        let skew_us = middle(&few, "send_skew_p50_us").context("no skew was told")?;
        let predicted = theory::cliff_sources(BUFFER_BYTES, RATE_BIT_PER_S, skew_us / 1e6, frame);
        let predicted = predicted.context("nothing was predicted")?;
        row.pair(f64::from(least_broken(FEW, 4 * predicted as u32, carries)?), predicted);
        row.noise.push(few[0].noise);
        found.notes.push(format!("skew of {FEW} sources: {skew_us:.0} us, median; predicted {predicted:.1}"));
    }
    found.compared = format!(
        "How many sources of {BYTES} bytes can push at once through a port of 200 Mbit/s and 64 KiB before \
         less than {BROKEN_PERCENT} % of ideal is left, by halving, measured (ours) against (buffer + rate x \
         skew) / frame (peer), the skew taken from {FEW} sources."
    );
    found.rows = vec![row.goal_ratio("0.85 to 1.15")];
    Ok(found)
}

/// The least number that is not carried, between one that is and one that is not.
fn least_broken(
    mut good: u32,
    mut bad: u32,
    carries: impl Fn(u32) -> anyhow::Result<bool>,
) -> anyhow::Result<u32> {
    anyhow::ensure!(carries(good)?, "not even {good} sources are carried");
    anyhow::ensure!(!carries(bad)?, "{bad} sources are carried still");
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if carries(middle)? { good = middle } else { bad = middle }
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_least_that_breaks() {
        for cliff in [25, 60, 99, 200] {
            assert_eq!(least_broken(24, 200, |n| Ok(n < cliff)).unwrap(), cliff);
        }
        assert!(
            least_broken(24, 200, |_| Ok(true)).is_err() && least_broken(24, 200, |_| Ok(false)).is_err()
        );
    }
}
