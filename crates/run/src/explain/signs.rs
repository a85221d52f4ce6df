//! Counters that speak for a limit, and those that speak against it: CPU time that others took can make a
//! load fail, whatever else was nearly used up.

use base::format;
use base::outcome::{Certainty, Evidence, Limit, Resource};

use super::analysis::Analysis;
use super::words;

/// Time that the server's threads waited for a CPU, summed over threads.
const CPU_WAIT: &str = "cpu_wait_percent";

/// Counters that show that a resource is exhausted: resource, counter, least value, weight, unit, sentence.
/// The least values are far above what healthy loads showed in the prototypes, so that noise does not reach
/// them.
#[rustfmt::skip]
const SIGNS: [(Resource, &str, f64, u32, &str, &str); 11] = [
    (Resource::Cpu, "throttled_percent", 5.0, 3, " %",
        "the CPU quota throttled the server {} of the time, summed over CPUs"),
    (Resource::Cpu, CPU_WAIT, 20.0, 1, " %",
        "the server's threads waited for a CPU {} of the time, summed over threads"),
    (Resource::Cpu, "pressure_cpu_percent", 20.0, 1, " %", "tasks waited for a CPU {} of the time (PSI)"),
    (Resource::Disk, "disk_busy_percent", 90.0, 1, " %", "the disk was busy {} of the time"),
    (Resource::Disk, "disk_await_ms", 5.0, 1, " ms", "a disk request took {} on average"),
    (Resource::Disk, "disk_queue", 2.0, 1, "", "{} requests waited for the disk on average"),
    (Resource::Disk, "pressure_io_percent", 20.0, 1, " %", "tasks waited for I/O {} of the time (PSI)"),
    // TCP fills a queue until it drops, so bursts make a link drop that is far from full: no direct sign.
    (Resource::Network, "network_drops_per_s", 1.0, 1, "",
        "the queue in front of the link dropped {} packets per second"),
    (Resource::Network, "sender_limited_percent", 20.0, 1, " %",
        "the network limited the server's connections {} of the time, not the players or the server"),
    (Resource::Memory, "pressure_memory_percent", 10.0, 2, " %",
        "tasks waited for memory {} of the time (PSI)"),
    (Resource::Player, "tick_late_max_ms", 100.0, 1, " ms", "the players were up to {} late"),
];

/// A counter by which CPU time was lost, from which value on it counts, whether it counts only where it is
/// higher than at lower loads, and its sentence.
struct Witness {
    counter: &'static str,
    from: f64,
    must_rise: bool,
    sentence: &'static str,
}

/// The counters' names stand in [`Limit::WITNESSES`], too. Steal always counts: the hypervisor takes the time
/// from the target and from what measures it. Waits and others' load are usual on a busy host that carries
/// its load.
const WITNESSES: [Witness; 3] = [
    Witness { counter: "steal_percent", from: 10.0, must_rise: false, sentence: "the hypervisor took {}" },
    Witness {
        counter: CPU_WAIT,
        from: 20.0,
        must_rise: true,
        sentence: "the server's threads waited for a CPU for {}",
    },
    Witness { counter: "other_cpu_percent", from: 50.0, must_rise: true, sentence: "other programs used {}" },
];
/// Others used a notable part of the CPU from this share of what the whole host used.
const OTHERS_SHARE: f64 = 0.1;
/// A counter must exceed its median at lower loads by this factor: one that is always high shows nothing.
const RISE: f64 = 1.2;

/// The limit, no longer confirmed if CPU time was lost at the load whose counters confirm it.
pub fn weigh(analysis: &Analysis, limit: Limit) -> Limit {
    weigh_against(limit, || against(analysis, &WITNESSES))
}

/// The same for a limit by the workload's own counters. They count how its threads waited, so others' load
/// counts only where the target waited, too; and no lost CPU time fills a link.
pub fn weigh_own(analysis: &Analysis, limit: Limit) -> Limit {
    let is_full_link = limit.evidence.iter().any(|piece| piece.values.contains_key(Limit::LINK_PERCENT));
    if is_full_link {
        return limit;
    }
    let (steal, others) = WITNESSES.split_at(1);
    weigh_against(limit, || {
        let mut found = against(analysis, others);
        found.truncate(if found.len() == others.len() { found.len() } else { 0 });
        [against(analysis, steal), found].concat()
    })
}

fn weigh_against(mut limit: Limit, against: impl FnOnce() -> Vec<Evidence>) -> Limit {
    let is_other = !matches!(limit.resource, Resource::Cpu | Resource::Player | Resource::None);
    if !is_other || limit.certainty != Certainty::Confirmed {
        return limit;
    }
    let against = against();
    if !against.is_empty() {
        limit.certainty = Certainty::Predicted;
        let at = limit.evidence.len().min(1);
        limit.evidence.splice(at..at, against);
    }
    limit
}

