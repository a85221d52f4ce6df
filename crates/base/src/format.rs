//! Numbers as text: the only formatter of the program. `125 Mbit/s`, `2.5 MB`, `14.2 %`, `133 µs`, `12,500`.

/// An unknown number in a table cell.
pub const UNKNOWN: &str = "–";
/// An unknown number in a sentence.
pub const UNKNOWN_WORD: &str = "unknown";

/// Decimal prefixes (powers of 1000) in ascending order, as in [`crate::units`].
const PREFIXES: [(&str, f64); 5] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];

/// A column with a shorter largest time is printed in milliseconds if its least is a few only.
const SHORT_S: f64 = 10.0;
/// No number in a column has more decimals.
const DECIMALS_MAX: usize = 4;
/// Counts from here on have separators.
const SEPARATED_MIN: f64 = 1e4;

/// A unit with its prefix, shared by all numbers of a column or an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// How many base units one of these is.
    pub factor: f64,
    /// The unit with its prefix, as printed.
    pub unit: String,
    /// How many decimals distinguish the numbers.
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
            "s" if largest > 0.0 && largest < 1e-6 => ("n", 1e-9),
            "s" if largest > 0.0 && largest < 1e-3 => ("µ", 1e-6),
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
            // In seconds the shortest would show no digit.
            "s" if least < 0.01 && (0.1..SHORT_S).contains(&largest) => {
                Self { factor: 1e-3, unit: "ms".into(), decimals: decimals(largest / 1e-3) }
            }
            _ => Self::for_largest(unit, largest),
        };
        if whole { Self { decimals: 0, ..scale } } else { scale }
    }

    /// The number alone, without its unit.
    pub fn number(&self, value: Option<f64>) -> String {
        match value.filter(|value| value.is_finite()) {
            Some(value) => aligned(value / self.factor, self.decimals),
            None => UNKNOWN.to_owned(),
        }
    }
}

/// How many decimals the numbers of a column deserve.
fn decimals(largest: f64) -> usize {
    match largest {
        v if v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 || v == 0.0 => 2,
        _ => 4,
    }
}

/// A number with this number of decimals, or with more if it is too small to show two digits; a number
/// without digits up to [`DECIMALS_MAX`] prints as zero.
fn aligned(value: f64, decimals: usize) -> String {
    let shows = |decimals: &usize| value.abs() >= 10f64.powi(1 - *decimals as i32) * 0.995;
    let is_whole = decimals == 0 && value.fract() == 0.0;
    let enough = (decimals..=DECIMALS_MAX).find(shows).filter(|_| !is_whole);
    fixed(value, enough.unwrap_or(decimals))
}

/// A number with exactly this number of decimals, without a minus sign before zero.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|b| matches!(b, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}

/// A number to three or four significant digits, without trailing zeros.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if !v.is_finite() => return UNKNOWN.to_owned(),
        v if v >= 1e15 => return format!("{value:.2e}"),
        v if v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 1e-4 => 4,
        _ => return format!("{value:.1e}"),
    };
    trimmed(value, decimals)
}

/// A number with at most this number of decimals, without zeros at their end.
pub(crate) fn trimmed(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A number with its unit: `quantity(Some(125e6), "bit/s")` is `125 Mbit/s`; whole numbers without a unit are
/// counts.
pub fn quantity(value: Option<f64>, unit: &str) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return UNKNOWN.to_owned();
    };
    let scale = Scale::for_largest(unit, value);
    match scale.unit.as_str() {
        "" if value.fract() == 0.0 => count(value),
        "" => number(value),
        // Not quite all is not all.
        "%" if value < 100.0 && number(value) == "100" => {
            format!("{} %", fixed((value * 100.0).floor() / 100.0, 2))
        }
        unit => format!("{} {unit}", number(value / scale.factor)),
    }
}

pub fn quantity_in_sentence(value: Option<f64>, unit: &str) -> String {
    match value.filter(|value| value.is_finite()) {
        Some(value) => quantity(Some(value), unit),
        None => UNKNOWN_WORD.to_owned(),
    }
}

