//! From the workers' reports to the verdict, with the reasons as sentences. Pure.

use base::doubt::Doubt;
use base::format::{count, quantity};
use base::series::Series;
use base::verdict::Verdict;
use base::workload::Judgement;

use crate::engine::report::Durable;
use crate::presentation::FilesDoubt;
use crate::settings::FilesSettings;
use crate::totals::Totals;
use crate::{account, metrics};

/// An open loop that carries this share of its rate kept it.
const RATE_KEPT: f64 = 0.99;
/// Files above this share of the memory do not fit into the page cache.
const FITS_PERCENT: f64 = 80.0;
/// Reads that the page cache serves, from which on the storage was not measured alone.
const CACHED_SHARE: f64 = 0.05;
/// Pauses of this program or the machine, from which on a rate is doubted.
const PAUSED_SHARE: f64 = 0.01;
/// Rounds that begin late, from which on the rate is doubted.
const LATE_SHARE: f64 = 0.01;
/// Kinds of errors that are named one by one.
const NAMED_MAX: usize = 3;

/// `rate_per_s` is that of an open loop.
pub(crate) fn judge(settings: &FilesSettings, rate_per_s: Option<f64>, totals: &Totals) -> Judgement {
    let broke_off = totals.broke_off();
    let missed = missed(settings, rate_per_s, totals);
    let wrong = errors(totals);
    let is_invalid =
        broke_off.is_some() || totals.is_stopped() || totals.hanging > 0 || totals.operations == 0;
    let verdict = match () {
        () if is_invalid => Verdict::Invalid,
        () if !wrong.is_empty() || !missed.is_empty() => Verdict::Fail,
        () => Verdict::Pass,
    };
    let mut reasons: Vec<String> = broke_off.into_iter().collect();
    if totals.is_stopped() {
        reasons.push("the trial was ended before its time".to_owned());
    }
    if totals.hanging > 0 {
        let what = if totals.objects.is_some() {
            "workers wait for an answer"
        } else {
            "threads hang in a file call"
        };
        reasons.push(format!("{} {what}, and their counts are missing", totals.hanging));
    }
    if totals.operations == 0 && reasons.is_empty() {
        reasons.push("no operation ended in the judged time".to_owned());
    }
    reasons.extend(wrong.iter().cloned());
    reasons.extend(missed);
    Judgement {
        reasons,
        is_definite: !wrong.is_empty() && verdict == Verdict::Fail,
        metrics: metrics::of(totals),
        series: series(totals).into_iter().collect(),
        doubts: doubts(settings, totals),
        account: account::of(totals),
        ..Judgement::new(verdict, (totals.from_s, totals.to_s))
    }
}

/// Failed calls: no objective allows them.
fn errors(totals: &Totals) -> Vec<String> {
    let what = if totals.objects.is_some() { "requests" } else { "calls" };
    let mut all: Vec<(&String, &u64)> = totals.errors.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    all.into_iter()
        .take(NAMED_MAX)
        .map(|(message, count)| format!("{count} {what} failed: {message}"))
        .collect()
}

/// The conditions of the objective that did not hold.
fn missed(settings: &FilesSettings, rate_per_s: Option<f64>, totals: &Totals) -> Vec<String> {
    let objective = &settings.objective;
    let mut reasons = Vec::new();
    let p99_ns = totals.times.percentile_ns(99.0);
    if let Some((most, p99_ns)) = objective.p99_max.zip(p99_ns)
        && p99_ns > most.ns()
    {
        let took = quantity(Some(p99_ns as f64 / 1e9), "s");
        let most = quantity(Some(most.s()), "s");
        reasons.push(format!("99 % of the operations took up to {took}, more than {most}"));
    }
    let of_rate = rate_per_s.map(|rate| rate * RATE_KEPT);
    let least = objective.ops_per_s_min.or(of_rate);
    let rate = totals.per_s(totals.operations);
    if let Some((least, rate)) = least.zip(rate)
        && rate < least
    {
        reasons.push(format!("{} operations a second were done, less than {}", count(rate), count(least)));
    }
    reasons
}

