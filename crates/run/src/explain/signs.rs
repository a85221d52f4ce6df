//! Counters that betray a resource, and from which value on.

use base::format;
use base::outcome::{Evidence, Resource};

use super::analysis::Analysis;
use super::words;

/// What a counter says about a resource.
struct Sign {
    resource: Resource,
    counter: &'static str,
    /// From this value on it speaks.
    least: f64,
    /// A direct sign (2 or more) confirms by itself; an indirect one (1) only beside another.
    weight: u32,
    /// The sentence, `{}` being the value.
    sentence: &'static str,
}

const fn sign(
    resource: Resource,
    counter: &'static str,
    least: f64,
    weight: u32,
    sentence: &'static str,
) -> Sign {
    Sign { resource, counter, least, weight, sentence }
}

use Resource::{Cpu, Disk, Memory, Network, Player};

/// Thresholds are far above what healthy loads showed in the prototypes, so that noise does not cross them.
const SIGNS: [Sign; 11] = [
    sign(
        Cpu,
        "throttled_percent",
        5.0,
        3,
        "the quota throttled the server for {} % of the time, its CPUs added up",
    ),
    sign(
        Cpu,
        "cpu_wait_percent",
        20.0,
        1,
        "the server's threads waited for a CPU {} % of the time, added up",
    ),
    sign(Cpu, "pressure_cpu_percent", 20.0, 1, "tasks waited for a CPU {} % of the time (PSI)"),
    sign(Disk, "disk_busy_percent", 90.0, 1, "the disk was busy {} % of the time"),
    sign(Disk, "disk_await_ms", 5.0, 1, "a disk request took {} ms on average"),
    sign(Disk, "disk_queue", 2.0, 1, "{} requests waited for the disk on average"),
    sign(Disk, "pressure_io_percent", 20.0, 1, "tasks waited for I/O {} % of the time (PSI)"),
    // TCP fills a queue until it drops, so bursts make a link drop that is far from full: no direct sign.
    sign(
        Network,
        "network_drops_per_s",
        1.0,
        1,
        "the queue in front of the link dropped {} packets per second",
    ),
    sign(
        Network,
        "sender_limited_percent",
        20.0,
        1,
        "the server's connections waited for the network (not for the players, nor for the server) {} % of the time",
    ),
    sign(Memory, "pressure_memory_percent", 10.0, 2, "tasks waited for memory {} % of the time (PSI)"),
    sign(Player, "tick_late_max_ms", 100.0, 1, "the players did their work up to {} ms late"),
];

/// By how much a counter must exceed its median at sound loads: what is high anyway says nothing.
const RISE: f64 = 1.2;

/// The signs against `resource` at the critical load, strongest first, with their weights. A resource that is
/// known to be mostly free (`is_free`) is accused by direct signs only.
pub fn of(analysis: &Analysis, resource: Resource, is_free: bool) -> Vec<(u32, Evidence)> {
    let at = analysis.critical_load().map(|load| words::load(load, &analysis.table.load_unit));
    let Some(at) = at else { return Vec::new() };
    let mine = SIGNS.iter().filter(|sign| sign.resource == resource && (sign.weight > 1 || !is_free));
    let spoken = mine.filter_map(|sign| {
        let value = analysis.counter_at_critical(sign.counter)?;
        let below = analysis.counter_below(sign.counter);
        let risen = below.is_none_or(|below| value > RISE * below);
        let sentence = sign.sentence.replace("{}", &format::number(value));
        let before = below.map(|below| format!(" (below: {})", format::number(below))).unwrap_or_default();
        let evidence = || {
            let evidence = Evidence::counted(resource, format!("at {at} {sentence}{before}"));
            let evidence = evidence.with(sign.counter, value);
            match below {
                Some(below) => evidence.with(format!("below_{}", sign.counter), below),
                None => evidence,
            }
        };
        (value >= sign.least && risen).then(|| (sign.weight, evidence()))
    });
    spoken.collect()
}
