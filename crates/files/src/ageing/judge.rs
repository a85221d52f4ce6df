//! From the report of recording and deleting to numbers and sentences. Pure.

use ageing::readout::Rates;
use base::doubt::{Doubt, WorkloadDoubt};
use base::format::{number, plural, quantity};
use base::outcome::{Account, Axis, Cell, Certainty, Evidence, Figure, Layer, Limit, Marks, Resource, Table};
use base::units::BitRate;
use base::verdict::Verdict;
use base::workload::Judgement;
use serde::Serialize;

use super::disk::FilesReport;
use super::settings::AgeingSettings;
use super::{SEEKS, metrics};

/// A file system with more in use is not fresh.
const USED_MAX: f64 = 0.10;

pub(crate) fn judge(settings: &AgeingSettings, report: &FilesReport) -> Judgement {
    Judgement {
        metrics: metrics::of(settings, report),
        doubts: doubts(report).into_iter().map(Doubt::from).collect(),
        account: account(settings, report),
        ..Judgement::new(Verdict::Pass, (0.0, report.took_s))
    }
}

fn doubts(report: &FilesReport) -> Vec<AgeingDoubt> {
    let growth = &report.ageing.growth;
    let mut doubts = Vec::new();
    if report.ageing.used_before > USED_MAX {
        doubts.push(AgeingDoubt::NotFresh { used_percent: 100.0 * report.ageing.used_before });
    }
    if !growth.is_steady {
        let passes = growth.written_bytes as f64 / report.ageing.capacity_bytes.max(1) as f64;
        doubts.push(AgeingDoubt::NotSteady { passes });
    }
    doubts
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum AgeingDoubt {
    /// Others' files were there, or an earlier ageing.
    NotFresh { used_percent: f64 },
    /// The number of extents still changed when the ageing ended.
    NotSteady { passes: f64 },
}

impl WorkloadDoubt for AgeingDoubt {
    fn message(&self) -> String {
        match self {
            Self::NotFresh { used_percent } => {
                format!("the file system was not fresh: {} % of it were in use before", number(*used_percent))
            }
            Self::NotSteady { passes } => format!(
                "the layout still changed when {} times the space was written, so the disk can age further",
                number(*passes)
            ),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::NotFresh { .. } => "make a new file system, or let a lab make it",
            Self::NotSteady { .. } => "see the chart of extents; compare only runs of the same length",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::NotFresh { used_percent } => *used_percent,
            Self::NotSteady { passes } => *passes,
        }
    }
}

fn account(settings: &AgeingSettings, report: &FilesReport) -> Account {
    Account {
        headline: headline(settings, report),
        limit: limit(settings, report),
        tables: vec![recordings(settings, report), space(report)],
        figures: vec![extents_over_writes(report)],
        ..Account::default()
    }
}

/// The sentence of a trial.
fn headline(settings: &AgeingSettings, report: &FilesReport) -> Option<String> {
    let (fresh, aged) = (&report.ageing.fresh, &report.ageing.aged);
    let kept = metrics::kept_share(report)?;
    let streams_fresh = metrics::streams(&fresh.modelled, settings)?;
    let streams_aged = metrics::streams(&aged.modelled, settings)?;
    let rate = |rate: BitRate| quantity(Some(rate.bit_per_s() as f64), "bit/s");
    let streams = format!("{} of {}", plural(streams_aged, "stream"), rate(settings.bitrate));
    let carried = match streams_aged == streams_fresh {
        true => format!("still carries {streams}, as when new"),
        false => format!("carries {streams} instead of {streams_fresh} when new"),
    };
    Some(format!(
        "Aged, the disk {carried}; its slowest second reads {} % of what it read when new. This is by a \
         model with {} a seek and {}, from the places of the recordings: {} extents per MiB, and {} when new",
        number(100.0 * kept),
        quantity(Some(settings.seek.ns() as f64 / 1e9), "s"),
        rate(settings.disk_rate),
        number(aged.extents_per_mib()?),
        number(fresh.extents_per_mib()?)
    ))
}

/// What the modelled disk spends its time on in the aged worst second.
fn limit(settings: &AgeingSettings, report: &FilesReport) -> Option<Limit> {
    let seeking =
        |rates: &Rates| Some(1.0 - rates.worst_second_bit_per_s? / settings.disk_rate.bit_per_s() as f64);
    let aged = seeking(&report.ageing.aged.modelled)?;
    let fresh = seeking(&report.ageing.fresh.modelled)?;
    let resource = match SEEKS.rule.is_used_up(aged) {
        true => Resource::Workload(&SEEKS),
        false => Resource::Disk,
    };
    let statement = format!(
        "of the aged worst second, seeks take {} %, of the fresh one {} % (model, extents from FIEMAP)",
        number(100.0 * aged),
        number(100.0 * fresh)
    );
    let evidence = vec![Evidence::inferred(resource, statement).with("seeking_percent", 100.0 * aged)];
    Some(Limit { resource, certainty: Certainty::Predicted, evidence })
}

fn recordings(settings: &AgeingSettings, report: &FilesReport) -> Table {
    let columns = [
        ("recordings", ""),
        ("extents", ""),
        ("per MiB", ""),
        ("modelled mean", "bit/s"),
        ("worst second", "bit/s"),
        ("streams", ""),
        ("this disk's mean", "bit/s"),
        ("worst second ", "bit/s"),
    ];
    let mut table = Table::new("Recordings read back", &columns);
    for (time, aged) in [("fresh", &report.ageing.fresh), ("aged", &report.ageing.aged)] {
        let measured = aged.measured.as_ref();
        table.rows.push(vec![
            time.into(),
            aged.extents.into(),
            aged.extents_per_mib().into(),
            aged.modelled.mean_bit_per_s.into(),
            aged.modelled.worst_second_bit_per_s.into(),
            metrics::streams(&aged.modelled, settings).map(|streams| streams as f64).into(),
            measured.map(|rates| rates.mean_bit_per_s).into(),
            Cell::from(measured.and_then(|rates| rates.worst_second_bit_per_s)),
        ]);
    }
    table.notes.push(format!(
        "{} recordings, {} in all, made at the same time, read in turn by {} a read; extents from FIEMAP",
        settings.recordings,
        quantity(Some(report.ageing.fresh.bytes as f64), "B"),
        quantity(Some(ageing::readout::READ_BYTES as f64), "B"),
    ));
    table
}

fn space(report: &FilesReport) -> Table {
    let ageing = &report.ageing;
    let columns = [
        ("file system", ""),
        ("space", "B"),
        ("written", "B"),
        ("files", ""),
        ("deleted", ""),
        ("free pieces", ""),
        ("largest", "B"),
        ("free below 1 MiB", "%"),
        ("took", "s"),
    ];
    let mut table = Table::new("The aged file system", &columns);
    let free = ageing.free_space.as_ref();
    let below = free.filter(|free| free.bytes > 0);
    table.rows = vec![vec![
        report.file_system.as_deref().unwrap_or("unknown").into(),
        ageing.capacity_bytes.into(),
        ageing.growth.written_bytes.into(),
        ageing.files.into(),
        ageing.deleted_files.into(),
        free.map(|free| free.pieces as f64).into(),
        free.map(|free| free.largest_bytes as f64).into(),
        below.map(|free| 100.0 * free.below_1_mib_bytes as f64 / free.bytes as f64).into(),
        ageing.growth.took_s.into(),
    ]];
    if free.is_none() {
        table
            .notes
            .push("the pieces of the free space are unknown: GETFSMAP needs ext4 or xfs, and root".into());
    }
    table
}

fn extents_over_writes(report: &FilesReport) -> Figure {
    let at = report.ageing.growth.pieces_per_mib.iter().map(|(passes, pieces)| (*passes, Some(*pieces)));
    let layer = Layer { marks: Marks::Line { at: at.collect() }, ..Layer::default() };
    Figure {
        title: "Extents per MiB of all files".to_owned(),
        note: "The layout is steady when the line is flat.".to_owned(),
        x: Axis { quantity: "data written, in multiples of the space".to_owned(), ..Axis::default() },
        y: Axis { quantity: "extents per MiB".to_owned(), from: Some(0.0), ..Axis::default() },
        layers: vec![layer],
    }
}

#[cfg(test)]
mod tests {
    use ageing::{Aged, AgeingReport, Growth};

    use super::*;

    #[test]
    fn layout_that_was_not_steady_is_doubted_however_little_it_changed() {
        let report = |is_steady| {
            // The last count is 7 % above the one before.
            let pieces_per_mib = vec![(3.5, 1.0), (4.0, 1.07)];
            let growth = Growth { written_bytes: 4000, took_s: 1.0, pieces_per_mib, is_steady };
            let ageing = AgeingReport { capacity_bytes: 1000, growth, ..AgeingReport::default() };
            FilesReport { ageing, file_system: None, took_s: 1.0 }
        };
        assert_eq!(doubts(&report(false)), [AgeingDoubt::NotSteady { passes: 4.0 }]);
        assert_eq!(doubts(&report(true)), []);
    }
    #[test]
    fn sentence_says_what_is_modelled_with_spaced_units() {
        let aged = |worst: f64, extents| Aged {
            extents,
            bytes: 10 << 20,
            modelled: Rates { mean_bit_per_s: worst, worst_second_bit_per_s: Some(worst) },
            measured: None,
        };
        let sentence = |worst| {
            let (fresh, aged) = (aged(100e6, 10), aged(worst, 15));
            let ageing = AgeingReport { fresh, aged, ..AgeingReport::default() };
            headline(&AgeingSettings::default(), &FilesReport { ageing, file_system: None, took_s: 1.0 })
        };
        assert_eq!(
            sentence(91e6).unwrap(),
            "Aged, the disk carries 3 streams of 25 Mbit/s instead of 4 when new; its slowest second reads \
             91 % of what it read when new. This is by a model with 12 ms a seek and 110 Mbit/s, from the \
             places of the recordings: 1.5 extents per MiB, and 1 when new"
        );
        assert!(sentence(100e6).unwrap().contains("still carries 4 streams of 25 Mbit/s, as when new"));
    }
}
