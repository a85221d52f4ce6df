//! Messages of programs to a policy of quality of service, and its answers: any bytes are refused, or are
//! what the message read is written as.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qos_client::wire::{CLASS_BYTES_MAX, REPLY_BYTES, REQUEST_BYTES, Reply, Request};

fuzz_target!(|data: &[u8]| {
    if let Some(request) = Request::decode(data) {
        assert_eq!(data.len(), REQUEST_BYTES);
        assert!(request.class.len() <= CLASS_BYTES_MAX);
        assert!(!request.class.chars().any(|c| c.is_control() || c.is_whitespace()));
        assert_eq!(request.encode(), data);
    }
    if let Some(reply) = Reply::decode(data) {
        assert_eq!(data.len(), REPLY_BYTES);
        assert_eq!(reply.encode(), data);
    }
    // What a fuzzer does not guess: the head and the length.
    let mut request = plain().encode();
    for (to, from) in request.iter_mut().skip(6).zip(data) {
        *to = *from;
    }
    assert!(Request::decode(&request).is_none_or(|read| read.encode() == request));
});

fn plain() -> Request {
    let kind = qos_client::wire::Kind::State;
    Request { kind, sequence: 0, class: String::new(), size_bytes: 0, target_us: 0 }
}
