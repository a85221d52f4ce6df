//! The picture of a program's calls as one page that works offline: a table, and lanes to zoom into down to
//! the call.

mod data;

use base::timeline::{CallTimes, IN_PROCESS, Picture};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::terminal::{Column, call_columns, softirq_columns};
use crate::text::plain;
use crate::words::calls as sentences;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The table and the picture as one HTML document (HTML 5, UTF-8). It fetches nothing; its script draws what
/// it holds.
pub fn page(times: &CallTimes, picture: &Picture) -> String {
    let title = format!("{} · kagiri timeline", plain(&times.target));
    let (head, spans) = data::encode(picture, times.backend != IN_PROCESS);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Whatever a program may have smuggled into its name, this page fetches nothing.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src \
                    'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (plain(&times.target)) }
                    p { (sentences::watched(times)) }
                    p.faint { (sentences::traced(times)) }
                    @for doubt in &times.doubts { p.doubt { b { "Doubt: " } (plain(doubt)) } }
                }
                main {
                    (stage())
                    (table("Calls by their share of the elapsed time", &call_columns(times)))
                    (table("The kernel's network work, of all programs", &softirq_columns(times)))
                    @for note in sentences::notes(times) { p.faint { (note) } }
                }
                script type="application/json" id="head" { (PreEscaped(head)) }
                script type="text/plain" id="spans" { (PreEscaped(spans)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// Where the script draws, and how it is used.
fn stage() -> Markup {
    html! {
        section aria-label="Timeline" {
            div #bar {
                button #out type="button" title="Zoom out (-)" { "−" }
                button #in type="button" title="Zoom in (+)" { "+" }
                button #all type="button" title="The whole (0)" { "Whole" }
                span #range {}
                span #legend {}
            }
            canvas #overview height="36" aria-hidden="true" {}
            div #scroll {
                canvas #lanes tabindex="0" role="img" aria-label="Lanes of threads and CPUs over time" {}
                div #spacer {}
            }
            div #tip role="status" hidden {}
            noscript { p.doubt { "The picture needs JavaScript; the tables do not." } }
            p.faint {
                "Full height: a call without waiting, or a thread on a CPU. Half height: a call in which \
                 the thread was switched out. If several calls share a pixel, the height is their share of \
                 time. Wheel: zoom; drag: move; double click: zoom to the call; keys: arrows, + − 0."
            }
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
