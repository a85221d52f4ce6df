//! What was requested and did not arrive, and why: shared by the verdict and the summary. Pure.

use base::format::quantity;
use base::limit_rules::CEILING;

use super::flow::{EndReason, FlowReport};
use super::limit::{Asked, Cause};
use super::report::{DirectionReport, EndReport, TransferReport};
use super::settings::TransferSettings;
use super::{limit, metrics};

/// From this share on, a rate counts as met.
const RATE_MET: f64 = 0.97;
/// In less time, neither congestion control nor the scheduler has settled.
const LONG_ENOUGH_S: f64 = 0.05;

pub(super) fn bit_rate(bit_per_s: f64) -> String {
    quantity(Some(bit_per_s), "bit/s")
}

/// The limit of one direction, if it is known, and the evidence as sentences.
#[must_use]
pub fn held_back(
    settings: &TransferSettings,
    report: &TransferReport,
    way: &DirectionReport,
) -> (Option<Cause>, Vec<String>) {
    limit::of(way, asked(settings, way), link_share(report, way))
}

/// The same of each flow of a way.
pub(super) fn each_held_back(
    settings: &TransferSettings,
    report: &TransferReport,
    way: &DirectionReport,
) -> Vec<Option<Cause>> {
    // Spinning threads always use their cores, and flows that wait for responses move few bytes.
    if settings.is_requests_only() {
        return Vec::new();
    }
    limit::of_each(way, asked(settings, way), link_share(report, way))
}

/// Whether the requested rate of a direction was reached, by the rules of the verdict.
fn asked(settings: &TransferSettings, way: &DirectionReport) -> Asked {
    if settings.rate.is_none() {
        return Asked::FlatOut;
    }
    let Some(search) = &settings.search else {
        return match unmet(settings, way) {
            Some(_) if overslept_reason(settings, way).is_some() => Asked::Overslept,
            Some(_) => Asked::Unmet,
            None => Asked::Met,
        };
    };
    // In a search, the whole rate must be offered, and all of it must arrive.
    let lost_percent = metrics::loss_ratio(std::slice::from_ref(way)).map(|ratio| 100.0 * ratio);
    let is_lossy = lost_percent.is_some_and(|percent| percent > search.loss_percent_max);
    match short(settings, way) {
        _ if is_lossy => Asked::Unmet,
        Some(Short { overslept: true, .. }) => Asked::Overslept,
        Some(_) => Asked::Unmet,
        None => Asked::Met,
    }
}

/// Received and requested rate, bit/s, if the received one plus what the sender `kept` back is too low.
fn shortfall(settings: &TransferSettings, way: &DirectionReport, kept: f64) -> Option<(f64, f64)> {
    let end = way.nearest_to_arrival()?;
    let wanted = settings.rate?.bit_per_s() as f64 * end.flows.len() as f64;
    let (arrived, elapsed_s) = (end.goodput_bit_per_s()?, end.elapsed_s()?);
    // Blocks that were begun and not ended are no shortfall.
    let whole_blocks = 16.0 * settings.size_bytes() as f64 * end.flows.len() as f64;
    let is_short = (RATE_MET * wanted - arrived - kept) * elapsed_s > whole_blocks;
    is_short.then_some((arrived, wanted))
}

/// That a requested rate was not reached, as a sentence.
pub(super) fn unmet(settings: &TransferSettings, way: &DirectionReport) -> Option<String> {
    let (arrived, wanted) = shortfall(settings, way, 0.0)?;
    let (arrived, wanted) = (bit_rate(arrived), bit_rate(wanted));
    Some(format!("{arrived} of the requested {wanted} {} arrived", way.direction.word()))
}

/// That a rate was not reached only because the sender was woken too late, as a sentence. It says nothing
/// about the path.
pub(super) fn overslept_reason(settings: &TransferSettings, way: &DirectionReport) -> Option<String> {
    let kept = overslept_bit_per_s(settings, way.sender.as_ref()?);
    let explains = shortfall(settings, way, 0.0).is_some() && shortfall(settings, way, kept).is_none();
    explains.then(|| format!("the sender was woken too late to offer {} of it", bit_rate(kept)))
}

/// What a sender handed to its kernel, bit/s.
fn offered_bit_per_s(sender: &EndReport) -> Option<f64> {
    Some(sender.bytes() as f64 * 8.0 / sender.elapsed_s()?)
}

/// What a sender at a rate did not offer because it was woken too late, bit/s.
fn overslept_bit_per_s(settings: &TransferSettings, sender: &EndReport) -> f64 {
    let rate = settings.rate.map_or(0.0, |rate| rate.bit_per_s() as f64);
    let overslept_s: f64 = sender.flows.iter().map(|flow| flow.count.overslept_ns as f64 / 1e9).sum();
    sender.elapsed_s().map_or(0.0, |elapsed_s| rate * overslept_s / elapsed_s)
}

