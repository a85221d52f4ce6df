//! The picture of a program's calls as one page that works offline: a table, and lanes to zoom into down to
//! the call.

mod data;

use base::timeline::{CallRow, CallTimes, IN_PROCESS, Picture, SoftirqRow};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::text::plain;
use crate::words::calls as told;
use base::format::{UNKNOWN, number};

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
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (plain(&times.target)) }
                    p { (told::watched(times)) }
                    p.faint { (told::traced(times)) }
                    @for doubt in &times.doubts { p.doubt { b { "Doubt: " } (plain(doubt)) } }
                }
                main {
                    (stage())
                    (call_table(times))
                    (softirq_table(times))
                    @for note in told::notes(times) { p.faint { (note) } }
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
            noscript { p.doubt { "The picture is drawn by a script, which is switched off here; the tables are not." } }
            p.faint {
                "Full height: a call carried out at once, or a thread on a CPU. Half height: a call in which the thread was \
                 switched out. Where many fall on one pixel, the height is the share of time. Wheel: zoom; drag: move; \
                 double click: zoom to the call; keys: arrows, + − 0."
            }
        }
    }
}

fn call_table(times: &CallTimes) -> Markup {
    let row = |row: &CallRow| {
        html! {
            tr {
                td { (plain(&row.name)) }
                td { (row.state.name()) }
                td.n { (row.count) }
                td.n { (number(row.p50_us)) }
                td.n { (number(row.mean_us)) }
                td.n { (number(row.p99_us)) }
                td.n { (number(row.max_us)) }
                td.n { (number(100.0 * row.wall_share)) }
                td.n { (row.preempted.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string())) }
            }
        }
    };
    html! {
        table {
            caption { "Calls, by their share of the wall's time" }
            thead { tr {
                th { "call" } th { "state" } th.n { "calls" } th.n { "p50 µs" } th.n { "mean µs" } th.n { "p99 µs" }
                th.n { "max µs" } th.n { "of wall %" } th.n { "CPU taken" }
            } }
            tbody { @for each in &times.calls { (row(each)) } }
        }
    }
}

fn softirq_table(times: &CallTimes) -> Markup {
    let known = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), number);
    let row = |row: &SoftirqRow| {
        html! {
            tr {
                td { (plain(&row.name)) }
                td.n { (row.cpu) }
                td.n { (row.count) }
                td.n { (known(row.period_p50_us)) }
                td.n { (known(row.period_mean_us)) }
                td.n { (known(row.period_p99_us)) }
                td.n { (number(row.run_p50_us)) }
                td.n { (number(row.run_mean_us)) }
                td.n { (number(row.run_p99_us)) }
                td.n { (number(100.0 * row.wall_share)) }
            }
        }
    };
    html! {
        @if !times.softirqs.is_empty() {
            table {
                caption { "The kernel's network work, of all programs" }
                thead { tr {
                    th { "softirq" } th.n { "CPU" } th.n { "runs" } th.n { "period p50 µs" } th.n { "mean µs" }
                    th.n { "p99 µs" } th.n { "run p50 µs" } th.n { "mean µs" } th.n { "p99 µs" } th.n { "of wall %" }
                } }
                tbody { @for each in &times.softirqs { (row(each)) } }
            }
        }
    }
}
