//! `epoll(7)` with a token per descriptor and waits that end to the nanosecond, and what wakes such a wait.

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::NetError;

/// What to wait for; combine with `|`. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Data, a connection or the peer's close can be read.
    pub const READ: Self = Self((libc::EPOLLIN | libc::EPOLLRDHUP) as u32);
    pub const WRITE: Self = Self(libc::EPOLLOUT as u32);
    /// Report changes only, not states (`EPOLLET`).
    pub const EDGE: Self = Self(libc::EPOLLET as u32);
}

impl BitOr for Interest {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub token: u64,
    bits: u32,
}

impl Event {
    /// Reading will make progress (data, end, or an error to collect).
    pub fn is_readable(self) -> bool {
        self.has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR)
    }

    /// The peer will send no more.
    pub fn is_peer_done(self) -> bool {
        self.has(libc::EPOLLRDHUP | libc::EPOLLHUP)
    }

    fn has(self, bits: i32) -> bool {
        self.bits & bits as u32 != 0
    }
}

pub struct Events {
    buffer: Vec<libc::epoll_event>,
    filled: usize,
}

impl Events {
    /// Room for `events_max` (at least 1) events a wait.
    pub fn with_capacity(events_max: usize) -> Self {
        Self { buffer: vec![libc::epoll_event { events: 0, u64: 0 }; events_max.max(1)], filled: 0 }
    }

    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.buffer[..self.filled].iter().map(|e| Event { token: e.u64, bits: e.events })
    }

    /// How many the last wait brought.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the last wait brought none.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

/// `struct __kernel_timespec`: 64 bits on every architecture, unlike `libc::timespec`.
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Set once the kernel has said that it lacks `epoll_pwait2` (before 5.11).
static NO_PWAIT2: AtomicBool = AtomicBool::new(false);

impl Epoll {
    /// A new, empty instance, close-on-exec.
    pub fn new() -> Result<Self, NetError> {
        // SAFETY: no pointers are passed.
        match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
            -1 => Err(NetError::last("create", "an epoll instance")),
            // SAFETY: the kernel just returned this descriptor; it has no other owner.
            fd => Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } }),
        }
    }

    /// Starts watching `what`; its events carry `token`. Closing the descriptor ends the watch.
    /// Errors: [`NetError`] (already watched, out of `max_user_watches`).
    pub fn add(&self, what: &impl AsFd, token: u64, interest: Interest) -> Result<(), NetError> {
        self.control(libc::EPOLL_CTL_ADD, what, token, interest.0, "watch")
    }

    pub fn modify(&self, what: &impl AsFd, token: u64, interest: Interest) -> Result<(), NetError> {
        self.control(libc::EPOLL_CTL_MOD, what, token, interest.0, "change the watch of")
    }

    pub fn delete(&self, what: &impl AsFd) -> Result<(), NetError> {
        self.control(libc::EPOLL_CTL_DEL, what, 0, 0, "stop watching")
    }

    fn control(
        &self,
        op: libc::c_int,
        what: &impl AsFd,
        token: u64,
        bits: u32,
        action: &'static str,
    ) -> Result<(), NetError> {
        let fd = what.as_fd().as_raw_fd();
        let mut event = libc::epoll_event { events: bits, u64: token };
        // SAFETY: both descriptors are open for the call; `event` is live and only read.
        match unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), op, fd, &raw mut event) } {
            -1 => Err(NetError::last(action, format_args!("descriptor {fd}"))),
            _ => Ok(()),
        }
    }

    /// Waits for events, at most for `timeout` (`None`: without limit). A signal ends the wait with no
    /// events. Returns how many events came.
    ///
    /// The time limit is exact to the timer slack of the thread (`epoll_pwait2(2)`); on kernels before 5.11
    /// it is rounded up to a millisecond.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, NetError> {
        events.filled = 0;
        let n = if NO_PWAIT2.load(Ordering::Relaxed) {
            self.wait_ms(events, timeout)
        } else {
            match self.wait_ns(events, timeout) {
                Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
                    NO_PWAIT2.store(true, Ordering::Relaxed);
                    self.wait_ms(events, timeout)
                }
                other => other,
            }
        };
        match n {
            Ok(n) => {
                events.filled = n;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(e) => Err(NetError::new("wait for", "socket events", e)),
        }
    }

    /// [`Epoll::wait`] until `deadline_ns` on `CLOCK_MONOTONIC`; a deadline in the past only collects.
    pub fn wait_until(&self, events: &mut Events, deadline_ns: u64) -> Result<usize, NetError> {
        let left_ns = deadline_ns.saturating_sub(crate::clock::monotonic_ns());
        self.wait(events, Some(Duration::from_nanos(left_ns)))
    }

    fn wait_ns(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        let spec = timeout.map(|t| KernelTimespec {
            seconds: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: i64::from(t.subsec_nanos()),
        });
        let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: pointer and count describe the live buffer; the timespec pointer is null or points to a
        // live value of the kernel's layout; a null signal mask is allowed (its size is then ignored).
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                events.buffer.as_mut_ptr(),
                count(&events.buffer),
                spec_ptr,
                std::ptr::null::<libc::sigset_t>(),
                8_usize,
            )
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    fn wait_ms(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        let ms = timeout.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: pointer and count describe the live buffer.
        let n = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), events.buffer.as_mut_ptr(), count(&events.buffer), ms)
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

fn count(buffer: &[libc::epoll_event]) -> libc::c_int {
    libc::c_int::try_from(buffer.len()).unwrap_or(libc::c_int::MAX)
}

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
