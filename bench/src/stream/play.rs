//! Virtual players on a core of their own, as a run has them, and the server's CPU time meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use base::part::{Endpoints, Progress};
use base::units::Span;
use base::workload::Judgement;
use stream::judge::{Players, judge};
use stream::settings::Depth;
use stream::viewer::part::Viewers;
use stream::viewer::part_settings::ViewerSettings;
use sys::clock::{Deadline, monotonic_ns};
use workload::part::{Part, Peers};

use super::fixture::{Fixture, PLAYER_CPU, Server};
use crate::noise::{Meter, Noise};

/// How often the server's CPU time is read.
const LOOK: Duration = Duration::from_millis(50);
/// From now to the start of the players.
const LEAD_NS: u64 = 50_000_000;

pub struct Play {
    pub film: PathBuf,
    pub streams: u64,
    /// How much players do with what they receive.
    pub depth: Depth,
    /// How long, s.
    pub hold_s: u32,
    /// After the last player's start, s; start-up and two caps without it.
    pub warm_up_s: Option<u32>,
    /// Players that parse whatever the depth.
    pub parsing: u64,
}

pub struct Played {
    pub judgement: Judgement,
    /// CPU of the server over the hold, in % of one core.
    pub server_cpu_percent: Option<f64>,
    /// What else the machine did.
    pub noise: Noise,
}

impl Played {
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.judgement.metrics.get(name).copied().flatten()
    }
}

pub fn play(fixture: &Fixture, server: &mut Server, play: &Play) -> anyhow::Result<Played> {
    let task = ViewerSettings {
        url: server.url(&play.film)?,
        content_path: Some(play.film.clone()),
        streams: play.streams,
        depth: play.depth,
        parsing: play.parsing,
        hold: Span::from_s(play.hold_s.into()),
        warm_up: play.warm_up_s.map(|s| Span::from_s(s.into())),
        cpus: vec![PLAYER_CPU],
        ..ViewerSettings::default()
    };
    let mut viewers = Viewers::new(task)?;
    viewers.prepare(&Peers::new(&Endpoints::new()), &fixture.host())?;
    let meter = Meter::start(server.cpu_ns())?;
    let start_ns = monotonic_ns() + LEAD_NS;
    viewers.start(start_ns)?;
    let deadline = Deadline::after(Duration::from_secs(60 + u64::from(play.hold_s)));
    let mut used = Vec::new();
    loop {
        used.push((monotonic_ns(), server.cpu_ns()));
        match viewers.progress() {
            Progress::Finished => break,
            Progress::Failed(error) => bail!("the players failed: {error}"),
            Progress::Running { .. } => {}
        }
        if !deadline.pause(LOOK) {
            bail!("the players did not end in time");
        }
    }
    let noise = meter.finish(server.cpu_ns())?;
    let report = viewers.stop()?;
    report.check_measured()?;
    let judgement = judge(&report, Players::Trusted);
    let server_cpu_percent = report.hold_s.and_then(|(from, to)| {
        let at = |s: f64| interpolate(&used, start_ns as f64 + s * 1e9);
        Some(100.0 * (at(to)? - at(from)?) / ((to - from) * 1e9))
    });
    Ok(Played { judgement, server_cpu_percent, noise })
}

/// CPU time at a moment between two readings.
fn interpolate(readings: &[(u64, u64)], at_ns: f64) -> Option<f64> {
    let after = readings.iter().position(|(ns, _)| *ns as f64 >= at_ns)?;
    let (b_ns, b) = readings[after];
    let Some((a_ns, a)) = after.checked_sub(1).map(|before| readings[before]) else { return Some(b as f64) };
    let share = (at_ns - a_ns as f64) / (b_ns - a_ns).max(1) as f64;
    Some(a as f64 + share * (b as f64 - a as f64))
}

#[cfg(test)]
mod tests {
    use super::interpolate;

    #[test]
    fn cpu_time_is_read_between_readings() {
        let readings = [(0, 100), (10, 200), (20, 200)];
        assert_eq!(interpolate(&readings, 5.0), Some(150.0));
        assert_eq!(interpolate(&readings, 20.0), Some(200.0));
        assert_eq!(interpolate(&readings, 21.0), None);
    }
}
