//! What an iperf3 client asks for: read within bounds or refused with a reason, and what is read is written
//! and read again as the same.
#![no_main]

use iperf3::json::{self, PARAMETERS_BYTES_MAX};
use iperf3::{Parameters, STREAMS_MAX, length};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some((head, text)) = data.split_first_chunk::<4>() {
        match length(*head, PARAMETERS_BYTES_MAX) {
            Ok(len) => assert!((2..=PARAMETERS_BYTES_MAX).contains(&len)),
            Err(wrong) => assert!(!(2..=PARAMETERS_BYTES_MAX).contains(&(wrong.announced as usize))),
        }
        read(text);
    }
    read(data);
});

fn read(text: &[u8]) {
    let Ok(object) = json::parse(text) else { return };
    match Parameters::read(&object) {
        Ok(parameters) => {
            assert!((1..=STREAMS_MAX).contains(&parameters.streams));
            assert!((1..=1 << 20).contains(&parameters.block_bytes) && parameters.omit_s <= 600);
            let written = serde_json::to_vec(&parameters.to_json()).expect("it is JSON");
            let again = json::parse(&written).expect("what is written can be read");
            assert_eq!(Parameters::read(&again), Ok(parameters));
        }
        Err(refusal) => assert!(refusal.code > 0 && !refusal.message.is_empty()),
    }
}
