//! The task of a flow and its report: plain data, shared by the engines, the wire protocols and the judge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::driver::Mode;

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A TCP connection for each flow.
    #[default]
    Tcp,
    /// Datagrams from a connected UDP socket for each flow.
    Udp,
    /// One encrypted QUIC connection (RFC 9000) with a stream for each flow.
    Quic,
}

/// Direction of the bytes, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    #[default]
    Up,
    /// From the server to the client.
    Down,
    /// Both at once, in separate flows.
    Both,
}

impl Direction {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both",
        }
    }

    /// [`Self::Up`], [`Self::Down`] or the two of them, in the order of flow numbers.
    pub fn each(self) -> &'static [Self] {
        match self {
            Self::Up => &[Self::Up],
            Self::Down => &[Self::Down],
            Self::Both => &[Self::Up, Self::Down],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Sender,
    Receiver,
}

impl Side {
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// After this number of bytes.
    Bytes(u64),
    /// At a moment of this host's monotonic clock.
    AtNs(u64),
    /// When the peer ends it, or this side is stopped.
    Peer,
}

impl End {
    /// After the share of one of `flows` flows that carry `bytes` together. Datagrams are whole.
    pub(crate) fn after_share(bytes: u64, flows: u32, index: u32, datagram_bytes: Option<u32>) -> Self {
        let (flows, index) = (u64::from(flows.max(1)), u64::from(index));
        let share = bytes / flows + u64::from(index < bytes % flows);
        let whole = |size: u64| share.div_ceil(size).saturating_mul(size);
        Self::Bytes(datagram_bytes.map_or(share, |size| whole(size.max(1).into())))
    }
}

/// What each datagram begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stamp {
    /// Nothing: losses are unknown (classic `ttcp`).
    None,
    /// Seconds, microseconds and a 32-bit count, big-endian: iperf3.
    Counted32,
    /// The same with a 64-bit count: iperf3 with `--udp-counters-64bit`, and kagiri itself.
    #[default]
    Counted64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSpec {
    pub side: Side,
    /// Where received bytes end; senders ignore it.
    pub mode: Mode,
    /// Bytes given to the kernel (or asked of it) in one call, 0 for as many as is cheapest; of UDP, the
    /// payload of one datagram.
    pub size_bytes: u32,
    pub end: End,
    /// The rate that a sender keeps to, bits of payload per second; flat out unless given, or when 0.
    pub rate_bit_per_s: Option<u64>,
    pub stamp: Stamp,
}

/// The header that numbers and times a datagram; its layout is that of iperf3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The sender's clock when it left, us.
    pub(super) sent_us: u64,
    /// Its number, from 1.
    pub(super) count: u64,
}

impl Stamp {
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

    /// Reads the header of a datagram; `None` if it has none or is too short. `near`: a count near the
    /// datagram's, from which follows how often 32 bits have wrapped.
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
    fn header_layout_matches_iperf3() {
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
        fn shares_add_up(bytes: u64, flows in 1..500_u32) {
            let share = |index| match End::after_share(bytes, flows, index, None) {
                End::Bytes(bytes) => u128::from(bytes),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!((0..flows).map(share).sum::<u128>(), u128::from(bytes));
        }

        #[test]
        fn header_round_trips(
            sent_us in 0..u64::from(u32::MAX) * 1_000_000, count: u64, off in -1000_i64..1000,
        ) {
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