fn doubts(settings: &FilesSettings, totals: &Totals) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let memory = totals.memory_bytes().filter(|bytes| *bytes > 0);
    let data_percent = memory.map(|bytes| 100.0 * totals.data_bytes() as f64 / bytes as f64);
    let cached_share = totals.cached_read_share();
    if let Some(data_ram_percent) = data_percent.filter(|percent| *percent < FITS_PERCENT)
        && totals.reads > 0
        && cached_share.is_none_or(|share| share >= CACHED_SHARE)
    {
        let cached_percent = cached_share.map(|share| 100.0 * share);
        let was_cold = settings.cold;
        doubts.push(FilesDoubt::FilesInMemory { data_ram_percent, cached_percent, was_cold });
    }
    let paused_s = totals.paused_s();
    if let Some(s) = totals.elapsed_s().filter(|s| paused_s >= PAUSED_SHARE * s && paused_s > 0.0) {
        doubts.push(FilesDoubt::Paused { paused_s, paused_percent: 100.0 * paused_s / s });
    }
    for report in &totals.reports {
        match &report.run.durable {
            Durable::NotWithin { s, left } => {
                doubts.push(FilesDoubt::NotDurable { waited_s: *s, left: left.clone() });
            }
            Durable::BehindMount { file_system } => {
                doubts.push(FilesDoubt::DurableBehindMount { file_system: file_system.clone() });
            }
            Durable::Failed { why } => doubts.push(FilesDoubt::DurableUnknown { why: why.clone() }),
            Durable::After { .. } | Durable::Unknown => {}
        }
        let notes = report.notes.iter().map(|note| FilesDoubt::ProgramNote { note: note.clone() });
        doubts.extend(notes);
    }
    let late = totals.late_share().filter(|share| *share > LATE_SHARE);
    doubts.extend(late.map(|share| FilesDoubt::RoundsLate { late_percent: 100.0 * share }));
    if let Some(objects) = &totals.objects {
        let all = (objects.failed + totals.operations).max(1) as f64;
        let percent = 100.0 * objects.slow_downs as f64 / all;
        doubts.extend((percent > 0.0).then_some(FilesDoubt::SlowedDown { percent }));
    } else if totals.hanging > 0 {
        doubts.push(FilesDoubt::ThreadsHang { threads: totals.hanging });
    }
    doubts.into_iter().map(Doubt::from).collect()
}

/// Operations per second over time; the last interval may be cut short and is left out.
fn series(totals: &Totals) -> Option<Series> {
    let longest = totals.reports.iter().map(|report| &report.run).max_by_key(|run| run.intervals.len())?;
    let interval_s = longest.interval_s;
    let mut rates = Series::new("ops_per_s", "1/s");
    let whole = ((totals.to_s - totals.from_s) / interval_s + 1e-6) as usize;
    for at in 0..longest.intervals.len().min(whole) {
        let all = totals
            .reports
            .iter()
            .map(|report| report.run.intervals.get(at).copied().unwrap_or(0))
            .sum::<u64>();
        rates.push(totals.from_s + (at + 1) as f64 * interval_s, Some(all as f64 / interval_s));
    }
    (!rates.at_s.is_empty()).then_some(rates)
}

#[cfg(test)]
mod tests {
    use wml::Kind;

    use super::*;
    use crate::engine::report::{CpuReport, Ended, RowReport, RunReport, WaitSamples};
    use crate::report::{Surroundings, WorkersReport};

    /// A run of 10 s that read 1000 bytes, of which `from_storage` came from storage.
    fn totals(from_storage: Option<u64>, data_bytes: u64, paused_s: f64) -> Totals {
        let read = RowReport { count: 10, bytes: 1000, ..RowReport::new("read", Kind::Read) };
        let run = RunReport {
            threads: 1,
            hanging: 0,
            ended: Ended::Time,
            from_s: 0.0,
            to_s: 10.0,
            rows: vec![read],
            cpu: CpuReport::default(),
            cpus: 2,
            intervals: Vec::new(),
            interval_s: 1.0,
            late_rounds: 0,
            rounds: 10,
            rate_per_s: None,
            waits: WaitSamples::default(),
            durable: Durable::Unknown,
            paused_s,
            storage_read_bytes: from_storage,
        };
        let surroundings = Surroundings { memory_bytes: Some(1000), ..Surroundings::default() };
        Totals::of(vec![WorkersReport {
            run,
            files: 1,
            dirs: 1,
            data_bytes,
            populate_s: 0.0,
            surroundings,
            notes: Vec::new(),
            objects: None,
        }])
    }

    fn messages(cold: bool, totals: &Totals) -> Vec<String> {
        let settings = FilesSettings { cold, ..FilesSettings::default() };
        doubts(&settings, totals).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reads_from_the_page_cache_are_doubted_with_their_share_or_as_unknown() {
        for cold in [false, true] {
            let said = messages(cold, &totals(Some(250), 100, 0.0));
            assert_eq!(
                said,
                ["the page cache served 75 % of the bytes read: the files take 10 % of the memory"]
            );
            let said = messages(cold, &totals(None, 100, 0.0));
            assert!(said[0].contains("what share of the reads it served is unknown"), "{said:?}");
            // Read from storage, also ahead; and too many files for the page cache.
            for totals in [totals(Some(990), 100, 0.0), totals(Some(2000), 100, 0.0), totals(None, 900, 0.0)]
            {
                assert!(messages(cold, &totals).is_empty());
            }
        }
    }

    #[test]
    fn pause_of_a_noticeable_share_is_doubted_with_its_length() {
        let said = messages(false, &totals(Some(1000), 100, 2.0));
        assert!(said[0].contains("kagiri did not run for 2 s, 20 % of the measured time"), "{said:?}");
        assert!(messages(false, &totals(Some(1000), 100, 0.05)).is_empty());
    }
}
