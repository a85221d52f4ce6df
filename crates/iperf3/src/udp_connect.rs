//! The four bytes by which a UDP stream is opened: UDP itself has no connections.

/// What a client sends first on each UDP stream.
pub const HELLO: [u8; 4] = *b"9876";
/// What the server answers, from the socket that this stream then has for itself.
pub const WELCOME: [u8; 4] = *b"6789";

/// Versions before 3.2 sent these numbers as their hosts keep them; x86 and ARM keep the low byte first.
const OLD_HELLO: [u8; 4] = 123_456_789_u32.to_le_bytes();
const OLD_WELCOME: [u8; 4] = 987_654_321_u32.to_le_bytes();

pub fn is_hello(datagram: &[u8]) -> bool {
    datagram == HELLO || datagram == OLD_HELLO
}

pub fn is_welcome(datagram: &[u8]) -> bool {
    datagram == WELCOME || datagram == OLD_WELCOME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_seen_on_the_wire() {
        // iperf3 3.12 on x86-64 (0x36373839 and 0x39383736, low byte first), and its older numbers.
        assert!(is_hello(&0x3637_3839_u32.to_le_bytes()) && is_hello(&[0x15, 0xcd, 0x5b, 0x07]));
        assert!(is_welcome(&0x3938_3736_u32.to_le_bytes()) && is_welcome(&[0xb1, 0x68, 0xde, 0x3a]));
        assert!(!is_hello(&WELCOME) && !is_welcome(b"98765"));
    }
}
