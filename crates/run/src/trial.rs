//! One trial: its parts placed, started together, watched, ended and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::doubt::Doubt;
use base::metric::Metrics;
use base::outcome::{Phase, Trial};
use base::part::{Endpoints, PartSpec, Progress, Watch};
use base::series::Series;
use base::verdict::Verdict;
use base::workload::{Judgement, TrialContext, Workload};
use fleet::{Bus, HERE};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::engine::RunError;

/// The name under which the sampler is placed.
const SAMPLER: &str = "sampler";
/// Between preparing and starting, so that every part is ready at the common moment.
const LEAD: Duration = Duration::from_millis(100);
/// How often the parts' progress is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Beyond its hold a trial may take this long (start-up, warm-up, a stalled end) before it is given up. More than any
/// warm-up that settings allow.
const OVERTIME: Duration = Duration::from_secs(150);
/// Other programs' CPU, in % of one core, from which a trial carries a doubt.
const NEIGHBOUR_PERCENT: f64 = 25.0;
/// Missing samples, in %, from which a trial carries a doubt.
const MISSING_PERCENT: f64 = 5.0;
/// CPU time stolen by the hypervisor, all CPUs, in % of one core, from which a trial carries a doubt.
const STEAL_PERCENT: f64 = 2.0;
/// A failure on a host as busy as this, with a neighbour on it, is not the target's.
const HOST_FULL_RATIO: f64 = 0.95;

/// What the sampler reports; its other fields are for its own page of the report.
#[derive(Deserialize)]
struct Sampled {
    series: Vec<Series>,
    #[serde(default)]
    missing: BTreeMap<String, f64>,
    #[serde(default)]
    unavailable: Vec<String>,
}

/// A trial that was made.
pub struct Made {
    pub trial: Trial,
    /// What its sampler could not watch, and why; mostly the same in all trials of a run.
    pub unavailable: Vec<String>,
}

/// What a trial belongs to.
pub struct Place<'a> {
    pub workload: &'static dyn Workload,
    pub settings: &'a Value,
    pub variant: &'a str,
    pub repetition: u32,
    pub number: u32,
    pub peers: &'a Endpoints,
    /// The standing parts: when one of them ends, the trial cannot go on.
    pub standing: &'a [String],
    pub watch: Option<&'a Watch>,
}

