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
/// Rounds that begin late, from which on the rate is doubted.
const LATE_SHARE: f64 = 0.01;
/// Kinds of errors that are named one by one.
const NAMED_MAX: usize = 3;

pub(crate) fn judge(settings: &FilesSettings, totals: &Totals) -> Judgement {
    let broke_off = totals.broke_off();
    let missed = missed(settings, totals);
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
        reasons.push(format!("{} threads hang in a file call, and their counts are missing", totals.hanging));
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
    let mut all: Vec<(&String, &u64)> = totals.errors.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    all.into_iter()
        .take(NAMED_MAX)
        .map(|(message, count)| format!("{count} calls failed: {message}"))
        .collect()
}

/// The conditions of the objective that did not hold.
fn missed(settings: &FilesSettings, totals: &Totals) -> Vec<String> {
    let objective = &settings.objective;
    let mut reasons = Vec::new();
    let p99_ns = totals.times.percentile_ns(99.0);
    if let Some((most, p99_ns)) = objective.p99_max.zip(p99_ns)
        && p99_ns > most.ns()
    {
        let took = quantity(Some(p99_ns as f64 / 1e9), "s");
        reasons.push(format!("99 % of the operations took up to {took}, more than {most}"));
    }
    let of_rate = settings.rate.map(|rate| rate * RATE_KEPT);
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
    if let Some(data_ram_percent) = data_percent.filter(|percent| *percent < FITS_PERCENT && !settings.cold)
        && totals.reads > 0
    {
        doubts.push(FilesDoubt::FilesInMemory { data_ram_percent });
    }
    for report in &totals.reports {
        match &report.run.durable {
            Durable::NotWithin { s } => doubts.push(FilesDoubt::NotDurable { waited_s: *s }),
            Durable::Failed { why } => doubts.push(FilesDoubt::DurableUnknown { why: why.clone() }),
            Durable::After { .. } | Durable::Unknown => {}
        }
        let notes = report.notes.iter().map(|note| FilesDoubt::ProgramNote { note: note.clone() });
        doubts.extend(notes);
    }
    let late = totals.late_share().filter(|share| *share > LATE_SHARE);
    doubts.extend(late.map(|share| FilesDoubt::RoundsLate { late_percent: 100.0 * share }));
    if totals.hanging > 0 {
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