/// A limit by the CPU, with who else used a notable part of it: a reader takes it for the target's own
/// otherwise. A quota of the target's own is its own, whoever uses the rest.
pub fn with_cpu_users(analysis: &Analysis, mut limit: Limit) -> Limit {
    let is_quota = limit.evidence.iter().any(|piece| piece.values.contains_key("throttled_percent"))
        || analysis.ceilings.get(&Resource::Cpu).is_some_and(|ceiling| ceiling.source.contains("quota"));
    if limit.resource != Resource::Cpu || is_quota {
        return limit;
    }
    let of_host = analysis.counter_at_critical("host_cpu_percent").unwrap_or(0.0);
    let users =
        WITNESSES.iter().filter(|witness| Limit::CPU_USERS.iter().any(|(name, _)| *name == witness.counter));
    let found = users.filter_map(|witness| {
        let value = analysis.counter_at_critical(witness.counter)?;
        let is_notable = value >= witness.from.max(OTHERS_SHARE * of_host);
        let used = witness.sentence.replace("{}", &words::amount(Resource::Cpu, value));
        let statement = format!("at {} {used}", analysis.critical_text());
        is_notable.then(|| Evidence::counted(Resource::Cpu, statement).with(witness.counter, value))
    });
    let found: Vec<Evidence> = found.collect();
    let at = limit.evidence.len().min(1);
    limit.evidence.splice(at..at, found);
    limit
}

/// That several threads waited for a CPU, if it was more than one: no share of the time is above 100 %.
fn waiting_threads(counter: &str, percent: f64) -> Option<String> {
    (counter == CPU_WAIT && percent > 100.0).then(|| {
        format!("{} of the server's threads waited for a CPU on average", format::number(percent / 100.0))
    })
}

/// How much CPU time was lost to what the witness counts.
fn lost(witness: &Witness, percent: f64) -> String {
    let amount = match witness.counter {
        CPU_WAIT => format!("{} % of the time, summed over threads", format::number(percent)),
        _ => words::amount(Resource::Cpu, percent),
    };
    waiting_threads(witness.counter, percent).unwrap_or_else(|| witness.sentence.replace("{}", &amount))
}

fn against(analysis: &Analysis, witnesses: &[Witness]) -> Vec<Evidence> {
    witnesses.iter().filter_map(|witness| evidence(analysis, witness)).collect()
}

fn evidence(analysis: &Analysis, witness: &Witness) -> Option<Evidence> {
    let value = analysis.counter_at_critical(witness.counter).filter(|value| *value >= witness.from)?;
    let below = analysis.counter_below(witness.counter).filter(|_| witness.must_rise);
    if below.is_some_and(|below| value <= RISE * below) {
        return None;
    }
    let what = match analysis.measured.as_ref().and_then(|measured| measured.failed) {
        Some(_) => "may be why it failed",
        None => "may be the cause instead",
    };
    let lost = lost(witness, value);
    let statement = format!("at {} {lost}, which {what}", analysis.critical_text());
    Some(Evidence::counted(Resource::Cpu, statement).with(witness.counter, value))
}

/// The signs that `resource` is exhausted at the critical load, strongest first, with their weights. Only
/// direct signs count for a resource that is known to be mostly free (`is_free`).
pub fn signs_of(analysis: &Analysis, resource: Resource, is_free: bool) -> Vec<(u32, Evidence)> {
    let at = analysis.critical_text();
    let mine = SIGNS.iter().filter(|(of, _, _, weight, ..)| *of == resource && (*weight > 1 || !is_free));
    let found = mine.filter_map(|&(_, counter, least, weight, unit, sentence)| {
        let value = analysis.counter_at_critical(counter).filter(|value| *value >= least)?;
        let below = analysis.counter_below(counter);
        if below.is_some_and(|below| value <= RISE * below) {
            return None;
        }
        let with_unit = |value| format!("{}{unit}", format::number(value));
        let (sentence, before) = match waiting_threads(counter, value) {
            Some(sentence) => (sentence, below.map(|below| format::number(below / 100.0))),
            None => (sentence.replace("{}", &with_unit(value)), below.map(with_unit)),
        };
        let before = before.map(|before| format!(" ({before} at lower loads)"));
        let sentence = sentence + &before.unwrap_or_default();
        let evidence = Evidence::counted(resource, format!("at {at} {sentence}")).with(counter, value);
        let evidence = match below {
            Some(below) => evidence.with(format!("below_{counter}"), below),
            None => evidence,
        };
        Some((weight, value / least, evidence))
    });
    // The decisive sign stands in front: the weightier one, else the one that exceeds its bound by more.
    let mut found: Vec<_> = found.collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    found.into_iter().map(|(weight, _, evidence)| (weight, evidence)).collect()
}
