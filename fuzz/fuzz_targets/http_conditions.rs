//! Ranges, entity tags, dates and preconditions; fields are separated by newlines.
#![no_main]

use httpd::conditional::{Validator, judge_put};
use httpd::date;
use httpd::range::{self, Range};
use httpd::request::Conditions;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut fields =
        data.split(|&byte| byte == b'\n').map(|field| Some(field.to_vec()).filter(|f| !f.is_empty()));
    let mut next = || fields.next().flatten();
    let conditions = Conditions {
        range: next(),
        if_range: next(),
        if_match: next(),
        if_none_match: next(),
        if_modified_since: next(),
        if_unmodified_since: next(),
    };
    for len_bytes in [0, 1, 1000, u64::MAX] {
        if let Range::Part { start, len } = range::parse(conditions.range.as_deref(), len_bytes) {
            assert!(len > 0 && start.checked_add(len).is_some_and(|end| end <= len_bytes));
        }
    }
    let when = conditions.if_modified_since.as_deref().and_then(date::parse);
    let validator = Validator { etag: "\"a-3e8-1\"".into(), modified_s: when.unwrap_or(784_111_777) };
    let _ = validator.judge(&conditions);
    let _ = validator.range_applies(&conditions);
    let _ = judge_put(&conditions, Some(&validator));
    let _ = judge_put(&conditions, None);
    if let Some(when) = when {
        let written = date::format(when);
        // A year that the form cannot hold is written as nothing.
        assert!(written.is_empty() || date::parse(written.as_bytes()) == Some(when), "{written}");
    }
});