/// A whole number, with separators from ten thousand on: `1500`, `12,500`.
pub fn count(value: f64) -> String {
    let digits = fixed(value, 0);
    if value.abs() < SEPARATED_MIN || value.abs() >= 1e15 {
        return if value.abs() >= 1e15 { number(value) } else { digits };
    }
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 event`, `2 events`.
pub fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", self::count(count as f64), if count == 1 { "" } else { "s" })
}

/// Both ends of an interval in the unit of the larger: `24.7 to 25.6 Mbit/s`.
pub fn range(ends: Option<[f64; 2]>, unit: &str) -> String {
    let Some([low, high]) = ends.filter(|ends| ends.iter().all(|end| end.is_finite())) else {
        return UNKNOWN.to_owned();
    };
    let scale = Scale::for_largest(unit, low.abs().max(high.abs()));
    let text = format!("{} to {} {}", number(low / scale.factor), number(high / scale.factor), scale.unit);
    text.trim_end().to_owned()
}

/// The unit of a metric or series by the suffix of its name, in base units, and the factor that converts its
/// value.
pub fn unit_of(name: &str) -> (&'static str, f64) {
    const SUFFIXES: [(&str, &str, f64); 14] = [
        ("mb_per_s", "B/s", 1_048_576.0),
        ("_bit_per_s", "bit/s", 1.0),
        ("_per_s", "/s", 1.0),
        ("_percent", "%", 1.0),
        ("_bytes", "B", 1.0),
        ("_bytes_max", "B", 1.0),
        ("_bytes_each", "B", 1.0),
        ("_us_per_fragment", "s", 1e-6),
        ("_us_per_op", "s", 1e-6),
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
    // Abbreviations are upper case; everything else stays in lower case.
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

/// `text` with its first letter in upper case.
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A length of time: `45 s`, `3 min 20 s`, `2 h 5 min`.
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

/// An estimate of a length of time, rounded up, by half of it at most from 0.2 s on: `0.6 s`, `35 s`,
/// `4 min`, `1.6 h`.
pub fn duration_rounded_up(s: f64) -> String {
    let in_steps_of = |step: f64| format!("{} s", (s.max(0.0) / step).ceil() * step);
    match s {
        s if s <= 2.0 => format!("{} s", (s.max(0.0) * 10.0).ceil() / 10.0),
        s if s <= 10.0 => in_steps_of(1.0),
        s if s <= 90.0 => in_steps_of(5.0),
        s if s <= 5400.0 => format!("{:.0} min", (s / 60.0).ceil()),
        s => format!("{:.1} h", (s / 360.0).ceil() / 10.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_chooses_prefix_and_digits() {
        for (value, unit, text) in [
            (Some(125e6), "bit/s", "125 Mbit/s"),
            (Some(11.92e9), "bit/s", "11.9 Gbit/s"),
            (Some(2.5e6), "B", "2.5 MB"),
            (Some(12.0), "B", "12 B"),
            (Some(1_485_440_000.0), "B/s", "1.49 GB/s"),
            (Some(14.2), "%", "14.2 %"),
            (Some(99.996), "%", "99.99 %"),
            (Some(100.0), "%", "100 %"),
            (Some(0.0), "bit/s", "0 bit/s"),
            (Some(2.0), "s", "2 s"),
            (Some(0.9), "s", "0.9 s"),
            (Some(0.0021), "s", "2.1 ms"),
            (Some(0.000_105_2), "s", "105.2 µs"),
            (Some(900e-9), "s", "900 ns"),
            (Some(5.0), "", "5"),
            (Some(67_632.0), "", "67,632"),
            (Some(0.9463), "", "0.946"),
            (Some(-0.001), "%", "-0.001 %"),
            (Some(2e-6), "%", "2.0e-6 %"),
            (None, "%", UNKNOWN),
            (Some(f64::NAN), "%", UNKNOWN),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
        assert_eq!(quantity_in_sentence(None, "s"), UNKNOWN_WORD);
        assert_eq!(metric("loss_ratio", Some(0.031)), "3.1 %");
        assert_eq!(metric("response_p99_ms", Some(480.0)), "0.48 s");
    }

    #[test]
    fn count_separates_thousands_from_ten_thousand_on() {
        for (value, text) in
            [(0.0, "0"), (1500.0, "1500"), (12_500.0, "12,500"), (-1_234_567.0, "-1,234,567")]
        {
            assert_eq!(count(value), text);
        }
        assert_eq!(count(1e17), "1.00e17");
        assert_eq!([plural(1, "source"), plural(20_000, "source")], ["1 source", "20,000 sources"]);
    }

    #[test]
    fn column_shares_its_prefix_and_keeps_counts_whole() {
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
        assert_eq!(shown("%", [1e-9, 99.0]), of("%", ["0.0", "99.0"]), "prints as zero");
    }

    #[test]
    fn durations() {
        assert_eq!(
            [0.9, 45.0, 180.0, 200.0, 7500.0].map(duration),
            ["0.9 s", "45 s", "3 min", "3 min 20 s", "2 h 5 min"]
        );
    }

    #[test]
    fn estimated_durations_are_rounded_up() {
        for (seconds, text) in [
            (-1.0, "0 s"),
            (0.2, "0.2 s"),
            (0.61, "0.7 s"),
            (1.95, "2 s"),
            (2.1, "3 s"),
            (9.2, "10 s"),
            (10.2, "15 s"),
            (41.0, "45 s"),
            (90.0, "90 s"),
            (91.0, "2 min"),
            (121.0, "3 min"),
            (5401.0, "1.6 h"),
        ] {
            assert_eq!(duration_rounded_up(seconds), text);
        }
    }
}
