//! What coordinator and agents say to each other: any bytes are read or refused with a reason, and what is read is
//! written and read again as the same.
#![no_main]

use fleet::protocol::{self, Answer, Ask, Renewal, Tell};
use libfuzzer_sys::fuzz_target;

/// Read as one kind of message.
macro_rules! check {
    ($kind:ty, $data:expr) => {
        match protocol::read::<$kind>($data) {
            Ok(message) => {
                let once = protocol::write(&message);
                let again: $kind = protocol::read(&once).expect("what was written can be read");
                assert_eq!(protocol::write(&again), once, "it changes from hop to hop");
            }
            Err(why) => assert!(!why.is_empty()),
        }
    };
}

fuzz_target!(|data: &[u8]| {
    let (which, data) = fuzz::choice(data);
    match which % 4 {
        0 => check!(Ask, data),
        1 => check!(Answer, data),
        2 => check!(Tell, data),
        _ => check!(Renewal, data),
    }
    if let Ok(key) = std::str::from_utf8(data) {
        let known = protocol::agent_of(key);
        assert!(known.is_none_or(|(name, instance)| key.ends_with(&format!("/{name}/{instance}"))));
        assert!(!protocol::name_of(key).contains('/'));
        let _ = protocol::foreign_version(key);
    }
});
