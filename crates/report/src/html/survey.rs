//! The top of a survey's page: its table, with links to the runs below.

use base::outcome::Run;
use maud::{Markup, html};

use super::number_cell;
use crate::survey::SurveyRow;
use crate::text::unbroken;
use base::format::UNKNOWN;

/// Where a run begins on the page.
pub(super) fn anchor(run: &Run) -> String {
    anchor_of(&run.run)
}

fn anchor_of(run: &str) -> String {
    format!("run-{run}")
}

pub(super) fn header(name: &str, rows: &[SurveyRow]) -> Markup {
    let count = |n: Option<usize>| n.map_or(UNKNOWN.to_owned(), |n| n.to_string());
    html! {
        header {
            div.kind { "kagiri survey" }
            h1 { (name) }
            p.caption { "One line for each measurement: the number, how often it was measured (n), what \
                limits it, and how sure that is. The runs follow below, with all doubts." }
            div.scroll { table.survey {
                thead { tr {
                    th scope="col" { "measured" }
                    th.n scope="col" { "result" }
                    th.n scope="col" { "n" }
                    th scope="col" { "limited by" }
                    th scope="col" { "how sure" }
                    th.n scope="col" { "doubts" }
                } }
                tbody { @for row in rows { tr {
                    th.name scope="row" {
                        @match &row.run {
                            Some(run) => a href=(format!("#{}", anchor_of(run))) {
                                (unbroken(&row.measured)) },
                            None => (row.measured),
                        }
                    }
                    (number_cell(&row.result))
                    td.n.unknown[row.n.is_none()] data-head="n" { (count(row.n)) }
                    td.unknown[row.limit == UNKNOWN] data-head="limited by" { (row.limit) }
                    td { (row.certainty) }
                    td.n.unknown[row.doubts.is_none()] data-head="doubts" { (count(row.doubts)) }
                } } }
            } }
        }
    }
}