/// Goodput of a direction as a share of what the path can carry.
pub(super) fn link_share(report: &TransferReport, way: &DirectionReport) -> Option<f64> {
    let goodput = way.receiver.as_ref().and_then(EndReport::goodput_bit_per_s);
    goodput.zip(report.theoretical_bit_per_s).map(|(goodput, most)| goodput / most)
}

/// A direction that moved less than it could have: the share that is missing of what was requested or of
/// what the link carries, and both as a sentence. `None` also where that is unknown.
fn missing(
    settings: &TransferSettings,
    report: &TransferReport,
    way: &DirectionReport,
) -> Option<(f64, String)> {
    let (arrived, most) = match unmet(settings, way) {
        Some(_) => shortfall(settings, way, 0.0)?,
        None if settings.rate.is_some() => return None,
        None => (way.receiver.as_ref()?.goodput_bit_per_s()?, report.theoretical_bit_per_s?),
    };
    let others = report.directions.iter().filter(|other| other.direction == way.direction);
    // Requests wait for answers; several clients share a link; short transfers have not settled.
    let is_comparable = !settings.is_requests_only()
        && settings.search.is_none()
        && others.count() == 1
        && too_short_ms(settings, report).is_none();
    let share = arrived / most;
    (is_comparable && share < CEILING.used_up_from)
        .then(|| (1.0 - share, format!("{} of {} arrived", bit_rate(arrived), bit_rate(most))))
}

/// Why less arrived than could have, where the hypervisor took CPU time enough to be the reason: its share of
/// a core, and a sentence.
pub(super) fn robbed(
    settings: &TransferSettings,
    report: &TransferReport,
    way: &DirectionReport,
) -> Option<(f64, String)> {
    let (share, arrived) = missing(settings, report, way)?;
    let steal = limit::steal_explains(way, share)?;
    Some((steal, format!("the hypervisor took {} of a core: only {arrived}", limit::percent(steal))))
}

/// Whether less arrived than the link carries, and no counter of the ends says why.
pub(super) fn is_short(settings: &TransferSettings, report: &TransferReport, way: &DirectionReport) -> bool {
    missing(settings, report, way).is_some() && limit::is_open(way, held_back(settings, report, way).0)
}

/// Why a transfer broke off: as a whole, or with all flows of a direction.
pub(super) fn broke_off(report: &TransferReport) -> Option<String> {
    let lost = |end: &EndReport| {
        let why = |flow: &FlowReport| match &flow.ended {
            EndReason::Failed(why) => Some(why.clone()),
            _ => None,
        };
        let whys: Option<Vec<String>> = end.flows.iter().map(why).collect();
        whys?.into_iter().next()
    };
    // An early end breaks the flows.
    let ways = report.directions.iter().filter(|_| !report.stopped);
    let flows = ways.flat_map(DirectionReport::ends).find_map(lost);
    report.broken.clone().or(flows)
}

/// Less was offered than asked for.
pub(super) struct Short {
    pub(super) why: String,
    /// Whether the sender itself could not do more, so that nothing is learnt about the path.
    pub(super) by_sender: bool,
    /// Whether it could have, had it been woken in time.
    overslept: bool,
}

/// In a search: a rate that the sender's own device refuses is too high for the path; a sender without idle
/// CPU says nothing about the path.
pub(super) fn short(settings: &TransferSettings, way: &DirectionReport) -> Option<Short> {
    let rate = settings.rate?.bit_per_s() as f64;
    let sender = way.sender.as_ref()?;
    let offered = offered_bit_per_s(sender)?;
    // A hundredth is within what pacing by bursts leaves open at either end of the hold.
    let wanted = rate * sender.flows.len() as f64;
    let enough = 0.99 * wanted;
    (offered < enough).then(|| {
        let out_of_cpu = limit::is_out_of_cpu(sender);
        let overslept = !out_of_cpu && offered + overslept_bit_per_s(settings, sender) >= enough;
        let who = match (out_of_cpu, overslept) {
            (true, _) => "it had no CPU to send more",
            (false, true) => "it was woken too late",
            (false, false) => "its network device took no more",
        };
        let (offered, wanted) = (bit_rate(offered), bit_rate(wanted));
        Short {
            why: format!("the sender sent {offered} of {wanted}: {who}"),
            by_sender: out_of_cpu || overslept,
            overslept,
        }
    })
}

/// Duration of a transfer of bytes that is too short for a rate, ms.
pub(super) fn too_short_ms(settings: &TransferSettings, report: &TransferReport) -> Option<f64> {
    let elapsed = |way: &DirectionReport| way.nearest_to_arrival()?.elapsed_s();
    let longest_s = report.directions.iter().filter_map(elapsed).max_by(f64::total_cmp)?;
    (settings.bytes.is_some() && longest_s < LONG_ENOUGH_S && broke_off(report).is_none())
        .then_some(1e3 * longest_s)
}
