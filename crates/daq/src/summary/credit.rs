//! The table of the credit search.

use base::format::{number, plural, quantity};
use base::outcome::Table;

use super::super::report::CreditTrial;
use super::super::trial_reports::TrialReports;

/// The credits that were tried.
pub(super) fn table(reports: &TrialReports) -> Option<Table> {
    let steered = reports.builders().into_iter().find_map(|builder| builder.steered.as_ref())?;
    let row = |name: String, tried: &CreditTrial| {
        vec![
            name.into(),
            tried.events.into(),
            tried.events_per_s.into(),
            tried.completion_p99_ms.map(|ms| ms / 1e3).into(),
            tried.stalled.into(),
        ]
    };
    let mut rows: Vec<_> = steered.tried.iter().map(|tried| row(tried.credit.to_string(), tried)).collect();
    rows.extend(steered.granted.iter().map(|granted| row(format!("compared: {}", granted.credit), granted)));
    rows.extend(steered.push.iter().map(|push| row("compared: push".to_owned(), push)));
    let mut notes = vec![format!(
        "credit in use: {}; stalled: events with a fragment that took 150 ms or never came",
        plural(steered.credit.into(), "fragment")
    )];
    let rate = steered.rate_bit_per_s.map(|rate| quantity(Some(rate), "bit/s"));
    let buffer =
        steered.buffer_bytes.map(|buffer| format!("buffer of {}", quantity(Some(buffer as f64), "B")));
    let found: Vec<String> = rate.into_iter().chain(buffer).collect();
    if !found.is_empty() {
        notes.push(format!("estimated path to the builder: {}", found.join(", ")));
    }
    notes.extend(steered.granted.as_ref().zip(steered.push.as_ref()).map(gain));
    if steered.stagger_ns > 0 {
        notes.push(format!(
            "by arithmetic, not tried: with --pattern push, --stagger {}ns spaces the fragments at this rate",
            steered.stagger_ns
        ));
    }
    // Of so few events the 99th percentile is the slowest.
    let mut all = steered.tried.iter().chain(&steered.granted).chain(&steered.push);
    let is_few = all.all(|tried| tried.events < 100);
    let slowest = if is_few { "max" } else { "p99" };
    let columns = [("credit", ""), ("events", ""), ("rate", "/s"), (slowest, "s"), ("stalled", "")];
    Some(Table { rows, notes, ..Table::new("Credit search: short probes with rough rates", &columns) })
}

/// The rate of the credit in use against that of push.
fn gain((granted, push): (&CreditTrial, &CreditTrial)) -> String {
    let of = |one: &CreditTrial| format!("{} events in {}", one.complete, quantity(Some(one.lasted_s), "s"));
    let times = match push.events_per_s > 0.0 {
        true => format!("{} times the event rate of push", number(granted.events_per_s / push.events_per_s)),
        false => "push completed no event".to_owned(),
    };
    format!("compared after the hold, one after the other: {times} ({} against {})", of(granted), of(push))
}
