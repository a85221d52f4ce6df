//! Waking a thread that waits in an [`Epoll`](super::Epoll).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::NetError;

/// An `eventfd(2)` shared between threads: [`Waker::wake`] makes it readable, [`Waker::clear`] makes it
/// quiet.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    pub fn new() -> Result<Self, NetError> {
        // SAFETY: no pointers are passed.
        match unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) } {
            -1 => Err(NetError::last("create", "an eventfd")),
            // SAFETY: the kernel just returned this descriptor; it has no other owner.
            fd => Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } }),
        }
    }

    /// Makes the waker readable. Cannot fail: a full counter means that it is readable already.
    pub fn wake(&self) {
        let one = 1_u64;
        // SAFETY: pointer and length describe one live u64 that the kernel only reads.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Makes the waker quiet. Returns whether it had been woken.
    pub fn clear(&self) -> bool {
        let mut count = 0_u64;
        // SAFETY: pointer and length describe one live u64 that the kernel may write.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        n > 0
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
