//! One run in at most [`LINES`] lines of [`COLUMNS`] columns: what came of it, what limits it, what to doubt,
//! and where the rest is.

use base::format::plural;
use base::metric::MetricSpec;
use base::outcome::Run;

use super::Style;
use super::paint::Tone;
use super::summary::{answer, doubt_texts, requirement, toned, variant_columns};
use super::table::{Column, is_one_table, render};
use crate::extras::Extras;
use crate::text::plain;
use crate::{doubts, sweep};

pub const LINES: usize = 15;
pub const COLUMNS: usize = 80;
/// Where the rest of a shortened answer is.
pub(super) const EVERYTHING: &str = "Everything: --full";
/// Lines of the answer.
const ANSWER_LINES: usize = 9;
/// Most lines of the table of variants with its head; requirements and doubts leave it fewer.
pub(super) const TABLE_LINES: usize = 11;
const REQUIREMENT_LINES: usize = 3;

/// The run as text: the answer in words, or a table of the variants; requirements, those that do not hold in
/// front; as many doubts as there is room for; where everything else is. Ends with a line break.
pub fn brief(run: &Run, extras: &Extras, style: Style, page: Option<&str>) -> String {
    let style = Style { width: style.width.min(COLUMNS), ..style };
    let requirements = requirements(run, extras.specs, &style);
    let rest = rest(run, extras, &style, page);
    let doubts: Vec<_> = doubt_texts(doubts::of_short_answer(run))
        .iter()
        .map(|text| toned(&style, Tone::Odd, "Doubt: ", text))
        .collect();
    let after = requirements.lines().count() + rest.lines().count() + usize::from(!doubts.is_empty());
    let mut text = match run.variants.len() {
        0 | 1 => first_lines(&answer(run, &style), ANSWER_LINES),
        _ => variant_table(run, &style, TABLE_LINES.min(LINES - after)),
    };
    text += &requirements;
    let used = text.lines().count() + rest.lines().count();
    text += &as_fits(&doubts, "doubt", LINES.saturating_sub(used));
    style.spell(text + &rest)
}

pub(super) fn first_lines(text: &str, most: usize) -> String {
    text.lines().take(most).map(|line| format!("{line}\n")).collect()
}

/// At most `lines` lines with one row per variant, and as many columns as fit beside each other.
pub(super) fn variant_table(run: &Run, style: &Style, lines: usize) -> String {
    let mut text = String::new();
    if let Some(state) = crate::words::state(run) {
        text += &first_lines(&toned(style, Tone::Odd, "", &state), 2);
    }
    let mut columns = variant_columns(run, false);
    let limit = columns.pop();
    let shown = |columns: &[Column]| columns.iter().cloned().chain(limit.clone()).collect::<Vec<_>>();
    // The first columns are the variant's name and the main number.
    while columns.len() > 2 && !is_one_table(&shown(&columns), style) {
        columns.pop();
    }
    let mut columns = shown(&columns);
    let heads = columns.iter().map(|column| column.head.len()).max().unwrap_or(0);
    let rule = 1;
    let rows_below = |text: &str| lines.saturating_sub(text.lines().count() + heads + rule).max(2);
    if run.variants.len() > rows_below(&text) {
        // Where not all rows are shown, the ends of what was swept say the most.
        let ends: Vec<_> = sweep::sentences(run).iter().map(|one| style.wrapped("", one)).collect();
        text += &as_fits(&ends, "sentence", lines / 2);
    }
    let rows = rows_below(&text);
    let more = run.variants.len().saturating_sub(rows);
    let rows = if more > 0 { rows - 1 } else { rows };
    columns.iter_mut().for_each(|column| column.cells.truncate(rows));
    text += &render(&columns, 1, style);
    if more > 0 {
        text += &format!("and {}\n", plural((run.variants.len() - rows) as u64, "more variant"));
    }
    text
}

fn requirements(run: &Run, specs: &[MetricSpec], style: &Style) -> String {
    let mut all: Vec<_> = run.requirements.iter().collect();
    all.sort_by_key(|required| required.held);
    let all: Vec<_> = all.into_iter().map(|required| requirement(required, specs, style)).collect();
    as_fits(&all, "requirement", REQUIREMENT_LINES)
}

/// As many of the texts as fit into this many lines, and how many are left out.
pub(super) fn as_fits(all: &[String], what: &str, lines: usize) -> String {
    let mut kept = all.len();
    loop {
        let left_out = all.len() - kept;
        let needed = all[..kept].iter().map(|text| text.lines().count()).sum::<usize>();
        if kept == 0 || needed + usize::from(left_out > 0) <= lines {
            let more = format!("and {}\n", plural(left_out as u64, &format!("more {what}")));
            return all[..kept].concat() + if left_out > 0 { &more } else { "" };
        }
        kept -= 1;
    }
}

/// Where everything else is. A path that is broken cannot be copied, so these are not wrapped.
fn rest(run: &Run, extras: &Extras, style: &Style, page: Option<&str>) -> String {
    let program = extras.program.unwrap_or("kagiri");
    let all = style.paint(Tone::Faint, &format!("All numbers: {program} runs show {}", plain(&run.run)));
    let page = page.map(|path| format!("Report: {}\n", plain(path))).unwrap_or_default();
    format!("{all}\n{page}")
}
