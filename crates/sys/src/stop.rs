//! Ctrl-C and SIGTERM as a flag that can be asked and a descriptor that can be polled.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::clock::Deadline;

static COUNT: AtomicU32 = AtomicU32::new(0);
/// Whether the last signal was the one of Ctrl-C.
static BY_KEY: AtomicBool = AtomicBool::new(false);
/// The raw event descriptor for the handler, which may not touch a `OnceLock`; -1 before it exists.
static EVENT_FD: AtomicI32 = AtomicI32::new(-1);
/// The owner of that descriptor. It lives as long as the process, because the handler does.
static EVENT: OnceLock<OwnedFd> = OnceLock::new();

/// The process's wish to stop. One per process; copies are the same signal.
///
/// ```no_run
/// # use sys as sys;
/// let stop = sys::stop::StopSignal::install()?;
/// while !stop.wait_timeout(std::time::Duration::from_millis(100)) { /* measure */ }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct StopSignal {
    event: BorrowedFd<'static>,
}

impl StopSignal {
    /// Takes over SIGINT, SIGTERM and SIGHUP for this process; calling it again is harmless. SIGHUP stays
    /// ignored where it is (nohup(1)).
    ///
    /// System calls that were waiting are restarted where the kernel does so (`SA_RESTART`); `poll(2)` and
    /// `epoll_wait(2)` return `EINTR`. Programs started later do not inherit the handler.
    pub fn install() -> io::Result<Self> {
        let event = Self::event()?;
        let action = SigAction::new(SigHandler::Handler(on_signal), SaFlags::SA_RESTART, SigSet::empty());
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            // SAFETY: the handler only touches atomics and calls `write(2)`, both async-signal-safe
            // (signal-safety(7)), and the descriptor it writes to is never closed.
            let before = unsafe { sigaction(signal, &action) }?;
            if signal == Signal::SIGHUP && matches!(before.handler(), SigHandler::SigIgn) {
                // SAFETY: it is the action that was in force before.
                unsafe { sigaction(signal, &before) }?;
            }
        }
        Ok(Self { event })
    }

    fn event() -> io::Result<BorrowedFd<'static>> {
        if EVENT.get().is_none() {
            let made = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            // If another thread was first, ours is dropped here and theirs is used.
            let _ = EVENT.set(made.into());
        }
        let event = EVENT.get().ok_or_else(|| io::Error::other("no event descriptor"))?;
        EVENT_FD.store(event.as_raw_fd(), Ordering::Release);
        Ok(event.as_fd())
    }

    #[inline]
    pub fn requested(&self) -> bool {
        self.count() > 0
    }

    /// Number of signals: at 1 a program finishes its current step, at 2 or more it ends at once.
    #[inline]
    pub fn count(&self) -> u32 {
        COUNT.load(Ordering::Acquire)
    }

    /// Asks for a stop from within the program, exactly as a signal would.
    pub fn request(&self) {
        raise();
    }

    /// Waits at most `timeout` and returns whether a stop has been asked for; returns at once if it already
    /// has.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let deadline = Deadline::after(timeout);
        loop {
            if self.requested() {
                return true;
            }
            let mut fds = [PollFd::new(self.event, PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(deadline.left_ms()).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, wait) {
                Ok(0) if deadline.passed() => return self.requested(),
                Ok(_) | Err(Errno::EINTR) => {}
                // Nothing else can go wrong with one valid descriptor; do not spin if it does.
                Err(_) => {
                    deadline.pause(Duration::from_millis(10));
                    if deadline.passed() {
                        return self.requested();
                    }
                }
            }
        }
    }
}

impl AsFd for StopSignal {
    /// Readable from the first stop on, for good: add it to an epoll set, never read from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event
    }
}

/// Whether the terminal that standard error is has shown `^C` for the last signal, or is about to.
pub fn is_key_shown() -> bool {
    if !BY_KEY.load(Ordering::Acquire) {
        return false;
    }
    let mut settings = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: `settings` has room for what the call fills in if it returns 0.
    let flags = unsafe {
        match libc::tcgetattr(libc::STDERR_FILENO, settings.as_mut_ptr()) {
            0 => settings.assume_init().c_lflag,
            _ => return false,
        }
    };
    let shows = libc::ECHO | libc::ECHOCTL;
    flags & shows == shows
}

/// Counts one stop and makes the descriptor readable. Async-signal-safe.
fn raise() {
    COUNT.fetch_add(1, Ordering::AcqRel);
    let event = EVENT_FD.load(Ordering::Acquire);
    if event >= 0 {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is valid for 8 bytes of reading, and the descriptor is open for the life of the
        // process. A full counter (EAGAIN) leaves it readable, which is all that matters.
        unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
    }
}

extern "C" fn on_signal(number: libc::c_int) {
    let saved = Errno::last_raw();
    BY_KEY.store(number == libc::SIGINT, Ordering::Release);
    raise();
    // The interrupted code may be about to read errno.
    Errno::set_raw(saved);
}
