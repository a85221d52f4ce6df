//! From the players' report to the verdict, with reasons.

use base::doubt::Doubt;
use base::limit_rules::THREAD;
use base::outcome::{Account, Certainty, Evidence, Limit, Resource, Table};
use base::part::PartError;
use base::verdict::Verdict;
use base::workload::Judgement;

use crate::PLAYERS;
use crate::doubt::StreamDoubt;
use crate::metrics;
pub use crate::metrics::METRICS;
use crate::report::{ChecksReport, PlayerCalls, StreamReport, ThreadReport, ViewerReport, merge};
use crate::viewer::part_settings::STARTUP_MAX_NS;

/// Received over demanded bytes of a 5 s window may be off by this much.
const RATIO_TOLERANCE: f64 = 0.05;
/// A buffer that never held less of its cap has absorbed every dip. Near a server's limit the buffers of
/// undisturbed players swing by an eighth, which is 5 % of what a window of 5 s needs with the usual cap.
const BUFFER_KEPT: f64 = 0.75;
/// A player thread above this share of its core is near its limit, which is worth a doubt.
const CPU_PERCENT_NEAR: f64 = 75.0;
/// Disturbed streams that are named one by one.
const NAMED_MAX: usize = 5;
/// Frames shown may differ from the expected by the one that is just due.
const FRAMES_OFF_MAX: u64 = 1;

/// What a trial is in which the players were the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Players {
    /// Invalid: the trial shows nothing of the server.
    Trusted,
    /// Failed: the players are a part of what is measured.
    Judged,
}

/// Judge reports by their hosts; no host where all players were on one.
/// Errors: They are not of the same content; or nothing was measured, since the server is gone.
pub fn judge_reports(
    reports: Vec<(Option<&str>, ViewerReport)>,
    players: Players,
) -> Result<Judgement, PartError> {
    let merged = merge::merge(reports)?;
    merged.check_measured()?;
    Ok(judge(&merged, players))
}

pub fn judge(report: &ViewerReport, players: Players) -> Judgement {
    let disturbed: Vec<(f64, String)> =
        report.streams.iter().filter_map(|stream| disturbance(stream, report)).collect();
    let drains = drain(report);
    let generator = at_fault(report, &disturbed);
    let mut reasons = Vec::new();
    reasons.extend(generator.clone());
    let unfinished = report.stopped || report.hold_s.is_none();
    let is_players_failure = players == Players::Judged && !report.stopped;
    let verdict = match (&generator, disturbed.is_empty() && drains.is_none()) {
        (Some(_), _) if is_players_failure => Verdict::Fail,
        (Some(_), _) => Verdict::Invalid,
        (None, false) => Verdict::Fail,
        (None, true) if unfinished => Verdict::Invalid,
        (None, true) => Verdict::Pass,
    };
    if unfinished {
        reasons.push("the trial was ended before its time".to_owned());
    }
    reasons.extend(named(disturbed));
    reasons.extend(drains);
    Judgement {
        is_definite: verdict == Verdict::Fail && report.streams.iter().any(is_wrong),
        reasons,
        metrics: metrics::of(report),
        series: report.series(),
        doubts: doubts(report, verdict),
        account: Account {
            tables: report.calls.iter().map(calls_table).collect(),
            limit: generator.filter(|_| is_players_failure).map(|why| players_limit(report, &why)),
            ..Account::default()
        },
        ..Judgement::new(verdict, report.hold_s.unwrap_or((0.0, 0.0)))
    }
}

/// The players as the limit of a host that serves and plays.
fn players_limit(report: &ViewerReport, why: &str) -> Limit {
    let resource = Resource::Workload(&PLAYERS);
    let streams = base::format::plural(report.streams.len() as u64, "stream");
    let evidence = Evidence::counted(resource, format!("at {streams} {why}"));
    Limit { resource, certainty: Certainty::Confirmed, evidence: vec![evidence] }
}

/// Whether a stream was not late but wrong.
fn is_wrong(stream: &StreamReport) -> bool {
    let errors = |checks: &ChecksReport| {
        checks.sync_errors + checks.continuity_errors + checks.damaged + checks.hash_errors
    };
    stream.broken.is_some() || stream.checks.as_ref().is_some_and(|checks| errors(checks) > 0)
}

/// The disturbances in the order of their time, the first few one by one.
fn named(mut disturbed: Vec<(f64, String)>) -> Vec<String> {
    disturbed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rest = disturbed.len().saturating_sub(NAMED_MAX);
    let mut named: Vec<String> =
        disturbed.into_iter().take(NAMED_MAX).map(|(_, sentence)| sentence).collect();
    if rest > 0 {
        named.push(format!("{rest} more streams were disturbed"));
    }
    named
}

