//! Timelines: lanes of spans to zoom into down to the call, as a page that works offline, with the table of
//! the calls, and as a part of a report.

mod data;
mod lanes;

use base::outcome::Figure;
use base::timeline::{CallTimes, IN_PROCESS, Picture};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::terminal::{Column, call_columns, softirq_columns};
use crate::text::{plain, unbroken};
use crate::words::calls as sentences;
use data::Encoded;

const PAGE_STYLE: &str = include_str!("page.css");
/// Style of the timelines of a page.
pub(crate) const STYLE: &str = include_str!("viewer.css");
/// The script that draws all timelines of a page.
pub(crate) const SCRIPT: &str = include_str!("viewer.js");
/// The script, for a Content-Security-Policy.
pub(crate) const SCRIPT_SOURCE: &str = "'sha256-HXGdAt9bCE9Yf7wnN8qJz47p6GBn+EJuhj6+RemGhW0='";

/// The table and the picture as one HTML document (HTML 5, UTF-8). It fetches nothing; its script draws what
/// it holds.
pub fn page(times: &CallTimes, picture: &Picture) -> String {
    let title = format!("{} · kagiri timeline", plain(&times.target));
    let encoded = data::encode(picture, times.backend != IN_PROCESS);
    html! {
        (DOCTYPE)
        html.timeline-page lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Whatever a program may have smuggled into its name, this page fetches nothing.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src \
                    'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(PAGE_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (plain(&times.target)) }
                    p { (unbroken(&sentences::watched(times))) }
                    p.faint { (unbroken(&sentences::traced(times))) }
                    @for doubt in &times.doubts { p.doubt { b { "Doubt: " } (plain(doubt)) } }
                }
                main {
                    (stage(&encoded, false, true))
                    (table("Calls by their share of the elapsed time", &call_columns(times)))
                    (table("The kernel's network work, of all programs", &softirq_columns(times)))
                    @for note in sentences::notes(times) { p.faint { (note) } }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// The timeline of a figure whose rows have names and consist of spans of time, for a page that has [`STYLE`]
/// and [`SCRIPT`]; `None` for other figures. `is_first`: how it is used stands below it.
pub(crate) fn of_figure(figure: &Figure, is_first: bool) -> Option<Markup> {
    Some(stage(&lanes::encode(figure)?, true, is_first))
}

/// Whether there are timelines in a part of a page.
pub(crate) fn is_in(body: &Markup) -> bool {
    body.0.contains("<section class=\"timeline\"")
}

/// Where the script draws, what it draws, and, if it has `help`, how it is used. `is_part`: of a page about
/// something else.
fn stage(encoded: &Encoded, is_part: bool, has_help: bool) -> Markup {
    html! {
        section.timeline aria-label="Timeline" data-part[is_part] {
            div.tools {
                button.out type="button" title="Zoom out (-)" { "−" }
                button.in type="button" title="Zoom in (+)" { "+" }
                button.all type="button" title="The whole (0)" { "Whole" }
                span.range {}
                span.kinds {}
            }
            canvas.overview height="36" aria-hidden="true" {}
            div.view {
                canvas.lanes tabindex="0" role="img" aria-label="Lanes of threads and CPUs over time" {}
                div.spacer {}
            }
            div.told role="status" hidden {}
            noscript { p.doubt { "The picture needs JavaScript; the tables do not." } }
            @if has_help { p {
                "Full height: a call without waiting, or a thread on a CPU. Half height: a call in which \
                 the thread was switched out. If several calls share a pixel, the height is their share of \
                 time. "
                @if is_part { "After a click: wheel" } @else { "Wheel" }
                ": zoom; drag: move; double click: zoom to the call; keys: arrows, + − 0."
            } }
            script.head type="application/json" { (PreEscaped(&encoded.head)) }
            script.spans type="text/plain" { (PreEscaped(&encoded.spans)) }
        }
    }
}

fn table(caption: &str, columns: &[Column]) -> Markup {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    html! {
        @if rows > 0 {
            table {
                caption { (caption) }
                thead { tr { @for column in columns { th.n[column.right] { (column.head.join(" ")) } } } }
                tbody { @for row in 0..rows { tr {
                    @for column in columns { td.n[column.right] { (column.cells[row]) } }
                } } }
            }
        }
    }
}
