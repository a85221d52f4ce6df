//! From the report of a flash disk to numbers and sentences. Pure.

use ageing::flash::{
    DRIFT_MAX, PASSES_MIN, RANDOM_BYTES, RANGE_MAX, SEQUENTIAL_BYTES, WINDOW, WRITERS, Written,
};
use base::doubt::{Doubt, WorkloadDoubt};
use base::format::{number, plural, quantity, quantity_in_sentence};
use base::outcome::{Account, Axis, Figure, Layer, Marks, Table};
use base::verdict::Verdict;
use base::workload::Judgement;
use serde::Serialize;

use super::disk::FlashDiskReport;
use super::metrics::{self, steady_share};

pub(crate) fn judge(report: &FlashDiskReport) -> Judgement {
    Judgement {
        metrics: metrics::of_flash(report),
        doubts: doubts(report).into_iter().map(Doubt::from).collect(),
        account: Account {
            headline: headline(report),
            tables: vec![rates(report)],
            figures: vec![rate_over_writes(report)],
            ..Account::default()
        },
        ..Judgement::new(Verdict::Pass, (0.0, report.took_s))
    }
}

fn doubts(report: &FlashDiskReport) -> Vec<FlashDoubt> {
    let mut doubts = Vec::new();
    if !report.flash.is_steady {
        let passes = passes(report, report.flash.written_bytes());
        doubts.push(match report.flash.last {
            Some(last) if passes >= PASSES_MIN => FlashDoubt::RateNotSteady {
                passes,
                range_percent: 100.0 * last.range,
                drift_percent: 100.0 * last.drift,
            },
            // Rounds end after ten minutes, however little they wrote.
            _ => FlashDoubt::TooLittleWritten { passes, rounds: report.flash.rounds.len() },
        });
    }
    let device = report.device.clone();
    match report.is_flash {
        Some(true) => {}
        Some(false) => doubts.push(FlashDoubt::NoFlash { device }),
        None => doubts.push(FlashDoubt::UnknownDisk { device }),
    }
    if report.discards {
        doubts.push(FlashDoubt::Discarded);
    }
    doubts
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum FlashDoubt {
    /// The write rate still changed when the procedure ended.
    RateNotSteady { passes: f64, range_percent: f64, drift_percent: f64 },
    /// The procedure ended before its rate could be trusted.
    TooLittleWritten { passes: f64, rounds: usize },
    /// The disk rotates.
    NoFlash { device: Option<String> },
    /// A virtual disk, or none.
    UnknownDisk { device: Option<String> },
    /// The file's space was discarded when it was deleted.
    Discarded,
}

impl WorkloadDoubt for FlashDoubt {
    fn message(&self) -> String {
        let name = |device: &Option<String>| match device {
            Some(device) => device.clone(),
            None => "the disk".to_owned(),
        };
        match self {
            Self::RateNotSteady { passes, range_percent, drift_percent } => format!(
                "the write rate was not steady after {} times the space: the last {WINDOW} rounds differ by \
                 {} % (at most {}) and drift by {} % (at most {})",
                number(*passes),
                number(*range_percent),
                number(100.0 * RANGE_MAX),
                number(*drift_percent),
                number(100.0 * DRIFT_MAX)
            ),
            Self::TooLittleWritten { passes, rounds } => format!(
                "too little was written to know the steady rate: {} times the space in {}, and {} times in \
                 at least {WINDOW} rounds are needed",
                number(*passes),
                plural(*rounds as u64, "round"),
                number(PASSES_MIN)
            ),
            Self::NoFlash { device } => {
                format!("{} is a rotating disk, which has no erased blocks to run out of", name(device))
            }
            Self::UnknownDisk { device } => {
                format!("{} is virtual, so whether its medium is flash is unknown", name(device))
            }
            Self::Discarded => "the file system is mounted with `discard`: the disk may have erased the \
                file's blocks when it was deleted, and be fresh again"
                .to_owned(),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::RateNotSteady { .. } => "see the chart of rounds; run it again, which continues from here",
            Self::TooLittleWritten { .. } => {
                "take the rate as one before the steady state; run it again, which continues from here"
            }
            Self::NoFlash { .. } => "use --procedure files",
            Self::UnknownDisk { .. } => "run it on the host that has the disk",
            Self::Discarded => "mount it with `nodiscard`, and keep fstrim away until all is measured",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::RateNotSteady { range_percent, .. } => *range_percent,
            Self::TooLittleWritten { .. } | Self::NoFlash { .. } => 100.0,
            Self::Discarded => 50.0,
            Self::UnknownDisk { .. } => 10.0,
        }
    }
}

fn passes(report: &FlashDiskReport, bytes: u64) -> f64 {
    bytes as f64 / report.flash.capacity_bytes.max(1) as f64
}

/// The sentence of a trial.
fn headline(report: &FlashDiskReport) -> Option<String> {
    let flash = &report.flash;
    let rate = |rate| quantity_in_sentence(Some(rate), "bit/s");
    let state = if flash.is_steady { "steady" } else { "not yet steady" };
    Some(format!(
        "This disk wrote {} at random when fresh and {} when {state}, which is {} %; it took {} rounds and \
         {} times the space",
        rate(flash.rounds.first()?.bit_per_s()),
        rate(flash.last?.mean),
        number(100.0 * steady_share(flash)?),
        flash.rounds.len(),
        number(passes(report, flash.written_bytes()))
    ))
}

fn rates(report: &FlashDiskReport) -> Table {
    let flash = &report.flash;
    let columns =
        [("writes", ""), ("rate", "bit/s"), ("of the first round", "%"), ("written", "B"), ("took", "s")];
    let mut table = Table::new("Write rates", &columns);
    let first = flash.rounds.first().map(Written::bit_per_s).filter(|rate| *rate > 0.0);
    let mut row = |writes: &str, rate: Option<f64>, written: &[Written]| {
        let share = rate.zip(first).map(|(rate, first)| 100.0 * rate / first);
        let bytes: u64 = written.iter().map(|round| round.bytes).sum();
        let took_s: f64 = written.iter().map(|round| round.took_s).sum();
        table.rows.push(vec![writes.into(), rate.into(), share.into(), bytes.into(), took_s.into()]);
    };
    row("in order, first pass", Some(flash.sequential.bit_per_s()), &[flash.sequential]);
    row("at random, first round", first, flash.rounds.get(..1).unwrap_or_default());
    let last = flash.rounds.len().saturating_sub(WINDOW);
    let name = format!("at random, last {WINDOW} rounds");
    row(&name, flash.last.map(|last| last.mean), &flash.rounds[last..]);
    row("all", None, &[Written { bytes: flash.written_bytes(), took_s: flash.took_s() }]);
    let bytes = |bytes: u64| quantity(Some(bytes as f64), "B");
    table.notes.push(format!(
        "{} on {}, {} free; past the page cache; in order {} a request, at random {}, {WRITERS} at a time",
        report.file_system.as_deref().unwrap_or("unknown"),
        report.device.as_deref().unwrap_or("no disk of its own"),
        bytes(flash.capacity_bytes),
        bytes(SEQUENTIAL_BYTES),
        bytes(RANDOM_BYTES),
    ));
    if let Some(last) = flash.last {
        table.notes.push(format!(
            "the last {WINDOW} rounds differ by {} % (steady: at most {}) and drift by {} % (at most {}); \
             SNIA's rule",
            number(100.0 * last.range),
            number(100.0 * RANGE_MAX),
            number(100.0 * last.drift),
            number(100.0 * DRIFT_MAX)
        ));
    }
    table
}

fn rate_over_writes(report: &FlashDiskReport) -> Figure {
    let mut bytes = report.flash.sequential.bytes;
    let rounds = report.flash.rounds.iter().map(|round| {
        bytes += round.bytes;
        (passes(report, bytes), Some(round.bit_per_s()))
    });
    let layer = Layer { marks: Marks::Line { at: rounds.collect() }, ..Layer::default() };
    Figure {
        title: "Rate of random writes by round".to_owned(),
        note: "The rate is steady when the line is flat.".to_owned(),
        x: Axis { quantity: "data written, in multiples of the space".to_owned(), ..Axis::default() },
        y: Axis { quantity: "rate".to_owned(), unit: "bit/s".to_owned(), from: Some(0.0), ..Axis::default() },
        layers: vec![layer],
    }
}

#[cfg(test)]
mod tests {
    use ageing::flash::{FlashReport, Steadiness};

    use super::*;

    /// A disk whose rounds wrote at these rates, in Mbit/s.
    fn report(rates: &[f64], is_flash: Option<bool>, discards: bool) -> FlashDiskReport {
        let written = |rate: &f64| Written { bytes: 125_000_000, took_s: 1000.0 / rate };
        let rounds: Vec<Written> = rates.iter().map(written).collect();
        let last = Steadiness::from_rates(&rounds.iter().map(Written::bit_per_s).collect::<Vec<_>>());
        let flash = FlashReport {
            capacity_bytes: 1_250_000_000,
            sequential: Written { bytes: 1_125_000_000, took_s: 9.0 },
            rounds,
            last,
            is_steady: last.is_some_and(|last| last.is_steady()),
        };
        let device = Some("sda1".to_owned());
        FlashDiskReport { flash, file_system: None, device, is_flash, discards, took_s: 60.0 }
    }

    #[test]
    fn doubts_name_what_weakens_the_result() {
        let steady = [900.0, 500.0, 300.0, 300.0, 300.0, 300.0, 300.0];
        let kinds = |report: &FlashDiskReport| {
            let doubts = serde_json::to_value(doubts(report)).unwrap();
            let kinds =
                doubts.as_array().unwrap().iter().map(|doubt| doubt["kind"].as_str().unwrap().to_owned());
            kinds.collect::<Vec<_>>()
        };
        assert!(kinds(&report(&steady, Some(true), false)).is_empty());
        assert_eq!(kinds(&report(&steady, Some(false), false)), ["no_flash"]);
        assert_eq!(kinds(&report(&steady, None, true)), ["unknown_disk", "discarded"]);
        let mut rates = vec![900.0; 7];
        rates.extend([900.0, 500.0, 400.0, 300.0, 200.0]);
        assert_eq!(kinds(&report(&rates, Some(true), false)), ["rate_not_steady"]);
        let falling = report(&[900.0, 500.0, 400.0, 300.0, 200.0], Some(true), false);
        assert_eq!(kinds(&falling), ["too_little_written"]);
        let text = doubts(&falling)[0].message();
        assert!(text.contains("1.4 times the space in 5 rounds, and 2 times"), "{text}");
        // Without a window, nothing is known about it.
        let short = doubts(&report(&[900.0], Some(true), false))[0].message();
        assert!(short.contains("1 times the space in 1 round,") && !short.contains("differ"), "{short}");
        assert!(headline(&falling).unwrap().contains("when not yet steady"), "{:?}", headline(&falling));
        let rotating = FlashDoubt::NoFlash { device: None };
        assert!(rotating.advice().contains("--procedure files"));
    }

    #[test]
    fn sentence_and_metrics_compare_the_last_rounds_with_the_first() {
        let report = report(&[900.0, 500.0, 300.0, 300.0, 300.0, 300.0, 300.0], Some(true), false);
        let metrics = metrics::of_flash(&report);
        let metric = |name: &str| metrics[name].unwrap();
        assert!((metric("write_fresh_bit_per_s") - 900e6).abs() < 1.0);
        assert!((metric("write_steady_bit_per_s") - 300e6).abs() < 1.0);
        assert!((metric("write_sequential_bit_per_s") - 1e9).abs() < 1.0);
        assert!((metric("steady_percent") - 100.0 / 3.0).abs() < 1e-6);
        assert_eq!(metric("written_bytes"), 2e9);
        let sentence = headline(&report).unwrap();
        for words in ["900 Mbit/s", "300 Mbit/s when steady", "33.3 %", "7 rounds", "1.6 times"] {
            assert!(sentence.contains(words), "no {words}: {sentence}");
        }
    }
}
