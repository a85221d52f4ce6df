//! Events through the port of a lab, most with a rate and a small buffer.

use anyhow::Context;
use base::statistics::median;
use daq::settings::Carrier;
use daq::theory;

use super::Settings;
use super::fixture::{Fixture, HOSTS, MeasuredTrial, Port, SHALLOW, middle, none, row};
use crate::fleet::fixture::Lab;
use crate::record::Row;
use crate::suite::Found;

const GIGABIT: Port = Port { rate: Some("1Gbit/s"), ..SHALLOW };

/// Several trials with the same settings.
fn runs(fixture: &Fixture, lab: &Lab, settings: &Settings, text: &str) -> anyhow::Result<Vec<MeasuredTrial>> {
    let text = format!("{text}\ntime = '{}s'", settings.seconds);
    let one = |_| fixture.run(Some(lab), &text, settings.seconds.into(), &settings.pace);
    (0..settings.times()).map(one).collect()
}

/// The rows of one pattern.
fn pattern_rows(name: &str, trials: &[MeasuredTrial]) -> [Row; 4] {
    let of = |what: &str| format!("{name}: {what}");
    [
        row(&of("of ideal"), "%", trials, "ideal_percent", 1.0),
        row(&of("completion, p99"), "ms", trials, "completion_p99_ms", 1.0),
        row(&of("events incomplete"), "", trials, "events_incomplete", 1.0),
        row(&of("segments sent again"), "", trials, "retransmits", 1.0),
    ]
}

fn where_(sources: u32, size: &str, port: &Port) -> String {
    format!(
        "{sources} sources of {size} on {HOSTS} hosts of a lab send to one builder, whose port carries {} \
         and holds {}",
        port.rate.unwrap_or("what it can"),
        port.buffer
    )
}

/// A small port, all at once and scheduled.
pub fn shallow(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let text = |pattern| {
        format!("sources = 80\nsize = '1KiB'\nlink = '200Mbit/s'\nbuffer = '64KiB'\npattern = '{pattern}'")
    };
    let push = pattern_rows("push", &runs(fixture, &lab, settings, &text("push"))?);
    let grant = pattern_rows("grant", &runs(fixture, &lab, settings, &text("grant"))?);
    let with_goal =
        |[ideal, rest @ ..]: [Row; 4], words: &str| std::iter::once(ideal.goal_ours(words)).chain(rest);
    let push = with_goal(push, "<= 10");
    let grant = with_goal(grant, ">= 90");
    Ok(Found::about(format!(
        "{}: all at once (push), and by multicast grants with a credit that is found by itself (grant). \
             Ideal is what the rate carries with all headers. There is no peer.",
        where_(80, "1 KiB", &SHALLOW)
    ))
    .with_rows(push.chain(grant)))
}

pub fn thousand(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(GIGABIT)?;
    let text = "sources = 1000\nsize = '1KiB'\nlink = '1Gbit/s'\nbuffer = '64KiB'\npattern = 'grant'";
    let trials = runs(fixture, &lab, settings, text)?;
    let [ideal, p99, incomplete, again] = pattern_rows("grant", &trials);
    Ok(Found::about(format!(
        "{}, by multicast grants with a credit that is found by itself. There is no peer.",
        where_(1000, "1 KiB", &GIGABIT)
    ))
    .with_rows([
        ideal.goal_ours(">= 90"),
        p99.goal_ours("<= 20"),
        incomplete.goal_each("0, each"),
        again.goal_each("0, each"),
        row("credit", "fragments", &trials, "credit", 1.0),
        row("builder's CPU for a fragment", "us", &trials, "builder_cpu_us_per_fragment", 1.0),
    ]))
}

pub fn large(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let text = |pattern| {
        format!(
            "sources = 40\nsize = '32KiB'\nwindow = 2\nlink = '200Mbit/s'\nbuffer = '64KiB'\npattern = \
             '{pattern}'"
        )
    };
    let [ideal, rest @ ..] = pattern_rows("pull", &runs(fixture, &lab, settings, &text("pull"))?);
    let push = pattern_rows("push", &runs(fixture, &lab, settings, &text("push"))?);
    let ideal = ideal.goal_ours(">= 98");
    Ok(Found::about(format!(
        "{}, two events under way: asked one by one with a credit that is found by itself (pull), and \
             all at once (push). There is no peer.",
        where_(40, "32 KiB", &SHALLOW)
    ))
    .with_rows(std::iter::once(ideal).chain(rest).chain(push)))
}

/// Triggers at random moments.
pub fn poisson(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(GIGABIT)?;
    let text = |pattern| {
        format!(
            "sources = 1000\nsize = '1KiB'\nwindow = 8\nlink = '1Gbit/s'\nbuffer = '64KiB'\ntriggers = \
             'poisson 60/s'\n\
             pattern = '{pattern}'"
        )
    };
    let mut found = Found::about(format!(
        "{}, at 60 triggers a second at random moments, of which eight events may be under way; what \
             comes on top is dead time. There is no peer.",
        where_(1000, "1 KiB", &GIGABIT)
    ));
    for pattern in ["grant", "push"] {
        let trials = runs(fixture, &lab, settings, &text(pattern))?;
        let dead = row(&format!("{pattern}: dead time"), "%", &trials, "dead_time_percent", 1.0);
        let dead = if pattern == "grant" { dead.goal_ours("<= 2") } else { dead };
        found.rows.push(dead);
        found.rows.push(row(&format!("{pattern}: completion, p99"), "ms", &trials, "completion_p99_ms", 1.0));
    }
    Ok(found)
}

