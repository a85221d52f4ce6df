//! The TCP and UDP sockets that programs hold, with what waits in them: sock_diag(7).

use std::io;
use std::path::Path;

use nix::sys::socket::SockProtocol;

use super::{
    BY_FAMILY, DIAG_INFO, DIAG_MESSAGE_BYTES, Netlink, attributes, diag_request, in_namespace_of, u32_at,
};
use crate::net::TcpInfo;

/// All states but listening (`net/tcp_states.h`): what waits there are connections, not bytes.
const STATES: u32 = !(1 << 10);
/// The places of members of `struct inet_diag_msg`.
const UNREAD_AT: usize = 56;
const UNSENT_AT: usize = 60;
const INODE_AT: usize = 68;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketState {
    /// Its number, as it stands in `/proc/PID/fd` ([`inodes_of`]).
    pub inode: u64,
    /// What has come and was not read; of UDP with the kernel's own use of memory.
    pub unread_bytes: u32,
    /// What was written and is not sent, or of TCP not acknowledged.
    pub unsent_bytes: u32,
    /// What TCP's congestion control lets be under way.
    pub congestion_window_bytes: Option<u64>,
}

/// Lists the sockets of a network namespace.
#[derive(Debug)]
pub struct Sockets(Netlink);

impl Sockets {
    /// Opens the list of the network namespace of process `namespace_of`, or of this process's own.
    /// Errors: The namespace cannot be entered, or the kernel was built without it (`CONFIG_INET_DIAG`).
    pub fn open(namespace_of: Option<i32>) -> io::Result<Self> {
        Ok(Self(in_namespace_of(namespace_of, || Netlink::open(SockProtocol::NetlinkSockDiag))?))
    }

    /// Hands each socket to `take`. The kernel walks its tables for it, which takes about a millisecond.
    pub fn read(&mut self, take: &mut dyn FnMut(SocketState)) -> io::Result<()> {
        for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
            for family in [libc::AF_INET, libc::AF_INET6] {
                let request = diag_request(family, protocol, STATES, 0);
                self.0.dump((BY_FAMILY, BY_FAMILY), &request, &mut |payload| {
                    parse(payload).into_iter().for_each(&mut *take);
                })?;
            }
        }
        Ok(())
    }
}

fn parse(payload: &[u8]) -> Option<SocketState> {
    let info = attributes(payload.get(DIAG_MESSAGE_BYTES..)?).find(|(kind, _)| *kind == DIAG_INFO);
    let window = info
        .map(|(_, info)| TcpInfo::parse(info))
        .and_then(|info| Some(u64::from(info.congestion_window_segments?) * u64::from(info.send_mss_bytes?)));
    Some(SocketState {
        inode: u32_at(payload, INODE_AT)?.into(),
        unread_bytes: u32_at(payload, UNREAD_AT)?,
        unsent_bytes: u32_at(payload, UNSENT_AT)?,
        congestion_window_bytes: window,
    })
}

/// The numbers of the sockets that a process holds (`/proc/PID/fd`, proc(5)); empty if it is gone or may not
/// be looked at.
pub fn inodes_of(pid: u32) -> Vec<u64> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let number = |path: &Path| path.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    files.filter_map(|file| number(&std::fs::read_link(file.path()).ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn queued_bytes_of_own_sockets_are_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap().0;
        client.write_all(&[7; 1234]).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.send_to(&[8; 100], datagrams.local_addr().unwrap()).unwrap();
        let own = inodes_of(std::process::id());
        assert!(own.len() >= 4, "{own:?}");
        let mut sockets = Sockets::open(None).unwrap();
        // Acknowledgements over loopback take no time, but may not be there yet.
        let deadline = crate::clock::Deadline::after(std::time::Duration::from_secs(10));
        loop {
            let mut found = Vec::new();
            sockets.read(&mut |socket| found.extend(own.contains(&socket.inode).then_some(socket))).unwrap();
            let received = found.iter().any(|socket| socket.unread_bytes == 1234);
            let datagram = found
                .iter()
                .any(|socket| socket.congestion_window_bytes.is_none() && socket.unread_bytes >= 100);
            let windows = found.iter().filter(|socket| socket.congestion_window_bytes > Some(0)).count();
            if received && datagram && windows >= 2 {
                break;
            }
            assert!(deadline.pause(std::time::Duration::from_millis(5)), "{found:?}");
        }
        assert!(inodes_of(u32::MAX).is_empty());
    }
}
