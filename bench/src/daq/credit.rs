//! The credit that is found by itself, against the best of fixed ones.

use anyhow::Context;
use base::statistics::median;

use super::Settings;
use super::fixture::{Fixture, SHALLOW};
use crate::record::Row;
use crate::suite::Found;

const FIXED: [u32; 7] = [8, 16, 24, 32, 40, 48, 56];

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let events_per_s = |credit: Option<u32>| -> anyhow::Result<(f64, Option<f64>)> {
        let credit = credit.map(|credit| format!("credit = {credit}\n")).unwrap_or_default();
        let text = format!(
            "sources = 80\nsize = '1KiB'\nlink = '200Mbit/s'\npattern = 'grant'\n{credit}time = '{}s'",
            settings.seconds
        );
        let told = fixture.run(Some(&lab), &text, settings.seconds.into(), &settings.pace)?;
        Ok((told.metric("events_per_s")?, told.known("credit")))
    };
    let (mut fixed, mut found_by_itself) = (vec![Vec::new(); FIXED.len()], Vec::new());
    let mut credits = Row::new("credit found", "fragments");
    for _ in 0..settings.times() {
        // Interleaved, so that a drift of the machine hits all alike.
        for (credit, values) in FIXED.into_iter().zip(&mut fixed) {
            values.push(events_per_s(Some(credit))?.0);
        }
        let (rate, credit) = events_per_s(None)?;
        found_by_itself.push(rate);
        credits.ours.extend(credit);
    }
    let medians: Vec<f64> = fixed.iter().filter_map(|values| median(values)).collect();
    let best = medians.iter().copied().max_by(f64::total_cmp).context("nothing was measured")?;
    let mut rate = Row::new("events, credit found by itself and best fixed one", "1/s");
    found_by_itself.iter().for_each(|&ours| rate.pair(ours, best));
    let of = |(credit, rate): (u32, &f64)| format!("{credit}: {rate:.1}");
    let told: Vec<String> = FIXED.into_iter().zip(&medians).map(of).collect();
    Ok(Found {
        compared: "80 sources of 1 KiB through a port of 200 Mbit/s and 64 KiB, by multicast grants: the \
                   credit found by itself (ours) against the best median of fixed credits (peer)."
            .to_owned(),
        rows: vec![rate.goal_ratio("ratio >= 0.95"), credits],
        notes: vec![format!("events/s by fixed credit, medians: {}", told.join(", "))],
        ..Found::default()
    })
}
