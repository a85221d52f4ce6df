//! `Range` of one part (RFC 9110, 14.1.2).

/// What a `Range` field asks of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// All of it (200): no field, a unit or syntax this server does not know, or several ranges at once,
    /// which RFC 9110 lets a server ignore.
    Whole,
    /// These bytes (206): the first, and how many (> 0).
    Part { start: u64, len: u64 },
    /// No byte of it lies within (416).
    Unsatisfiable,
}

/// Reads the field's value against a representation of `len_bytes`.
pub fn parse(field: Option<&[u8]>, len_bytes: u64) -> Range {
    let Some((first, last)) = field.and_then(split) else { return Range::Whole };
    match (first, last) {
        (None, None) => Range::Whole,
        (None, Some(suffix)) => {
            let len = suffix.min(len_bytes);
            part(len_bytes - len, len)
        }
        (Some(start), None) => part(start, len_bytes.saturating_sub(start)),
        (Some(start), Some(last)) if start > last => Range::Whole,
        (Some(start), Some(last)) => {
            let end = last.saturating_add(1).min(len_bytes);
            part(start, end.saturating_sub(start))
        }
    }
}

fn part(start: u64, len: u64) -> Range {
    if len == 0 { Range::Unsatisfiable } else { Range::Part { start, len } }
}

/// `bytes=A-B` as two optional numbers; `None`: not that form.
fn split(field: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, set) = field.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let set = set.trim_ascii();
    let dash = set.iter().position(|&b| b == b'-')?;
    Some((number(&set[..dash])?, number(&set[dash + 1..])?))
}

/// Digits as a number, nothing as `Some(None)`, anything else (also a comma) as `None`. A number beyond 64
/// bits lies beyond every file, so the largest one stands for it.
fn number(digits: &[u8]) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    let mut value = 0_u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    }
    Some(Some(value))
}
