//! JSON on the control connection. The peer's numbers are not to be trusted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The longest text taken for parameters; iperf3 itself takes 8 KiB.
pub const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// The longest text taken for results from a peer that was asked for what it printed.
pub const OUTPUT_BYTES_MAX: usize = 10 << 20;

/// The longest text taken for the results of so many streams: each is described by some 250 bytes.
pub const fn results_bytes_max(streams: u32) -> usize {
    (64 << 10) + ((streams as usize) << 10)
}

/// Fields that an object may have; iperf3 sends some thirty.
const FIELDS_MAX: usize = 256;

/// Whole numbers up to here are the same in every JSON implementation (RFC 8259, 6); cJSON keeps all in
/// doubles.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A text that is no JSON object, or lacks what cannot be done without.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it sends no usable JSON: {0}")]
pub struct JsonError(pub String);

/// The fields of an object. Lists and objects within it are skipped while it is read, so that its memory
/// stays within a few times its text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object(BTreeMap<String, Scalar>);

#[derive(Debug, Clone, PartialEq)]
enum Scalar {
    Bool(bool),
    /// Kept apart, because a double is not exact beyond 2^53.
    Whole(u64),
    Real(f64),
    Text(String),
    /// `null`, a list or an object.
    Other,
}

impl Object {
    pub fn contains_key(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Some versions write flags as `true`, some as 1.
    pub fn flag(&self, key: &str) -> bool {
        match self.0.get(key) {
            Some(Scalar::Bool(on)) => *on,
            Some(Scalar::Whole(number)) => *number != 0,
            Some(Scalar::Real(number)) => *number != 0.0,
            _ => false,
        }
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = Object::default();
                while let Some((key, value)) = map.next_entry()? {
                    object.0.insert(key, value);
                    if object.0.len() > FIELDS_MAX {
                        return Err(A::Error::custom(format!("more than {FIELDS_MAX} fields")));
                    }
                }
                Ok(object)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_bool<E>(self, on: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(on))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Whole(number))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Real(number as f64))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar::Real(number))
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }
            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Reads an object.
///
/// Versions of iperf3 have written `nan`, `-nan` and `inf`, which JSON does not have; they are read as
/// `null`.
pub fn parse(text: &[u8]) -> Result<Object, JsonError> {
    let text = repaired(text);
    serde_json::from_slice(&text).map_err(|error| JsonError(error.to_string()))
}

/// The text as JSON, if it is not.
pub(crate) fn repaired(text: &[u8]) -> Cow<'_, [u8]> {
    match serde_json::from_slice::<IgnoredAny>(text) {
        Ok(_) => Cow::Borrowed(text),
        Err(_) => without_nan(text).map_or(Cow::Borrowed(text), Cow::Owned),
    }
}

/// The text with `null` for what is not a number; `None` if there is nothing of that kind.
fn without_nan(text: &[u8]) -> Option<Vec<u8>> {
    let mut mended = Vec::with_capacity(text.len());
    let mut found = false;
    let mut within_string = false;
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if !within_string && (byte.is_ascii_alphabetic() || byte == b'-') {
            let word = text[at..].iter().take_while(|b| b.is_ascii_alphabetic() || **b == b'-').count();
            let said = text[at..at + word].to_ascii_lowercase();
            let strange = matches!(said.strip_prefix(b"-").unwrap_or(&said), b"nan" | b"inf" | b"infinity");
            found |= strange;
            mended.extend_from_slice(if strange { b"null" } else { &text[at..at + word] });
            at += word;
            continue;
        }
        let len = if within_string && byte == b'\\' { 2.min(text.len() - at) } else { 1 };
        within_string ^= byte == b'"';
        mended.extend_from_slice(&text[at..at + len]);
        at += len;
    }
    found.then_some(mended)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Absent,
    /// A number at or above zero; what follows the point is dropped, as cJSON does. Beyond 2^53 it may be
    /// rounded.
    Whole(u64),
    Negative,
    /// No number, or none that fits 64 bits.
    Nonsense,
}

