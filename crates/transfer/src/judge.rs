//! From a transfer's report to the verdict, with the reasons as sentences. Pure.

use base::doubt::Doubt;
use base::format::quantity;
use base::outcome::Certainty;
use base::series::Series;
use base::verdict::Verdict;
use base::workload::Judgement;

use super::findings::{
    Short, held_back, is_short, link_share, overslept_reason, robbed, short, too_short_ms, unmet,
};
use super::flow::EndReason;
use super::limit::{self, Held};
use super::metrics;
use super::presentation::TransferDoubt;
use super::report::{DirectionReport, EndReport, Responses, TransferReport};
use super::settings::TransferSettings;

/// Flows that are named one by one.
const NAMED_MAX: usize = 5;

#[must_use]
pub fn judge(settings: &TransferSettings, report: &TransferReport) -> Judgement {
    let metrics = metrics::of(report);
    let broken = broken(report);
    let is_broken = !broken.is_empty();
    let mut reasons = broken;
    reasons.extend(unbalanced(report));
    let mut is_wrong = !reasons.is_empty();
    let robbed = report.directions.iter().find_map(|way| robbed(settings, report, way));
    let mut overslept = false;
    for way in report.directions.iter().filter(|_| settings.search.is_none()) {
        let Some(why) = unmet(settings, way) else { continue };
        reasons.push(why);
        match overslept_reason(settings, way) {
            Some(why) => (overslept, _) = (true, reasons.push(why)),
            None if robbed.is_some() => {}
            None => is_wrong = true,
        }
    }
    let too_much = settings.search.as_ref().and_then(|search| {
        let loss_percent = 100.0 * metrics.get("loss_ratio").copied().flatten()?;
        (loss_percent > search.loss_percent_max)
            .then(|| format!("{} of the datagrams were lost", quantity(Some(loss_percent), "%")))
    });
    reasons.extend(too_much.clone());
    let unknown = settings.search.is_some() && metrics.get("loss_ratio").is_none_or(Option::is_none);
    if unknown {
        reasons.push("the receiver did not report what arrived, so the loss is unknown".to_owned());
    }
    let short = settings.search.as_ref().and(report.directions.iter().find_map(|way| short(settings, way)));
    let verdict = match &short {
        _ if report.stopped || unknown => Verdict::Invalid,
        _ if is_wrong || too_much.is_some() => Verdict::Fail,
        Some(Short { by_sender: true, .. }) => Verdict::Invalid,
        Some(_) => Verdict::Fail,
        None if overslept || robbed.is_some() => Verdict::Invalid,
        None => Verdict::Pass,
    };
    if let (Verdict::Invalid, Some((_, why))) = (verdict, &robbed) {
        // First, because short lines show only the first reason.
        reasons.insert(0, why.clone());
    }
    let stolen = robbed.map(|(steal, _)| Doubt::CpuStolen { steal_percent: 100.0 * steal });
    if report.stopped {
        reasons.push("the trial was ended before its time".to_owned());
    }
    reasons.extend(short.map(|short| short.why));
    Judgement {
        verdict,
        reasons,
        // Other programs on the host do not cause losses on the path.
        is_definite: is_broken || path_is_short(settings, report),
        is_short: report.directions.iter().any(|way| is_short(settings, report, way)),
        metrics,
        series: report.directions.iter().filter_map(goodput_series).collect(),
        doubts: doubts(settings, report).into_iter().chain(stolen).collect(),
        hold_s: report.hold_s,
        account: super::account::of(settings, report),
    }
}

/// Goodput over time, from the end that counts what arrived.
fn goodput_series(way: &DirectionReport) -> Option<Series> {
    let mut goodput = Series::new(format!("goodput_{}_bit_per_s", way.direction.word()), "bit/s");
    for (from_s, to_s, bytes) in &way.nearest_to_arrival()?.intervals {
        if to_s > from_s {
            goodput.push(*to_s, Some(*bytes as f64 * 8.0 / (to_s - from_s)));
        }
    }
    Some(goodput)
}

/// Whether a rate was not met because of the path, by counts of its own.
fn path_is_short(settings: &TransferSettings, report: &TransferReport) -> bool {
    report.directions.iter().any(|way| {
        unmet(settings, way).is_some()
            && held_back(settings, report, way).0 == Some((Held::Path, Certainty::Confirmed))
    })
}

/// What broke off: the transfer, or single flows.
fn broken(report: &TransferReport) -> Vec<String> {
    let mut reasons: Vec<String> = report.broken.iter().cloned().collect();
    let mut flows = Vec::new();
    for way in &report.directions {
        for end in way.ends() {
            for (number, flow) in end.flows.iter().enumerate() {
                if let EndReason::Failed(why) = &flow.ended {
                    flows.push(format!("flow {} {} broke: {why}", number + 1, way.direction.word()));
                }
            }
        }
    }
    let rest = flows.len().saturating_sub(NAMED_MAX);
    reasons.extend(flows.into_iter().take(NAMED_MAX));
    if rest > 0 {
        reasons.push(format!("{rest} more flows broke"));
    }
    reasons
}

/// TCP loses nothing: what was sent to the end arrived. A way that ended in order and does not balance is
/// wrong.
fn unbalanced(report: &TransferReport) -> Vec<String> {
    let wrong = |way: &DirectionReport| {
        let (sender, receiver) = (way.sender.as_ref()?, way.receiver.as_ref()?);
        let is_tcp = |end: &EndReport| end.flows.iter().all(|flow| flow.count.datagrams == 0);
        let in_order = |end: &EndReport| {
            end.flows.iter().all(|flow| matches!(flow.ended, EndReason::Done | EndReason::ByPeer))
        };
        let ends = [sender, receiver];
        let (sent, came) = (sender.bytes(), receiver.bytes());
        // What arrives while the beginning is left out differs between the two ends by what is under way.
        let comparable = ends.iter().all(|end| is_tcp(end) && in_order(end)) && report.asked_bytes.is_some();
        (comparable && sent != came)
            .then(|| format!("{sent} bytes were sent {} and {came} arrived", way.direction.word()))
    };
    report.directions.iter().filter_map(wrong).collect()
}

fn doubts(settings: &TransferSettings, report: &TransferReport) -> Vec<Doubt> {
    let both = report.idle_responses.iter().chain(&report.responses);
    let late = both
        .filter(|responses| responses.late * 100 > responses.answered)
        .max_by_key(|responses| responses.late);
    let doubt = |responses: &Responses| TransferDoubt::RequestsLate {
        late_percent: 100.0 * responses.late as f64
            / (responses.answered + responses.unanswered).max(1) as f64,
        late_ms_max: responses.late_ms_max,
    };
    let short = too_short_ms(settings, report).map(|moved_ms| TransferDoubt::TransferTooShort { moved_ms });
    let shares = report.directions.iter().filter_map(|way| link_share(report, way));
    let above = shares.filter(|share| limit::is_above(*share)).max_by(f64::total_cmp);
    let above = above.map(|share| TransferDoubt::AboveLink { link_percent: 100.0 * share });
    // A transfer that broke off says why there is no report.
    let is_silent = |way: &DirectionReport| way.receiver.is_none() && way.sender.is_some();
    let silent = report.directions.iter().any(is_silent) && report.broken.is_none() && !report.stopped;
    let silent = silent.then(|| TransferDoubt::ArrivalNotReported { peer: report.peer.clone() });
    let all = late.map(doubt).into_iter().chain(short).chain(above).chain(silent);
    all.map(Doubt::from).collect()
}
