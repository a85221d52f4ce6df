//! Sockets of other programs, read and changed while those run: pidfd_getfd(2), socket(7).
//!
//! Each call duplicates the program's descriptor, does one thing and closes the duplicate at once (a few
//! microseconds). While a duplicate is open, the program's close(2) sends no FIN. If the program closes its
//! own within that time, the duplicate is the last one: the connection then ends by this process's close,
//! which waits if the program has asked for that (`SO_LINGER`).

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

use super::PidFd;
use super::fd_table::FdTableReader;
use crate::net::{CongestionControl, socket_option};
use crate::proc::start_ticks;

/// The most that the kernel sends on a TCP socket, bytes of payload per second (`SO_MAX_PACING_RATE`,
/// socket(7)). Never 0, which the kernel takes for "no limit".
///
/// UDP sockets ignore it, unless the interface has the queueing discipline `fq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PacingRate(NonZeroU64);

impl PacingRate {
    pub const UNLIMITED: Self = Self(NonZeroU64::MAX);

    /// `None` for 0.
    pub fn from_bytes_per_s(bytes: u64) -> Option<Self> {
        NonZeroU64::new(bytes).map(Self)
    }

    /// `None` for less than a byte per second.
    pub fn from_bit_per_s(bits: u64) -> Option<Self> {
        Self::from_bytes_per_s(bits / 8)
    }

    pub fn bytes_per_s(self) -> u64 {
        self.0.get()
    }

    pub fn is_unlimited(self) -> bool {
        self == Self::UNLIMITED
    }

    /// A rate that the kernel reports; it has two values for "no limit".
    pub(crate) fn from_kernel(bytes: u64) -> Self {
        Self::from_bytes_per_s(bytes).unwrap_or(Self::UNLIMITED)
    }
}

/// What is to be set on a socket; `None` leaves it as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketChange {
    pub pacing: Option<PacingRate>,
    /// `SO_PRIORITY`: 0 to 6, or the number of a class of a queueing discipline
    /// ([`crate::shaping::Htb::socket_priority`]). Sockets that a listener accepts do not inherit it. Setting
    /// `IP_TOS` changes it, too.
    pub priority: Option<u32>,
    /// `TCP_CONGESTION`; of TCP sockets only.
    #[serde(default)]
    pub congestion: Option<CongestionControl>,
}

impl SocketChange {
    /// Whether `other` has a value for everything that this has one for.
    pub(crate) fn is_covered_by(&self, other: &Self) -> bool {
        (self.pacing.is_none() || other.pacing.is_some())
            && (self.priority.is_none() || other.priority.is_some())
            && (self.congestion.is_none() || other.congestion.is_some())
    }
}

/// A socket and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketSettings {
    /// The kernel's own number of the socket (`SO_COOKIE`); no other socket ever gets it.
    pub cookie: u64,
    /// Its number in `/proc/PID/fd`; another socket may get it later.
    pub inode: u64,
    pub is_listening: bool,
    pub pacing: PacingRate,
    pub priority: u32,
    /// `None`: it is no TCP socket.
    pub congestion: Option<CongestionControl>,
}

/// Why a socket of another program could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ForeignSocketError {
    #[error("process {pid} has ended")]
    ProcessEnded { pid: i32 },
    #[error(
        "descriptor {fd} of process {pid} is closed or is another socket now; look up the process's sockets \
         again"
    )]
    SocketGone { pid: i32, fd: i32 },
    #[error("descriptor {fd} of process {pid} is not a socket; look up the process's sockets again")]
    NoSocket { pid: i32, fd: i32 },
    #[error(
        "descriptor {fd} of process {pid} listens: each connection that it accepts would inherit the pacing \
         rate; set the rate of the accepted connections instead"
    )]
    Listening { pid: i32, fd: i32 },
    #[error(
        "may not {action} of process {pid}: {source}; run as root, or with CAP_SYS_PTRACE and CAP_NET_ADMIN"
    )]
    Denied { action: String, pid: i32, source: io::Error },
    #[error("cannot {action} of process {pid}: this kernel lacks pidfd_getfd; Linux 5.6 has it")]
    Unsupported { action: String, pid: i32 },
    #[error("cannot {action} of process {pid}: {source}")]
    Call { action: String, pid: i32, source: io::Error },
}

