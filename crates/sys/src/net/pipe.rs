//! Pipes as stores of references to memory: filled once, duplicated by `tee(2)`, spliced into sockets by `splice(2)`.
//! Bytes go out without being copied, and without the kernel looking their pages up again.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::{Moved, NetError, Payload, TcpSocket};

/// A pipe within this process, close-on-exec; its own calls never wait.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity_bytes: usize,
}

impl Pipe {
    /// A pipe that holds at least `capacity_bytes` (`F_SETPIPE_SZ`, fcntl(2)).
    ///
    /// # Errors
    /// [`NetError`]: no descriptors left, or more than `/proc/sys/fs/pipe-max-size` and `pipe-user-pages-soft` allow
    /// a user (pipe(7)).
    pub fn new(capacity_bytes: usize) -> Result<Self, NetError> {
        let fail = |e: nix::Error| NetError::new("create", "a pipe", e.into());
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(fail)?;
        let wanted = libc::c_int::try_from(capacity_bytes).unwrap_or(libc::c_int::MAX);
        let granted = fcntl(&write, FcntlArg::F_SETPIPE_SZ(wanted))
            .map_err(|e| NetError::new("enlarge", "a pipe", e.into()))?;
        Ok(Self { read, write, capacity_bytes: usize::try_from(granted).unwrap_or(0) })
    }

    /// How much it holds, bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Appends references to the bytes of `payload` in `range`, cut off at its end (`vmsplice(2)`); returns how many
    /// bytes there was room for.
    ///
    /// # Errors
    /// [`NetError`]; full is an error too.
    pub fn refer_to(&self, payload: &Payload, range: Range<usize>) -> Result<usize, NetError> {
        let end = range.end.min(payload.as_slice().len());
        let slice = &payload.as_slice()[range.start.min(end)..end];
        let one = libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() };
        let flags = libc::SPLICE_F_NONBLOCK;
        // SAFETY: the vector names live memory. The pipe keeps references to its pages beyond this call, which is sound
        // because a `Payload` is never written to again, and pages outlive their mapping while referred to.
        let n = unsafe { libc::vmsplice(self.write.as_raw_fd(), &raw const one, 1, flags) };
        usize::try_from(n).map_err(|_| NetError::last("fill", "a pipe"))
    }

    /// Duplicates up to `bytes` from the start of this pipe into `to`, without consuming them (`tee(2)`). Returns how
    /// many; 0 when this is empty or `to` is full.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn tee(&self, to: &Self, bytes: usize) -> Result<usize, NetError> {
        let flags = libc::SPLICE_F_NONBLOCK;
        // SAFETY: both descriptors are open; no memory of this process is named.
        let n = unsafe { libc::tee(self.read.as_raw_fd(), to.write.as_raw_fd(), bytes, flags) };
        match usize::try_from(n) {
            Ok(n) => Ok(n),
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) => Ok(0),
            Err(_) => Err(NetError::last("duplicate", "a pipe")),
        }
    }

    /// Moves up to `bytes` from this pipe into `socket` (`splice(2)`); waits if the socket may
    /// ([`TcpSocket::set_wait`]).
    ///
    /// # Errors
    /// [`NetError`], see [`NetError::is_peer_gone`].
    pub fn splice_to(&self, socket: &TcpSocket, bytes: usize) -> Result<Moved, NetError> {
        use std::os::fd::AsFd;
        let (from, to) = (self.read.as_raw_fd(), socket.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open; null offsets are required for pipes and sockets.
        let n = unsafe {
            libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), bytes, libc::SPLICE_F_MOVE)
        };
        socket.spliced(n)
    }
}
