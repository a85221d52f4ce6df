//! Colour and wrapping. Colour is never the only carrier of a meaning.

use base::verdict::Verdict;
use unicode_width::UnicodeWidthStr;

use super::Style;

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
}

/// Pieces of a line that are at most `width` columns wide, broken between words.
fn broken(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
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
        assert_eq!(style.wrapped("", "漢字 ".repeat(20).as_str()).lines().count(), 3, "wide characters");
    }
}
