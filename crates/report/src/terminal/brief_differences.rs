//! A comparison in at most [`LINES`] lines.

use store::compare::Comparison;

use super::Style;
use super::brief::{COLUMNS, EVERYTHING, LINES, as_fits};
use super::differences::{differences, heading, numbers};
use super::paint::Tone;

/// [`differences`], or if it is longer: the result of each pair, and the numbers that differ if there is room
/// for them. Ends with a line break.
pub fn brief_differences(comparison: &Comparison, style: Style) -> String {
    let style = Style { width: style.width.min(COLUMNS), ..style };
    let full = differences(comparison, style);
    if full.lines().count() <= LINES {
        return full;
    }
    let with_run = comparison.runs.len() > 1;
    let headings: Vec<String> = comparison.pairs.iter().map(|pair| heading(pair, with_run, &style)).collect();
    let mut text = as_fits(&headings, "pair", LINES - 1);
    if let [only] = &comparison.pairs[..] {
        let numbers = numbers(only, with_run, &style);
        if text.lines().count() + numbers.lines().count() < LINES {
            text += &numbers;
        }
    }
    style.spell(text + &style.paint(Tone::Faint, EVERYTHING) + "\n")
}
