//! One page that works offline: style and figures are inside it, and it loads nothing.

mod appendix;
mod drawn;
mod figures;
mod overview;
mod timeline;
mod variant;

use base::metric::MetricSpec;
use base::outcome::Run;
use base::verdict::Verdict;
use base::workload::Presentation;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::text::plain;
use base::format::UNKNOWN;

const STYLE: &str = include_str!("style.css");

/// What a page needs beside the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    /// The workload's metrics, explained in the appendix.
    pub specs: &'a [MetricSpec],
    pub presentation: &'a Presentation,
    /// The command that makes such a run again.
    pub command: Option<&'a str>,
}

/// The run as one HTML document (HTML 5, UTF-8).
pub fn page(run: &Run, extras: &Extras) -> String {
    let title = format!("{} · kagiri {}", plain(&run.name), plain(&run.workload));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(format!("kagiri {}", plain(&run.kagiri)));
                // Whatever a plan or a host may have smuggled into a name, this page fetches and runs nothing.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                (overview::header(run))
                main {
                    (overview::verdicts(run))
                    (overview::comparison(run))
                    @for (index, outcome) in run.variants.iter().enumerate() {
                        (variant::section(run, outcome, index, extras))
                    }
                    (appendix::requirements(run, extras.specs))
                    (appendix::doubt_list(run))
                    (appendix::reproduce(run, extras.command))
                    (appendix::trials(run))
                    (appendix::meanings(run, extras.specs))
                    (appendix::environment(run))
                    (appendix::plan(run))
                }
                (overview::footer(run))
            }
        }
    }
    .into_string()
}

/// A table cell with a number, or with the dash that stands for an unknown one.
fn number_cell(text: &str) -> Markup {
    html! { td.n { @if text == UNKNOWN { span.none title="not known" { (UNKNOWN) } } @else { (text) } } }
}

/// A verdict in its colour.
fn verdict(verdict: Verdict, text: &str) -> Markup {
    html! { span class=(format!("v v-{verdict}")) { (text) } }
}
