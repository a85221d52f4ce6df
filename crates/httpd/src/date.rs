//! HTTP dates (RFC 9110, 5.6.7).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::tz::TimeZone;

/// `Sun, 06 Nov 1994 08:49:37 GMT`. Empty for a year an HTTP date cannot hold.
pub fn format(unix_s: i64) -> String {
    let Ok(time) = Timestamp::from_second(unix_s) else { return String::new() };
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

/// Reads the preferred form and the two obsolete ones that a server must accept. `None`: not a date, which
/// makes a conditional field be ignored.
pub fn parse(field: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(field).ok()?.trim();
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
        .iter()
        .find_map(|form| DateTime::strptime(form, text).ok())
        .and_then(|civil| civil.to_zoned(TimeZone::UTC).ok())
        .map(|zoned| zoned.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_date_forms_are_equal() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        for bad in ["", "yesterday", "Sun, 06 Nov 1994", "\u{fe}"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
