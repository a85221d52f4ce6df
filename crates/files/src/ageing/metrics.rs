//! The numbers of a trial.

use ageing::flash::{FlashReport, Written};
use ageing::readout::Rates;
use base::metric::Better::{Higher, Lower, Neither};
use base::metric::{MetricSpec, Metrics, metric};

use super::disk::{FilesReport, FlashDiskReport};
use super::settings::AgeingSettings;

/// Every number of a trial: the workload's own, and what the samplers add.
#[rustfmt::skip]
pub const METRICS: &[MetricSpec] = &[
    metric("kept_percent", "%", Higher, "worst second of aged recordings, in % of fresh ones, modelled"),
    metric("streams_fresh", "", Higher, "streams that the modelled disk carries in its worst second, fresh"),
    metric("streams_aged", "", Higher, "the same, aged"),
    metric("extents_per_mib_fresh", "1/MiB", Lower, "pieces of the fresh recordings on the disk (FIEMAP)"),
    metric("extents_per_mib_aged", "1/MiB", Lower, "the same of the aged recordings"),
    metric("worst_fresh_bit_per_s", "bit/s", Higher, "worst second of reading fresh recordings, modelled"),
    metric("worst_aged_bit_per_s", "bit/s", Higher, "the same of the aged recordings"),
    metric("mean_fresh_bit_per_s", "bit/s", Higher, "mean rate of reading the fresh recordings, modelled"),
    metric("mean_aged_bit_per_s", "bit/s", Higher, "the same of the aged recordings"),
    metric("read_fresh_bit_per_s", "bit/s", Higher, "mean rate at which this disk read the fresh recordings"),
    metric("read_aged_bit_per_s", "bit/s", Higher, "the same of the aged recordings"),
    metric("read_worst_fresh_bit_per_s", "bit/s", Higher, "this disk's worst second, fresh recordings"),
    metric("read_worst_aged_bit_per_s", "bit/s", Higher, "this disk's worst second, aged recordings"),
    metric("capacity_bytes", "B", Neither, "free when it began"),
    metric("written_bytes", "B", Neither, "written to age the disk"),
    metric("ageing_s", "s", Neither, "time that this took"),
    metric("all_s", "s", Neither, "the same, with the recordings and reading them back"),
    metric("files", "", Neither, "files on the aged disk"),
    metric("data_bytes", "B", Neither, "their size"),
    metric("deleted_files", "", Neither, "files that were deleted"),
    metric("extents_per_mib_all", "1/MiB", Lower, "pieces of all files of the aged disk"),
    metric("free_pieces", "", Lower, "pieces of the free space (GETFSMAP)"),
    metric("free_largest_bytes", "B", Higher, "the largest of them"),
    metric("free_below_1_mib_percent", "%", Lower, "free space in pieces of less than 1 MiB"),
    metric("free_from_16_mib_percent", "%", Higher, "free space in pieces of at least 16 MiB"),
    metric("write_steady_bit_per_s", "bit/s", Higher, "random writes of the last rounds (flash)"),
    metric("write_fresh_bit_per_s", "bit/s", Higher, "random writes of the first round (flash)"),
    metric("steady_percent", "%", Higher, "the last rounds in % of the first one (flash)"),
    metric("write_sequential_bit_per_s", "bit/s", Higher, "the first pass, written in order (flash)"),
    metric("rounds", "", Neither, "rounds of random writes until the rate was steady (flash)"),
    metric("rounds_range_percent", "%", Lower, "largest less least rate of the last rounds, of their mean"),
    metric("rounds_drift_percent", "%", Neither, "change of the line through these rates, of their mean"),
    metric("server_cpu_percent", "%", Lower, "CPU of this program, in % of one core"),
    metric("server_memory_bytes", "B", Lower, "resident memory of this program"),
    metric("disk_bit_per_s", "bit/s", Neither, "read from the disk"),
    metric("network_bit_per_s", "bit/s", Neither, "carried by the network device"),
];

/// The metrics that answer a run, the main one first.
pub const HEADLINE: &[&str] =
    &["kept_percent", "streams_aged", "streams_fresh", "extents_per_mib_aged", "extents_per_mib_fresh"];

/// As [`HEADLINE`], for a flash disk.
pub const HEADLINE_FLASH: &[&str] = &[
    "write_steady_bit_per_s",
    "steady_percent",
    "write_fresh_bit_per_s",
    "write_sequential_bit_per_s",
    "rounds",
];

