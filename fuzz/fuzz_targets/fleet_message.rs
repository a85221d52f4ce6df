//! Messages between coordinator and agents: any bytes are decoded or rejected with a reason, and a decoded
//! message survives a round trip.
#![no_main]

use fleet::protocol::{self, Notification, Renewal, Request, Response};
use libfuzzer_sys::fuzz_target;

/// Decodes one kind of message.
macro_rules! check {
    ($kind:ty, $data:expr) => {
        match protocol::decode::<$kind>($data) {
            Ok(message) => {
                let once = protocol::encode(&message);
                let again: $kind = protocol::decode(&once).expect("what was written can be read");
                assert_eq!(protocol::encode(&again), once, "it changes from hop to hop");
            }
            Err(why) => assert!(!why.is_empty()),
        }
    };
}

fuzz_target!(|data: &[u8]| {
    let (which, data) = fuzz::choice(data);
    match which % 4 {
        0 => check!(Request, data),
        1 => check!(Response, data),
        2 => check!(Notification, data),
        _ => check!(Renewal, data),
    }
    if let Ok(key) = std::str::from_utf8(data) {
        let known = protocol::parse_agent_key(key);
        assert!(known.is_none_or(|(name, instance)| key.ends_with(&format!("/{name}/{instance}"))));
        assert!(!protocol::last_segment(key).contains('/'));
        let _ = protocol::other_version(key);
    }
});
