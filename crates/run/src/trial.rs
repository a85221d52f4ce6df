//! One trial: its parts placed, started together, watched, ended and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::doubt::Doubt;
use base::metric::Metrics;
use base::outcome::{Phase, Trial};
use base::part::{HERE, Live, PartSpec, Progress, Watch};
use base::placement::Placement;
use base::verdict::Verdict;
use base::workload::{Judgement, TrialContext};
use fleet::{Bus, BusError, Timing};
use jiff::Timestamp;
use serde_json::Value;
use workload::ConfiguredWorkload;

use crate::companions::Companions;
use crate::run_error::RunError;
use crate::sampled::{Kin, OfHost, SAMPLER, Samplers, Standing};

/// How often the progress of the parts is read.
const POLL: Duration = Duration::from_millis(20);
/// Within this time a bus notices all hosts that were lost at once.
const LOST_TOGETHER: Duration = Duration::from_millis(1500);

pub(crate) struct TrialOutcome {
    pub trial: Trial,
    /// What its sampler could not sample, and why; mostly the same in all trials of a run.
    pub unavailable: Vec<String>,
    pub is_interrupted: bool,
}

pub(crate) struct TrialScope<'a> {
    pub workload: &'a dyn ConfiguredWorkload,
    pub variant: &'a str,
    pub repetition: u32,
    pub number: u32,
    pub placement: &'a Placement,
    pub standing: &'a Standing,
    pub companions: &'a Companions<'a>,
}

enum TrialError {
    Ended(RunError),
    /// A host was lost, or came too late; the next trial may be whole again.
    Lost(String),
}

impl From<RunError> for TrialError {
    fn from(error: RunError) -> Self {
        Self::Ended(error)
    }
}

impl From<BusError> for TrialError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::HostLost { .. } | BusError::LateStart { .. } => Self::Lost(error.to_string()),
            other => Self::Ended(other.into()),
        }
    }
}

/// Makes one trial. `tick` gets the progress (0 to 1) and the live values, and returns whether to continue.
///
/// Returns `None` when it was interrupted and nothing of it is kept. A trial that lost a host that offers
/// load is invalid.
pub(crate) fn make(
    bus: &mut dyn Bus,
    scope: &TrialScope<'_>,
    context: &TrialContext,
    tick: &mut dyn FnMut(f64, &Live) -> bool,
) -> Result<Option<TrialOutcome>, RunError> {
    let started_at = Timestamp::now();
    let peers = &scope.standing.peers;
    let specs = scope.workload.offering(context, peers, scope.placement)?;
    let offering: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let hosts = specs.iter().map(|spec| spec.host.as_str());
    let samplers = Samplers::of(scope.standing.target.as_ref(), hosts, &Kin::of(&bus.facts()));
    let own = offering.iter().map(String::as_str);
    let all: Vec<&str> = own.chain(samplers.names()).chain(scope.companions.names()).collect();
    let offered = offer(bus, specs, &samplers, &offering, scope, context, tick);
    // Placed parts are stopped in any case.
    let mut ended = bus.stop(&all);
    let is_interrupted = matches!(offered, Ok(false));
    let judged = match offered {
        Ok(false) if !scope.workload.keeps_interrupted() => return Ok(None),
        Ok(_) => judge(scope, context, &offering, &mut ended),
        Err(spoiled) => Err(spoiled),
    };
    if is_interrupted && judged.is_err() {
        return Ok(None);
    }
    match judged {
        Ok(judgement) => {
            let sampled = samplers.reports(&mut ended);
            let mut trial = assemble(scope, context, started_at, judgement, &sampled);
            for (name, value) in bus.timing().map(together).into_iter().flatten() {
                // What a workload measured on its own flows is nearer than the hosts' threads.
                let own = trial.metrics.entry(name).or_insert(None);
                *own = own.or(value);
            }
            let unavailable = sampled.into_iter().filter(|host| host.is_target);
            let unavailable =
                unavailable.filter_map(|host| host.sampled.ok()).flat_map(|host| host.unavailable);
            Ok(Some(TrialOutcome { trial, unavailable: unavailable.collect(), is_interrupted }))
        }
        Err(TrialError::Lost(why)) if standing_lives(bus, scope) => {
            let trial = assemble(scope, context, started_at, lost(why), &[]);
            Ok(Some(TrialOutcome { trial, unavailable: Vec::new(), is_interrupted: false }))
        }
        Err(TrialError::Lost(why)) => Err(RunError::new(why)),
        Err(TrialError::Ended(error)) => Err(to_blame(bus, scope, error)),
    }
}

