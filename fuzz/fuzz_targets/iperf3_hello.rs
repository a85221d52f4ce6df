//! The first words of whoever comes to a server of transfers: cookies, states, the datagrams that open UDP streams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::transfer::control::{COOKIE_BYTES, Cookie};
use workload::transfer::iperf3::{Failure, State, hello};

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk::<COOKIE_BYTES>()
        && let Some(cookie) = Cookie::read(bytes)
    {
        assert_eq!(cookie.bytes(), bytes);
        assert!(!cookie.text().is_empty() && cookie.text().bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(cookie.is_kagiri(), bytes.starts_with(b"kagiri1-"));
    }
    if let Some(bytes) = data.first_chunk::<{ Failure::BYTES }>() {
        let failure = Failure::read(*bytes);
        assert_eq!(failure.bytes(), *bytes);
        assert!(failure.to_string().contains("iperf3 error"));
    }
    for &byte in data {
        assert!(State::read(byte).is_none_or(|state| state.byte() == byte));
    }
    assert!(!(hello::is_hello(data) && hello::is_welcome(data)));
});
