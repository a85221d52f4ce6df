//! Which sockets a process holds: `/proc/PID/fd` (proc_pid_fd(5)), read without allocating per descriptor.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::proc::parse::decimal;

const BUFFER_BYTES: usize = 32 << 10;
/// Where the name stands in `struct linux_dirent64` (getdents(2)), and the entry's length before it.
const NAME_AT: usize = 19;
const LENGTH_AT: usize = 16;
/// The content of a socket's link is shorter; of longer ones only the start is read.
const LINK_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct FdTableReader {
    buffer: Vec<u8>,
}

impl FdTableReader {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES] }
    }

    /// Hands descriptor and inode of each socket of process `pid` to `take`.
    /// Errors: the process has ended, or is another user's.
    pub(super) fn read(&mut self, pid: i32, take: &mut dyn FnMut(i32, u64)) -> io::Result<()> {
        let folder =
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(format!("/proc/{pid}/fd"))?;
        loop {
            let filled = entries(&folder, &mut self.buffer)?;
            if filled == 0 {
                return Ok(());
            }
            for name in names(&self.buffer[..filled]) {
                let Some(fd) = decimal(name.to_bytes()).and_then(|fd| i32::try_from(fd).ok()) else {
                    continue;
                };
                if let Some(inode) = socket_inode(&folder, name) {
                    take(fd, inode);
                }
            }
        }
    }
}

/// Reads the next entries of a folder; returns how many bytes are filled, 0 at the end.
fn entries(folder: &File, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the descriptor is open, and the kernel writes at most the given length into the exclusively
    // borrowed buffer, of bytes, for which every bit pattern is valid.
    let filled =
        unsafe { libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(filled).map_err(|_| io::Error::last_os_error())
}

fn names(mut bytes: &[u8]) -> impl Iterator<Item = &CStr> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.get(LENGTH_AT..)?.first_chunk()?));
        let name = CStr::from_bytes_until_nul(bytes.get(NAME_AT..length)?).ok()?;
        bytes = &bytes[length..];
        Some(name)
    })
}

/// The inode of link `name` if it is `socket:[INODE]`.
fn socket_inode(folder: &File, name: &CStr) -> Option<u64> {
    let mut link = [0_u8; LINK_BYTES];
    // SAFETY: the descriptor is open, the name ends with a zero byte, and the kernel writes at most the given
    // length into the array.
    let filled =
        unsafe { libc::readlinkat(folder.as_raw_fd(), name.as_ptr(), link.as_mut_ptr().cast(), link.len()) };
    let link = link.get(..usize::try_from(filled).ok()?)?;
    decimal(link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn own_sockets_are_found_and_files_are_not() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = File::open("/proc/self/stat").unwrap();
        let mut found = Vec::new();
        let pid = i32::try_from(std::process::id()).unwrap();
        let mut reader = FdTableReader::new();
        reader.read(pid, &mut |fd, inode| found.push((fd, inode))).unwrap();
        let inode = nix::sys::stat::fstat(socket.as_fd()).unwrap().st_ino;
        assert!(found.contains(&(socket.as_raw_fd(), inode)), "{found:?}");
        assert!(found.iter().all(|(fd, _)| *fd != file.as_raw_fd()));
        assert!(reader.read(i32::MAX, &mut |_, _| {}).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_entries_never_panic(bytes: Vec<u8>) {
            names(&bytes).for_each(drop);
        }
    }
}
