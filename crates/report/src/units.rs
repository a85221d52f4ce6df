//! Numbers as people read them: `125 Mbit/s`, `2.5 MB`, `14.2 %`. What is unknown is a dash, never a zero.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// What stands where a number is not known.
pub const UNKNOWN: &str = "–";

/// Decimal prefixes (powers of 1000) in ascending order, as in [`base::units`].
const PREFIXES: [(&str, f64); 5] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];

/// Times up to this are told in milliseconds where one beside them is of a few only.
const SHORT_S: f64 = 10.0;
/// No number in a column has more decimals.
const DECIMALS_MAX: usize = 4;

/// A unit with its prefix, shared by all numbers of a column or an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// How many base units one of these is.
    pub factor: f64,
    /// The unit with its prefix, as printed.
    pub unit: String,
    /// How many decimals tell the numbers apart.
    pub decimals: usize,
}

impl Scale {
    /// The prefix and decimals in which numbers up to `largest` (in the base unit) read best.
    pub fn for_largest(unit: &str, largest: f64) -> Self {
        let largest = if largest.is_finite() { largest.abs() } else { 0.0 };
        let (prefix, factor) = match unit {
            "bit/s" | "B" | "B/s" => {
                *PREFIXES.iter().rev().find(|(_, factor)| largest >= *factor).unwrap_or(&PREFIXES[0])
            }
            "s" if largest > 0.0 && largest < 1e-4 => ("µ", 1e-6),
            "s" if largest > 0.0 && largest < 0.1 => ("m", 1e-3),
            _ => ("", 1.0),
        };
        Self { factor, unit: format!("{prefix}{unit}"), decimals: decimals(largest / factor) }
    }

    /// The scale for a column: whole numbers stay whole.
    pub fn for_values(unit: &str, values: impl Iterator<Item = f64> + Clone) -> Self {
        let whole = unit.is_empty() && values.clone().all(|value| value.fract() == 0.0);
        let known = || values.clone().map(f64::abs).filter(|value| value.is_finite());
        let (largest, least) =
            (known().fold(0.0, f64::max), known().filter(|v| *v > 0.0).fold(f64::MAX, f64::min));
        let scale = match unit {
            // Of seconds the shortest would show no digit.
            "s" if least < 0.01 && (0.1..SHORT_S).contains(&largest) => {
                Self { factor: 1e-3, unit: "ms".into(), decimals: decimals(largest / 1e-3) }
            }
            _ => Self::for_largest(unit, largest),
        };
        if whole { Self { decimals: 0, ..scale } } else { scale }
    }

    /// The number alone, without its unit; a dash when it is not known.
    pub fn number(&self, value: Option<f64>) -> String {
        match value.filter(|value| value.is_finite()) {
            Some(value) => told(value / self.factor, self.decimals),
            None => UNKNOWN.to_owned(),
        }
    }
}

/// How many decimals a number of this size deserves: three to four significant digits.
fn decimals(largest: f64) -> usize {
    match largest {
        v if v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 || v == 0.0 => 2,
        _ => 4,
    }
}

/// A number with so many decimals, or with more where it is too small to show two digits of itself; what does not
/// show by [`DECIMALS_MAX`] either is as good as zero.
fn told(value: f64, decimals: usize) -> String {
    let shows = |decimals: &usize| value.abs() >= 10f64.powi(1 - *decimals as i32) * 0.995;
    let is_whole = decimals == 0 && value.fract() == 0.0;
    let enough = (decimals..=DECIMALS_MAX).find(shows).filter(|_| !is_whole);
    fixed(value, enough.unwrap_or(decimals))
}

/// A number with so many decimals, without a minus sign before zero.
fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|b| matches!(b, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}

/// A number without trailing zeros, to about four significant digits.
pub fn tidy(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let text = fixed(value, decimals(value.abs()));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// One quantity in words: `quantity(Some(125e6), "bit/s")` is `125 Mbit/s`.
pub fn quantity(value: Option<f64>, unit: &str) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return UNKNOWN.to_owned();
    };
    let scale = Scale::for_largest(unit, value);
    let number = tidy(value / scale.factor);
    match scale.unit.as_str() {
        "" => number,
        unit => format!("{number} {unit}"),
    }
}

/// Both ends of an interval in the unit of the larger: `24.7 to 25.6 Mbit/s`.
pub fn range(ends: Option<[f64; 2]>, unit: &str) -> String {
    let Some([low, high]) = ends.filter(|ends| ends.iter().all(|end| end.is_finite())) else {
        return UNKNOWN.to_owned();
    };
    let scale = Scale::for_largest(unit, low.abs().max(high.abs()));
    let text = format!("{} to {} {}", tidy(low / scale.factor), tidy(high / scale.factor), scale.unit);
    text.trim_end().to_owned()
}

/// The text with no line break between a number and its unit (no-break space, U+00A0).
pub fn unbroken(text: &str) -> String {
    const UNITS: [&str; 12] =
        ["%", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "B", "kB", "MB", "GB", "s", "ms", "min"];
    let mut kept = String::with_capacity(text.len());
    for (i, word) in text.split(' ').enumerate() {
        if i > 0 {
            let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
            let after_number = kept.ends_with(|c: char| c.is_ascii_digit());
            kept.push(if after_number && UNITS.contains(&bare) { '\u{a0}' } else { ' ' });
        }
        kept += word;
    }
    kept
}

