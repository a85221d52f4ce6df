//! Which resource set the capacity, and how that is known.

use base::format;
use base::limit_rules::CEILING;
use base::outcome::{Ceiling, Certainty, Evidence, Limit, Resource};

use super::analysis::{ASSUMED, Analysis, COMPUTED};
use super::models::fit::Fit;
use super::signs::signs_of;
use super::table::RESOURCES;
use super::words;

/// Indirect signs do not count for a resource that uses less than this share of a known ceiling.
const FREE: f64 = 0.70;
/// A resource that used less than this share of its ceiling when the load failed was not exhausted, whatever
/// its line predicts. Usage is a mean: within a second, demand of variable rate exceeds its mean by a
/// quarter, so a resource can be exhausted at four fifths.
const LEFT: f64 = 0.80;
/// A link that carried more than this share of what it can, beyond the error of sampling, sent a burst: that
/// confirms nothing.
const BURST: f64 = 1.02;
/// From this weight the counters alone confirm.
const CONFIRMS: u32 = 2;

/// Counters of other programs on the host, the least value of each that may disturb a trial (in % of one
/// core), and its sentence.
const NEIGHBOURS: [(&str, f64, &str); 2] =
    [("other_cpu_percent", 25.0, "other programs used"), ("steal_percent", 3.0, "the hypervisor took")];

struct Candidate {
    resource: Resource,
    /// Where its line meets its ceiling.
    saturates_at: Option<f64>,
    /// That load is close to where the load failed.
    near: bool,
    /// Share of its ceiling at the failed load, by measurement or by its line, if that is too little.
    left_at: Option<f64>,
    /// It grows with load, and its ceiling is unknown.
    is_open: bool,
    /// Sum of the weights of its signs.
    weight: u32,
    /// The same without what rests on an assumed ceiling, which confirms nothing.
    counted: u32,
    /// Its ceiling is an assumption.
    assumed: bool,
    /// The value at which it stopped growing.
    flat: Option<f64>,
    /// Strongest first.
    evidence: Vec<Evidence>,
}

/// The limit, and a ceiling that was not known before.
pub struct Decision {
    pub limit: Limit,
    /// The ceiling of that resource, read from where its usage stopped growing.
    pub inferred_ceiling: Option<Ceiling>,
}

pub fn decide(analysis: &Analysis) -> Decision {
    let verdicts = analysis.verdicts();
    if let Some(measured) = verdicts.filter(|measured| measured.failed.is_none()) {
        return match measured.invalid {
            Some(load) => player(analysis, load),
            None => none_met(analysis),
        };
    }
    let mut candidates: Vec<Candidate> = RESOURCES
        .into_iter()
        // A failed trial is the target's fault; the players' fault makes it invalid.
        .filter(|resource| verdicts.is_none() || *resource != Resource::Player)
        .map(|resource| candidate(analysis, resource))
        .collect();
    let Some((index, certainty)) = choose(&candidates) else { return unknown(analysis, &candidates) };
    let chosen = candidates.swap_remove(index);
    let ceiling = analysis.ceilings.get(&chosen.resource);
    let is_known = ceiling.is_some_and(|ceiling| !ceiling.source.starts_with(ASSUMED));
    let grounds = chosen.weight > 0 || !chosen.near;
    let inferred_ceiling = chosen.flat.filter(|_| !is_known && grounds).map(|value| Ceiling {
        value,
        source: format!("{COMPUTED}, as usage stopped growing at {}", analysis.critical_text()),
    });
    let mut evidence = chosen.evidence;
    evidence.extend(candidates.iter().filter_map(|other| headroom(analysis, other.resource)));
    Decision { limit: Limit { resource: chosen.resource, certainty, evidence }, inferred_ceiling }
}