impl ForeignSocketError {
    /// Whether the process or its socket no longer exists, which is no failure.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::ProcessEnded { .. } | Self::SocketGone { .. } | Self::NoSocket { .. })
    }

    /// The same for all sockets and processes with this problem.
    pub fn kind(&self) -> String {
        match self {
            Self::Denied { source, .. } | Self::Call { source, .. } => source.to_string(),
            Self::Unsupported { .. } => "unsupported".to_owned(),
            Self::Listening { .. } => "listening".to_owned(),
            Self::ProcessEnded { .. } | Self::SocketGone { .. } | Self::NoSocket { .. } => "gone".to_owned(),
        }
    }

    fn new(action: String, pid: i32, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ESRCH) => Self::ProcessEnded { pid },
            Some(libc::EPERM | libc::EACCES) => Self::Denied { action, pid, source },
            Some(libc::ENOSYS) => Self::Unsupported { action, pid },
            _ => Self::Call { action, pid, source },
        }
    }
}

/// A process whose sockets are read or changed. The handle stays valid when the process id is reused, and
/// holds none of its sockets.
#[derive(Debug)]
pub struct ForeignProcess {
    pid: i32,
    start_ticks: u64,
    handle: PidFd,
}

impl ForeignProcess {
    /// Errors: there is no such process, or its owner is another user.
    pub fn open(pid: i32) -> Result<Self, ForeignSocketError> {
        let failed = |source| ForeignSocketError::new("open a handle".to_owned(), pid, source);
        let handle = PidFd::try_open(pid).map_err(failed)?;
        // Read after the handle was opened: if the process still runs then, both mean the same.
        let start_ticks =
            start_ticks(Path::new("/"), pid).map_err(|_| ForeignSocketError::ProcessEnded { pid })?;
        match handle.has_ended() {
            true => Err(ForeignSocketError::ProcessEnded { pid }),
            false => Ok(Self { pid, start_ticks, handle }),
        }
    }