/// What spoilt a stream: the gravest thing, as (s after the hold's beginning, sentence).
fn disturbance(stream: &StreamReport, report: &ViewerReport) -> Option<(f64, String)> {
    let name = format!("stream {}{}", stream.stream, on(stream.host.as_deref()));
    let held_s = report.hold_s.map_or(0.0, |(from, to)| to - from);
    if let Some(broken) = &stream.broken {
        return Some((broken.at_s, format!("{name} broke {}: {}", moment(broken.at_s), broken.message)));
    }
    let startup_max_s = STARTUP_MAX_NS as f64 / 1e9;
    match stream.startup_s {
        None if report.hold_s.is_some() => {
            let waited = stream.waited_for.as_deref().unwrap_or("content");
            return Some((0.0, format!("{name} never showed a picture: it was waiting for {waited}")));
        }
        Some(startup_s) if startup_s > startup_max_s => {
            let words = format!("{name} showed its first picture {startup_s:.1} s after it had connected");
            return Some((0.0, format!("{words}, later than {startup_max_s:.0} s")));
        }
        _ => {}
    }
    if let Some(stall) = stream.stalls.first() {
        let length = if stall.ended { "for" } else { "for at least" };
        let words = format!("{name} stalled {}, {length} {:.1} s", moment(stall.at_s), stall.length_s);
        let more = match stream.stall_count {
            0 | 1 => String::new(),
            n => format!(", {n} times in all"),
        };
        return Some((stall.at_s, words + &more));
    }
    if let Some(checks) = &stream.checks {
        let (sync, continuity) = (checks.sync_errors, checks.continuity_errors + checks.damaged);
        if sync + continuity > 0 {
            let words = format!("{name} lost sync {sync} times and missed packets {continuity} times");
            return Some((0.0, words));
        }
        if checks.hash_errors > 0 {
            let words = format!("{name} received {} groups of wrong bytes", checks.hash_errors);
            return Some((0.0, words + " (their hash differs from the index's)"));
        }
    }
    if stream.frames_played.abs_diff(stream.frames_expected) > FRAMES_OFF_MAX {
        let (played, expected) = (stream.frames_played, stream.frames_expected);
        return Some((held_s, format!("{name} showed {played} of {expected} frames")));
    }
    throughput(stream, report).map(|problem| (held_s, format!("{name} {problem}")))
}

fn started_late(report: &ViewerReport) -> bool {
    let is_late = |startup_s: f64| startup_s > STARTUP_MAX_NS as f64 / 1e9;
    report.streams.iter().any(|stream| stream.startup_s.map_or(report.hold_s.is_some(), is_late))
}

/// The report's third condition: throughput does not fluctuate.
fn throughput(stream: &StreamReport, report: &ViewerReport) -> Option<String> {
    if let Some(ratio) = stream.throughput_ratio_worst {
        let percent = format!("received {:.0} % of what it needed within 5 s", ratio * 100.0);
        if ratio < 1.0 - RATIO_TOLERANCE {
            match stream.slack_min_s {
                None => return Some(percent),
                Some(least_s) if least_s < BUFFER_KEPT * report.cap_s => {
                    return Some(format!("{percent}, and its buffer fell to {least_s:.1} s"));
                }
                Some(_) => {}
            }
        } else if stream.throughput_was_full && ratio > 1.0 + RATIO_TOLERANCE {
            return Some(percent);
        }
    }
    let gap_s = stream.receive_gap_max_s;
    (gap_s > report.cap_s / 2.0).then(|| format!("received nothing for {gap_s:.1} s although it wanted to"))
}

fn calls_table(calls: &PlayerCalls) -> Table {
    workload::calls::table(format!("Calls of the players{}", on(calls.host.as_deref())), &calls.times)
}

/// Where something was, in a sentence; nothing to say on one host.
fn on(host: Option<&str>) -> String {
    host.map(|host| format!(" on {host}")).unwrap_or_default()
}

fn moment(at_s: f64) -> String {
    if at_s < 0.0 {
        format!("{:.1} s before the judged time", -at_s)
    } else {
        format!("{at_s:.1} s into the judged time")
    }
}