/// A peer of a lost host may fail before the bus reports the loss; the error then names the lost host.
fn to_blame(bus: &mut dyn Bus, scope: &TrialScope<'_>, error: RunError) -> RunError {
    let until = Instant::now() + LOST_TOGETHER;
    loop {
        for name in &scope.standing.names {
            if let Err(lost @ BusError::HostLost { .. }) = bus.progress(name) {
                return RunError::new(format!("{lost}; {}", error.message));
            }
        }
        let everything_is_here = bus.hosts().iter().all(|host| host == HERE);
        if error.usage || everything_is_here || Instant::now() > until {
            return error;
        }
        std::thread::sleep(POLL);
    }
}

/// Whether the hosts of the standing parts are still available. The loss of several hosts is not noticed at
/// once.
fn standing_lives(bus: &mut dyn Bus, scope: &TrialScope<'_>) -> bool {
    std::thread::sleep(LOST_TOGETHER);
    scope.standing.names.iter().all(|name| bus.progress(name).is_ok())
}

fn lost(why: String) -> Judgement {
    Judgement { reasons: vec![why], is_definite: true, ..Judgement::new(Verdict::Invalid, (0.0, 0.0)) }
}

/// Metrics of a start on several hosts.
fn together(timing: Timing) -> Metrics {
    let us = |ns: u64| ns as f64 / 1e3;
    let (bound, skew) = (us(timing.bound_ns), timing.skew_ns.map(us));
    [("clock_bound_us", Some(bound)), ("start_skew_us", skew)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// The workload's judgement by its parts' reports.
fn judge(
    scope: &TrialScope<'_>,
    context: &TrialContext,
    offering: &[String],
    ended: &mut BTreeMap<String, Result<Value, BusError>>,
) -> Result<Judgement, TrialError> {
    let mut reports = BTreeMap::new();
    for name in offering {
        if let Some(report) = ended.remove(name) {
            reports.insert(name.clone(), report?);
        }
    }
    let mut beside = BTreeMap::new();
    for name in scope.companions.names() {
        if let Some(report) = ended.remove(name) {
            beside.insert(name.to_owned(), report?);
        }
    }
    let judged = scope.workload.judge(context, reports).and_then(|mut judgement| {
        scope.companions.add_to(&mut judgement, &beside)?;
        Ok(judgement)
    });
    judged.map_err(|error| TrialError::Ended(error.into()))
}

/// Offer the load until all parts have finished; `false` when the user wants to stop.
fn offer(
    bus: &mut dyn Bus,
    specs: Vec<PartSpec>,
    samplers: &Samplers,
    offering: &[String],
    scope: &TrialScope<'_>,
    context: &TrialContext,
    tick: &mut dyn FnMut(f64, &Live) -> bool,
) -> Result<bool, TrialError> {
    // Before the connections that they concern are made.
    scope.companions.prepare(bus)?;
    for group in specs.chunk_by(|a, b| a.kind == b.kind) {
        let names: Vec<&str> = group.iter().map(|spec| spec.name.as_str()).collect();
        bus.place(group.to_vec())?;
        bus.prepare(&names, &scope.standing.peers)?;
    }
    let watching: Vec<&str> = samplers.names().collect();
    bus.place(samplers.specs().map_err(RunError::from)?)?;
    bus.prepare(&watching, &scope.standing.peers)?;
    let beside = watching.into_iter().chain(scope.companions.names());
    let names: Vec<&str> = offering.iter().map(String::as_str).chain(beside).collect();
    bus.start(&names)?;
    wait(bus, offering, scope, context, tick)
}

/// Wait until all offering parts have finished; `false` when the user wants to stop.
fn wait(
    bus: &mut dyn Bus,
    offering: &[String],
    scope: &TrialScope<'_>,
    context: &TrialContext,
    tick: &mut dyn FnMut(f64, &Live) -> bool,
) -> Result<bool, TrialError> {
    let longest = context.hold.duration() + scope.workload.max_overtime();
    let deadline = Instant::now() + longest;
    loop {
        let mut done: Option<f64> = None;
        let mut finished = true;
        for name in offering {
            match bus.progress(name)? {
                Progress::Finished => {}
                Progress::Failed(error) => return Err(TrialError::Ended(error.into())),
                Progress::Running { done: part } => {
                    finished = false;
                    // A part that runs until it is stopped does not know.
                    done = part.into_iter().chain(done).min_by(f64::total_cmp);
                }
            }
        }
        if finished {
            return Ok(true);
        }
        let beside = scope.standing.names.iter().map(String::as_str).chain(scope.companions.names());
        for name in beside {
            if let Progress::Failed(error) = bus.progress(name)? {
                return Err(TrialError::Ended(error.into()));
            }
        }
        if !tick(done.unwrap_or(0.0), &live(bus, offering)) {
            return Ok(false);
        }
        if Instant::now() > deadline {
            let late = longest.as_secs();
            let why = format!("a trial of load {} did not end within {late} s", context.load);
            return Err(TrialError::Ended(RunError::new(why)));
        }
        std::thread::sleep(POLL);
    }
}

/// Live values of the target's sampler, and the sums of those of the offering parts.
fn live(bus: &mut dyn Bus, offering: &[String]) -> Live {
    let mut all = bus.live(SAMPLER);
    for (name, value) in offering.iter().flat_map(|part| bus.live(part)) {
        *all.entry(name).or_default() += value;
    }
    all
}

/// Combines the judgement and the samples of the hold.
fn assemble(
    scope: &TrialScope<'_>,
    context: &TrialContext,
    started_at: Timestamp,
    judgement: Judgement,
    sampled: &[OfHost],
) -> Trial {
    let Judgement {
        mut verdict,
        mut reasons,
        mut metrics,
        mut series,
        mut doubts,
        hold_s,
        is_definite,
        is_short,
        account,
    } = judgement;
    let is_open = (verdict == Verdict::Fail && !is_definite) || (verdict == Verdict::Pass && is_short);
    // Metrics without a value are listed as unknown.
    for spec in scope.workload.metrics() {
        metrics.entry(spec.name.to_owned()).or_insert(None);
    }
    for host in sampled {
        let means = host.means(hold_s);
        let sampled = host.doubts(&means);
        // A workload may know it, too, from its own readings.
        let is_known = |own: &Doubt| {
            matches!(own, Doubt::CpuStolen { .. }) && sampled.iter().any(|d| d.is_same_kind(own))
        };
        doubts.retain(|own| !is_known(own));
        doubts.extend(sampled);
        if let Some(reason) = host.spoiled(&means).filter(|_| is_open) {
            verdict = Verdict::Invalid;
            // First, because it makes the trial invalid, and short lines show only the first reason.
            reasons.insert(0, reason);
        }
        if let (true, Ok(found)) = (host.is_target, &host.sampled) {
            metrics.extend(means);
            series.retain(|own| found.series.iter().all(|other| other.name != own.name));
            series.extend(found.series.iter().cloned());
        }
    }
    let watch = scope.standing.target.as_ref().map(|target| &target.watch);
    doubts.extend(not_visible(watch, scope.variant));
    Trial {
        number: scope.number,
        variant: scope.variant.to_owned(),
        repetition: scope.repetition,
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
        account,
    }
}

/// The server's processes cannot be sampled: they are on another host, or hidden from this user.
fn not_visible(watch: Option<&Watch>, variant: &str) -> Option<Doubt> {
    let elsewhere = watch.and_then(|watch| watch.elsewhere.clone());
    let is_visible = watch.is_some_and(|watch| !watch.pids.is_empty());
    (!is_visible).then(|| Doubt::ServerNotVisible { server: elsewhere.unwrap_or_else(|| variant.to_owned()) })
}

/// Whether a phase holds a load for the full time.
pub fn is_full_hold(phase: Phase) -> bool {
    matches!(phase, Phase::Confirm | Phase::Single)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_without_processes_is_not_visible() {
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