/// A sentence begins with a capital letter.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The unit of a metric or series by the suffix of its name, in base units: how to print one whose
/// specification is not at hand. Returns the unit and the factor that turns the value into it.
pub fn unit_of(name: &str) -> (&'static str, f64) {
    const SUFFIXES: [(&str, &str, f64); 12] = [
        ("_bit_per_s", "bit/s", 1.0),
        ("_per_s", "/s", 1.0),
        ("_percent", "%", 1.0),
        ("_bytes", "B", 1.0),
        ("_bytes_max", "B", 1.0),
        ("_bytes_each", "B", 1.0),
        ("_us_per_fragment", "s", 1e-6),
        ("_ratio", "%", 100.0),
        ("_ms", "s", 1e-3),
        ("_us", "s", 1e-6),
        ("_ns", "s", 1e-9),
        ("_s", "s", 1.0),
    ];
    let found = SUFFIXES.iter().find(|(suffix, ..)| name.ends_with(suffix));
    found.map_or(("", 1.0), |(_, unit, factor)| (*unit, *factor))
}

/// A metric's value with the unit that its name ends in.
pub fn metric(name: &str, value: Option<f64>) -> String {
    let (unit, factor) = unit_of(name);
    quantity(value.map(|value| value * factor), unit)
}

/// A metric's name as words, without its unit: `slack_min_s` is `slack min`.
pub fn metric_words(name: &str) -> String {
    const SUFFIXES: [&str; 9] =
        ["_bit_per_s", "_per_s", "_percent", "_bytes", "_ratio", "_ms", "_us", "_ns", "_s"];
    let stem = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    let stem = stem.replace("_bytes_", "_").replace("_us_per_", "_per_");
    let words = stem.replace('_', " ");
    // Abbreviations are written as such; everything else stays in lower case.
    let spelt = words.split(' ').map(|word| match word {
        "cpu" => "CPU",
        "gb" => "GB",
        "psi" => "PSI",
        "rss" => "RSS",
        "rtt" => "RTT",
        "tcp" => "TCP",
        other => other,
    });
    spelt.collect::<Vec<_>>().join(" ")
}

/// `1st`, `2nd`, `3rd`, `4th`, `11th`.
pub fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (1, teen) if teen != 11 => "st",
        (2, teen) if teen != 12 => "nd",
        (3, teen) if teen != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// A length of time in words: `45 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(s: f64) -> String {
    let whole = s.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) if s < 10.0 => quantity(Some(s.max(0.0)), "s"),
        (0, 0, s) => format!("{s} s"),
        (0, min, 0) => format!("{min} min"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

/// A moment in UTC, to the second.
pub fn moment(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
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
    fn quantities_read_as_people_write_them() {
        for (value, unit, text) in [
            (Some(125e6), "bit/s", "125 Mbit/s"),
            (Some(2.5e6), "B", "2.5 MB"),
            (Some(14.2), "%", "14.2 %"),
            (Some(0.0), "bit/s", "0 bit/s"),
            (Some(0.0021), "s", "2.1 ms"),
            (Some(0.9), "s", "0.9 s"),
            (Some(5.0), "", "5"),
            (Some(-0.001), "%", "-0.001 %"),
            (None, "%", "–"),
            (Some(f64::NAN), "%", "–"),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
        assert_eq!(metric("loss_ratio", Some(0.031)), "3.1 %");
        assert_eq!(metric("response_p99_ms", Some(480.0)), "0.48 s");
    }

    #[test]
    fn a_column_shares_its_prefix_and_keeps_counts_whole() {
        let scale = Scale::for_values("bit/s", [26.9e6, 133e6].into_iter());
        assert_eq!((scale.unit.as_str(), scale.number(Some(26.9e6))), ("Mbit/s", "26.9".to_owned()));
        assert_eq!(Scale::for_values("", [0.0, 4.0].into_iter()).number(Some(4.0)), "4");
        assert_eq!(scale.number(None), UNKNOWN);
        let shown = |unit, values: [f64; 2]| {
            let scale = Scale::for_values(unit, values.into_iter());
            (scale.unit.clone(), values.map(|value| scale.number(Some(value))))
        };
        let of = |unit: &str, [a, b]: [&str; 2]| (unit.to_owned(), [a.to_owned(), b.to_owned()]);
        assert_eq!(shown("s", [0.0031, 0.26]), of("ms", ["3.1", "260.0"]));
        assert_eq!(shown("s", [0.07, 1.91]), of("s", ["0.070", "1.91"]));
        assert_eq!(shown("s", [0.0031, 31.5]), of("s", ["0.0031", "31.5"]), "long times stay seconds");
        assert_eq!(shown("%", [0.021, 99.0]), of("%", ["0.021", "99.0"]));
        assert_eq!(shown("%", [0.0, 99.0]), of("%", ["0.0", "99.0"]));
        assert_eq!(shown("%", [1e-9, 99.0]), of("%", ["0.0", "99.0"]), "as good as zero");
    }

    #[test]
    fn numbers_keep_their_unit_beside_them() {
        assert_eq!(
            unbroken("5 streams of 25 Mbit/s; 43 % (2 s)"),
            "5 streams of 25\u{a0}Mbit/s; 43\u{a0}% (2\u{a0}s)"
        );
    }

    #[test]
    fn ordinals_and_durations() {
        assert_eq!(
            [1, 2, 3, 6, 11, 12, 21, 112].map(ordinal),
            ["1st", "2nd", "3rd", "6th", "11th", "12th", "21st", "112th"]
        );
        assert_eq!(
            [0.9, 45.0, 180.0, 200.0, 7500.0].map(duration),
            ["0.9 s", "45 s", "3 min", "3 min 20 s", "2 h 5 min"]
        );
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(plain("\u{1b}[31mred\u{7}\nx\u{202e}"), "[31mred  x");
    }
}
