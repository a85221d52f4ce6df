//! Blocking I/O on one TCP connection with a bounded wait, which saves a readiness call for each transfer.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use crate::net::{Moved, NetError, TcpSocket, socket_option};

impl TcpSocket {
    /// Lets [`TcpSocket::send_all_of`], [`TcpSocket::send_waiting`], [`TcpSocket::recv_waiting`],
    /// [`TcpSocket::discard_waiting`] and [`Pipe::splice_to`](crate::net::Pipe::splice_to) wait in the
    /// kernel for up to `wait` (`SO_RCVTIMEO`, `SO_SNDTIMEO`, socket(7); resolution: the kernel's timer tick,
    /// at least 1 ms). On timeout they return what they transferred, or [`Moved::WouldBlock`]. `None`, the
    /// default: they never wait.
    pub fn set_wait(&self, wait: Option<Duration>) -> Result<(), NetError> {
        socket_option::set_wait(self.inner(), wait).map_err(|e| self.fail("set the waiting time of", e))
    }

    /// Sends the bytes of `slices`, one after the other, in one call (`sendmsg(2)`, at most 1,024 slices).
    pub fn send_all_of(&self, slices: &[IoSlice<'_>]) -> Result<Moved, NetError> {
        // SAFETY: all fields are integers and pointers, for which zero (null) is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSlice` has the layout of `iovec` on Unix (std); the kernel does not write to them.
        message.msg_iov = slices.as_ptr().cast_mut().cast();
        message.msg_iovlen = slices.len() as _;
        // SAFETY: the header names live slices of live memory, which the kernel only reads.
        let n = unsafe { libc::sendmsg(self.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        self.moved(n, "write to")
    }

    /// Sends from `buffer` (`send(2)`); waits for room if the socket may ([`TcpSocket::set_wait`]).
    pub fn send_waiting(&self, buffer: &[u8]) -> Result<Moved, NetError> {
        let fd = self.as_fd().as_raw_fd();
        // SAFETY: the pointer and length come from a live slice that the kernel only reads.
        let n = unsafe { libc::send(fd, buffer.as_ptr().cast(), buffer.len(), libc::MSG_NOSIGNAL) };
        self.moved(n, "write to")
    }

    /// Receives into `buffer` (`recv(2)`); waits for the first bytes if the socket may
    /// ([`TcpSocket::set_wait`]).
    pub fn recv_waiting(&self, buffer: &mut [u8]) -> Result<Moved, NetError> {
        // SAFETY: the pointer and length come from a live, exclusively borrowed slice.
        let n = unsafe { libc::recv(self.as_fd().as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        self.moved(n, "read from")
    }

    /// As [`TcpSocket::recv_discard`], and waits for the first bytes if the socket may
    /// ([`TcpSocket::set_wait`]).
    pub fn discard_waiting(&self, bytes_max: usize) -> Result<Moved, NetError> {
        // SAFETY: for TCP, MSG_TRUNC makes the kernel drop the data and never touch the buffer, so null is
        // allowed (tcp(7)).
        let n = unsafe { libc::recv(self.as_fd().as_raw_fd(), ptr::null_mut(), bytes_max, libc::MSG_TRUNC) };
        self.moved(n, "discard from")
    }

    /// The MTU of the path as the kernel knows it, bytes (`IP_MTU`, ip(7)).
    pub fn path_mtu(&self) -> Result<u32, NetError> {
        let is_v6 = self.local_addr()?.is_ipv6();
        socket_option::path_mtu(self.as_fd(), is_v6).map_err(|e| self.fail("read the path MTU of", e))
    }

    /// Takes the socket's pending error (`SO_ERROR`, socket(7)).
    pub fn check(&self) -> Result<(), NetError> {
        match self.inner().take_error() {
            Ok(None) => Ok(()),
            Ok(Some(waiting)) => Err(self.fail("go on with", waiting)),
            Err(error) => Err(self.fail("read the state of", error)),
        }
    }
}

/// Whether a call failed because the kernel does not support it, or does not allow it here.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::EPERM)
    )
}
