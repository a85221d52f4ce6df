//! What arithmetic says of a port before anything is measured.

use super::settings::Carrier;
use super::wire::{DATAGRAM_HEADER_BYTES, HEADER_BYTES};

/// Payload of a full TCP segment in an Ethernet frame of 1500 bytes, with timestamps.
const SEGMENT_BYTES: u64 = 1448;
/// IP's, TCP's (with timestamps) and Ethernet's header, as a port counts them.
const TCP_FRAME_HEADER_BYTES: u64 = 20 + 32 + 14;
/// IP's, UDP's and Ethernet's header.
const UDP_FRAME_HEADER_BYTES: u64 = 20 + 8 + 14;
/// The most payload of a fragment in one datagram.
pub const DATAGRAM_PAYLOAD_BYTES: u32 = 1400;

/// Bytes that a fragment of `payload_bytes` takes in a port's queue: with our header, and TCP's (or UDP's),
/// IP's and Ethernet's 14 bytes of each packet.
pub fn fragment_wire_bytes(payload_bytes: u32, carrier: Carrier) -> u64 {
    let payload = u64::from(payload_bytes);
    match carrier {
        Carrier::Tcp => {
            let bytes = payload + HEADER_BYTES as u64;
            bytes + bytes.div_ceil(SEGMENT_BYTES) * TCP_FRAME_HEADER_BYTES
        }
        Carrier::Udp => {
            payload
                + packets(payload_bytes, carrier) * (DATAGRAM_HEADER_BYTES as u64 + UDP_FRAME_HEADER_BYTES)
        }
    }
}

/// Bytes on the wire that each fragment saves at best when `together` fragments are written at once: small
/// ones share packets.
pub fn shared_wire_bytes(payload_bytes: u64, together: u64, carrier: Carrier) -> f64 {
    let (bytes, together) = (payload_bytes + HEADER_BYTES as u64, together.max(1));
    let alone = bytes.div_ceil(SEGMENT_BYTES) as f64;
    let shared = (together * bytes).div_ceil(SEGMENT_BYTES) as f64 / together as f64;
    match carrier {
        Carrier::Tcp => (alone - shared).max(0.0) * TCP_FRAME_HEADER_BYTES as f64,
        Carrier::Udp => 0.0,
    }
}

/// Packets that a fragment of `payload_bytes` is sent in.
pub fn packets(payload_bytes: u32, carrier: Carrier) -> u64 {
    match carrier {
        Carrier::Tcp => (u64::from(payload_bytes) + HEADER_BYTES as u64).div_ceil(SEGMENT_BYTES),
        Carrier::Udp => u64::from(payload_bytes.div_ceil(DATAGRAM_PAYLOAD_BYTES)).max(1),
    }
}

/// Events a second that a port of `link_bit_per_s` carries at best, each with `sources` fragments of
/// `fragment_bytes` on the wire (see [`fragment_wire_bytes`]; a mean where sizes vary). `None` where nothing
/// is to be carried.
pub fn ideal_events_per_s(link_bit_per_s: f64, sources: u64, fragment_bytes: f64) -> Option<f64> {
    let event_bits = sources as f64 * fragment_bytes * 8.0;
    (event_bits > 0.0 && link_bit_per_s > 0.0).then(|| link_bit_per_s / event_bits)
}

/// How many sources can send at once without loss: their fragments have to fit into the port's buffer, less
/// what the port carries while they begin one after the other (`skew_s` from the first to the last). `None`
/// if fragments have no bytes.
pub fn cliff_sources(
    buffer_bytes: u64,
    rate_bit_per_s: f64,
    skew_s: f64,
    fragment_bytes: f64,
) -> Option<f64> {
    let carried_bytes = rate_bit_per_s.max(0.0) / 8.0 * skew_s.max(0.0);
    (fragment_bytes > 0.0).then(|| (buffer_bytes as f64 + carried_bytes) / fragment_bytes)
}

/// The credit that fits into a port's buffer, fragments; at least one, since without any nothing would go.
pub fn credit_that_fits(buffer_bytes: u64, fragment_bytes: u64) -> u32 {
    u32::try_from(buffer_bytes / fragment_bytes.max(1)).unwrap_or(u32::MAX).max(1)
}

/// For how long a full buffer holds a fragment up, ns; `None` where the rate is not known.
pub fn queue_full_ns(buffer_bytes: u64, rate_bit_per_s: f64) -> Option<u64> {
    (rate_bit_per_s > 0.0).then(|| (buffer_bytes as f64 * 8e9 / rate_bit_per_s) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_wire_bytes_include_all_headers() {
        for (payload_bytes, carrier, bytes, in_packets) in [
            (1024, Carrier::Tcp, 1024 + 64 + 66, 1),
            (1384, Carrier::Tcp, 1448 + 66, 1),
            (1385, Carrier::Tcp, 1449 + 2 * 66, 2),
            (32_768, Carrier::Tcp, 32_832 + 23 * 66, 23),
            (0, Carrier::Tcp, 130, 1),
            (0, Carrier::Udp, 114, 1),
            (1400, Carrier::Udp, 1514, 1),
            (1401, Carrier::Udp, 1401 + 2 * 114, 2),
        ] {
            assert_eq!(fragment_wire_bytes(payload_bytes, carrier), bytes, "{payload_bytes} {carrier:?}");
            assert_eq!(packets(payload_bytes, carrier), in_packets, "{payload_bytes} {carrier:?}");
        }
    }

    #[test]
    fn small_fragments_share_packets() {
        for (payload_bytes, together, saved) in
            [(1024, 1, 0.0), (1024, 2, 0.0), (256, 2, 33.0), (256, 4, 49.5), (2000, 2, 33.0)]
        {
            assert_eq!(
                shared_wire_bytes(payload_bytes, together, Carrier::Tcp),
                saved,
                "{together} x {payload_bytes}"
            );
        }
        assert_eq!(shared_wire_bytes(256, 4, Carrier::Udp), 0.0);
    }

    #[test]
    fn ideal_rate_and_cliff_match_arithmetic() {
        let fragment = fragment_wire_bytes(1024, Carrier::Tcp) as f64;
        let ideal = ideal_events_per_s(1e9, 1000, fragment).unwrap();
        assert!((ideal - 108.3).abs() < 0.1, "{ideal}");
        assert_eq!(ideal_events_per_s(1e9, 0, fragment), None);
        let at_once = cliff_sources(65_536, 200e6, 0.0, fragment).unwrap();
        assert!((at_once - 56.8).abs() < 0.1, "{at_once}");
        let skewed = cliff_sources(65_536, 200e6, 0.001, fragment).unwrap();
        assert!((skewed - at_once - 25_000.0 / fragment).abs() < 1e-6);
        assert_eq!(queue_full_ns(25_000, 200e6), Some(1_000_000));
        assert_eq!(credit_that_fits(65_536, 1154), 56);
        assert_eq!(credit_that_fits(10, 1154), 1);
    }
}
