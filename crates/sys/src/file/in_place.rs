//! File systems that write in a new place what is rewritten (copy-on-write), and the way around it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::sys::statfs::fstatfs;

// linux/magic.h, and the sources of ZFS and bcachefs.
const BTRFS: u64 = 0x9123_683E;
const ZFS: u64 = 0x2FC1_2FC1;
const BCACHEFS: u64 = 0xCA45_1A4E;
const NILFS2: u64 = 0x3434;
const F2FS: u64 = 0xF2F5_2010;

/// `FS_NOCOW_FL` of linux/fs.h.
const NO_COPY_ON_WRITE: libc::c_int = 0x0080_0000;
const FS_IOC_GETFLAGS: libc::Ioctl =
    nix::request_code_read!(b'f', 1, size_of::<libc::c_long>()) as libc::Ioctl;
const FS_IOC_SETFLAGS: libc::Ioctl =
    nix::request_code_write!(b'f', 2, size_of::<libc::c_long>()) as libc::Ioctl;

/// Whether an empty `file` will be rewritten in place. On btrfs its flag against copy-on-write is set
/// (ioctl_iflags(2), chattr +C), which also turns off its checksums there; other file systems of this kind
/// have no such flag.
pub fn rewrite_in_place(file: &File) -> io::Result<bool> {
    // The type of the field differs between targets; the numbers have 32 bits.
    let magic = fstatfs(file)?.filesystem_type().0 as u64 & 0xFFFF_FFFF;
    match magic {
        BTRFS => {
            let flags = flags(file)?;
            set_flags(file, flags | NO_COPY_ON_WRITE)?;
            // A file that has content keeps its way, and the kernel says nothing.
            Ok(self::flags(file)? & NO_COPY_ON_WRITE != 0)
        }
        ZFS | BCACHEFS | NILFS2 | F2FS => Ok(false),
        _ => Ok(true),
    }
}

fn flags(file: &File) -> io::Result<libc::c_int> {
    let mut flags: libc::c_int = 0;
    // SAFETY: the kernel writes an int there (the request's size is historical), which outlives the call.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFLAGS, &raw mut flags) };
    if code == 0 { Ok(flags) } else { Err(io::Error::last_os_error()) }
}

fn set_flags(file: &File, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads an int there, which outlives the call.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_SETFLAGS, &raw const flags) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
