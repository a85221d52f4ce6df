//! Results as tables, for a terminal and for the documentation.

use std::fmt::Write as _;

use base::statistics::median;
use comfy_table::{ContentArrangement, Table, presets};

use crate::noise::Noise;
use crate::record::{Row, Section};

const HEADINGS: [&str; 8] = ["what", "ours", "peer", "ratio", "n", "spread", "goal", "noise"];

pub fn text(section: &Section) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(HEADINGS);
    for row in &section.rows {
        table.add_row(cells(row));
    }
    let mut text = format!("{}: {}\n{table}\n", section.case, section.compared);
    for note in notes(section) {
        let _ = writeln!(text, "  {note}");
    }
    text
}

pub fn markdown(section: &Section) -> String {
    let mut text =
        format!("## {}\n\n{}\n\n```\n{}\n```\n\n", section.case, section.compared, section.command);
    let _ = writeln!(text, "| {} |", HEADINGS.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(HEADINGS.len()));
    for row in &section.rows {
        let escaped = cells(row).map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(text, "| {} |", escaped.join(" | "));
    }
    text.push('\n');
    for note in notes(section) {
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn notes(section: &Section) -> impl Iterator<Item = String> + '_ {
    let of_rows = section.rows.iter().filter_map(|row| Some(format!("{}: {}", row.what, row.note.as_ref()?)));
    let versions = section.versions.iter().map(|(name, version)| format!("{name} {version}"));
    let versions = versions.collect::<Vec<_>>().join("; ");
    let measured = format!("measured {} in {:.0} s", section.at, section.took_s);
    let last = if versions.is_empty() { measured } else { format!("{measured}; {versions}") };
    of_rows.chain(section.notes.iter().cloned()).chain([last])
}

fn cells(row: &Row) -> [String; 8] {
    let with_unit = |values: &[f64]| match median(values) {
        Some(value) => format!("{} {}", number(value), row.unit).trim_end().to_owned(),
        None => "-".to_owned(),
    };
    let n = row.ours.len().max(row.peer.len());
    let (spread, ratio) = match median(&row.ratios) {
        Some(ratio) => (spread(&row.ratios), number(ratio)),
        None => (spread(&row.ours), "-".to_owned()),
    };
    let goal = row.goal.as_ref().map_or("-".to_owned(), |goal| {
        let word = match goal.reached {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "not measured",
        };
        format!("{}: {word}", goal.words)
    });
    let noise = noise(&row.noise);
    [row.what.clone(), with_unit(&row.ours), with_unit(&row.peer), ratio, n.to_string(), spread, goal, noise]
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().min_by(f64::total_cmp);
    let most = values.iter().copied().max_by(f64::total_cmp);
    match (least, most) {
        (Some(least), Some(most)) if values.len() > 1 => format!("{}..{}", number(least), number(most)),
        _ => "-".to_owned(),
    }
}

/// Median and worst of what others used of the machine, in % of one core.
fn noise(all: &[Noise]) -> String {
    let other: Vec<f64> = all.iter().map(|noise| noise.other_cpu_percent).collect();
    let stolen = all.iter().filter_map(|noise| noise.steal_percent).max_by(f64::total_cmp);
    let Some(usual) = median(&other) else { return "-".to_owned() };
    let worst = other.iter().copied().max_by(f64::total_cmp).unwrap_or(usual);
    let stolen = stolen.map_or("steal ?".to_owned(), |percent| format!("steal {percent:.0}"));
    format!("other {usual:.0} (max {worst:.0}), {stolen} %")
}

/// Three significant digits, and whole numbers as they are.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        _ if value.fract() == 0.0 && value.abs() < 1e9 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in
            [(1500.0, "1500"), (123.4, "123"), (12.34, "12.3"), (0.9812, "0.981"), (0.0241, "0.0241")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn row_without_values_shows_dashes() {
        let row = cells(&Row::new("nothing", "s"));
        assert_eq!(row[1..6], ["-", "-", "-", "0", "-"].map(str::to_owned));
    }
}