    /// [`Self::open`] for the process that was started at `started` (see [`start_ticks`]), not a later one of
    /// this number.
    pub fn open_started_at(pid: i32, started: u64) -> Result<Self, ForeignSocketError> {
        Self::open(pid).and_then(|process| match process.start_ticks == started {
            true => Ok(process),
            false => Err(ForeignSocketError::ProcessEnded { pid }),
        })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// When it was started, see [`start_ticks`].
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    pub fn has_ended(&self) -> bool {
        self.handle.has_ended()
    }

    pub(super) fn handle(&self) -> &PidFd {
        &self.handle
    }

    /// The descriptors of its sockets; none if it has ended.
    pub fn sockets(&self) -> Vec<i32> {
        let mut found = Vec::new();
        // One that cannot be read has none that could be changed.
        let _ = FdTableReader::new().read(self.pid, &mut |fd, _| found.push(fd));
        found
    }

    /// Reads the socket behind descriptor `fd`.
    pub fn read(&self, fd: i32) -> Result<SocketSettings, ForeignSocketError> {
        let socket = self.duplicate(fd, "read")?;
        let read = || -> io::Result<SocketSettings> {
            Ok(SocketSettings {
                cookie: cookie_of(socket.as_fd())?,
                inode: fstat(&socket)?.st_ino,
                is_listening: is_listening(socket.as_fd())?,
                pacing: pacing_of(socket.as_fd())?,
                priority: priority_of(socket.as_fd())?,
                congestion: congestion_of(socket.as_fd()).ok(),
            })
        };
        read().map_err(|source| self.failed("read", fd, source))
    }

    /// Changes the socket behind descriptor `fd` if it still is the one of number `cookie`. Returns the
    /// former values of what was changed.
    ///
    /// A lower pacing rate holds at once, a higher one from the next acknowledgement on. The kernel
    /// continues to pace a socket that once had a rate, even at [`PacingRate::UNLIMITED`], at its own
    /// estimate (tcp(7)).
    /// Errors: the process or the socket is gone, no right, or the pacing rate of a listening socket.
    pub fn change(
        &self,
        fd: i32,
        cookie: u64,
        change: SocketChange,
    ) -> Result<SocketChange, ForeignSocketError> {
        let duplicate = self.duplicate(fd, "change")?;
        let socket = duplicate.as_fd();
        let failed = |source| self.failed("change", fd, source);
        if cookie_of(socket).map_err(failed)? != cookie {
            return Err(ForeignSocketError::SocketGone { pid: self.pid, fd });
        }
        if change.pacing.is_some() && is_listening(socket).map_err(failed)? {
            return Err(ForeignSocketError::Listening { pid: self.pid, fd });
        }
        let mut before = SocketChange::default();
        // First what can fail: the kernel may lack it.
        if let Some(congestion) = change.congestion {
            before.congestion = Some(congestion_of(socket).map_err(failed)?);
            congestion.set_on(socket).map_err(failed)?;
        }
        if let Some(rate) = change.pacing {
            before.pacing = Some(pacing_of(socket).map_err(failed)?);
            set_pacing(socket, rate).map_err(failed)?;
        }
        if let Some(priority) = change.priority {
            before.priority = Some(priority_of(socket).map_err(failed)?);
            socket_option::set(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, priority.cast_signed())
                .map_err(failed)?;
        }
        Ok(before)
    }

    fn duplicate(&self, fd: i32, action: &str) -> Result<OwnedFd, ForeignSocketError> {
        self.handle.duplicate(fd).map_err(|source| match source.raw_os_error() {
            Some(libc::EBADF) => ForeignSocketError::SocketGone { pid: self.pid, fd },
            _ => self.failed(action, fd, source),
        })
    }

    fn failed(&self, action: &str, fd: i32, source: io::Error) -> ForeignSocketError {
        match source.raw_os_error() {
            Some(libc::ENOTSOCK) => ForeignSocketError::NoSocket { pid: self.pid, fd },
            _ => ForeignSocketError::new(format!("{action} descriptor {fd}"), self.pid, source),
        }
    }
}

fn cookie_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    socket_option::get(socket, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie).map(|_| cookie)
}

fn is_listening(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut listens: libc::c_int = 0;
    socket_option::get(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, &mut listens).map(|_| listens != 0)
}

fn priority_of(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut priority: libc::c_int = 0;
    socket_option::get(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &mut priority)
        .map(|_| priority.cast_unsigned())
}

fn pacing_of(socket: BorrowedFd<'_>) -> io::Result<PacingRate> {
    let mut rate = 0_u64;
    let bytes = socket_option::get(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)?;
    // A kernel of 32 bits, or older than 4.20, fills half of it.
    let is_half = bytes == size_of::<u32>();
    let half = u32::from_ne_bytes(*rate.to_ne_bytes().first_chunk().unwrap_or(&[0xff; 4]));
    Ok(match is_half {
        true if half == u32::MAX => PacingRate::UNLIMITED,
        true => PacingRate::from_kernel(half.into()),
        false => PacingRate::from_kernel(rate),
    })
}

fn congestion_of(socket: BorrowedFd<'_>) -> io::Result<CongestionControl> {
    let mut name = [0_u8; 16];
    socket_option::get(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)?;
    CongestionControl::from_kernel(&name).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn set_pacing(socket: BorrowedFd<'_>, rate: PacingRate) -> io::Result<()> {
    // The kernel takes an `unsigned long`.
    #[cfg(target_pointer_width = "64")]
    let value = rate.bytes_per_s();
    #[cfg(not(target_pointer_width = "64"))]
    let value = u32::try_from(rate.bytes_per_s()).unwrap_or(u32::MAX).cast_signed();
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, value)
}
