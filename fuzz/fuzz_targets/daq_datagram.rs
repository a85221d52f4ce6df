//! Fragments in datagrams: a part lies within its fragment, and only what its checksum vouches for is taken.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::daq::wire::{PAYLOAD_BYTES_MAX, Part};

fn read(datagram: &[u8]) {
    let Ok((part, payload)) = Part::decode(datagram) else { return };
    assert_eq!(payload.len(), part.piece.payload_bytes as usize);
    assert!(datagram.ends_with(payload) && part.piece.vouches_for(payload));
    assert!(u64::from(part.offset) + payload.len() as u64 <= u64::from(part.whole_bytes));
    assert!(part.whole_bytes <= PAYLOAD_BYTES_MAX);
    let again = [&part.encode()[..], payload].concat();
    assert_eq!(Part::decode(&again), Ok((part, payload)));
}

fuzz_target!(|data: &[u8]| {
    read(data);
    let (longer, rest) = fuzz::choice(data);
    // As a source writes it: lengths and checksums that belong together, so that offsets are what is tried.
    let mut datagram = fuzz::daq_message(rest);
    let header = if longer & 1 == 0 { 64 } else { 72 };
    datagram.resize(datagram.len().max(header), 0);
    datagram[7] = header as u8;
    let (payload_bytes, payload_crc) = (datagram.len() - header, crc32c::crc32c(&datagram[header..]));
    datagram[28..32].copy_from_slice(&(payload_bytes as u32).to_be_bytes());
    datagram[56..60].copy_from_slice(&payload_crc.to_be_bytes());
    let crc = crc32c::crc32c(&datagram[..60]);
    datagram[60..64].copy_from_slice(&crc.to_be_bytes());
    read(&datagram);
});
