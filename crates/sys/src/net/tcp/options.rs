//! Socket options that a plan may ask for, applied together and read back.

use std::time::Duration;

/// Options for a socket. `None` leaves the kernel's default.
///
/// Buffers are set before `connect`/`listen`, because the window scale is agreed in the SYN (RFC 7323).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// `SO_RCVBUF` in bytes of payload asked for (the kernel doubles it; see `socket(7)`). Setting it turns
    /// receive autotuning off.
    pub receive_buffer_bytes: Option<u64>,
    /// `SO_SNDBUF` in bytes of payload asked for. Setting it turns send autotuning off.
    pub send_buffer_bytes: Option<u64>,
    /// `TCP_NODELAY`: do not wait for more data (Nagle, RFC 896).
    pub nodelay: Option<bool>,
    /// `TCP_NOTSENT_LOWAT` in bytes: writable only while less than this is unsent (`tcp(7)`).
    pub notsent_lowat_bytes: Option<u32>,
    /// `SO_RCVLOWAT` in bytes: readable only when this much is queued (`socket(7)`).
    pub receive_lowat_bytes: Option<u32>,
    /// `TCP_CONGESTION`: name of the congestion control, for example `reno`, `cubic`, `bbr`.
    pub congestion: Option<String>,
    /// `TCP_MAXSEG` in bytes: the largest segment to send and to offer (`tcp(7)`).
    pub segment_bytes: Option<u32>,
    /// See [`super::TcpSocket::set_silence_limit`]. Connections that a listener accepts inherit it.
    pub silence_limit: Option<Duration>,
}
