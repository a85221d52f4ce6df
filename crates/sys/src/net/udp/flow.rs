//! A connected UDP socket that moves many datagrams in one call (`UDP_SEGMENT`, `UDP_GRO`, udp(7)).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Protocol, Socket, Type};

use crate::net::tcp::is_unsupported;
use crate::net::{Moved, NetError, socket_option};

/// What one receiving call brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// One datagram, or several of one sender that came in a row.
    Batch(Batch),
    WouldBlock,
}

/// Datagrams that came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Their payload, bytes; includes bytes that did not fit into the buffer.
    pub bytes: usize,
    /// Payload of each datagram but the last, which may be shorter. Equal to `bytes` for a single datagram.
    pub each_bytes: usize,
    /// Packets that the socket had dropped because its buffer was full when these arrived (`SO_RXQ_OVFL`,
    /// socket(7)), if any. A packet is one entry of the queue: one datagram, or several coalesced ones.
    pub overflows: Option<u32>,
}

/// A connected UDP socket, close-on-exec.
#[derive(Debug)]
pub struct UdpFlow {
    inner: Socket,
    peer: SocketAddr,
    receive_buffer_chosen: bool,
}

/// Room for the two control messages that are asked for, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
struct Control([u8; 128]);

impl UdpFlow {
    /// The most payload that a call may give or take: a datagram's, or that of several in a row together.
    pub const CALL_BYTES_MAX: usize = 65_507;
    /// The most datagrams that every kernel with `UDP_SEGMENT` makes of one call (`UDP_MAX_SEGMENTS`).
    pub const SEGMENTS_MAX: usize = 64;

    /// A socket connected to `peer`, from `local` if given. UDP has no handshake, so this does not block.
    /// Errors: [`NetError`]: no route, not a local address, no descriptors.
    pub fn connect(peer: SocketAddr, local: Option<SocketAddr>) -> Result<Self, NetError> {
        let fail = |e| NetError::new("connect to", peer, e);
        let kind = Type::DGRAM.nonblocking().cloexec();
        let inner = Socket::new(Domain::for_address(peer), kind, Some(Protocol::UDP)).map_err(fail)?;
        if let Some(local) = local {
            inner.bind(&local.into()).map_err(|e| NetError::new("bind to", local, e))?;
        }
        inner.connect(&peer.into()).map_err(fail)?;
        Ok(Self { inner, peer, receive_buffer_chosen: false })
    }

    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    pub fn local_addr(&self) -> Result<SocketAddr, NetError> {
        let address = self.inner.local_addr().map_err(|e| self.fail("read the local address towards", e))?;
        let kind = io::ErrorKind::Unsupported;
        address.as_socket().ok_or_else(|| self.fail("read the local address towards", kind.into()))
    }

    /// Lets calls wait in the kernel, at most for `wait` (at least 1 ms, to the kernel's timer tick); `None`,
    /// as a new socket: they never wait.
    pub fn set_wait(&self, wait: Option<Duration>) -> Result<(), NetError> {
        socket_option::set_wait(&self.inner, wait).map_err(|e| self.fail("set the waiting time towards", e))
    }

    /// Cuts what [`UdpFlow::send`] is given into datagrams of `bytes` each (`UDP_SEGMENT`, since Linux 4.18);
    /// 0 sends it as one. Returns `false` where the kernel cannot.
    pub fn set_segment(&self, bytes: u16) -> Result<bool, NetError> {
        self.switch(libc::SOL_UDP, libc::UDP_SEGMENT, i32::from(bytes), "set UDP_SEGMENT towards")
    }

    /// Receives several datagrams of one size in one call (`UDP_GRO`, since Linux 5.0). Returns
    /// `false` where the kernel cannot.
    pub fn set_coalesce(&self, on: bool) -> Result<bool, NetError> {
        self.switch(libc::SOL_UDP, libc::UDP_GRO, i32::from(on), "set UDP_GRO towards")
    }

    /// Enables [`Batch::overflows`] (`SO_RXQ_OVFL`). Returns `false` where the kernel cannot.
    pub fn count_overflows(&self) -> Result<bool, NetError> {
        self.switch(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1, "set SO_RXQ_OVFL towards")
    }

    fn switch(&self, level: i32, name: i32, value: i32, action: &'static str) -> Result<bool, NetError> {
        match socket_option::set(self.as_fd(), level, name, value) {
            Ok(()) => Ok(true),
            Err(e) if is_unsupported(&e) => Ok(false),
            Err(e) => Err(self.fail(action, e)),
        }
    }

    /// Packets that the socket has dropped so far because its buffer was full; `None` if the kernel does not
    /// report it.
    pub fn overflows(&self) -> Option<u32> {
        socket_option::drops(self.as_fd()).ok()
    }

    /// Sends `bytes`, as one datagram or cut into several ([`UdpFlow::set_segment`]). [`Moved::WouldBlock`]:
    /// the send buffer is full (`EAGAIN`, `ENOBUFS`).
    /// Errors: [`NetError`]: larger than the path allows (EMSGSIZE, and EINVAL if cut), or the peer's
    /// port is closed (`ConnectionRefused`, reported for an earlier datagram).
    pub fn send(&self, bytes: &[u8]) -> Result<Moved, NetError> {
        // SAFETY: the pointer and length come from a live slice that the kernel only reads.
        let n = unsafe {
            libc::send(self.inner.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        };
        if let Ok(n) = usize::try_from(n) {
            return Ok(Moved::Bytes(n));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => Ok(Moved::WouldBlock),
            _ => Err(self.fail("send to", error)),
        }
    }

    /// Takes the next datagram, or several in a row ([`UdpFlow::set_coalesce`]; the buffer then needs 64
    /// KiB). Bytes that do not fit into `buffer` are dropped, but counted.
    /// Errors: [`NetError`]. `ConnectionRefused` of an earlier datagram is ignored: it says nothing about
    /// arriving data.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Arrived, NetError> {
        self.receive_with(buffer, 0)
    }

