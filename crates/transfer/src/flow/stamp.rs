//! The header that numbers and times datagrams; the layout is that of iperf3.

use super::flow_spec::Stamp;

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The sender's clock when it left, us.
    pub(super) sent_us: u64,
    /// Its number, from 1.
    pub(super) count: u64,
}

impl Stamp {
    /// The header's length, bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Counted32 => 12,
            Self::Counted64 => 16,
        }
    }

    /// Writes the header at the start of a datagram that has room for it. Of a 32-bit count the low bits are
    /// kept.
    pub(super) fn write(self, datagram: &mut [u8], header: Header) {
        if self == Self::None {
            return;
        }
        // Seconds wrap in 136 years of up-time.
        let seconds = (header.sent_us / 1_000_000) as u32;
        let micros = (header.sent_us % 1_000_000) as u32;
        datagram[..4].copy_from_slice(&seconds.to_be_bytes());
        datagram[4..8].copy_from_slice(&micros.to_be_bytes());
        match self {
            Self::Counted32 => datagram[8..12].copy_from_slice(&(header.count as u32).to_be_bytes()),
            _ => datagram[8..16].copy_from_slice(&header.count.to_be_bytes()),
        }
    }

    /// Reads the header of a datagram; `None` if it has none or is too short. `near`: a count that the
    /// datagram's is near to, which tells how often 32 bits have wrapped.
    pub(super) fn read(self, datagram: &[u8], near: u64) -> Option<Header> {
        let word = |at: usize| Some(u32::from_be_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
        let count = match self {
            Self::None => return None,
            Self::Counted32 => unwrap_count(word(8)?, near),
            Self::Counted64 => u64::from_be_bytes(datagram.get(8..16)?.try_into().ok()?),
        };
        let sent_us = u64::from(word(0)?) * 1_000_000 + u64::from(word(4)?);
        Some(Header { sent_us, count })
    }
}

/// The count whose low 32 bits are `low` and that is nearest to `near`.
fn unwrap_count(low: u32, near: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32).cast_signed();
    near.checked_add_signed(i64::from(ahead)).unwrap_or_else(|| u64::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_that_of_iperf3() {
        let header = Header { sent_us: 0x0102_0304 * 1_000_000 + 0x0005_0607, count: 0x1122_3344_5566_7788 };
        let mut long = [0xff; 17];
        Stamp::Counted64.write(&mut long, header);
        assert_eq!(long, *b"\x01\x02\x03\x04\x00\x05\x06\x07\x11\x22\x33\x44\x55\x66\x77\x88\xff");
        let mut short = [0xff; 13];
        Stamp::Counted32.write(&mut short, header);
        assert_eq!(short, *b"\x01\x02\x03\x04\x00\x05\x06\x07\x55\x66\x77\x88\xff");
        let mut none = [0xff; 2];
        Stamp::None.write(&mut none, header);
        assert_eq!(none, [0xff; 2]);
    }

    proptest! {
        #[test]
        fn headers_go_there_and_back(sent_us in 0..u64::from(u32::MAX) * 1_000_000, count: u64, off in -1000_i64..1000) {
            let mut datagram = [0; 16];
            for stamp in [Stamp::Counted32, Stamp::Counted64] {
                stamp.write(&mut datagram, Header { sent_us, count });
                let near = count.saturating_add_signed(off);
                prop_assert_eq!(stamp.read(&datagram, near), Some(Header { sent_us, count }));
                prop_assert_eq!(stamp.read(&datagram[..stamp.bytes() - 1], near), None);
            }
        }
    }
}
