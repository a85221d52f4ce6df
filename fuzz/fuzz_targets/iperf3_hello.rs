//! The first bytes of any client of a server of transfers: cookies, states, the datagrams that open UDP
//! streams.
#![no_main]

use iperf3::{COOKIE_BYTES, Cookie, ServerError, State, udp_connect};
use libfuzzer_sys::fuzz_target;
use transfer::native::session_id::is_kagiri;

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk::<COOKIE_BYTES>()
        && let Some(cookie) = Cookie::read(bytes)
    {
        assert_eq!(cookie.bytes(), bytes);
        assert!(!cookie.text().is_empty() && cookie.text().bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(is_kagiri(&cookie), bytes.starts_with(b"kagiri1-"));
    }
    if let Some(bytes) = data.first_chunk::<{ ServerError::BYTES }>() {
        let error = ServerError::read(*bytes);
        assert_eq!(error.bytes(), *bytes);
        assert!(error.to_string().contains("iperf3 error"));
    }
    for &byte in data {
        assert!(State::read(byte).is_none_or(|state| state.byte() == byte));
    }
    assert!(!(udp_connect::is_hello(data) && udp_connect::is_welcome(data)));
});
