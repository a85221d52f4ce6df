//! Orders, as sources receive them from any sender that knows the multicast group: what is read is written
//! and read again as the same.
#![no_main]

use daq::wire::{CommonHeader, HEADER_BYTES, Kind, Order, WireError};
use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8]) {
    let order = match Order::decode(bytes) {
        Ok((order, length)) => {
            assert!((HEADER_BYTES..=bytes.len()).contains(&length));
            assert_eq!(
                CommonHeader::read(bytes).map(|head| (head.kind, head.run)),
                Ok((order.kind, order.run))
            );
            order
        }
        Err(error) => {
            assert!(
                error != WireError::Short || bytes.len() < HEADER_BYTES || CommonHeader::read(bytes).is_ok()
            );
            return;
        }
    };
    assert!(!matches!(order.kind, Kind::Hello | Kind::Fragment), "a source says that");
    assert_eq!(Order::decode(&order.encode()), Ok((order, HEADER_BYTES)));
    let last = order.first_source.saturating_add(order.sources.saturating_sub(1));
    assert_eq!(order.is_for(last), order.sources > 0);
    assert!(order.sources > 0 || !order.is_for(order.first_source));
}

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&fuzz::daq_message(data));
});
