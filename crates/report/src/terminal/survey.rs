//! Measurements of several workloads in at most [`LINES`](super::brief::LINES) lines.

use super::Style;
use super::brief::{COLUMNS, LINES};
use super::table::{Column, is_one_table, render};
use crate::survey::SurveyRow;
use crate::text::{clipped, plain};
use base::format::{UNKNOWN, plural};

/// Lines of the head, the rule below it and the two lines below the table.
const FRAME_LINES: usize = 4;
/// Longer texts are cut off, so that the columns fit beside each other.
const CELL_COLUMNS: usize = 22;

/// The table, then where the rest is: `page` is the report's path. Ends with a line break.
pub fn survey(rows: &[SurveyRow], style: Style, page: Option<&str>) -> String {
    let style = Style { width: style.width.min(COLUMNS), ..style };
    let shown = rows.len().min(LINES - FRAME_LINES);
    let cells = |of: &dyn Fn(&SurveyRow) -> String| {
        rows[..shown].iter().map(|row| clipped(&plain(&of(row)), CELL_COLUMNS)).collect::<Vec<_>>()
    };
    let count = |n: Option<usize>| n.map_or(UNKNOWN.to_owned(), |n| n.to_string());
    let mut columns = vec![
        Column::words(&["measured"], cells(&|row| row.measured.clone())),
        Column::numbers(&["result"], cells(&|row| row.result.clone())),
        Column::numbers(&["n"], cells(&|row| count(row.n))),
        Column::words(&["limited by"], cells(&|row| row.limit.clone())),
        Column::words(&["how sure"], cells(&|row| row.certainty.clone())),
        Column::numbers(&["doubts"], cells(&|row| count(row.doubts))),
    ];
    while columns.len() > 4 && !is_one_table(&columns, &style) {
        columns.pop();
    }
    let mut text = render(&columns, 1, &style);
    let more = rows.len() - shown;
    let more = if more > 0 { format!("and {}. ", plural(more as u64, "more result")) } else { String::new() };
    text += &format!("{more}All numbers: kagiri runs list, or --full\n");
    if let Some(path) = page {
        // A path that is broken cannot be copied, so it is not wrapped.
        text += &format!("Report: {}\n", plain(path));
    }
    style.spell(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: &str, result: &str, limit: &str) -> SurveyRow {
        let certainty = "confirmed".to_owned();
        let (limit, result) = (limit.to_owned(), result.to_owned());
        SurveyRow {
            result,
            limit,
            certainty,
            n: Some(1),
            doubts: Some(12),
            ..SurveyRow::unanswered(measured, "")
        }
    }

    #[test]
    fn widest_rows_fit_a_small_terminal() {
        let mut rows = vec![
            row("streams of 25 Mbit/s", "at least 264 streams", "the players' CPU time"),
            row("events, 100 sources", "1234 events/s", "a limit with a name that is much too long"),
            SurveyRow::unanswered("file server", "not measured"),
        ];
        rows.extend((0..20).map(|n| row(&format!("row {n}"), "1 Gbit/s", "cpu")));
        let style = Style { colour: false, width: 200, unicode: true };
        let text = survey(&rows, style, Some("/tmp/report.html"));
        assert!(text.lines().count() <= LINES, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(
            text.contains("and 12 more results. ") && text.ends_with("Report: /tmp/report.html\n"),
            "{text}"
        );
        let few = survey(&rows[..2], style, None);
        assert!(few.contains("264 streams") && few.contains("players' CPU time"), "{few}");
    }
}
