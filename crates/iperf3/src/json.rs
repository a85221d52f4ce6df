//! JSON on the control connection. The peer's numbers are not to be trusted.

use serde_json::{Map, Value};

/// The longest text taken for parameters; iperf3 itself takes 8 KiB.
pub const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// The longest text taken for results: thousands of streams, and what a server printed.
pub const RESULTS_BYTES_MAX: usize = 10 << 20;

/// Whole numbers up to here are the same in every JSON implementation (RFC 8259, 6); cJSON keeps all in
/// doubles.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A text that is no JSON object, or lacks what cannot be done without.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it sends no usable JSON: {0}")]
pub struct JsonError(pub String);

/// Reads an object.
///
/// Versions of iperf3 have written `nan`, `-nan` and `inf`, which JSON does not have; they are read as
/// `null`.
pub fn parse(text: &[u8]) -> Result<Map<String, Value>, JsonError> {
    let malformed = |error: serde_json::Error| JsonError(error.to_string());
    serde_json::from_slice(text).or_else(|error| match without_nan(text) {
        Some(mended) => serde_json::from_slice(&mended).map_err(malformed),
        None => Err(malformed(error)),
    })
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
pub fn whole(object: &Map<String, Value>, key: &str) -> Number {
    let Some(value) = object.get(key) else { return Number::Absent };
    if let Some(whole) = value.as_u64() {
        return Number::Whole(whole);
    }
    match value.as_f64() {
        Some(number) if number <= -1.0 => Number::Negative,
        // 2^63 and above are no counts: the conversion would saturate.
        Some(number) if number < EXACT_MAX * 1024.0 => Number::Whole(number.max(0.0) as u64),
        _ => Number::Nonsense,
    }
}

/// The finite number under `key`.
pub fn real(object: &Map<String, Value>, key: &str) -> Option<f64> {
    object.get(key).and_then(Value::as_f64).filter(|number| number.is_finite())
}

/// The text under `key`, without what would disturb a terminal, at most `chars_max` characters.
pub fn text(object: &Map<String, Value>, key: &str, chars_max: usize) -> Option<String> {
    let said = object.get(key)?.as_str()?;
    let calm = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    Some(said.chars().filter(calm).take(chars_max).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(text: &str) -> Map<String, Value> {
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

    proptest! {
        #[test]
        fn objects_are_read_back(key in "\\PC{0,20}", value in "\\PC{0,50}", number in any::<u64>()) {
            let mut object = Map::new();
            object.insert("n".to_owned(), number.into());
            object.insert(key, value.into());
            let text = serde_json::to_vec(&object).unwrap();
            prop_assert_eq!(parse(&text), Ok(object));
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
