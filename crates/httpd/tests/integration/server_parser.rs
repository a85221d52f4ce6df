//! The request parser against arbitrary and nearly right bytes.

use httpd::range::{self, Range};
use httpd::request::{self, Framing, Parsed};
use proptest::prelude::*;

/// Heads made of pieces that matter, so that the deep paths are reached.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &[&[u8]] = &[
        b"GET ",
        b"PUT ",
        b"BREW ",
        b"/a",
        b"/%2e%2e/",
        b"*",
        b"?json",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b" HTTP/9.9\r\n",
        b"Host: x\r\n",
        b"\r\n",
        b"\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: +5\r\n",
        b"Range: bytes=1-2\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"X : y\r\n",
        b" folded\r\n",
        b"\0",
        b"\xff\xfe",
        b"Connection: close, keep-alive\r\n",
        b"Expect: 100-continue\r\n",
    ];
    let piece = proptest::sample::select(PIECES);
    proptest::collection::vec(piece, 0..25).prop_map(|pieces| pieces.concat())
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    match request::parse(bytes, 20) {
        Parsed::Incomplete => {}
        Parsed::Complete(request, len) => {
            prop_assert!(len <= bytes.len());
            prop_assert_eq!(request::head_end(bytes, 0), Some(len));
            prop_assert!(request.target.path.is_relative());
            prop_assert!(!request.target.path.components().any(|c| c == std::path::Component::ParentDir));
            prop_assert!(request.logged.line.len() <= bytes.len());
        }
        Parsed::Refused(refusal) => {
            prop_assert!((400..600).contains(&refusal.status));
            prop_assert!(refusal.logged.line.len() <= 2048);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes)?;
    }

    #[test]
    fn nearly_valid_bytes_parse_or_are_refused(bytes in nearly_right()) {
        check(&bytes[request::leading_empty(&bytes)..])?;
    }

    #[test]
    fn end_of_head_is_found_in_any_pieces(bytes in nearly_right(), cut in 0_usize..300) {
        let whole = request::head_end(&bytes, 0);
        let cut = cut.min(bytes.len());
        if request::head_end(&bytes[..cut], 0).is_none() {
            prop_assert_eq!(request::head_end(&bytes, cut), whole);
        }
    }

    #[test]
    fn any_range_lies_within_the_file(
        field in "\\PC{0,20}|bytes=[0-9]{0,21}-[0-9]{0,21}",
        len in any::<u64>(),
    ) {
        if let Range::Part { start, len: part } = range::parse(Some(field.as_bytes()), len) {
            prop_assert!(part > 0 && start.checked_add(part).is_some_and(|end| end <= len));
        }
    }
}

#[test]
fn ambiguous_framing_is_refused() {
    let parse = |fields: &str| {
        let text = format!("PUT /f HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        match request::parse(text.as_bytes(), 20) {
            Parsed::Complete(request, _) => Ok(request.framing),
            Parsed::Refused(refusal) => Err(refusal.status),
            Parsed::Incomplete => Err(0),
        }
    };
    assert_eq!(parse(""), Ok(Framing::None));
    assert_eq!(parse("Content-Length: 12\r\n"), Ok(Framing::Length(12)));
    assert_eq!(parse("Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunked));
    for (fields, status) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
        ("Content-Length: 1, 1\r\n", 400),
        ("Content-Length: -1\r\n", 400),
        ("Content-Length: 0x1\r\n", 400),
        ("Content-Length:\r\n", 400),
        ("Content-Length: 99999999999999999999\r\n", 413),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding : chunked\r\n", 400),
        ("Content-Length: 1\r\n folded\r\n", 400),
        ("Host: y\r\n", 400),
        ("Expect: tea\r\n", 417),
    ] {
        assert_eq!(parse(fields), Err(status), "{fields}");
    }
}
