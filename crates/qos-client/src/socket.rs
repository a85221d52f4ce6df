//! Connects to the socket of a policy in force.
//!
//! `unsafe`: the standard library has no `SOCK_SEQPACKET`, and its `connect` blocks while a backlog is full.
//! The crates that wrap these calls would come into every program that links this library.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// A connected socket that keeps the bounds of messages. Its calls are those of datagrams, which raise no
/// `SIGPIPE`.
///
/// # Errors
/// Those of connect(2); [`io::ErrorKind::WouldBlock`] while the backlog is full.
pub fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to this call alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for `length` bytes, and the kernel only reads it.
    let result = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) };
    match result {
        0 => Ok(UnixDatagram::from(fd)),
        _ => Err(io::Error::last_os_error()),
    }
}
