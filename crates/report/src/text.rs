//! Text made safe and ready to be printed.

use base::format::count;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A space at which no line is broken.
pub const NO_BREAK: char = '\u{a0}';

/// The text with no line break between a number and its unit ([`NO_BREAK`]).
pub fn unbroken(text: &str) -> String {
    const UNITS: [&str; 23] = [
        "%", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "B", "kB", "MB", "GB", "KiB", "MiB", "GiB",
        "kB/s", "MB/s", "GB/s", "MiB/s", "s", "ms", "µs", "ns", "min", "h",
    ];
    let mut kept = String::with_capacity(text.len());
    for (i, word) in text.split(' ').enumerate() {
        if i > 0 {
            let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
            let after_number = kept.ends_with(|c: char| c.is_ascii_digit());
            kept.push(if after_number && UNITS.contains(&bare) { NO_BREAK } else { ' ' });
        }
        kept += word;
    }
    kept
}

/// A number, with its unit or without, with separators from ten thousand on: `12,500 events/s`.
pub fn separated(text: &str) -> String {
    let (number, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
    match number.parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && !number.contains('e') => count(value) + rest,
        _ => text.to_owned(),
    }
}

pub fn moment(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Errors of the system without their numbers: of `Connection refused (os error 111)` the words.
pub fn without_error_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEFORE) {
        kept += before;
        match after.split_once(')') {
            Some((number, end)) if number.parse::<u32>().is_ok() => rest = end,
            _ => {
                kept += BEFORE;
                rest = after;
            }
        }
    }
    kept + rest
}

/// Text from a plan or a host made safe for a terminal: no control characters (an escape sequence could
/// recolour or erase what is above), and on one line.
pub fn plain(text: &str) -> String {
    visible(text).trim().to_owned()
}

/// The same with the blanks before and after it, for a line that stands among others.
pub fn visible(line: &str) -> String {
    // Bidirectional overrides reorder what follows them, which is as misleading as an escape sequence.
    let hostile = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    line.chars().map(|c| if hostile(c) { ' ' } else { c }).collect()
}

/// A name cut to a number of characters.
pub fn clipped(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_unit_are_not_broken_apart() {
        assert_eq!(
            unbroken("5 streams of 25 Mbit/s; 43 % (2 s, 4 µs)"),
            "5 streams of 25\u{a0}Mbit/s; 43\u{a0}% (2\u{a0}s, 4\u{a0}µs)"
        );
    }

    #[test]
    fn numbers_of_errors_are_left_out() {
        let refused = "connect 10.0.0.2:5201: Connection refused (os error 111); is it running there?";
        assert_eq!(
            without_error_numbers(refused),
            "connect 10.0.0.2:5201: Connection refused; is it running there?"
        );
        let twice = "no coordinator (Connection refused (os error 111)), then (os error x)";
        assert_eq!(without_error_numbers(twice), "no coordinator (Connection refused), then (os error x)");
    }

    #[test]
    fn great_numbers_have_separators() {
        for (text, expected) in [
            ("12500 events/s", "12,500 events/s"),
            ("-250000", "-250,000"),
            ("8619 /s", "8619 /s"),
            ("12.5 Mbit/s", "12.5 Mbit/s"),
            ("1e20", "1e20"),
            ("\u{2013}", "\u{2013}"),
        ] {
            assert_eq!(separated(text), expected);
        }
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(plain("\u{1b}[31mred\u{7}\nx\u{202e}"), "[31mred  x");
    }
}
