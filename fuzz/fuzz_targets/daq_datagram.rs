//! Fragments in datagrams: a part lies within its fragment, and only what its checksum vouches for is taken.
#![no_main]

use daq::wire::{DatagramHeader, PAYLOAD_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fn read(datagram: &[u8]) {
    let Ok((datagram_header, payload)) = DatagramHeader::decode(datagram) else { return };
    assert_eq!(payload.len(), datagram_header.fragment.payload_bytes as usize);
    assert!(datagram.ends_with(payload) && datagram_header.fragment.payload_matches(payload));
    assert!(
        u64::from(datagram_header.offset) + payload.len() as u64 <= u64::from(datagram_header.whole_bytes)
    );
    assert!(datagram_header.whole_bytes <= PAYLOAD_BYTES_MAX);
    let again = [&datagram_header.encode()[..], payload].concat();
    assert_eq!(DatagramHeader::decode(&again), Ok((datagram_header, payload)));
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