/// The index of the limiting resource: confirmed by counters, else predicted by the lines, else the only one
/// with an unknown ceiling, if it stopped growing.
fn choose(candidates: &[Candidate]) -> Option<(usize, Certainty)> {
    let at = |candidate: &Candidate| candidate.saturates_at.unwrap_or(f64::INFINITY);
    let is_confirmed = |s: &Candidate| {
        s.counted >= CONFIRMS || (s.counted > 0 && ((s.near && !s.assumed) || s.flat.is_some()))
    };
    let all = || candidates.iter().enumerate();
    let confirmed = all().filter(|(_, s)| is_confirmed(s)).min_by(|(_, a), (_, b)| {
        b.counted.cmp(&a.counted).then(b.near.cmp(&a.near)).then(at(a).total_cmp(&at(b)))
    });
    if let Some((index, _)) = confirmed {
        return Some((index, Certainty::Confirmed));
    }
    let near =
        all().filter(|(_, s)| s.near && s.left_at.is_none()).min_by(|(_, a), (_, b)| at(a).total_cmp(&at(b)));
    if let Some((index, _)) = near {
        return Some((index, Certainty::Predicted));
    }
    // A single sign of a single resource suggests the limit, but confirms nothing.
    let mut signed = all().filter(|(_, s)| s.weight > 0);
    if let (Some((index, _)), None) = (signed.next(), signed.next()) {
        return Some((index, Certainty::Unknown));
    }
    // When the load fails, everything that is delivered stops growing. That is evidence only if a single
    // resource is left that could have been exhausted, and it did stop growing.
    let mut open = all().filter(|(_, s)| s.is_open);
    match (open.next(), open.next()) {
        (Some((index, candidate)), None) if candidate.flat.is_some() => Some((index, Certainty::Predicted)),
        _ => None,
    }
}

/// Collects the evidence against one resource.
fn candidate(analysis: &Analysis, resource: Resource) -> Candidate {
    let ceiling = analysis.ceilings.get(&resource);
    let saturates_at = analysis.saturates_at(resource);
    let share = analysis.share_at_critical(resource).map(|(share, _)| share);
    let assumed = ceiling.is_some_and(|ceiling| ceiling.source.starts_with(ASSUMED));
    let is_free = !assumed && share.is_some_and(|share| share < FREE);
    let mut evidence = Vec::new();
    let mut weight = 0;
    for (sign_weight, sign) in signs_of(analysis, resource, is_free) {
        weight += sign_weight;
        evidence.push(sign);
    }
    let mut counted = weight;
    // Without a failure or a bend, being near the ceiling does not show that anything stopped there.
    let turned = analysis.verdicts().is_some() || analysis.bend.is_some();
    if let (Some(share), Some(ceiling), true) = (share, ceiling, turned)
        && CEILING.is_used_up(share)
    {
        let is_burst = resource == Resource::Network && share > BURST;
        weight += if assumed { 1 } else { 3 };
        counted += if assumed || is_burst { 0 } else { 3 };
        let mut of_ceiling = share_of_ceiling(analysis, resource, share, ceiling);
        of_ceiling.inferred = assumed;
        if is_burst {
            of_ceiling.statement +=
                ", more than a link carries for long: the time was too short beside a burst";
        }
        evidence.insert(if is_burst { evidence.len() } else { 0 }, of_ceiling);
    }
    let growth = growth(analysis, resource);
    let flat = analysis.flat(resource).filter(|_| turned);
    if let Some((used, expected)) = flat {
        let statement = format!(
            "at {} {} use was {}, but {} was expected: it stopped growing",
            analysis.critical_text(),
            words::subject(resource),
            words::amount(resource, used),
            words::figure(resource, expected)
        );
        let unit = resource.unit_suffix();
        evidence.push(
            Evidence::inferred(resource, statement)
                .with(format!("used_{unit}"), used)
                .with(format!("line_{unit}"), expected),
        );
    }
    // A line without a ceiling explains less than the value at which it stopped growing.
    let at = evidence.len() - usize::from(ceiling.is_some() && flat.is_some());
    if let Some(growth) = growth {
        evidence.insert(at, growth);
    }
    let near = saturates_at.is_some_and(|load| is_near(analysis, load));
    let rises = analysis.fits.get(&resource).is_some_and(Fit::rises);
    let is_open = ceiling.is_none() && rises && !matches!(resource, Resource::Memory | Resource::Player);
    let left_at = share_at_failure(analysis, resource).filter(|share| *share < LEFT);
    let near = near && (flat.is_some() || bent_below_assumed(analysis, resource).is_none());
    let flat = flat.map(|(used, _)| used);
    Candidate { resource, saturates_at, near, left_at, is_open, weight, counted, assumed, flat, evidence }
}

/// The share of an assumed ceiling that a resource used where latency bent: if it was not used up, the
/// assumption explains nothing.
fn bent_below_assumed(analysis: &Analysis, resource: Resource) -> Option<f64> {
    let bend = analysis.latency.as_ref().filter(|bend| Some(bend.load) == analysis.critical_load())?;
    let (ceiling, fit) = (analysis.ceilings.get(&resource)?, analysis.fits.get(&resource));
    let line = || fit.map(|fit| fit.line.at(bend.load));
    let share = analysis.usage_at_critical(resource).or_else(line)? / ceiling.value;
    (ceiling.source.starts_with(ASSUMED) && share < CEILING.used_up_from).then_some(share)
}

