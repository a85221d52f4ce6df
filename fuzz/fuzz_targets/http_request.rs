//! Heads of requests to the embedded server, as its connections read them.
#![no_main]

use httpd::request::{self, Parsed};
use libfuzzer_sys::fuzz_target;
use std::path::Component;

const HEADERS_MAX: usize = 100;

fuzz_target!(|data: &[u8]| {
    let data = &data[request::leading_empty(data)..];
    let end = request::head_end(data, 0);
    // A head that comes in drips ends where it ends in one piece.
    let mut searched = 0;
    let dripped = fuzz::pieces(data, 7).find_map(|piece| {
        let seen = searched + piece.len();
        let found = request::head_end(&data[..seen], searched);
        searched = seen;
        found
    });
    assert_eq!(dripped, end, "the end of the head depends on how it comes");
    match request::parse(data, HEADERS_MAX) {
        Parsed::Incomplete => {}
        Parsed::Refused(refusal) => assert!((400..=505).contains(&refusal.status)),
        Parsed::Complete(request, len) => {
            // The server parses once the end is seen; were they to differ, two requests could be taken for
            // one.
            assert_eq!(end, Some(len), "where the head ends is read in two ways");
            assert!(request.target.path.components().all(|part| matches!(part, Component::Normal(_))));
            assert_eq!(
                request::parse(&data[..len], HEADERS_MAX),
                Parsed::Complete(request, len),
                "what follows a head changes it"
            );
            assert!(!matches!(request::parse(&data[..len - 1], HEADERS_MAX), Parsed::Complete(..)));
        }
    }
});
