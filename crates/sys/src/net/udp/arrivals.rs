//! Arrival times of a UDP socket's datagrams, by the kernel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::cmsg_space;
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
use nix::sys::time::TimeSpec;

use super::datagram::{socket_address, take};
use super::timestamps::Timestamps;

/// Receives the datagrams of one UDP socket with the times at which they entered this host's stack
/// (`SO_TIMESTAMPNS`, `socket(7)`): how long the program took to wake up and to read them does not matter.
#[derive(Debug)]
pub struct Arrivals {
    /// `None`: the kernel stamps nothing.
    stamps: Option<Timestamps>,
    control: Vec<u8>,
}

/// When the kernel received a datagram, by a clock that may be set; [`Arrivals::monotonic_ns`] converts it.
#[derive(Debug, Clone, Copy)]
pub struct Stamp(Option<TimeSpec>);

impl Arrivals {
    /// Lets the kernel stamp what arrives at `socket` from now on. A kernel that refuses leaves all times
    /// unknown.
    ///
    /// While any UDP socket of a host asks for it, the kernel reads the clock for every packet of that host:
    /// some 30 ns each.
    pub fn of(socket: impl AsFd) -> Self {
        let is_stamped = setsockopt(&socket, ReceiveTimestampns, &true).is_ok();
        Self { stamps: is_stamped.then(Timestamps::start), control: cmsg_space!(TimeSpec) }
    }

    /// Takes the next datagram of the socket: how many bytes of `buffer` it fills (the rest is lost), who
    /// sent it, and when it arrived. `None`: none waits.
    /// Errors: Those of `recvmsg(2)`. That a peer of an earlier datagram is gone is passed over.
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> io::Result<Option<(usize, SocketAddr, Stamp)>> {
        let taken = take(socket.as_raw_fd(), buffer, &mut self.control, socket_address)?;
        let Some((bytes, from, stamp)) = taken else { return Ok(None) };
        let from = from.ok_or_else(|| io::Error::other("a datagram without the address of its sender"))?;
        Ok(Some((bytes, from, Stamp(stamp))))
    }

    /// The time of a stamp by the monotonic clock, in ns: never before the datagram arrived. `None`: the
    /// kernel did not stamp it, or the clock was set meanwhile.
    pub fn monotonic_ns(&mut self, stamp: Stamp) -> Option<u64> {
        self.stamps.as_mut()?.monotonic_ns(stamp.0?)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::clock::monotonic_ns;

    #[test]
    fn arrival_is_known_however_late_a_datagram_is_read() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let mut arrivals = Arrivals::of(&receiver);
        let mut buffer = [0; 16];
        assert!(arrivals.receive(receiver.as_fd(), &mut buffer).unwrap().is_none());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The kernel begins to stamp a moment after the first socket asks for it, and gives a datagram that
        // came before the time of its reading.
        let is_known = (0..50).any(|_| {
            let before_ns = monotonic_ns();
            // Over loopback a datagram has arrived when the sender's call returns.
            sender.send_to(b"hello", receiver.local_addr().unwrap()).unwrap();
            let after_ns = monotonic_ns();
            std::thread::sleep(Duration::from_millis(20));
            let (bytes, from, stamp) = arrivals.receive(receiver.as_fd(), &mut buffer).unwrap().unwrap();
            assert_eq!((&buffer[..bytes], from), (&b"hello"[..], sender.local_addr().unwrap()));
            let at_ns = arrivals.monotonic_ns(stamp).expect("a stamp");
            // The difference of the clocks is known to less than a microsecond, and errs to the late side.
            (before_ns..after_ns + 10_000).contains(&at_ns)
        });
        assert!(is_known, "each of 50 datagrams has the time at which it was read");
    }
}
