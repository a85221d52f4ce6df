//! Links whose packets a program carries: TAP devices. Linux Documentation/networking/tuntap.rst.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::{Error, Result};

const DEVICE: &str = "/dev/net/tun";
const TUNSETIFF: libc::Ioctl = 0x4004_54CA;
/// Ethernet frames without a header of their own, in a device that must be new.
const FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | IFF_TUN_EXCL;
/// Refuse a device that exists (linux/if_tun.h; libc has it as a `c_int` on some targets only).
const IFF_TUN_EXCL: libc::c_int = 0x8000;

/// `struct ifreq` of linux/if.h with the member that TUNSETIFF reads.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// A TAP device: what the kernel sends on it is read here, what is written here the kernel receives from it.
/// It exists while this does. Reads and writes never wait.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
}

impl Tap {
    /// Makes a device called `name` in the network namespace that this thread is in; its packets carry no
    /// offloads, so each is one Ethernet frame.
    /// Errors: no rights, no TUN driver, the name is in use or longer than 15 bytes.
    pub fn create(name: &str) -> Result<Self> {
        let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], flags: FLAGS as _, rest: [0; 22] };
        // The last byte stays zero: the kernel wants a terminated name.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(Error::Refused(format!(
                "`{name}` cannot name a network interface: use 1 to 15 bytes"
            )));
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        let path = Path::new(DEVICE);
        // The device belongs to the namespace in which this file is opened.
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(|error| Error::file("open", path, error))?;
        // SAFETY: the structure has the kernel's layout (40 bytes) and outlives the call, and the descriptor
        // is open.
        if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) } != 0 {
            let error = io::Error::last_os_error();
            return Err(Error::call(format!("make the network interface {name}"), error));
        }
        Ok(Self { file, name: name.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the next frame that the kernel has sent, and returns its length. `None` when there is none.
    /// Errors: EIO when the device or its namespace has gone. A frame longer than `frame` is cut short.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match io::Read::read(&mut &self.file, frame) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a frame to the kernel as received.
    /// Errors: EIO while the device is not up.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        io::Write::write(&mut &self.file, frame).map(drop)
    }
}

impl AsFd for Tap {
    /// Readable when there is a frame to [`Tap::receive`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Waits for a frame or for a moment, whichever comes first.
///
/// By a timer of its own (timerfd_create(2)): a timeout of poll(2) is up to 0.1 % late whatever the thread's
/// timer slack (`select_estimate_accuracy`, fs/select.c), which is 50 us of 50 ms.
#[derive(Debug)]
pub struct TapWait {
    timer: TimerFd,
}

impl TapWait {
    /// Errors: too many open files.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self { timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)? })
    }

    /// Waits until `tap` has a frame or the monotonic clock reads `until_ns` (`None`: never). It may return
    /// early.
    /// Errors: EIO when the device or its namespace has gone.
    pub fn wait(&self, tap: &Tap, until_ns: Option<u64>) -> io::Result<()> {
        match until_ns {
            // A time of 0 would turn the timer off; the clock is past 1 ns.
            Some(ns) => {
                let at = Expiration::OneShot(TimeSpec::from_duration(Duration::from_nanos(ns.max(1))));
                self.timer.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => self.timer.unset()?,
        }
        let mut fds =
            [tap.as_fd(), self.timer.as_fd()].map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) if fds[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLERR)) => {
                Err(Errno::EIO.into())
            }
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tap_request_size_and_names_are_checked() {
        assert_eq!(size_of::<InterfaceRequest>(), 40);
        for name in ["", "longer-than-15-by"] {
            assert!(matches!(Tap::create(name), Err(Error::Refused(_))), "{name}");
        }
    }
}
