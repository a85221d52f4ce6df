//! How much memory JSON of another host takes once it is read: its text can be a hundred times smaller.

/// serde_json::Value, as an element of a list.
const VALUE_BYTES: usize = 80;
/// The first allocation of a list, and of an object.
const LIST_BYTES: usize = 4 * VALUE_BYTES;
const OBJECT_BYTES: usize = 6 * VALUE_BYTES;
/// A name in an object, beside its value.
const NAME_BYTES: usize = 2 * VALUE_BYTES;

/// An upper estimate, with the received text and a copy of it. Text that is no JSON has a number, too.
pub(crate) fn memory_bytes(json: &[u8]) -> usize {
    let mut bytes = 2 * json.len() + VALUE_BYTES;
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b',' => bytes += VALUE_BYTES,
            b':' => bytes += NAME_BYTES,
            b'[' => bytes += LIST_BYTES,
            b'{' => bytes += OBJECT_BYTES,
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's count of this process's memory is the witness.
    #[test]
    fn estimate_is_above_the_memory_that_values_take() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        for (item, count) in [
            ("{}", 400_000),
            ("[]", 400_000),
            ("0", 800_000),
            ("[0]", 200_000),
            (r#"{"":0}"#, 100_000),
            (r#"{"a":0,"b":1,"c":[2,3]}"#, 50_000),
        ] {
            let json = list(item, count);
            let before = resident();
            let value: serde_json::Value = serde_json::from_str(&json).unwrap();
            let taken = resident().saturating_sub(before);
            let estimate = memory_bytes(json.as_bytes());
            assert!(taken <= estimate, "{item}: {taken} bytes, estimated {estimate}");
            drop(value);
        }
    }

    #[test]
    fn strings_do_not_count_as_structure() {
        let text = br#"["a,b:{[\",,,,"]"#;
        assert_eq!(memory_bytes(text), 2 * text.len() + VALUE_BYTES + LIST_BYTES);
    }
}
