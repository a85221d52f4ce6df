//! Colour and wrapping. Colour is never the only carrier of a meaning.

use base::verdict::Verdict;
use unicode_width::UnicodeWidthStr;

use super::Style;
use crate::text::{NO_BREAK, unbroken};

/// SGR sequences (ECMA-48, 8.3.117).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Bold,
    Faint,
    Good,
    Bad,
    Odd,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Odd => "33",
        }
    }

    pub(super) const fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => Self::Good,
            Verdict::Fail => Self::Bad,
            Verdict::Invalid => Self::Odd,
        }
    }
}

impl Style {
    /// The text in a tone, where colours may be used.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        match self.colour && !text.is_empty() {
            true => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()),
            false => text.to_owned(),
        }
    }

    /// The finished text in the characters that the terminal can show.
    pub(super) fn spell(&self, text: String) -> String {
        if self.unicode {
            return text;
        }
        let simple = |c: char| match c {
            '–' | '—' | '─' => Some("-"),
            'µ' => Some("u"),
            '±' => Some("+/-"),
            '…' => Some("..."),
            '×' => Some("x"),
            '≤' => Some("<="),
            '≥' => Some(">="),
            _ => None,
        };
        text.chars().map(|c| simple(c).map_or_else(|| c.to_string(), str::to_owned)).collect()
    }

    /// Lines no wider than the terminal, the first after `lead`, the others under its end. A word that is
    /// wider than the terminal stands alone and is not broken: a path could not be copied. `lead` holds no
    /// wide characters.
    pub fn wrapped(&self, lead: &str, text: &str) -> String {
        let indent = lead.chars().count();
        let width = self.columns().saturating_sub(indent).max(20);
        let blank = " ".repeat(indent);
        let lines = text.lines().flat_map(|line| broken(line, width)).enumerate();
        let lines = lines.map(|(i, line)| format!("{}{line}\n", if i == 0 { lead } else { &blank }));
        lines.collect()
    }

    /// Lines no wider than the terminal. What is wider is broken between words and goes on below its last
    /// column, or else below its first word.
    pub fn fitted(&self, text: &str) -> String {
        let fit = |line: &str| match line.width() > self.columns() {
            true => {
                let lead = lead(line, self.columns() / 2);
                self.wrapped(lead, &line[lead.len()..])
            }
            false => format!("{line}\n"),
        };
        text.lines().map(fit).collect()
    }
}

/// What stands before a line's last column of words, if that begins within `most` columns, else its blanks.
fn lead(line: &str, most: usize) -> &str {
    let blanks = line.len() - line.trim_start().len();
    let column = line.rfind("  ").map(|at| at + 2).filter(|at| *at > blanks && line[..*at].width() <= most);
    &line[..column.unwrap_or(blanks)]
}

/// Pieces of a line that are at most `width` columns wide, broken between words, not before a unit.
fn broken(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let line = unbroken(line);
    let words = line.split(|c: char| c.is_whitespace() && c != NO_BREAK).filter(|word| !word.is_empty());
    for word in words.map(|word| word.replace(NO_BREAK, " ")) {
        let word = word.as_str();
        let last = lines.last_mut().expect("there is one from the beginning");
        if last.is_empty() {
            last.push_str(word);
        } else if last.width() + 1 + word.width() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_broken_at_any_width() {
        let path = "/data/".repeat(30);
        let text = format!("Report of the run with 5 streams of 25 Mbit/s, kept at {path} and read later");
        for width in [40, 57, 80, 200] {
            let wrapped = Style { colour: false, width, unicode: true }.wrapped("Doubt: ", &text);
            let words: Vec<_> = wrapped.split_whitespace().skip(1).collect();
            assert_eq!(words, text.split_whitespace().collect::<Vec<_>>(), "{width}");
            let fits = |line: &str| line.chars().count() <= width || line.contains(&path);
            assert!(wrapped.lines().all(fits), "{width}: {wrapped}");
        }
        let style = Style { colour: false, width: 40, unicode: true };
        assert_eq!(style.wrapped("- ", ""), "", "nothing to say");
        let unit = style.wrapped("", "The sender's threads waited for it 88.3 % of the time");
        assert_eq!(unit, "The sender's threads waited for it\n88.3 % of the time\n");
        assert_eq!(style.wrapped("", "漢字 ".repeat(20).as_str()).lines().count(), 3, "wide characters");
    }

    #[test]
    fn what_is_too_wide_goes_on_below_its_last_column() {
        let style = Style { colour: false, width: 40, unicode: true };
        let text = "  2 flows  invalid  the trial was ended before its time was over\n  \
                    a line with one column of words that is too wide\nshort   one";
        let expected = "  2 flows  invalid  the trial was ended\n                    before its time was\n\
                        \x20                   over\n  a line with one column of words that\n  is \
                        too wide\nshort   one\n";
        assert_eq!(style.fitted(text), expected);
    }
}
