//! The cells of a table: numbers with or without a unit, decimal points and commas, verdicts, blanks.

use base::verdict::Verdict;

/// What kind of quantity a column holds, and thereby which units it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// CPU time, in % of one core.
    Cpu,
    /// A share, in %.
    Percent,
    /// Bits per second.
    Rate,
    /// Bytes.
    Size,
    /// A time, in ms.
    Time,
    /// Events per second, counts: a number without a unit.
    Plain,
    /// Errors and losses: a count, a share or a rate, of which only matters whether it is zero.
    Failures,
}

type Units = &'static [(&'static str, f64)];

const CPU: Units =
    &[("%", 1.0), ("percent", 1.0), ("pct", 1.0), ("cores", 100.0), ("core", 100.0), ("cpus", 100.0)];
const PERCENT: Units = &[("%", 1.0), ("percent", 1.0), ("pct", 1.0)];
/// `KB` and `K` are 1024 bytes, as `ps`, `top` and `iostat` mean them; `kB` is 1000 (IEC 80000-13).
const SIZE: Units = &[
    ("B", 1.0),
    ("bytes", 1.0),
    ("byte", 1.0),
    ("kB", 1e3),
    ("KB", 1024.0),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];
const RATE: Units = &[
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("bits/s", 1.0),
    ("bps", 1.0),
    ("kbps", 1e3),
    ("Mbps", 1e6),
    ("Gbps", 1e9),
    ("B/s", 8.0),
    ("bytes/s", 8.0),
    ("byte/s", 8.0),
    ("kB/s", 8e3),
    ("KB/s", 8.0 * 1024.0),
    ("MB/s", 8e6),
    ("GB/s", 8e9),
    ("KiB/s", 8.0 * 1024.0),
    ("MiB/s", 8.0 * 1_048_576.0),
    ("GiB/s", 8.0 * 1_073_741_824.0),
];
const TIME: Units = &[("us", 1e-3), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3)];
const PLAIN: Units = &[("/s", 1.0), ("per s", 1.0), ("1/s", 1.0)];
const FAILURES: Units =
    &[("/s", 1.0), ("per s", 1.0), ("1/s", 1.0), ("%", 1.0), ("percent", 1.0), ("pct", 1.0)];

impl Dimension {
    const fn units(self) -> Units {
        match self {
            Self::Cpu => CPU,
            Self::Percent => PERCENT,
            Self::Rate => RATE,
            Self::Size => SIZE,
            Self::Time => TIME,
            Self::Plain => PLAIN,
            Self::Failures => FAILURES,
        }
    }

    /// What a number of this kind looks like, for messages.
    pub const fn example(self) -> &'static str {
        match self {
            Self::Cpu => "a number in % of one core, such as 27.2, or 2 cores",
            Self::Percent => "a number in %, such as 31.5",
            Self::Rate => "a rate, such as 26.9 Mbit/s or 3.36 MB/s (B is byte)",
            Self::Size => "a size, such as 2542 KB or 12.5 MiB",
            Self::Time => "a time, such as 6.0 ms",
            Self::Plain => "a number, such as 3.5",
            Self::Failures => "a number of failures, such as 12 or 0.5 %",
        }
    }

    /// By how much one of the unit is more than one of the base unit; `None` for a unit that is unknown or
    /// could be mistaken (`mb/s`: bits or bytes?).
    pub fn factor(self, unit: &str) -> Option<f64> {
        let unit = unit.trim().trim_end_matches("ec").replace("_per_s", "/s").replace("_s", "/s");
        let unit = if self == Self::Rate { unit.replace("per s", "/s").replace(' ', "") } else { unit };
        let units = self.units();
        if let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) {
            return Some(*factor);
        }
        let safe = match self {
            Self::Rate => {
                let lower = unit.to_ascii_lowercase();
                lower.contains("bit")
                    || lower.ends_with("bps")
                    || lower.contains("ib/")
                    || lower.contains("byte")
            }
            // Memory is never measured in bits, so that the case of the letters cannot mislead.
            _ => true,
        };
        // `kb` of memory is read as `KB`: lower-case spellings come from programs that mean 1024.
        let mut alike = units.iter().rev().filter(|(name, _)| name.eq_ignore_ascii_case(&unit));
        if safe { alike.next().map(|(_, factor)| *factor) } else { None }
    }
}

