//! Quantities with their units, as people write them: `25Mbit/s`, `250kB`, `128KiB`, `500ms`.
//!
//! Decimal prefixes are powers of 1000, binary ones (`KiB`) powers of 1024 (IEC 80000-13). A bare number is
//! refused wherever a unit could be mistaken: `25` could mean bits or bytes.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::format::trimmed;

/// Why a text is not a quantity; the message names the text and shows what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {what}: {problem}; write for example {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    problem: String,
    example: &'static str,
}

impl UnitError {
    /// The message without its example, for a message that has examples of its own.
    pub fn without_example(&self) -> String {
        format!("'{}' is not {}: {}", self.text, self.what, self.problem)
    }
}

/// What distinguishes one kind of quantity: its name, its units and how it is printed.
struct Dimension {
    what: &'static str,
    example: &'static str,
    /// Units that a bare number may have meant.
    usual: &'static [&'static str],
    units: &'static [(&'static str, f64)],
}

const RATE: Dimension = Dimension {
    what: "a bit rate",
    example: "25Mbit/s",
    usual: &["Mbit/s"],
    units: &[
        ("bit/s", 1.0),
        ("kbit/s", 1e3),
        ("Mbit/s", 1e6),
        ("Gbit/s", 1e9),
        ("Tbit/s", 1e12),
        ("bps", 1.0),
        ("kbps", 1e3),
        ("Mbps", 1e6),
        ("Gbps", 1e9),
        ("B/s", 8.0),
        ("kB/s", 8e3),
        ("MB/s", 8e6),
        ("GB/s", 8e9),
        ("KiB/s", 8.0 * 1024.0),
        ("MiB/s", 8.0 * 1_048_576.0),
        ("GiB/s", 8.0 * 1_073_741_824.0),
    ],
};

const SIZE: Dimension = Dimension {
    what: "a size in bytes",
    example: "1500B, 250kB or 128KiB",
    usual: &["KiB", "MiB"],
    units: &[
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
    ],
};

const TIME: Dimension = Dimension {
    what: "a time",
    example: "500ms or 10s",
    usual: &["ms", "s"],
    units: &[
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
        ("m", 60.0),
        ("h", 3600.0),
    ],
};

/// The number and the unit of a text such as `1.5 Mbit/s`, in base units of the dimension.
fn parse(text: &str, dimension: &Dimension) -> Result<f64, UnitError> {
    let error = |problem: String| UnitError {
        text: text.to_owned(),
        what: dimension.what,
        problem,
        example: dimension.example,
    };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | '_')))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let value: f64 =
        number.replace('_', "").parse().map_err(|_| error("it must begin with a number".into()))?;
    if value < 0.0 {
        return Err(error("it must not be negative".into()));
    }
    let unit = unit.trim();
    if unit.is_empty() && value == 0.0 {
        return Ok(0.0);
    }
    if unit.is_empty() {
        return Err(error("the unit is missing".into()));
    }
    let exact = dimension.units.iter().find(|(name, _)| *name == unit);
    // `mbit/s` and `MBIT/S` have one meaning, so they are accepted; `mb` and `Mb` do not, so they are not.
    let forgiving = || {
        let mut alike = dimension.units.iter().filter(|(name, _)| name.eq_ignore_ascii_case(unit));
        match (alike.next(), alike.next()) {
            (Some(only), None) if unit.contains("bit") || dimension.what == TIME.what => Some(only),
            _ => None,
        }
    };
    let (_, factor) = exact.or_else(forgiving).ok_or_else(|| {
        let names: Vec<_> = dimension.units.iter().map(|(name, _)| *name).collect();
        error(format!("the unit '{unit}' is not one of {}", names.join(", ")))
    })?;
    let scaled = value * factor;
    if scaled.is_finite() && scaled < 9e18 { Ok(scaled) } else { Err(error("it is too large".into())) }
}

/// A quantity with a space before its unit, as in output: `256 KiB`.
pub fn spaced(quantity: impl fmt::Display) -> String {
    let text = quantity.to_string();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    format!("{number} {unit}").trim_end().to_owned()
}

/// Print `value` in the largest of `units` in which it is at least 1.
fn scaled(f: &mut fmt::Formatter<'_>, value: f64, units: &[(&str, f64)]) -> fmt::Result {
    let (name, factor) = units.iter().rev().find(|(_, factor)| value >= *factor).unwrap_or(&units[0]);
    write!(f, "{}{name}", trimmed(value / factor, 3))
}

/// Reads a quantity from a file: a text with its unit. The error for a bare number shows how to write it with
/// a unit.
struct QuantityVisitor<T>(&'static Dimension, PhantomData<T>);

impl<T> QuantityVisitor<T> {
    fn bare<E: de::Error>(&self, number: impl fmt::Display) -> E {
        let examples: Vec<String> = self.0.usual.iter().map(|unit| format!("\"{number}{unit}\"")).collect();
        E::custom(format!(
            "{number} is not {}: the unit is missing; write for example {}, in quotes",
            self.0.what,
            examples.join(" or ")
        ))
    }
}

impl<T: FromStr<Err = UnitError>> de::Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as text, such as {}", self.0.what, self.0.example)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        Err(self.bare(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        Err(self.bare(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        Err(self.bare(number))
    }
}