    /// The same, but never blocks, whatever [`UdpFlow::set_wait`] allows.
    pub fn receive_now(&self, buffer: &mut [u8]) -> Result<Arrived, NetError> {
        self.receive_with(buffer, libc::MSG_DONTWAIT)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: libc::c_int) -> Result<Arrived, NetError> {
        let mut control = Control([0; 128]);
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all fields are integers and pointers, for which zero (null) is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        // SAFETY: the header names the live buffer and the live control room, both exclusively borrowed.
        let n = unsafe { libc::recvmsg(self.inner.as_raw_fd(), &raw mut message, libc::MSG_TRUNC | flags) };
        let Ok(bytes) = usize::try_from(n) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED) => Ok(Arrived::WouldBlock),
                _ => Err(self.fail("receive from", error)),
            };
        };
        let mut batch = Batch { bytes, each_bytes: bytes, overflows: None };
        // SAFETY: the kernel has filled the header and the control room that it names.
        unsafe { read_control(&message, &mut batch) };
        Ok(Arrived::Batch(batch))
    }

    /// The length of the next datagram, whose beginning is copied to `buffer`; it stays in the queue. `None`
    /// if the queue is empty. Never blocks.
    pub fn peek(&self, buffer: &mut [u8]) -> Option<usize> {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        recv(self.inner.as_raw_fd(), buffer, flags).ok()
    }

    /// Takes one datagram (`recv(2)`), of a socket that does not take several ([`UdpFlow::set_coalesce`]).
    /// Bytes that do not fit into `buffer` are dropped. An empty datagram is `Moved::Bytes(0)`.
    /// Errors: [`NetError`]; unlike [`UdpFlow::receive`] also `ConnectionRefused` of an earlier datagram.
    pub fn receive_one(&self, buffer: &mut [u8]) -> Result<Moved, NetError> {
        // SAFETY: the pointer and length come from a live, exclusively borrowed slice.
        let n = unsafe { libc::recv(self.inner.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if let Ok(bytes) = usize::try_from(n) {
            return Ok(Moved::Bytes(bytes));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(Moved::WouldBlock),
            _ => Err(self.fail("receive from", error)),
        }
    }

    /// Sets `SO_RCVBUF`, beyond `net.core.rmem_max` where this process may (`SO_RCVBUFFORCE`, socket(7));
    /// returns the resulting size (twice the request).
    pub fn set_receive_buffer(&mut self, bytes: u64) -> Result<u64, NetError> {
        self.receive_buffer_chosen = true;
        self.enlarge_receive_buffer(bytes)
    }

    /// As [`UdpFlow::set_receive_buffer`], unless a size was chosen before.
    pub fn suggest_receive_buffer(&self, bytes: u64) -> Result<(), NetError> {
        if self.receive_buffer_chosen { Ok(()) } else { self.enlarge_receive_buffer(bytes).map(drop) }
    }

    fn enlarge_receive_buffer(&self, bytes: u64) -> Result<u64, NetError> {
        let enlarged = socket_option::enlarge_receive_buffer(&self.inner, bytes);
        enlarged.map_err(|e| self.fail("set SO_RCVBUF towards", e))
    }

    /// Sets `SO_SNDBUF` and returns what the kernel made of it (twice the request, at most twice
    /// `net.core.wmem_max`).
    pub fn set_send_buffer(&self, bytes: u64) -> Result<u64, NetError> {
        let ask = usize::try_from(bytes).unwrap_or(usize::MAX).min(i32::MAX as usize);
        self.inner.set_send_buffer_size(ask).map_err(|e| self.fail("set SO_SNDBUF towards", e))?;
        self.inner.send_buffer_size().map(|n| n as u64).map_err(|e| self.fail("read SO_SNDBUF towards", e))
    }

    /// The MTU of the path as the kernel knows it, bytes (`IP_MTU`, ip(7)).
    pub fn path_mtu(&self) -> Result<u32, NetError> {
        socket_option::path_mtu(self.as_fd(), self.peer.is_ipv6())
            .map_err(|e| self.fail("read the path MTU towards", e))
    }

    fn fail(&self, action: &'static str, source: io::Error) -> NetError {
        NetError::new(action, self.peer, source)
    }
}

/// Reads the control messages of a datagram.
///
/// # Safety
/// `message` was filled by `recvmsg(2)` and the control room that it names is alive.
unsafe fn read_control(message: &libc::msghdr, batch: &mut Batch) {
    // SAFETY: by the promise above the macros walk within the control room that the kernel filled.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the kernel wrote a whole header there, and its payload of at least one `int` behind it for
        // the two kinds that are read.
        let (header, data) = unsafe { (next.read_unaligned(), libc::CMSG_DATA(next)) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: an `int` (udp(7)).
                let each = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                batch.each_bytes = usize::try_from(each).ok().filter(|&b| b > 0).unwrap_or(batch.bytes);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: a `u32` (socket(7)).
                batch.overflows = Some(unsafe { data.cast::<u32>().read_unaligned() });
            }
            _ => {}
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
}

impl AsFd for UdpFlow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl TryFrom<UdpSocket> for UdpFlow {
    type Error = NetError;

    /// Takes over a standard socket that is connected, and makes it non-blocking.
    fn try_from(socket: UdpSocket) -> Result<Self, NetError> {
        let fail = |e| NetError::new("take over", "a UDP socket", e);
        let peer = socket.peer_addr().map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        Ok(Self { inner: socket.into(), peer, receive_buffer_chosen: false })
    }
}
