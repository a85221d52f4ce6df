//! Columns of numbers as blobs: 64-bit IEEE 754, little-endian, one after the other; NaN where a value is
//! unknown.

use base::series::Series;

use crate::StoreError;
use crate::word::finite;

pub(crate) fn encode(series: &Series) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    let mut at = Vec::with_capacity(series.at_s.len() * 8);
    for &time in &series.at_s {
        let time = finite(&format!("a time of the series {}", series.name), time)?;
        at.extend_from_slice(&time.to_le_bytes());
    }
    // JSON knows no infinity and writes null; the table says the same.
    let known = |value: Option<f64>| value.filter(|v| v.is_finite()).unwrap_or(f64::NAN);
    Ok((at, series.values.iter().flat_map(|&value| known(value).to_le_bytes()).collect()))
}

/// The numbers of a blob; `None` when its length is wrong.
pub(crate) fn decode(blob: &[u8]) -> Option<Vec<f64>> {
    let (numbers, []) = blob.as_chunks::<8>() else { return None };
    Some(numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
}

/// [`decode`] with NaN read as unknown.
pub(crate) fn decode_values(blob: &[u8]) -> Option<Vec<Option<f64>>> {
    Some(decode(blob)?.into_iter().map(|value| (!value.is_nan()).then_some(value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_come_back_unknown() {
        let series = Series {
            name: "x".into(),
            unit: String::new(),
            at_s: vec![0.0, 0.1, 0.2, 0.3],
            values: vec![Some(1.5), None, Some(f64::INFINITY), Some(-0.1)],
        };
        let (at, values) = encode(&series).unwrap();
        assert_eq!(decode(&at), Some(series.at_s));
        assert_eq!(decode_values(&values), Some(vec![Some(1.5), None, None, Some(-0.1)]));
        assert_eq!(decode(&values[1..]), None);
    }
}
