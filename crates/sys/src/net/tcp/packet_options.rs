//! Packet options of TCP and UDP sockets.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::net::{NetError, TcpSocket, socket_option};

/// Options for the packets of a socket. `None` and `false` leave the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions {
    /// IPv4's type of service (`IP_TOS`, ip(7)) or IPv6's traffic class (`IPV6_TCLASS`, ipv6(7)).
    pub service: Option<u8>,
    /// The kernel's pacing rate, bytes per second (`SO_MAX_PACING_RATE`, socket(7)).
    pub pacing_byte_per_s: Option<u64>,
    /// Do not fragment (`IP_MTU_DISCOVER`, ip(7)).
    pub dont_fragment: bool,
}

impl PacketOptions {
    /// Sets the options on `socket`, connected to `peer`.
    /// Errors: The first option that the kernel refuses, by name.
    pub fn apply(&self, socket: &impl AsFd, peer: SocketAddr) -> Result<(), NetError> {
        let fd = socket.as_fd();
        // A dual-stack socket sends IPv4 packets to an IPv4 peer.
        let v6 = peer.ip().to_canonical().is_ipv6();
        if let Some(service) = self.service {
            let (level, name) =
                if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
            socket_option::set(fd, level, name, libc::c_int::from(service))
                .map_err(|e| NetError::new("set the type of service towards", peer, e))?;
        }
        if let Some(rate) = self.pacing_byte_per_s {
            socket_option::set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
                .map_err(|e| NetError::new("set SO_MAX_PACING_RATE towards", peer, e))?;
        }
        if self.dont_fragment {
            let (level, name, probe) = if v6 {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
            } else {
                (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
            };
            socket_option::set(fd, level, name, probe)
                .map_err(|e| NetError::new("forbid fragments towards", peer, e))?;
        }
        Ok(())
    }
}

impl TcpSocket {
    /// `TCP_QUICKACK` off: acknowledge with the response, the second segment, or after 40 ms (RFC 5681,
    /// section 4.2). The kernel may return to quick acknowledgements, as after a loss (`tcp(7)`).
    pub fn delay_acknowledgements(&self) -> Result<(), NetError> {
        let off: libc::c_int = 0;
        socket_option::set(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_QUICKACK, off)
            .map_err(|e| self.fail("set TCP_QUICKACK of", e))
    }

    /// Sets the largest segment to send and to offer (`TCP_MAXSEG`, tcp(7)); to be offered it is set before
    /// connecting.
    /// Errors: [`NetError`]: outside what the kernel takes (88 to 32,767 on Linux).
    pub fn set_segment(&self, bytes: u32) -> Result<(), NetError> {
        let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        socket_option::set(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, value)
            .map_err(|e| NetError::new("set TCP_MAXSEG to", bytes, e))
    }

    /// Aborts the connection when the peer's host has been silent for about `limit`: unacknowledged data
    /// (`TCP_USER_TIMEOUT`), or three unanswered keep-alive probes on an idle connection (`TCP_KEEPIDLE`,
    /// tcp(7)). Also applies to data left to send after a close.
    pub fn set_silence_limit(&self, limit: Duration) -> Result<(), NetError> {
        let fail = |e| NetError::new("limit the silence of", "a connection", e);
        let number = |value: u128| libc::c_int::try_from(value.max(1)).unwrap_or(libc::c_int::MAX);
        // Idle for half of the limit, then three probes within the rest.
        let (idle_s, step_s) = (limit.as_secs() / 2, limit.as_secs() / 6);
        for (level, name, value) in [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, number(idle_s.min(32_767).into())),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, number(step_s.min(32_767).into())),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, number(limit.as_millis())),
        ] {
            socket_option::set(self.as_fd(), level, name, value).map_err(fail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{ListenOptions, Listener, SocketOptions, UdpFlow};

    #[test]
    fn packet_options_apply_to_tcp_udp_and_both_families() {
        let marks =
            PacketOptions { service: Some(0x10), pacing_byte_per_s: Some(1 << 20), dont_fragment: true };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A host may have no IPv6.
            let Ok(listener) = Listener::bind(address.parse().unwrap(), &ListenOptions::default()) else {
                continue;
            };
            let peer = listener.local_addr();
            let options = SocketOptions { segment_bytes: Some(1000), ..SocketOptions::default() };
            let socket = TcpSocket::connect_start(peer, None, &options).unwrap();
            marks.apply(&socket, peer).unwrap();
            socket.set_silence_limit(Duration::from_secs(30)).unwrap();
            socket.set_silence_limit(Duration::ZERO).unwrap();
            socket.delay_acknowledgements().unwrap();
            marks.apply(&UdpFlow::connect(peer, None).unwrap(), peer).unwrap();
            let wrong = SocketOptions { segment_bytes: Some(1), ..SocketOptions::default() };
            let error = TcpSocket::connect_start(peer, None, &wrong).unwrap_err();
            assert!(error.to_string().contains("TCP_MAXSEG to 1"), "{error}");
        }
    }
}