/// The share of its ceiling that a resource used at the failed load, else the share that its line predicts.
fn share_at_failure(analysis: &Analysis, resource: Resource) -> Option<f64> {
    let failed = analysis.verdicts()?.failed?;
    let ceiling = analysis.ceilings.get(&resource)?.value;
    let line = || analysis.fits.get(&resource).map(|fit| fit.line.at(failed));
    Some(analysis.usage_at_critical(resource).or_else(line)? / ceiling)
}

/// Whether a predicted load is close enough to the failure to explain it: up to a quarter above the failed
/// load, and not far below a load that passed.
fn is_near(analysis: &Analysis, load: f64) -> bool {
    let Some(measured) = analysis.verdicts() else { return true };
    let above = measured.failed.is_none_or(|failed| load <= (1.25 * failed).max(failed + 1.0));
    above && measured.carried.is_none_or(|carried| load >= (0.6 * carried).min(carried - 1.0))
}

/// How a resource grows, and the load at which it reaches its ceiling.
fn growth(analysis: &Analysis, resource: Resource) -> Option<Evidence> {
    let fit = analysis.fits.get(&resource).filter(|fit| fit.rises())?;
    let unit = &analysis.table.load_unit;
    let cost = words::cost_with_interval(resource, fit.line.slope, fit.slope_interval(), fit.n);
    let mut statement = format!("each {} costs {cost}", words::one(unit));
    let end = analysis.ceilings.get(&resource).zip(analysis.saturates_at(resource));
    if let Some((ceiling, load)) = end {
        let (value, source) = (words::figure(resource, ceiling.value), &ceiling.source);
        let at = words::load(load, unit);
        let subject = words::subject(resource);
        statement += &format!("; at {at}, {subject} use would reach {value} ({source})");
        let failed = analysis.verdicts().and_then(|measured| measured.failed);
        if let Some(failed) = failed.filter(|failed| load > *failed) {
            let (at, given) = (words::load(failed, unit), words::figure(resource, fit.line.at(failed)));
            statement += &format!("; at {at}, which failed, {given} was expected");
        }
    }
    if let Some((load, used)) = analysis.refuting_usage(resource) {
        let (at, used, subject) =
            (words::load(load, unit), words::amount(resource, used), words::subject(resource));
        statement += &format!("; at {at} {subject} use was only {used}: the line does not hold so far");
    }
    let evidence = Evidence::inferred(resource, statement);
    let evidence = evidence.with(format!("cost_per_load_{}", resource.unit_suffix()), fit.line.slope);
    Some(match end {
        Some((_, load)) => evidence.with("saturates_at_load", load),
        None => evidence,
    })
}

/// That another resource was below its ceiling.
fn headroom(analysis: &Analysis, resource: Resource) -> Option<Evidence> {
    let (share, ceiling) = analysis.share_at_critical(resource)?;
    let is_left = share < CEILING.used_up_from;
    is_left.then(|| share_of_ceiling(analysis, resource, share, ceiling))
}

/// That a resource of the target was exhausted at a load without valid trials.
fn used_up(analysis: &Analysis, resource: Resource) -> Option<Evidence> {
    let (share, ceiling) = analysis.share_at_critical(resource)?;
    let is_known = resource != Resource::Player && !ceiling.source.starts_with(ASSUMED);
    (is_known && CEILING.is_used_up(share)).then(|| share_of_ceiling(analysis, resource, share, ceiling))
}

/// How much of a ceiling was used at the critical load.
fn share_of_ceiling(analysis: &Analysis, resource: Resource, share: f64, ceiling: &Ceiling) -> Evidence {
    let used = share * ceiling.value;
    let statement = format!(
        "at {} {} use was {}, {} % of its ceiling ({}, {})",
        analysis.critical_text(),
        words::subject(resource),
        words::amount(resource, used),
        format::number(100.0 * share),
        words::figure(resource, ceiling.value),
        ceiling.source
    );
    let unit = resource.unit_suffix();
    Evidence::counted(resource, statement)
        .with(format!("used_{unit}"), used)
        .with(format!("ceiling_{unit}"), ceiling.value)
}

