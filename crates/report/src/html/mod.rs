//! One page that works offline: style and figures are inside it, and it loads nothing.

mod appendix;
mod bars;
mod drawn;
mod figures;
mod overlaid;
mod overview;
mod survey;
mod timeline;
mod variant;

use base::outcome::{Run, Table};
use base::verdict::Verdict;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::digest::Row;
pub use crate::extras::Extras;
use crate::survey::SurveyRow;
use crate::tables::printed;
use crate::text::{plain, separated, unbroken};
use crate::timeline as calls;
use crate::words::lower;
use base::format::{UNKNOWN, capitalized};

const STYLE: &str = include_str!("style.css");
/// Values under the pointer.
const POINTING: &str = include_str!("pointing.js");
/// The page's own script, for its Content-Security-Policy: beside that of timelines no other runs, wherever
/// it may come from.
pub const SCRIPT_SOURCE: &str = "'sha256-lGVijAuv+UALxTFcoyvEmE7fuc6iLmdJ1JwealkOG/E='";

/// The run as one HTML document (HTML 5, UTF-8).
pub fn page(run: &Run, extras: &Extras) -> String {
    let title = format!("{} · kagiri {}", plain(&run.name), plain(&run.workload));
    let body = html! {
        (overview::header(run, 0))
        main { (content(run, extras, 0)) }
        (overview::footer(run))
    };
    document(&title, &run.kagiri, &contents(&body.0), &body)
}

/// The runs of a survey as one HTML document, its table first.
pub fn survey_page(name: &str, rows: &[SurveyRow], runs: &[(&Run, Extras)]) -> String {
    // Identifiers of figures are unique on a page; they are made of the number of a variant.
    let first = |n: usize| runs[..n].iter().map(|(run, _)| run.variants.len()).sum::<usize>();
    let body = html! {
        (survey::header(name, rows))
        @for (n, (run, extras)) in runs.iter().enumerate() {
            section id=(survey::anchor(run)) {
                (overview::header(run, first(n)))
                div.main { (content(run, extras, first(n))) }
                (overview::footer(run))
            }
        }
    };
    let kagiri = runs.first().map_or("", |(run, _)| &run.kagiri);
    // Its table links to the runs.
    document(&format!("{} · kagiri survey", plain(name)), kagiri, &html! {}, &body)
}

fn document(title: &str, kagiri: &str, contents: &Markup, body: &Markup) -> String {
    let has_timelines = calls::is_in(body);
    let also_runs = if has_timelines { format!(" {}", calls::SCRIPT_SOURCE) } else { String::new() };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(format!("kagiri {}", plain(kagiri)));
                // Whatever a plan or a host may have smuggled into a name, this page fetches nothing and runs
                // only its own scripts.
                meta http-equiv="Content-Security-Policy" content=(format!("default-src 'none'; style-src \
                    'unsafe-inline'; script-src {SCRIPT_SOURCE}{also_runs}; img-src data:"));
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) @if has_timelines { (PreEscaped(calls::STYLE)) } }
            }
            body {
                (contents)
                (body)
                script { (PreEscaped(POINTING)) }
                @if has_timelines { script { (PreEscaped(calls::SCRIPT)) } }
            }
        }
    }
    .into_string()
}

/// A heading that the contents name; `first` as for [`content`].
fn heading(name: &str, first: usize, text: &str) -> Markup {
    html! { h2 id=(format!("{name}-{first}")) { (text) } }
}

/// Links to the headings of a page, in their order.
fn contents(body: &str) -> Markup {
    let headings: Vec<(&str, &str)> = body
        .split("<h2 id=\"")
        .skip(1)
        .filter_map(|rest| {
            let (id, rest) = rest.split_once("\">")?;
            Some((id, rest.split_once("</h2>")?.0))
        })
        .collect();
    html! {
        @if headings.len() > 1 {
            nav aria-label="Contents" { ul { @for (id, text) in headings {
                // Both are as they stand in the page, escaped.
                li { (PreEscaped(format!("<a href=\"#{id}\">{text}</a>"))) }
            } } }
        }
    }
}

/// Everything of a run below its answer. `first` is the number of its first variant on the page.
fn content(run: &Run, extras: &Extras, first: usize) -> Markup {
    html! {
        (overview::comparison(run, first, extras))
        (overview::verdicts(run, first))
        @for (index, outcome) in run.variants.iter().enumerate() {
            (variant::section(run, outcome, first + index, extras))
        }
        (appendix::requirements(run, extras.specs, first))
        (appendix::doubt_list(run, first))
        (appendix::reproduce(run, extras.command, first))
        (appendix::trials(run, first))
        (appendix::meanings(run, extras.specs))
        (appendix::environment(run))
        (appendix::plan(run))
    }
}

/// A table cell with a number, or with the dash that stands for an unknown one.
fn number_cell(text: &str) -> Markup {
    html! { td.n { @if text == UNKNOWN { span.none title="unknown" { (UNKNOWN) } } @else { (text) } } }
}

fn verdict(verdict: Verdict, text: &str) -> Markup {
    html! { span class=(format!("v v-{verdict}")) { (text) } }
}

/// The verdict of a load with its count: "pass 1/4" is not green, as its trials contradict each other.
fn row_verdict(row: &Row) -> Markup {
    match row.is_unanimous() {
        true => verdict(row.verdict, &row.verdict_words()),
        false => html! { span.v.v-mixed { (row.verdict_words()) } },
    }
}

/// The workload's own tables, folded, beside one another as far as there is room.
fn side_by_side(tables: &[Table]) -> Markup {
    if tables.is_empty() {
        return html! {};
    }
    let titles: Vec<String> = tables.iter().map(|table| lower(&table.title)).collect();
    html! { details {
        summary { "Tables" small { (capitalized(&titles.join(", "))) } }
        div.beside { @for table in tables.iter().map(printed) { section {
            h3 { (table.title) }
            div.scroll { table {
                thead { tr { @for column in &table.columns {
                    @if column.is_number { th.n scope="col" { (column.title) } }
                        @else { th scope="col" { (column.title) } }
                } } }
                tbody { @for row in &table.rows { tr { @for (at, cell) in row.iter().enumerate() {
                    @if at == 0 { th scope="row" { (unbroken(cell)) } }
                    @else if table.columns[at].is_number { (number_cell(&separated(cell))) }
                    @else { td { (unbroken(cell)) } }
                } } } }
            } }
            @for note in table.notes { p.caption { (capitalized(note)) } }
        } } }
    } }
}
