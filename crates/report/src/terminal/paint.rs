//! Colour and wrapping. Colour is never the only carrier of a meaning.

use base::verdict::Verdict;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

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

    /// Lines no wider than the terminal, the first after `lead`, the others under its end. `lead` holds no
    /// wide characters.
    pub fn wrapped(&self, lead: &str, text: &str) -> String {
        let indent = lead.chars().count();
        let width = self.columns().saturating_sub(indent).max(20);
        let mut table = Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX)).add_row([text]);
        if let Some(column) = table.column_mut(0) {
            column.set_padding((0, 0));
        }
        let blank = " ".repeat(indent);
        let lines = table.lines().enumerate();
        let lines =
            lines.map(|(i, line)| format!("{}{}\n", if i == 0 { lead } else { &blank }, line.trim_end()));
        lines.collect()
    }
}
