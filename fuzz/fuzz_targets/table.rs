//! Tables measured elsewhere, read and explained. The first line may give ceilings, separated by blanks.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use run::explain::{ceiling, csv, explain};

fuzz_target!(|data: &[u8]| {
    let (first, table) = match data.iter().position(|&byte| byte == b'\n') {
        Some(at) if data.starts_with(b"!") => (&data[1..at], &data[at + 1..]),
        _ => (&data[..0], data),
    };
    let ceilings: BTreeMap<_, _> = String::from_utf8_lossy(first)
        .split_whitespace()
        .filter_map(|text| ceiling::parse(text).ok())
        .collect();
    match csv::read(table, ceilings) {
        Ok(table) => {
            let explanation = explain(&table);
            assert!(!explanation.considerations.is_empty());
            let finite = |value: Option<f64>| value.is_none_or(f64::is_finite);
            assert!(finite(explanation.capacity.value) && finite(explanation.predicted), "{explanation:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