/// Streams of the bit rate that a disk carries in its worst second.
pub(crate) fn streams(rates: &Rates, settings: &AgeingSettings) -> Option<u64> {
    let worst = rates.worst_second_bit_per_s?;
    Some((worst / settings.bitrate.bit_per_s().max(1) as f64) as u64)
}

/// The aged worst second as a share of the fresh one, modelled.
pub(crate) fn kept_share(report: &FilesReport) -> Option<f64> {
    let worst = |rates: &Rates| rates.worst_second_bit_per_s;
    let (fresh, aged) = (&report.ageing.fresh.modelled, &report.ageing.aged.modelled);
    worst(aged).zip(worst(fresh)).map(|(aged, fresh)| aged / fresh)
}

pub(crate) fn of(settings: &AgeingSettings, report: &FilesReport) -> Metrics {
    let FilesReport { ageing, took_s, .. } = report;
    let mut metrics = Metrics::new();
    let mut set = |name: &str, value: Option<f64>| metrics.insert(name.to_owned(), value);
    set("kept_percent", kept_share(report).map(|share| 100.0 * share));
    for (time, aged) in [("fresh", &ageing.fresh), ("aged", &ageing.aged)] {
        let streams = streams(&aged.modelled, settings);
        set(&format!("streams_{time}"), streams.map(|streams| streams as f64));
        set(&format!("extents_per_mib_{time}"), aged.extents_per_mib());
        set(&format!("worst_{time}_bit_per_s"), aged.modelled.worst_second_bit_per_s);
        set(&format!("mean_{time}_bit_per_s"), Some(aged.modelled.mean_bit_per_s));
        let measured = aged.measured.as_ref();
        set(&format!("read_{time}_bit_per_s"), measured.map(|rates| rates.mean_bit_per_s));
        let worst = measured.and_then(|rates| rates.worst_second_bit_per_s);
        set(&format!("read_worst_{time}_bit_per_s"), worst);
    }
    set("capacity_bytes", Some(ageing.capacity_bytes as f64));
    set("written_bytes", Some(ageing.growth.written_bytes as f64));
    set("ageing_s", Some(ageing.growth.took_s));
    set("all_s", Some(*took_s));
    set("files", Some(ageing.files as f64));
    set("data_bytes", Some(ageing.data_bytes as f64));
    set("deleted_files", Some(ageing.deleted_files as f64));
    set("extents_per_mib_all", ageing.growth.pieces_per_mib.last().map(|(_, pieces)| *pieces));
    let free = ageing.free_space.as_ref().filter(|free| free.bytes > 0);
    let percent = |bytes: u64, all: u64| 100.0 * bytes as f64 / all as f64;
    set("free_pieces", free.map(|free| free.pieces as f64));
    set("free_largest_bytes", free.map(|free| free.largest_bytes as f64));
    set("free_below_1_mib_percent", free.map(|free| percent(free.below_1_mib_bytes, free.bytes)));
    set("free_from_16_mib_percent", free.map(|free| percent(free.from_16_mib_bytes, free.bytes)));
    metrics
}

/// Of a flash disk.
pub(crate) fn of_flash(report: &FlashDiskReport) -> Metrics {
    let FlashDiskReport { flash, took_s, .. } = report;
    let fresh = flash.rounds.first().map(Written::bit_per_s);
    let last = flash.last;
    [
        ("write_steady_bit_per_s", last.map(|last| last.mean)),
        ("write_fresh_bit_per_s", fresh),
        ("steady_percent", steady_share(flash).map(|share| 100.0 * share)),
        ("write_sequential_bit_per_s", Some(flash.sequential.bit_per_s())),
        ("rounds", Some(flash.rounds.len() as f64)),
        ("rounds_range_percent", last.map(|last| 100.0 * last.range)),
        ("rounds_drift_percent", last.map(|last| 100.0 * last.drift)),
        ("capacity_bytes", Some(flash.capacity_bytes as f64)),
        ("written_bytes", Some(flash.written_bytes() as f64)),
        ("ageing_s", Some(flash.took_s())),
        ("all_s", Some(*took_s)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The rate of the last rounds as a share of the first round's.
pub(crate) fn steady_share(flash: &FlashReport) -> Option<f64> {
    let fresh = flash.rounds.first().map(Written::bit_per_s).filter(|rate| *rate > 0.0)?;
    Some(flash.last?.mean / fresh)
}
