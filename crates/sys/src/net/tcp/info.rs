//! `TCP_INFO`: what the kernel knows about one connection.

/// Fields of `struct tcp_info` (`linux/tcp.h`) that explain a connection's speed.
///
/// The structure grows with the kernel; a field the running kernel does not have is `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Connection state number (1 = established).
    pub state: Option<u8>,
    /// Smoothed round-trip time.
    pub rtt_us: Option<u32>,
    /// Least round-trip time seen; `None` also before the first sample.
    pub min_rtt_us: Option<u32>,
    pub congestion_window_segments: Option<u32>,
    /// Maximum segment size for sending.
    pub send_mss_bytes: Option<u32>,
    /// Segments in flight.
    pub unacked_segments: Option<u32>,
    /// Segments of those that the peer reported to have received (SACK, RFC 2018).
    pub sacked_segments: Option<u32>,
    /// Segments of those that are taken for lost.
    pub lost_segments: Option<u32>,
    /// Segments of those that were sent again.
    pub retransmitted_segments: Option<u32>,
    /// Segments received, acknowledgements included.
    pub received_segments: Option<u32>,
    /// Segments that arrived at the peer, by its acknowledgements (SACK included). Wraps at 2^32.
    pub delivered_segments: Option<u32>,
    /// The rate at which the kernel paces this connection, bytes per second; all ones: not at all.
    pub pacing_bytes_per_s: Option<u64>,
    /// The most that the program (`SO_MAX_PACING_RATE`) allows; all ones: no limit.
    pub pacing_max_bytes_per_s: Option<u64>,
    /// The latest measurement of the rate at which data arrives at the peer, bytes per second.
    pub delivery_bytes_per_s: Option<u64>,
    /// That measurement was limited by the program rather than by the network.
    pub is_delivery_limited_by_program: Option<bool>,
    /// Segments retransmitted over the connection's life.
    pub retransmits_total: Option<u32>,
    pub acked_bytes: Option<u64>,
    /// Bytes received in order.
    pub received_bytes: Option<u64>,
    /// Bytes written by the program and not yet sent.
    pub notsent_bytes: Option<u32>,
    /// Time with data in flight or to send.
    pub busy_us: Option<u64>,
    /// Time of that limited by the peer's receive window.
    pub rwnd_limited_us: Option<u64>,
    /// Time of that limited by this host's send buffer.
    pub sndbuf_limited_us: Option<u64>,
    /// Receive window the peer advertises.
    pub send_window_bytes: Option<u32>,
    /// Receive window this host advertises.
    pub receive_window_bytes: Option<u32>,
    pub path_mtu_bytes: Option<u32>,
    /// Time since the program's data was sent last; of a connection that sent none, since it was opened.
    pub last_data_sent_ms: Option<u32>,
    /// Bytes sent, with those sent again.
    pub sent_bytes: Option<u64>,
    /// Segments that the peer reported to have received twice (D-SACK, RFC 2883): they were sent again for
    /// nothing.
    pub duplicates_reported_segments: Option<u32>,
    /// Retransmission timeouts over the connection's life, those of its SYN and recurring ones included
    /// (Linux 6.7).
    pub timeouts_total: Option<u16>,
    /// Time spent in recoveries that began with such a timeout, finished or not (Linux 6.7).
    pub timeout_recovery_ms: Option<u32>,
}

impl TcpInfo {
    /// Room for the structure of any kernel so far, and some to come.
    pub(crate) const BYTES_MAX: usize = 512;

    /// Reads the fields that lie within `bytes`, which is as long as the kernel filled.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let u16_at = |at: usize| field::<2>(bytes, at).map(u16::from_ne_bytes);
        let u32_at = |at: usize| field::<4>(bytes, at).map(u32::from_ne_bytes);
        let u64_at = |at: usize| field::<8>(bytes, at).map(u64::from_ne_bytes);
        Self {
            state: bytes.first().copied(),
            is_delivery_limited_by_program: bytes.get(7).map(|bits| bits & 1 != 0),
            sacked_segments: u32_at(28),
            lost_segments: u32_at(32),
            retransmitted_segments: u32_at(36),
            pacing_bytes_per_s: u64_at(104),
            pacing_max_bytes_per_s: u64_at(112),
            received_segments: u32_at(140),
            delivery_bytes_per_s: u64_at(160),
            delivered_segments: u32_at(192),
            send_mss_bytes: u32_at(16),
            unacked_segments: u32_at(24),
            rtt_us: u32_at(68),
            congestion_window_segments: u32_at(80),
            retransmits_total: u32_at(100),
            acked_bytes: u64_at(120),
            received_bytes: u64_at(128),
            notsent_bytes: u32_at(144),
            // The kernel says "no sample yet" as all ones.
            min_rtt_us: u32_at(148).filter(|&us| us != u32::MAX),
            busy_us: u64_at(168),
            rwnd_limited_us: u64_at(176),
            sndbuf_limited_us: u64_at(184),
            send_window_bytes: u32_at(228),
            receive_window_bytes: u32_at(232),
            path_mtu_bytes: u32_at(60),
            last_data_sent_ms: u32_at(44),
            sent_bytes: u64_at(200),
            duplicates_reported_segments: u32_at(216),
            timeouts_total: u16_at(240),
            timeout_recovery_ms: u32_at(244),
        }
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