/// The limit where the trials above the capacity were invalid: the players, or other programs on the host.
fn player(analysis: &Analysis, load: f64) -> Decision {
    let resource = Resource::Player;
    let at = words::load(load, &analysis.table.load_unit);
    let counted = |statement| Evidence::counted(resource, statement);
    let used = analysis.usage_at_critical(resource);
    let signs = signs_of(analysis, resource, false);
    let is_own = used.is_some_and(|used| resource.rule().is_used_up(used / 100.0)) || !signs.is_empty();
    let spoiled = NEIGHBOURS.iter().filter_map(|(counter, least, who)| {
        let value = analysis.counter_at_critical(counter).filter(|value| value >= least)?;
        Some(counted(format!("at {at} {who} {}", words::amount(Resource::Cpu, value))).with(*counter, value))
    });
    let spoiled: Vec<Evidence> = spoiled.collect();
    let certainty = if is_own || spoiled.is_empty() { Certainty::Confirmed } else { Certainty::Unknown };
    let fault = format!("at {at} no trial was valid: the measuring side or other programs disturbed it");
    let busiest = used.map(|used| {
        let used_text = words::amount(resource, used);
        counted(format!("at {at} the busiest thread of the measuring side used {used_text}"))
            .with("used_percent", used)
    });
    let mut own: Vec<Evidence> = signs.into_iter().map(|(_, sign)| sign).collect();
    // The decisive one stands in front.
    let front = if used.is_some_and(|used| resource.rule().is_used_up(used / 100.0)) { 0 } else { own.len() };
    own.splice(front..front, busiest);
    let mut evidence: Vec<Evidence> = spoiled_above(analysis).map(counted).into_iter().collect();
    evidence.push(counted(fault));
    // The target itself may have been exhausted, too; the trials could not show it.
    evidence.extend(RESOURCES.into_iter().filter_map(|other| used_up(analysis, other)));
    match certainty {
        Certainty::Unknown => evidence.extend(spoiled.into_iter().chain(own)),
        _ => {
            own.extend(spoiled);
            evidence.extend(own);
        }
    }
    evidence.extend(growth(analysis, resource));
    Decision { limit: Limit { resource, certainty, evidence }, inferred_ceiling: None }
}

/// The number of trials above the capacity that the players disturbed.
fn spoiled_above(analysis: &Analysis) -> Option<String> {
    let carried = analysis.verdicts()?.carried?;
    let above = || analysis.table.rows.iter().filter(|row| row.load > carried && row.verdict.is_some());
    let (spoiled, all) = (above().filter(|row| row.is_spoiled_by_players()).count(), above().count());
    let trials = format::plural(all as u64, "trial");
    let at = words::load(carried, &analysis.table.load_unit);
    (spoiled > 0).then(|| format!("the measuring side disturbed {spoiled} of {trials} above {at}"))
}

fn none_met(analysis: &Analysis) -> Decision {
    let all = if analysis.table.loads().len() > 1 { "all loads up to " } else { "" };
    let statement = format!("{all}{} passed", analysis.critical_text());
    let mut evidence = vec![Evidence::counted(Resource::None, statement)];
    if let Some((resource, _)) = analysis.first_saturated() {
        evidence.extend(growth(analysis, resource));
    }
    let limit = Limit { resource: Resource::None, certainty: Certainty::Confirmed, evidence };
    Decision { limit, inferred_ceiling: None }
}

/// A load failed (or nothing is known), and no resource explains it.
fn unknown(analysis: &Analysis, candidates: &[Candidate]) -> Decision {
    let mut evidence = Vec::new();
    let bent =
        RESOURCES.into_iter().find_map(|resource| Some((resource, bent_below_assumed(analysis, resource)?)));
    if let Some((resource, share)) = bent {
        let statement = format!(
            "at {} latency rose before any known ceiling was reached ({} use was {} % of an assumed one): \
             contention or a queue that the table does not show",
            analysis.critical_text(),
            words::subject(resource),
            format::number(100.0 * share)
        );
        evidence.push(Evidence::inferred(Resource::None, statement));
    } else if let Some(failed) = analysis.verdicts().and_then(|measured| measured.failed) {
        let at = words::load(failed, &analysis.table.load_unit);
        let left = candidates.iter().filter(|candidate| candidate.near).filter_map(|candidate| {
            let percent = format::number(100.0 * candidate.left_at?);
            Some(format!("{} use was {percent} % of its ceiling", words::subject(candidate.resource)))
        });
        let left: Vec<String> = left.collect();
        let statement = match left.is_empty() {
            true => format!("{at} failed, but no resource that was measured was near its ceiling"),
            false => format!("{at} failed, although {}", words::list(&left)),
        };
        evidence.push(Evidence::inferred(Resource::None, statement));
    }
    let mut candidates: Vec<&Candidate> = candidates.iter().collect();
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.weight));
    evidence.extend(candidates.iter().flat_map(|candidate| candidate.evidence.iter().cloned()));
    let limit = Limit { resource: Resource::None, certainty: Certainty::Unknown, evidence };
    Decision { limit, inferred_ceiling: None }
}
