//! What sources say over their connections: headers, hellos and what belongs to both.
#![no_main]

use daq::wire::{FragmentHeader, HEADER_BYTES, Hello, Kind, PAYLOAD_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert!(
            hello.congestion_control.len() <= 16
                && hello.congestion_control.bytes().all(|b| b.is_ascii_graphic())
        );
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    let Ok((header, length)) = FragmentHeader::decode(bytes) else { return };
    assert!((HEADER_BYTES..=bytes.len()).contains(&length) && header.payload_bytes <= PAYLOAD_BYTES_MAX);
    assert!(matches!(header.kind, Kind::Hello | Kind::Fragment | Kind::Sync), "a builder says that");
    assert_eq!(FragmentHeader::decode(&header.encode()), Ok((header, HEADER_BYTES)));
    let whole = FragmentHeader { payload_crc: crc32c::crc32c(&bytes[length..]), ..header };
    assert!(whole.payload_matches(&bytes[length..]));
}

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&fuzz::daq_message(data));
});
