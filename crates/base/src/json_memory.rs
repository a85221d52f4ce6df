//! How much memory JSON takes once it is read, estimated before it is: a few bytes of text can stand for a
//! structure of hundreds.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A `serde_json::Value` as an element of a list, with what the growth of the list reserves.
const VALUE_BYTES: u64 = 80;
/// The first allocation of a list, and of an object.
const LIST_BYTES: u64 = 4 * VALUE_BYTES;
const OBJECT_BYTES: u64 = 6 * VALUE_BYTES;
/// A name in an object, beside its value.
const NAME_BYTES: u64 = VALUE_BYTES;
/// A number in a list of plain numbers.
const SAMPLE_BYTES: u64 = 16;

/// An upper estimate of what `json` takes as values, with its text and a copy of it. Numbers below the names
/// in `sample_names` are read into lists of plain numbers.
///
/// # Errors
/// More than `bytes_max` (`is_data`), or no JSON.
pub fn estimate(json: &[u8], sample_names: &[&str], bytes_max: u64) -> serde_json::Result<u64> {
    let spent = Cell::new(0);
    let meter = Meter { spent: &spent, bytes_max, sample_names, number_bytes: VALUE_BYTES };
    meter.spend(2 * json.len() as u64)?;
    let mut reader = serde_json::Deserializer::from_slice(json);
    meter.deserialize(&mut reader)?;
    reader.end()?;
    Ok(spent.get())
}

#[derive(Clone, Copy)]
struct Meter<'a> {
    spent: &'a Cell<u64>,
    bytes_max: u64,
    sample_names: &'a [&'a str],
    number_bytes: u64,
}

impl Meter<'_> {
    fn spend<E: Error>(self, bytes: u64) -> Result<(), E> {
        self.spent.set(self.spent.get() + bytes);
        if self.spent.get() <= self.bytes_max {
            return Ok(());
        }
        Err(E::custom(format_args!("reading it takes more than {} MiB of memory", self.bytes_max >> 20)))
    }
}

impl<'de> DeserializeSeed<'de> for Meter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Meter<'_> {
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

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.spend(VALUE_BYTES)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.spend(VALUE_BYTES + LIST_BYTES)?;
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        self.spend(VALUE_BYTES + OBJECT_BYTES)?;
        while let Some(name) = object.next_key::<String>()? {
            self.spend(NAME_BYTES)?;
            let is_sample = self.sample_names.contains(&name.as_str());
            let number_bytes = if is_sample { SAMPLE_BYTES } else { self.number_bytes };
            object.next_value_seed(Meter { number_bytes, ..self })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in a process that measures one case: an item and how often it is in the list.
    const CASE: &str = "KAGIRI_JSON_MEMORY_CASE";

    /// The kernel's count of a process's memory is the witness. Each case has a process of its own, whose
    /// allocator gives back at once what is freed: other tests, and what a list had before it grew, are not
    /// in its count.
    #[test]
    fn estimate_is_above_the_memory_that_values_take() {
        if let Ok(case) = std::env::var(CASE) {
            return check_case(&case);
        }
        for case in [
            "{} 400000",
            "[] 400000",
            "0 800000",
            "\"\" 800000",
            "[0] 200000",
            r#"{"":0} 100000"#,
            r#"{"a":0,"b":1,"c":[2,3]} 50000"#,
        ] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "json_memory::tests::estimate_is_above_the_memory_that_values_take",
                    "--nocapture",
                ])
                .env(CASE, case)
                .env("MALLOC_MMAP_THRESHOLD_", "65536")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{case}: {output:?}");
        }
    }

    fn check_case(case: &str) {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let (item, count) = case.split_once(' ').unwrap();
        let json = format!("[{}]", vec![item; count.parse().unwrap()].join(","));
        let before = resident();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let taken = resident() - before;
        let estimated = estimate(json.as_bytes(), &[], u64::MAX).unwrap();
        assert!((1 << 20..=estimated).contains(&taken), "{item}: {taken} bytes, estimated {estimated}");
        drop(value);
    }

    #[test]
    fn strings_do_not_count_as_structure() {
        let text = br#"["a,b:{[\",,,,"]"#;
        let list = VALUE_BYTES + LIST_BYTES;
        assert_eq!(estimate(text, &[], 1 << 20).unwrap(), 2 * text.len() as u64 + list + VALUE_BYTES);
    }

    #[test]
    fn samples_are_lighter_than_values_and_a_bound_is_an_error() {
        let list = format!("[{}0]", "0,".repeat(999));
        let text = format!(r#"{{"series":{list},"values":{list}}}"#);
        let cost = |names: &[&str]| estimate(text.as_bytes(), names, u64::MAX).unwrap();
        assert_eq!(cost(&[]) - cost(&["series"]), 1000 * (VALUE_BYTES - SAMPLE_BYTES));
        let error = estimate(text.as_bytes(), &[], cost(&[]) - 1).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("takes more than 0 MiB"), "{error}");
        assert!(!estimate(b"[1,", &[], 1 << 20).unwrap_err().is_data());
    }
}
