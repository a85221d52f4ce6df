//! CSV for other programs (RFC 4180). The JSON export is the stored document itself and belongs to the store.

use std::collections::BTreeSet;

use base::outcome::Run;
use csv::Writer;

use crate::words;

/// One row a trial. Columns carry their unit in their name; an empty cell is an unknown number.
pub fn trials_csv(run: &Run) -> String {
    let names: BTreeSet<&str> =
        run.trials.iter().flat_map(|t| t.metrics.keys().map(String::as_str)).collect();
    let load = load_column(&run.capacity.unit);
    let mut head: Vec<&str> = vec![
        "run",
        "trial",
        "variant",
        "repetition",
        "phase",
        &load,
        "verdict",
        "started_at",
        "hold_from_s",
        "hold_to_s",
    ];
    head.extend(&names);
    head.extend(["reasons", "doubts"]);
    let rows = run.trials.iter().map(|trial| {
        let mut row = vec![
            run.run.clone(),
            trial.number.to_string(),
            trial.variant.clone(),
            trial.repetition.to_string(),
            words::phase_word(trial.phase).replace(' ', "-"),
            cell(Some(trial.load)),
            trial.verdict.to_string(),
            trial.started_at.to_string(),
            cell(Some(trial.hold_from_s)),
            cell(Some(trial.hold_to_s)),
        ];
        row.extend(names.iter().map(|name| cell(trial.metrics.get(*name).copied().flatten())));
        row.push(trial.reasons.join("; "));
        row.push(trial.doubts.iter().map(|doubt| doubt.message.as_str()).collect::<Vec<_>>().join("; "));
        row
    });
    table(&head, rows)
}

/// One row a sample: trial, time since the trial's start, series, unit, value (empty when unknown).
pub fn series_csv(run: &Run) -> String {
    let samples = run.trials.iter().flat_map(|trial| {
        trial.series.iter().flat_map(move |series| {
            series.at_s.iter().zip(&series.values).map(move |(&at_s, &value)| {
                vec![
                    trial.number.to_string(),
                    cell(Some(at_s)),
                    series.name.clone(),
                    series.unit.clone(),
                    cell(value),
                ]
            })
        })
    });
    table(&["trial", "at_s", "name", "unit", "value"], samples)
}

/// `load_streams`, `load_bit_per_s`.
fn load_column(unit: &str) -> String {
    let unit = unit.replace('/', "_per_").replace('%', "percent");
    let safe: String = unit.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if safe.is_empty() { "load".to_owned() } else { format!("load_{safe}") }
}

/// A number in full precision; nothing for an unknown one.
fn cell(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map(|value| value.to_string()).unwrap_or_default()
}

/// A text that neither a spreadsheet takes for a formula (OWASP, CSV injection) nor a terminal obeys; a
/// number is left as it is. A line break may stand in a cell (RFC 4180).
fn harmless(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let shown = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c });
    if is_formula { ['\''].into_iter().chain(shown).collect() } else { shown.collect() }
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    const PROVEN: &str = "rows as long as the head, written to memory";
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(head.iter().map(|cell| harmless(cell))).expect(PROVEN);
    for row in rows {
        writer.write_record(row.iter().map(|cell| harmless(cell))).expect(PROVEN);
    }
    String::from_utf8(writer.into_inner().expect(PROVEN)).expect("every cell is a String")
}
