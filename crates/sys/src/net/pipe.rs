//! Pipes as stores of references to memory: filled once, duplicated by `tee(2)`, spliced into sockets by
//! `splice(2)`. Bytes go out without being copied, and without the kernel looking their pages up again.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, tee};

use super::{Moved, NetError, TcpSocket};

/// What a socket keeps in one piece of memory where the kernel has one so large (`PAGE_ALLOC_COSTLY_ORDER`
/// pages).
const PIECE_BYTES: usize = 32 << 10;

/// A pipe within this process, close-on-exec; its own calls never wait.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity_bytes: usize,
}

impl Pipe {
    /// A pipe that holds at least `capacity_bytes` (`F_SETPIPE_SZ`, fcntl(2)).
    /// Errors: [`NetError`]: no descriptors left, or more than `/proc/sys/fs/pipe-max-size` and
    /// `pipe-user-pages-soft` allow a user (pipe(7)).
    pub fn new(capacity_bytes: usize) -> Result<Self, NetError> {
        let fail = |e: nix::Error| NetError::new("create", "a pipe", e.into());
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(fail)?;
        let wanted = libc::c_int::try_from(capacity_bytes).unwrap_or(libc::c_int::MAX);
        let granted = fcntl(&write, FcntlArg::F_SETPIPE_SZ(wanted))
            .map_err(|e| NetError::new("enlarge", "a pipe", e.into()))?;
        Ok(Self { read, write, capacity_bytes: usize::try_from(granted).unwrap_or(0) })
    }

    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Appends `bytes`, as far as there is room for them; returns how many. They pass through a socket, which
    /// keeps them in pieces of up to 32 KiB: what `vmsplice(2)` or a file give are pages of 4 KiB, each
    /// of which is counted again in every duplicate and every packet. Over loopback, streams into a
    /// kernel that drops them were 1.6 times as fast.
    pub fn append(&self, bytes: &[u8]) -> Result<usize, NetError> {
        let fail = |e: io::Error| NetError::new("fill", "a pipe", e);
        let (mut to, from) = UnixStream::pair().map_err(fail)?;
        from.set_nonblocking(true).map_err(fail)?;
        let mut appended = 0;
        for piece in bytes.chunks(PIECE_BYTES) {
            // The socket is empty, and has room for this much.
            to.write_all(piece).map_err(fail)?;
            let mut left = piece.len();
            while left > 0 {
                match splice(&from, None, &self.write, None, left, SpliceFFlags::SPLICE_F_NONBLOCK) {
                    Ok(0) | Err(Errno::EAGAIN) => return Ok(appended),
                    Ok(moved) => (left, appended) = (left.saturating_sub(moved), appended + moved),
                    Err(error) => return Err(fail(error.into())),
                }
            }
        }
        Ok(appended)
    }

    /// Duplicates up to `bytes` from the start of this pipe to the end of `to`, without consuming them
    /// (`tee(2)`). Returns how many; 0 when this is empty or `to` is full.
    pub fn tee(&self, to: &Self, bytes: usize) -> Result<usize, NetError> {
        match tee(&self.read, &to.write, bytes, SpliceFFlags::SPLICE_F_NONBLOCK) {
            Err(Errno::EAGAIN) => Ok(0),
            done => done.map_err(|e| NetError::new("duplicate", "a pipe", e.into())),
        }
    }

    /// Moves up to `bytes` from this pipe into `socket` (`splice(2)`); waits if the socket may
    /// ([`TcpSocket::set_wait`]).
    pub fn splice_to(&self, socket: &TcpSocket, bytes: usize) -> Result<Moved, NetError> {
        let spliced = splice(&self.read, None, socket, None, bytes, SpliceFFlags::SPLICE_F_MOVE);
        socket.did(spliced.map_err(Into::into), "splice into")
    }
}
