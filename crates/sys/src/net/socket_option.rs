//! Socket options that neither `socket2` nor `nix` offers, and those that TCP and UDP sockets share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::Socket;

/// Bounds of a call's timeout: 0 means "no timeout" to the kernel, and years overflow its type.
const WAIT_LEAST: Duration = Duration::from_millis(1);
const WAIT_MOST: Duration = Duration::from_secs(3600);

/// Which member of the array of `SO_MEMINFO` counts the datagrams dropped at the socket (linux/sock_diag.h).
const MEMINFO_DROPS: usize = 8;
/// Members with the memory of what was received and not read, and of what was written and not acknowledged.
const MEMINFO_RECEIVED: usize = 0;
const MEMINFO_QUEUED: usize = 5;

/// Sets an option whose value is plain data without pointers.
pub(crate) fn set<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe the live local `value`, which the kernel only reads.
    let code = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option into `value`; returns how many bytes of it the kernel filled.
pub(crate) fn get<T: Plain>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, exclusively borrowed and valid for any bit pattern; the
    // kernel writes at most `length` bytes.
    let code = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(value).cast(), &raw mut length)
    };
    if code == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// Integers and arrays of them: no padding, no pointers, every bit pattern a value.
pub(crate) trait Plain: Copy {}
impl Plain for libc::c_int {}
impl Plain for u64 {}
impl Plain for [u32; 16] {}
impl Plain for [u8; 16] {}

/// Lets calls that move bytes wait in the kernel, at most for `wait` (`SO_RCVTIMEO`, `SO_SNDTIMEO`,
/// socket(7)), to the resolution of the kernel's timer tick. `None`: they do not wait at all.
pub(super) fn set_wait(socket: &Socket, wait: Option<Duration>) -> io::Result<()> {
    if let Some(wait) = wait {
        let wait = Some(wait.clamp(WAIT_LEAST, WAIT_MOST));
        socket.set_read_timeout(wait)?;
        socket.set_write_timeout(wait)?;
    }
    socket.set_nonblocking(wait.is_none())
}

/// Asks for so much room for what arrives (`SO_RCVBUF`), beyond `net.core.rmem_max` where this process may
/// (`SO_RCVBUFFORCE`, socket(7)); returns the resulting size (twice the request).
pub(super) fn enlarge_receive_buffer(socket: &Socket, bytes: u64) -> io::Result<u64> {
    let ask = i32::try_from(bytes).unwrap_or(i32::MAX);
    if set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ask).is_err() {
        socket.set_recv_buffer_size(ask as usize)?;
    }
    socket.recv_buffer_size().map(|bytes| bytes as u64)
}

/// The MTU of a connected socket's path as the kernel knows it, bytes (`IP_MTU`, ip(7); `IPV6_MTU`, ipv6(7)).
pub(super) fn path_mtu(fd: BorrowedFd<'_>, is_v6: bool) -> io::Result<u32> {
    let (level, name) =
        if is_v6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    let mut mtu: libc::c_int = 0;
    get(fd, level, name, &mut mtu)?;
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// What a socket has dropped because its buffer was full, in packets as the stack queued them (`SO_MEMINFO`,
/// since Linux 4.12).
pub(super) fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(meminfo(fd, MEMINFO_DROPS)?[MEMINFO_DROPS])
}

/// Kernel memory of a socket (`SO_MEMINFO`, since Linux 4.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Memory of what was received and not read, bytes.
    pub received_bytes: u64,
    /// Memory of what was written and not acknowledged, bytes.
    pub queued_bytes: u64,
}

impl SocketMemory {
    pub fn used_bytes(&self) -> u64 {
        self.received_bytes + self.queued_bytes
    }
}

pub(super) fn memory(fd: BorrowedFd<'_>) -> io::Result<SocketMemory> {
    let numbers = meminfo(fd, MEMINFO_QUEUED)?;
    Ok(SocketMemory {
        received_bytes: numbers[MEMINFO_RECEIVED].into(),
        queued_bytes: numbers[MEMINFO_QUEUED].into(),
    })
}

/// The members of `SO_MEMINFO`, of which there are more than `member`.
fn meminfo(fd: BorrowedFd<'_>, member: usize) -> io::Result<[u32; 16]> {
    let mut numbers = [0_u32; 16];
    let bytes = get(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut numbers)?;
    if bytes < (member + 1) * size_of::<u32>() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(numbers)
}
