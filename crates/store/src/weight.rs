//! How much memory a document takes once it is read, estimated before it is: a few bytes of text can stand
//! for a structure of hundreds.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Memory for small documents; larger ones may take [`TIMES_SIZE`] as much as their text.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
const TIMES_SIZE: u64 = 3;

/// Upper estimates of what one value takes in memory, with what the growth of its list reserves.
const NUMBER_BYTES: u64 = 48;
const SAMPLE_BYTES: u64 = 16;
const TEXT_BYTES: u64 = 48;
const LIST_BYTES: u64 = 96;
const OBJECT_BYTES: u64 = 256;
const KEY_BYTES: u64 = 56;
/// Lists of plain numbers lie below these keys.
const OF_SAMPLES: [&str; 2] = ["series", "figures"];

/// What the error of a document that is too heavy says.
pub(crate) const TOO_HEAVY: &str = "it would take far more memory than its size";

/// Read through a document without keeping it.
/// Errors: It is no JSON, or it would take more memory than its size allows.
pub(crate) fn check(document: &[u8]) -> serde_json::Result<()> {
    let left = Cell::new(MEMORY_BYTES_MIN + TIMES_SIZE * document.len() as u64);
    let mut reader = serde_json::Deserializer::from_slice(document);
    Weigher { left: &left, number_bytes: NUMBER_BYTES }.deserialize(&mut reader)?;
    reader.end()
}

#[derive(Clone, Copy)]
struct Weigher<'a> {
    left: &'a Cell<u64>,
    number_bytes: u64,
}

impl Weigher<'_> {
    fn spend<E: Error>(self, bytes: u64) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| E::custom(TOO_HEAVY))?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Weigher<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weigher<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.spend(self.number_bytes)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.spend(self.number_bytes)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.spend(self.number_bytes)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.spend(self.number_bytes)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.spend(self.number_bytes)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.spend(TEXT_BYTES + text.len() as u64)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.spend(LIST_BYTES)?;
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        self.spend(OBJECT_BYTES)?;
        while let Some(key) = object.next_key::<String>()? {
            self.spend(KEY_BYTES + key.len() as u64)?;
            let is_of_samples = OF_SAMPLES.contains(&key.as_str());
            let number_bytes = if is_of_samples { SAMPLE_BYTES } else { self.number_bytes };
            object.next_value_seed(Weigher { number_bytes, ..self })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_in_great_number_are_too_heavy_and_samples_are_not() {
        let list = |item: &str, bytes: usize| {
            format!("[{item}{}]", format!(",{item}").repeat(bytes / (item.len() + 1)))
        };
        for item in ["{}", "[]", "1", "\"\"", "{\"a\":{}}"] {
            let text = format!("{{\"environment\":{}}}", list(item, 16 << 20));
            let error = check(text.as_bytes()).expect_err(item).to_string();
            assert!(error.starts_with(TOO_HEAVY), "{item}: {error}");
        }
        let samples = format!("{{\"series\":[{{\"values\":{}}}]}}", list("12.345678", 16 << 20));
        check(samples.as_bytes()).unwrap();
        check(format!("{{\"trials\":{}}}", list("{}", 1 << 16)).as_bytes()).unwrap();
    }
}