/// The buffers drain, though nothing has stalled yet.
fn drain(report: &ViewerReport) -> Option<String> {
    let trend = report.slack_trend().filter(|trend| trend.drains)?;
    let slope_ms = -trend.slope_s_per_s * 1000.0;
    let empty_s = trend.empty_at_s?;
    Some(format!(
        "the buffers lose {slope_ms:.0} ms each second and would be empty {empty_s:.0} s into the judged time"
    ))
}

/// Whether the generator was at fault, as a sentence.
fn at_fault(report: &ViewerReport, disturbed: &[(f64, String)]) -> Option<String> {
    let late_max_ms = report.cap_s * 1000.0 / 4.0;
    if let Some((late_ms, at)) =
        latest(report, |thread| thread.late_ms_max).filter(|(ms, _)| *ms > late_max_ms)
    {
        return Some(format!(
            "the players{} read up to {late_ms:.0} ms later than intended: they are the limit",
            on(at.host.as_deref())
        ));
    }
    let before = latest(report, |thread| thread.late_before_ms_max);
    if let Some((before_ms, at)) = before.filter(|(ms, _)| *ms > late_max_ms && !disturbed.is_empty()) {
        let at = on(at.host.as_deref());
        let words = format!(
            "the players{at} read up to {before_ms:.0} ms later than intended before the judged time"
        );
        return Some(words + ": they are the limit");
    }
    let too_busy = |(percent, _): &(f64, &ThreadReport)| THREAD.is_used_up(*percent / 100.0);
    if let Some((busiest, at)) = metrics::busiest(report).filter(too_busy) {
        let at = on(at.host.as_deref());
        return Some(format!(
            "a player thread{at} used {busiest:.0} % of its core: the players are the limit"
        ));
    }
    // Viewers that fill their buffers take more CPU than viewers that play: a late start may be theirs alone.
    let before = metrics::busiest_by(report, |thread| thread.cpu_before_percent_max);
    let (busiest, at) = before.filter(|_| started_late(report)).filter(too_busy)?;
    let at = on(at.host.as_deref());
    let words =
        format!("a player thread{at} used {busiest:.0} % of its core in a second before the judged time");
    Some(words + ": the players are the limit")
}

/// The thread that was latest by this measure, and how late.
fn latest(report: &ViewerReport, of: fn(&ThreadReport) -> f64) -> Option<(f64, &ThreadReport)> {
    report.threads.iter().map(|thread| (of(thread), thread)).max_by(|a, b| a.0.total_cmp(&b.0))
}

fn doubts(report: &ViewerReport, verdict: Verdict) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let at = |doubt: Doubt, thread: &ThreadReport| match &thread.host {
        Some(host) => doubt.on(host),
        None => doubt,
    };
    if let Some((cpu_percent, thread)) =
        metrics::busiest(report).filter(|(percent, _)| *percent > CPU_PERCENT_NEAR)
    {
        doubts.push(at(StreamDoubt::GeneratorNearSaturation { cpu_percent }.into(), thread));
    }
    let late_ms = report.cap_s * 1000.0 / 16.0;
    if let Some((late_ms_max, thread)) =
        latest(report, |thread| thread.late_ms_max).filter(|(ms, _)| *ms > late_ms)
    {
        doubts.push(at(StreamDoubt::GeneratorLate { late_ms_max }.into(), thread));
    }
    if let Some(streams) = report.overlapping.filter(|&streams| streams > 0) {
        doubts.push(StreamDoubt::RegionsOverlap { streams, content_s: report.content_s }.into());
    }
    if report.index_made_by_reading {
        doubts.push(StreamDoubt::IndexMadeByReading.into());
    }
    if report.stopped {
        doubts.push(Doubt::Interrupted);
    }
    if verdict == Verdict::Pass {
        doubts.extend(hold_too_short(report).map(Into::into));
    }
    doubts
}

/// Stalls distinguish N from N + 1 streams only after (buffer in player and kernel) x (N + 1) seconds. A
/// trend of the slack shows the difference long before, so only a hold without one is too short.
fn hold_too_short(report: &ViewerReport) -> Option<StreamDoubt> {
    let (from, to) = report.hold_s?;
    if report.slack_trend().is_some_and(|trend| trend.interval.is_some()) {
        return None;
    }
    let kernel_s = report.receive_buffer_bytes.unwrap_or(0) as f64 * 8.0 / report.content_bit_per_s;
    let streams = report.streams.len() as f64;
    let resolves_load = (report.cap_s + kernel_s) * (streams + 1.0) / (to - from);
    // To within one stream, or 2 % of many.
    (resolves_load > 1.0_f64.max(0.02 * streams))
        .then_some(StreamDoubt::HoldTooShort { hold_s: to - from, resolves_load })
}