/// Whether a text is meant as a unit, right or wrong: used to complain instead of ignoring a column.
pub fn is_like_a_unit(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase().replace("_per_s", "/s").replace("_s", "/s");
    let known = [CPU, SIZE, RATE, TIME];
    let stem = text.trim_end_matches("ec").trim_end_matches("/s");
    let sizes = ["b", "kb", "mb", "gb", "k", "m", "g", "bit", "kbit", "mbit", "gbit"];
    sizes.contains(&stem)
        || known.iter().any(|units| units.iter().any(|(name, _)| name.eq_ignore_ascii_case(&text)))
}

/// Whether a cell says nothing: unknown, not zero.
pub fn is_blank(text: &str) -> bool {
    let text = text.trim();
    let words = ["", "-", "–", "—", "?", "n/a", "na", "nan", "null", "none", "unknown"];
    words.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// The number of a cell in the dimension's base unit. A unit in the cell goes before the column's.
/// Errors: What is wrong with the text.
pub fn quantity(
    text: &str,
    dimension: Dimension,
    column_factor: Option<f64>,
    decimal_comma: bool,
) -> Result<f64, String> {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '+' | '-');
    let mut split = text.find(|c| !is_number(c)).unwrap_or(text.len());
    // An exponent belongs to the number: `1.2e3`.
    let rest = &text[split..];
    if rest.starts_with(['e', 'E'])
        && rest[1..].starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'))
    {
        split += 2 + rest[2..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 2);
    }
    let (figure, unit) = text.split_at(split);
    let value = number(figure, decimal_comma)?;
    let factor = match (unit.trim(), column_factor) {
        ("", Some(factor)) => factor,
        ("", None) => return Err("the unit is missing".into()),
        (unit, _) => {
            dimension.factor(unit).ok_or_else(|| format!("the unit '{}' is not known here", short(unit)))?
        }
    };
    let scaled = value * factor;
    if scaled.is_finite() && scaled < 1e18 { Ok(scaled) } else { Err("it is too large".into()) }
}

fn number(figure: &str, decimal_comma: bool) -> Result<f64, String> {
    let text = match (figure.contains(','), decimal_comma) {
        (false, _) => figure.to_owned(),
        (true, true) if figure.contains('.') || figure.matches(',').count() > 1 => {
            return Err("thousands are not to be separated".into());
        }
        (true, true) => figure.replace(',', "."),
        (true, false) => {
            return Err("a decimal comma needs columns separated by semicolons or tabs".into());
        }
    };
    let value: f64 = text.parse().map_err(|_| "it does not begin with a number".to_owned())?;
    match value >= 0.0 {
        true => Ok(value),
        false => Err("it must not be negative".into()),
    }
}

/// The verdict that a word stands for; 1 means that the load passed.
pub fn verdict(text: &str) -> Option<Verdict> {
    let word = text.trim().to_ascii_lowercase();
    match word.as_str() {
        "pass" | "passed" | "ok" | "yes" | "y" | "true" | "good" | "steady" | "1" => Some(Verdict::Pass),
        "fail" | "failed" | "no" | "n" | "false" | "bad" | "stalled" | "ng" | "0" => Some(Verdict::Fail),
        "invalid" => Some(Verdict::Invalid),
        _ => None,
    }
}

/// The number of failures that a word stands for.
pub fn failures(text: &str) -> Option<f64> {
    match text.trim().to_ascii_lowercase().as_str() {
        "yes" | "y" | "true" | "fail" | "failed" | "error" => Some(1.0),
        "no" | "n" | "false" | "ok" | "pass" | "passed" => Some(0.0),
        _ => None,
    }
}

/// A text from a file, short enough for a message.
pub fn short(text: &str) -> String {
    let mut letters = text.chars().filter(|c| !c.is_control());
    let head: String = letters.by_ref().take(40).collect();
    if letters.next().is_some() { head + "..." } else { head }
}
