//! What of a transfer was asked for and did not arrive, and why: shared by the verdict and the summary. Pure.

use base::format::quantity;

use super::flow::{EndReason, FlowReport};
use super::limit::{Asked, Cause};
use super::report::{DirectionReport, EndReport, TransferReport};
use super::settings::TransferSettings;
use super::{limit, metrics};

/// From this share on, a rate counts as met.
const RATE_MET: f64 = 0.97;
/// In less time than this a connection has not found its pace, nor has the scheduler had a say.
const LONG_ENOUGH_S: f64 = 0.05;

pub(super) fn bit_rate(bit_per_s: f64) -> String {
    quantity(Some(bit_per_s), "bit/s")
}

/// What one way was held back by, as far as that is known, and the evidence as sentences.
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
    // Threads that ask again and again use their cores whatever they wait for; who waits for answers moves
    // few bytes.
    if settings.requests.is_some() {
        return Vec::new();
    }
    limit::of_each(way, asked(settings, way), link_share(report, way))
}

/// What was asked of a way beside its bytes, and whether it arrived: by what the verdict goes by.
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
    // A search asks for more than that it arrives: that all of it does, and is offered.
    let lost_percent = metrics::loss_ratio(std::slice::from_ref(way)).map(|ratio| 100.0 * ratio);
    let is_lossy = lost_percent.is_some_and(|percent| percent > search.loss_percent_max);
    match short(settings, way) {
        _ if is_lossy => Asked::Unmet,
        Some(Short { overslept: true, .. }) => Asked::Overslept,
        Some(_) => Asked::Unmet,
        None => Asked::Met,
    }
}

/// What arrived and what was asked for, bit/s, where the one and what was `kept` back at the sender are too
/// little.
fn shortfall(settings: &TransferSettings, way: &DirectionReport, kept: f64) -> Option<(f64, f64)> {
    let end = way.nearest_to_arrival()?;
    let wanted = settings.rate?.bit_per_s() as f64 * end.flows.len() as f64;
    let (arrived, elapsed_s) = (end.goodput_bit_per_s()?, end.elapsed_s()?);
    // Blocks that were begun and not ended are no shortfall.
    let whole_blocks = 16.0 * settings.size_bytes() as f64 * end.flows.len() as f64;
    let is_short = (RATE_MET * wanted - arrived - kept) * elapsed_s > whole_blocks;
    is_short.then_some((arrived, wanted))
}

/// How a rate that was asked for was not met: as a sentence.
pub(super) fn unmet(settings: &TransferSettings, way: &DirectionReport) -> Option<String> {
    let (arrived, wanted) = shortfall(settings, way, 0.0)?;
    let (arrived, wanted) = (bit_rate(arrived), bit_rate(wanted));
    Some(format!("{arrived} of the requested {wanted} {} arrived", way.direction.word()))
}

/// Where all that did not arrive of a rate was not offered, since the sender was woken too late: as a
/// sentence. It says nothing of the path.
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

/// How much of what the path can carry at best arrived of a way.
pub(super) fn link_share(report: &TransferReport, way: &DirectionReport) -> Option<f64> {
    let goodput = way.receiver.as_ref().and_then(EndReport::goodput_bit_per_s);
    goodput.zip(report.theoretical_bit_per_s).map(|(goodput, most)| goodput / most)
}

/// Why a transfer did not come to its end, where it did not: as a whole, or with all flows of a way.
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

/// A search asks for rates: what a sender's own device does not take, the path does not carry; a sender
/// without CPU to spare says nothing of the path.
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

/// How long bytes that were asked for took, where that is too short to tell a rate, ms.
pub(super) fn too_short_ms(settings: &TransferSettings, report: &TransferReport) -> Option<f64> {
    let elapsed = |way: &DirectionReport| way.nearest_to_arrival()?.elapsed_s();
    let longest_s = report.directions.iter().filter_map(elapsed).max_by(f64::total_cmp)?;
    (settings.bytes.is_some() && longest_s < LONG_ENOUGH_S && broke_off(report).is_none())
        .then_some(1e3 * longest_s)
}