/// Make one trial. `tick` is called often with the share of the trial that is done and says whether to go on.
///
/// Returns `None` when it was interrupted.
pub fn make(
    bus: &mut dyn Bus,
    place: &Place<'_>,
    context: &TrialContext,
    tick: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Made>, RunError> {
    let started_at = Timestamp::now();
    let specs = place.workload.offering(place.settings, context, place.peers)?;
    let offering: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let whole = offer(bus, specs, &offering, place, context, tick);
    if !matches!(whole, Ok(true)) {
        // Nobody asks for these reports; what was placed must be gone all the same.
        for name in offering.iter().map(String::as_str).chain([SAMPLER]) {
            let _ = bus.stop(name);
        }
        return whole.map(|_| None);
    }
    let mut reports = BTreeMap::new();
    for name in &offering {
        reports.insert(name.clone(), bus.stop(name)?);
    }
    let sampled = place.watch.map(|_| samples(bus));
    let judgement = place.workload.judge(place.settings, context, &reports)?;
    let unavailable = sampled.as_ref().and_then(|found| found.as_ref().ok());
    let unavailable = unavailable.map(|sampled| sampled.unavailable.clone()).unwrap_or_default();
    let trial = assemble(place, context, started_at, judgement, sampled);
    Ok(Some(Made { trial, unavailable }))
}

/// End the sampler and read its report. A trial that was judged is worth keeping without it, so its failure is a doubt.
fn samples(bus: &mut dyn Bus) -> Result<Sampled, Doubt> {
    let failed = |why: String| Doubt::NotSampled { what: vec![why] };
    let report = bus.stop(SAMPLER).map_err(|error| failed(error.to_string()))?;
    serde_json::from_value(report)
        .map_err(|error| failed(format!("the sampler's report cannot be read: {error}")))
}

/// Offer the load until all parts have finished; `false` when the user wants to stop.
fn offer(
    bus: &mut dyn Bus,
    specs: Vec<PartSpec>,
    offering: &[String],
    place: &Place<'_>,
    context: &TrialContext,
    tick: &mut dyn FnMut(f64) -> bool,
) -> Result<bool, RunError> {
    prepare(bus, specs, place)?;
    let mut names: Vec<&str> = offering.iter().map(String::as_str).collect();
    names.extend(place.watch.map(|_| SAMPLER));
    bus.start(&names, LEAD)?;
    wait(bus, offering, place.standing, context, tick)
}

fn prepare(bus: &mut dyn Bus, specs: Vec<PartSpec>, place: &Place<'_>) -> Result<(), RunError> {
    for spec in specs {
        let name = spec.name.clone();
        bus.place(HERE, spec)?;
        bus.prepare(&name, place.peers)?;
    }
    if let Some(watch) = place.watch {
        let settings = serde_json::to_value(watch).map_err(RunError::new)?;
        bus.place(HERE, PartSpec { kind: "observe.sampler".into(), name: SAMPLER.into(), settings })?;
        bus.prepare(SAMPLER, place.peers)?;
    }
    Ok(())
}

/// Wait until all offering parts have finished; `false` when the user wants to stop.
fn wait(
    bus: &mut dyn Bus,
    offering: &[String],
    standing: &[String],
    context: &TrialContext,
    tick: &mut dyn FnMut(f64) -> bool,
) -> Result<bool, RunError> {
    let deadline = Instant::now() + context.hold.duration() + OVERTIME;
    loop {
        let mut done = 1.0f64;
        let mut finished = true;
        for name in offering {
            match bus.progress(name)? {
                Progress::Finished => {}
                Progress::Failed(error) => return Err(error.into()),
                Progress::Running { done: part } => {
                    finished = false;
                    done = done.min(part.unwrap_or(0.0));
                }
            }
        }
        if finished {
            return Ok(true);
        }
        for name in standing {
            if let Progress::Failed(error) = bus.progress(name)? {
                return Err(error.into());
            }
        }
        if !tick(done) {
            return Ok(false);
        }
        if Instant::now() > deadline {
            let late = (context.hold.duration() + OVERTIME).as_secs();
            return Err(RunError::new(format!(
                "a trial of load {} did not end within {late} s",
                context.load
            )));
        }
        std::thread::sleep(POLL);
    }
}

/// Put the judgement and the samples of the hold together.
fn assemble(
    place: &Place<'_>,
    context: &TrialContext,
    started_at: Timestamp,
    judgement: Judgement,
    sampled: Option<Result<Sampled, Doubt>>,
) -> Trial {
    let Judgement { mut verdict, mut reasons, mut metrics, mut series, mut doubts, hold_s, is_definite } =
        judgement;
    // What could have been sampled and was not is unknown, and says so.
    for spec in place.workload.metrics() {
        metrics.entry(spec.name.to_owned()).or_insert(None);
    }
    match sampled {
        Some(Ok(sampled)) => {
            for one in &sampled.series {
                metrics.insert(one.name.clone(), one.mean(hold_s.0, hold_s.1));
            }
            doubts.extend(missing(&sampled.missing));
            series.retain(|own| sampled.series.iter().all(|other| other.name != own.name));
            series.extend(sampled.series);
        }
        Some(Err(doubt)) => doubts.push(doubt),
        None => {}
    }
    doubts.extend(not_visible(place.watch, place.variant));
    doubts.extend(neighbours(&metrics));
    let spoiled = cores().and_then(|cores| spoiled_by_neighbour(verdict, &metrics, cores));
    if let Some(reason) = spoiled.filter(|_| !is_definite) {
        verdict = Verdict::Invalid;
        // First: it is what makes the trial invalid, and lines with room for one reason show the first.
        reasons.insert(0, reason);
    }
    Trial {
        number: place.number,
        variant: place.variant.to_owned(),
        repetition: place.repetition,
        phase: context.phase,
        load: context.load as f64,
        verdict,
        reasons,
        metrics,
        doubts: doubts.into_iter().map(Into::into).collect(),
        started_at,
        hold_from_s: hold_s.0,
        hold_to_s: hold_s.1,
        series,
    }
}

/// The server's processes cannot be watched: they are on another host, or not for this user to see.
fn not_visible(watch: Option<&Watch>, variant: &str) -> Option<Doubt> {
    let elsewhere = watch.and_then(|watch| watch.elsewhere.clone());
    let is_visible = watch.is_some_and(|watch| !watch.pids.is_empty());
    (!is_visible).then(|| Doubt::ServerNotVisible { server: elsewhere.unwrap_or_else(|| variant.to_owned()) })
}

/// One doubt for all that is missing: a late sampler misses everything at once.
fn missing(percent_by_name: &BTreeMap<String, f64>) -> Option<Doubt> {
    let gaps = || percent_by_name.iter().filter(|(_, percent)| **percent > MISSING_PERCENT);
    let (worst, percent) = gaps().max_by(|a, b| a.1.total_cmp(b.1))?;
    let resource = match gaps().count() - 1 {
        0 => worst.clone(),
        others => format!("{worst} (and some of {others} others)"),
    };
    Some(Doubt::SamplesMissing { resource, missing_percent: *percent })
}

fn known(metrics: &Metrics, name: &str) -> Option<f64> {
    metrics.get(name).copied().flatten()
}

/// The CPUs of this host that may be used.
fn cores() -> Option<f64> {
    Some(sys::thread::online_cpus().ok()?.len() as f64)
}

/// Doubts about who else was on the host.
fn neighbours(metrics: &Metrics) -> Vec<Doubt> {
    let other = known(metrics, "other_cpu_percent").filter(|percent| *percent > NEIGHBOUR_PERCENT);
    let steal = known(metrics, "steal_percent").filter(|percent| *percent > STEAL_PERCENT);
    let other = other.map(|other_cpu_percent| Doubt::NoisyNeighbour { other_cpu_percent });
    other.into_iter().chain(steal.map(|steal_percent| Doubt::CpuStolen { steal_percent })).collect()
}

/// A failure while the host was full, in part with other programs' work, is not the target's failure. Every
/// percentage is of one core.
fn spoiled_by_neighbour(verdict: Verdict, metrics: &Metrics, cores: f64) -> Option<String> {
    let host = known(metrics, "host_cpu_percent")?;
    let other = known(metrics, "other_cpu_percent")?;
    let full = host >= HOST_FULL_RATIO * 100.0 * cores && other > NEIGHBOUR_PERCENT * cores;
    (verdict == Verdict::Fail && full).then(|| {
        let (busy, theirs) = (host / 100.0, other / 100.0);
        format!(
            "the host was full: {busy:.1} of {cores} cores were busy, {theirs:.1} of them with other programs"
        )
    })
}

/// Whether a phase holds a load for the full time.
pub fn is_full_hold(phase: Phase) -> bool {
    matches!(phase, Phase::Confirm | Phase::Single)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_host_is_counted_in_cores() {
        let at = |host, other, cores| {
            let metrics = [("host_cpu_percent", host), ("other_cpu_percent", other)];
            let metrics = metrics.map(|(name, value)| (name.to_owned(), Some(value))).into();
            spoiled_by_neighbour(Verdict::Fail, &metrics, cores)
        };
        let expected = "the host was full: 1.9 of 2 cores were busy, 0.6 of them with other programs";
        assert_eq!(at(190.0, 60.0, 2.0).as_deref(), Some(expected));
        assert_eq!(at(189.0, 60.0, 2.0), None, "there was room");
        assert_eq!(at(190.0, 50.0, 2.0), None, "the others took too little");
        assert_eq!(at(190.0, 60.0, 4.0), None);
    }

    #[test]
    fn a_server_without_processes_to_watch_is_not_visible() {
        let named = |watch: Option<Watch>| match not_visible(watch.as_ref(), "ext4")? {
            Doubt::ServerNotVisible { server } => Some(server),
            other => panic!("{other}"),
        };
        assert_eq!(named(None).as_deref(), Some("ext4"));
        assert_eq!(named(Some(Watch::default())).as_deref(), Some("ext4"));
        let elsewhere = Watch { elsewhere: Some("192.0.2.7:80".into()), ..Watch::default() };
        assert_eq!(named(Some(elsewhere)).as_deref(), Some("192.0.2.7:80"));
        assert_eq!(named(Some(Watch { pids: vec![7], ..Watch::default() })), None);
    }
}
