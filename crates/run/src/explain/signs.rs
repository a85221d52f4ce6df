//! Counters that show that a resource is exhausted, with their least values.

use base::format;
use base::outcome::{Evidence, Resource};

use super::analysis::Analysis;

use Resource::{Cpu, Disk, Memory, Network, Player};

/// Resource, counter, least value, weight, unit, sentence. The least values are far above what healthy loads
/// showed in the prototypes, so that noise does not reach them.
#[rustfmt::skip]
const SIGNS: [(Resource, &str, f64, u32, &str, &str); 11] = [
    (Cpu, "throttled_percent", 5.0, 3, " %",
        "the CPU quota throttled the server {} of the time, summed over CPUs"),
    (Cpu, "cpu_wait_percent", 20.0, 1, " %",
        "the server's threads waited for a CPU {} of the time, summed over threads"),
    (Cpu, "pressure_cpu_percent", 20.0, 1, " %", "tasks waited for a CPU {} of the time (PSI)"),
    (Disk, "disk_busy_percent", 90.0, 1, " %", "the disk was busy {} of the time"),
    (Disk, "disk_await_ms", 5.0, 1, " ms", "a disk request took {} on average"),
    (Disk, "disk_queue", 2.0, 1, "", "{} requests waited for the disk on average"),
    (Disk, "pressure_io_percent", 20.0, 1, " %", "tasks waited for I/O {} of the time (PSI)"),
    // TCP fills a queue until it drops, so bursts make a link drop that is far from full: no direct sign.
    (Network, "network_drops_per_s", 1.0, 1, "",
        "the queue in front of the link dropped {} packets per second"),
    (Network, "sender_limited_percent", 20.0, 1, " %",
        "the network limited the server's connections {} of the time, not the players or the server"),
    (Memory, "pressure_memory_percent", 10.0, 2, " %", "tasks waited for memory {} of the time (PSI)"),
    (Player, "tick_late_max_ms", 100.0, 1, " ms", "the players were up to {} late"),
];

/// A counter must exceed its median at sound loads by this factor: one that is always high shows nothing.
const RISE: f64 = 1.2;

/// The signs that `resource` is exhausted at the critical load, strongest first, with their weights. Only
/// direct signs count for a resource that is known to be mostly free (`is_free`).
pub fn of(analysis: &Analysis, resource: Resource, is_free: bool) -> Vec<(u32, Evidence)> {
    let at = analysis.critical_text();
    let mine = SIGNS.iter().filter(|(of, _, _, weight, ..)| *of == resource && (*weight > 1 || !is_free));
    let found = mine.filter_map(|&(_, counter, least, weight, unit, sentence)| {
        let value = analysis.counter_at_critical(counter).filter(|value| *value >= least)?;
        let below = analysis.counter_below(counter);
        if below.is_some_and(|below| value <= RISE * below) {
            return None;
        }
        let with_unit = |value| format!("{}{unit}", format::number(value));
        let before = below.map(|below| format!(" ({} at lower loads)", with_unit(below)));
        let sentence = sentence.replace("{}", &with_unit(value)) + &before.unwrap_or_default();
        let evidence = Evidence::counted(resource, format!("at {at} {sentence}")).with(counter, value);
        let evidence = match below {
            Some(below) => evidence.with(format!("below_{counter}"), below),
            None => evidence,
        };
        Some((weight, evidence))
    });
    found.collect()
}