macro_rules! text_form {
    ($type:ident, $dimension:ident, $format:literal, $from:expr) => {
        impl FromStr for $type {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text, &$dimension).map($from).map(Self)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(QuantityVisitor::<Self>(&$dimension, PhantomData))
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "format": $format,
                    "description": format!("{}, such as {}", $dimension.what, $dimension.example),
                    "examples": [$dimension.example.split(' ').next()],
                })
            }
        }
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl BitRate {
    pub const fn from_bit_per_s(bit_per_s: u64) -> Self {
        Self(bit_per_s)
    }
    pub const fn bit_per_s(self) -> u64 {
        self.0
    }
    /// In whole bytes per second, rounded down.
    pub const fn byte_per_s(self) -> u64 {
        self.0 / 8
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, &RATE.units[..5])
    }
}

text_form!(BitRate, RATE, "bit-rate", |bit_per_s| bit_per_s.round() as u64);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

impl ByteSize {
    /// From bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = self.0 >= 1024 && self.0.is_multiple_of(1024) && !self.0.is_multiple_of(1000);
        scaled(f, self.0 as f64, if binary { &SIZE.units[5..] } else { &SIZE.units[..5] })
    }
}

text_form!(ByteSize, SIZE, "byte-size", |bytes| bytes.round() as u64);

/// A length of time, held to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(Duration);

impl Span {
    pub const fn from_duration(duration: Duration) -> Self {
        Self(duration)
    }
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
    pub const fn from_s(s: u64) -> Self {
        Self(Duration::from_secs(s))
    }
    pub const fn duration(self) -> Duration {
        self.0
    }
    pub fn s(self) -> f64 {
        self.0.as_secs_f64()
    }
    /// In nanoseconds, saturating at 584 years.
    pub fn ns(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0.as_secs_f64();
        match s {
            _ if s >= 120.0 && s % 60.0 == 0.0 => write!(f, "{}min", trimmed(s / 60.0, 3)),
            _ if s >= 1.0 || s == 0.0 => write!(f, "{}s", trimmed(s, 3)),
            _ => {
                let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)];
                scaled(f, s, &units)
            }
        }
    }
}

text_form!(Span, TIME, "span", |s| Duration::from_nanos((s * 1e9).round() as u64));

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        for (text, bit_per_s) in [
            ("25Mbit/s", 25_000_000),
            ("25 Mbit/s", 25_000_000),
            ("25mbit/s", 25_000_000),
            ("1.5Gbit/s", 1_500_000_000),
            ("110Mbps", 110_000_000),
            ("13.75MB/s", 110_000_000),
            ("1KiB/s", 8192),
            ("0", 0),
        ] {
            assert_eq!(text.parse::<BitRate>().unwrap().bit_per_s(), bit_per_s, "{text}");
        }
        assert_eq!("250kB".parse::<ByteSize>().unwrap().bytes(), 250_000);
        assert_eq!("128KiB".parse::<ByteSize>().unwrap().bytes(), 131_072);
        assert_eq!("500ms".parse::<Span>().unwrap(), Span::from_ms(500));
        assert_eq!("2min".parse::<Span>().unwrap(), Span::from_s(120));
    }

    #[test]
    fn ambiguous_quantity_is_rejected_with_reason() {
        for (text, part) in [
            ("25", "the unit is missing"),
            ("-3Mbit/s", "must not be negative"),
            ("fast", "must begin with a number"),
            ("25Mb/s", "the unit 'Mb/s' is not one of"),
            ("1e3Mbit/s", "the unit 'e3Mbit/s'"),
            ("99999999999Tbit/s", "too large"),
        ] {
            let message = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("25Mbit/s"), "{text}: {message}");
        }
        assert!("5 mb".parse::<ByteSize>().is_err(), "mb is ambiguous");
    }

    #[test]
    fn bare_number_in_file_is_rejected_with_examples() {
        let said = |value: serde_json::Value| serde_json::from_value::<Span>(value).unwrap_err().to_string();
        let expected = "5 is not a time: the unit is missing; write for example \"5ms\" or \"5s\", in quotes";
        assert_eq!(said(5.into()), expected);
        assert!(said(2.5.into()).contains("\"2.5ms\"") && said((-1).into()).contains("-1 is not a time"));
        assert!(said(true.into()).contains("expected a time as text, such as 500ms"));
        assert_eq!(serde_json::from_value::<BitRate>("1kbit/s".into()).unwrap().bit_per_s(), 1000);
    }

    #[test]
    fn quantities_print_in_the_unit_a_reader_expects() {
        assert_eq!(BitRate::from_bit_per_s(25_000_000).to_string(), "25Mbit/s");
        assert_eq!(BitRate::from_bit_per_s(13_750).to_string(), "13.75kbit/s");
        assert_eq!(ByteSize::from_bytes(131_072).to_string(), "128KiB");
        assert_eq!(ByteSize::from_bytes(250_000).to_string(), "250kB");
        assert_eq!(Span::from_ms(500).to_string(), "500ms");
        assert_eq!(Span::from_s(600).to_string(), "10min");
        assert_eq!(Span::from_s(0).to_string(), "0s");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = text.parse::<BitRate>();
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<Span>();
        }

        #[test]
        fn printed_rate_round_trips_within_precision(bit_per_s in 0u64..1_000_000_000_000) {
            let rate = BitRate::from_bit_per_s(bit_per_s);
            let again: BitRate = rate.to_string().parse().unwrap();
            prop_assert!(again.bit_per_s().abs_diff(bit_per_s) as f64 <= bit_per_s as f64 * 5.1e-4);
        }
    }
}