/// The whole number under `key`.
pub fn whole(object: &Object, key: &str) -> Number {
    match object.0.get(key) {
        None => Number::Absent,
        Some(Scalar::Whole(number)) => Number::Whole(*number),
        Some(Scalar::Real(number)) if *number <= -1.0 => Number::Negative,
        // 2^63 and above are no counts: the conversion would saturate.
        Some(Scalar::Real(number)) if *number < EXACT_MAX * 1024.0 => Number::Whole(number.max(0.0) as u64),
        Some(_) => Number::Nonsense,
    }
}

/// The finite number under `key`.
pub fn real(object: &Object, key: &str) -> Option<f64> {
    match object.0.get(key)? {
        Scalar::Whole(number) => Some(*number as f64),
        Scalar::Real(number) => Some(*number).filter(|number| number.is_finite()),
        _ => None,
    }
}

/// The text under `key`, without what would disturb a terminal, at most `chars_max` characters.
pub fn text(object: &Object, key: &str, chars_max: usize) -> Option<String> {
    let Scalar::Text(said) = object.0.get(key)? else { return None };
    let calm = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    Some(said.chars().filter(calm).take(chars_max).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn object(text: &str) -> Object {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        let read = object(
            r#"{"a": nan, "b": -NaN, "c": inf, "d": "nan, \" -inf", "e": 18446744073709551616, "f": -3,
                "g": 1e+15, "h": 2.9, "i": -0.5, "j": null, "k": 18446744073709551615}"#,
        );
        let wholes = |keys: &str| keys.chars().map(|key| whole(&read, &key.to_string())).collect::<Vec<_>>();
        assert_eq!(wholes("abcje"), [Number::Nonsense; 5]);
        assert_eq!(wholes("fz"), [Number::Negative, Number::Absent]);
        assert_eq!(wholes("ghik"), [1_000_000_000_000_000, 2, 0, u64::MAX].map(Number::Whole));
        assert_eq!((real(&read, "a"), real(&read, "h"), real(&read, "d")), (None, Some(2.9), None));
        assert_eq!(text(&read, "d", 99).as_deref(), Some("nan, \" -inf"));
        assert!(parse(br#"{"j": 1e400000}"#).is_err() && parse(b"[1]").is_err() && parse(b"{nano}").is_err());
    }

    #[test]
    fn nested_values_are_skipped_and_fields_are_bounded() {
        let read = object(r#"{"a": [{}, {"b": 1}], "b": {"c": [2]}, "c": 3, "c": 4}"#);
        assert_eq!((whole(&read, "a"), whole(&read, "b")), (Number::Nonsense, Number::Nonsense));
        assert_eq!((whole(&read, "c"), read.0.len()), (Number::Whole(4), 3));
        let fields = |n: usize| (0..n).map(|i| format!("\"{i}\":0")).collect::<Vec<_>>().join(",");
        assert!(parse(format!("{{{}}}", fields(FIELDS_MAX)).as_bytes()).is_ok());
        assert!(parse(format!("{{{}}}", fields(FIELDS_MAX + 1)).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn objects_are_read_back(key in "\\PC{0,20}", value in "\\PC{0,50}", number in any::<u64>()) {
            let mut object = Map::new();
            object.insert("n".to_owned(), number.into());
            object.insert(key.clone(), Value::from(value.clone()));
            let text = serde_json::to_vec(&object).unwrap();
            let expected = [("n".to_owned(), Scalar::Whole(number)), (key, Scalar::Text(value))];
            prop_assert_eq!(parse(&text), Ok(Object(expected.into())));
        }

        #[test]
        fn repair_changes_only_invalid_numbers(text in "[a-z\"\\\\{}:,0-9 -]{0,60}") {
            if let Some(mended) = without_nan(text.as_bytes()) {
                prop_assert!(text.contains("nan") || text.contains("inf"));
                prop_assert!(std::str::from_utf8(&mended).unwrap().contains("null"));
            }
        }
    }
}
