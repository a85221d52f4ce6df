//! Taking numbers out of kernel text without allocating and without panicking on any input.

/// A decimal number that fills `text` exactly; `None` when it is empty, has another character or does not
/// fit.
#[inline]
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// A hexadecimal number without prefix that fills `text` exactly.
#[inline]
pub fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for byte in text {
        let digit = char::from(*byte).to_digit(16)?;
        value = value.checked_mul(16)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// The words of `line`, separated by blanks and tabs.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t' | b'\n')).filter(|word| !word.is_empty())
}

/// The number in place `index` (from 0) of the words of `line`.
pub fn word_decimal(line: &[u8], index: usize) -> Option<u64> {
    words(line).nth(index).and_then(decimal)
}

/// The number after `key` on the line that starts with the word `key` (`usage_usec 17`, `MemFree:  12 kB`).
pub fn keyed_decimal(text: &[u8], key: &[u8]) -> Option<u64> {
    lines(text).find_map(|line| {
        let mut words = words(line);
        (words.next()? == key).then(|| words.next().and_then(decimal)).flatten()
    })
}

/// What stands between the first `(` and the last `)`, and what follows: a process's name in `/proc/PID/stat`
/// may itself hold blanks and brackets.
pub fn after_name(stat: &[u8]) -> Option<&[u8]> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_and_hex_are_checked_at_their_limits() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"-1", b"+1", b"1 ", b"1.5", b"\xff"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
        assert_eq!(hexadecimal(b"0000212c"), Some(0x212c));
        assert_eq!(hexadecimal(b"FFFFFFFFFFFFFFFF"), Some(u64::MAX));
        for bad in [&b""[..], b"10000000000000000", b"0x1", b"g"] {
            assert_eq!(hexadecimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn keyed_decimal_matches_whole_words() {
        let text = b"nr_throttled 3\nthrottled_time 99\nthrottled 1\nempty\n";
        assert_eq!(keyed_decimal(text, b"throttled_time"), Some(99));
        assert_eq!(keyed_decimal(text, b"throttled"), Some(1));
        assert_eq!(keyed_decimal(text, b"empty"), None);
        assert_eq!(keyed_decimal(text, b"nr"), None);
    }

    #[test]
    fn process_names_with_brackets_are_skipped() {
        assert_eq!(after_name(b"12 (a) b) R 1"), Some(&b" R 1"[..]));
        assert_eq!(after_name(b"12 a"), None);
    }

    proptest! {
        #[test]
        fn printed_numbers_round_trip(value: u64) {
            prop_assert_eq!(decimal(value.to_string().as_bytes()), Some(value));
            prop_assert_eq!(hexadecimal(format!("{value:x}").as_bytes()), Some(value));
        }

        #[test]
        fn arbitrary_input_never_panics(text: Vec<u8>, index in 0usize..9) {
            decimal(&text);
            hexadecimal(&text);
            after_name(&text);
            word_decimal(&text, index);
            keyed_decimal(&text, b"a");
            prop_assert!(lines(&text).count() > 0);
        }
    }
}