/// Ten thousand sources: on a host that is linked to the builder's directly, and on eight behind a switch.
pub fn many(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    const SOURCES: u32 = 10_000;
    let of = |hosts| -> anyhow::Result<Vec<MeasuredTrial>> {
        let lab = fixture.lab(Port { rate: None, hosts, ..SHALLOW })?;
        let text =
            format!("sources = {SOURCES}\nsize = '1KiB'\npattern = 'push'\nwindow = 3\ntimeout = '5s'");
        runs(fixture, &lab, settings, &text)
    };
    let (direct, switched) = (of(1)?, of(HOSTS)?);
    let held = |name: &str, trials: &[MeasuredTrial]| {
        let of = |what: &str| format!("{name}: {what}");
        let memory = row(&of("memory of a source"), "KB", trials, "source_memory_bytes_each", 1e-3);
        vec![
            row(&of("connected in"), "s", trials, "connect_s", 1.0).goal_ours("<= 1"),
            memory.goal_ours("<= 20"),
            row(&of("completion, p99"), "ms", trials, "completion_p99_ms", 1.0),
            none(&of("events incomplete"), trials, "events_incomplete"),
            none(&of("fragments lost"), trials, "fragments_lost"),
        ]
    };
    let events = |name: &str, trials| row(&format!("{name}: events"), "1/s", trials, "events_per_s", 1.0);
    let mut rows = vec![events("direct", &direct).goal_ours(">= 14")];
    rows.extend(held("direct", &direct));
    rows.push(events("switch", &switched));
    rows.extend(held("switch", &switched));
    Ok(Found::about(format!(
        "{SOURCES} sources of 1 KiB push to one builder over unshaped links of a lab, three events under \
             way: on one host that is linked to the builder's directly, and on {HOSTS} hosts behind a \
             switch, each with an agent, all on the CPUs of this machine. There is no peer."
    ))
    .with_rows(rows))
}

const BYTES: u32 = 1024;
const RATE_BIT_PER_S: f64 = 200e6;
const BUFFER_BYTES: u64 = 64 << 10;
/// The share of ideal below which a port has broken down: stalls of 200 ms leave a few percent of it.
const BROKEN_PERCENT: f64 = 50.0;
/// Far enough below the cliff to measure the skew of sources that do not hinder each other.
const FEW: u32 = 24;

pub fn cliff(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let push = |sources: u32| -> anyhow::Result<MeasuredTrial> {
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
        let skew_us = middle(&few, "send_skew_p50_us").context("no skew was reported")?;
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

pub fn clocks(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(Port { rate: None, ..SHALLOW })?;
    let mut found = Found::about(
        "8 groups of sources on hosts of a lab are asked for their time before, during and after \
                   the hold, with a trigger every 100 ms (idle) and with 875 sources flat out (loaded). All \
                   hosts have one true clock, so that an estimate that is off by more than its bound is \
                   known as such. There is no peer.",
    );
    // Long enough for a slope: a drift shows after tens of seconds.
    let seconds = settings.pace.full_or(u64::from(settings.seconds) * 6, 2);
    for (what, settings_of) in
        [("idle", "sources = 8\ntriggers = '10/s'"), ("loaded", "sources = 875\ntriggers = 'max'")]
    {
        let text = format!("{settings_of}\nsize = '1KiB'\ntime = '{seconds}s'");
        let one = |_| fixture.run(Some(&lab), &text, seconds, &settings.pace);
        let trials: Vec<MeasuredTrial> = (0..settings.times()).map(one).collect::<Result<_, _>>()?;
        let name = |of: &str| format!("{what}: {of}");
        let probes = row(&name("answers"), "", &trials, "clock_probes", 1.0);
        found.rows.extend([
            row(&name("bound of the worst clock"), "us", &trials, "clock_bound_us", 1.0).goal_ours("<= 20"),
            row(&name("estimates off by more than their bound"), "", &trials, "clock_violations", 1.0)
                .goal_each("0, each"),
            probes,
        ]);
    }
    Ok(found)
}

const FIXED: [u32; 7] = [8, 16, 24, 32, 40, 48, 56];

pub fn credit(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let events_per_s = |credit: Option<u32>| -> anyhow::Result<(f64, Option<f64>)> {
        let credit = credit.map(|credit| format!("credit = {credit}\n")).unwrap_or_default();
        let text = format!(
            "sources = 80\nsize = '1KiB'\nlink = '200Mbit/s'\npattern = 'grant'\n{credit}time = '{}s'",
            settings.seconds
        );
        let trial = fixture.run(Some(&lab), &text, settings.seconds.into(), &settings.pace)?;
        Ok((trial.metric("events_per_s")?, trial.known("credit")))
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
    let rates: Vec<String> = FIXED.into_iter().zip(&medians).map(of).collect();
    Ok(Found::about(
        "80 sources of 1 KiB through a port of 200 Mbit/s and 64 KiB, by multicast grants: the \
                   credit found by itself (ours) against the best median of fixed credits (peer).",
    )
    .with_rows([rate.goal_ratio("ratio >= 0.95"), credits])
    .with_notes(vec![format!("events/s by fixed credit, medians: {}", rates.join(", "))]))
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
