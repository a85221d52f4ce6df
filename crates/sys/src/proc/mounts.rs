//! What is mounted where: `/proc/self/mountinfo`, proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::parse::{decimal, lines, words};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Device numbers of the file system; for btrfs and the like not those of its disk.
    pub major: u32,
    pub minor: u32,
    pub target: PathBuf,
    /// Its type: `ext4`, `cgroup2`.
    pub fs_type: String,
    /// What is mounted, usually a device's path; free text for file systems without one.
    pub source: PathBuf,
    /// Options of the mount and of the file system, as printed.
    pub options: String,
}

impl Mount {
    /// Whether its files are in memory alone.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.fs_type.as_str(), "tmpfs" | "ramfs")
    }

    /// Whether a program serves it. Not `fuseblk`, whose program works on a disk of this machine.
    pub fn is_fuse(&self) -> bool {
        self.fs_type == "fuse" || self.fs_type.starts_with("fuse.")
    }
}

/// All mounts this process sees, in mounting order (a later one hides an earlier one at the same place).
pub fn mounts(root: &Path) -> io::Result<Vec<Mount>> {
    let text = std::fs::read(root.join("proc/self/mountinfo"))?;
    Ok(lines(&text).filter_map(parse_line).collect())
}

/// Whether the mount that `file` is on is still mounted; a lazy unmount leaves open files on it. Asks nothing
/// of the file system, which may hang.
pub fn is_mounted(file: BorrowedFd<'_>) -> io::Result<bool> {
    let text = std::fs::read(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = lines(&text).find_map(|line| line.strip_prefix(b"mnt_id:").and_then(|rest| words(rest).next()));
    let id = id.ok_or_else(|| io::Error::other("the kernel does not say which mount a file is on"))?;
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    Ok(lines(&mounts).any(|line| words(line).next() == Some(id)))
}

/// The mount that holds `path`, which must be absolute and without links.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let depth = |mount: &Mount| mount.target.components().count();
    // Of two at the same place, `max_by_key` returns the last, which is the visible one.
    mounts.iter().filter(|mount| path.starts_with(&mount.target)).max_by_key(|mount| depth(mount))
}

pub(super) fn parse_line(line: &[u8]) -> Option<Mount> {
    // id parent major:minor root target options [optional fields] - type source super-options
    let mut fields = words(line);
    let numbers = fields.nth(2)?;
    let colon = numbers.iter().position(|byte| *byte == b':')?;
    let (major, minor) = (decimal(&numbers[..colon])?, decimal(&numbers[colon + 1..])?);
    let target = fields.nth(1)?;
    let options = fields.next()?;
    fields.find(|field| *field == b"-")?;
    let (fs_type, source) = (fields.next()?, fields.next()?);
    let super_options = fields.next().unwrap_or_default();
    Some(Mount {
        major: u32::try_from(major).ok()?,
        minor: u32::try_from(minor).ok()?,
        target: PathBuf::from(OsString::from_vec(unescape(target))),
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
        source: PathBuf::from(OsString::from_vec(unescape(source))),
        options: format!("{},{}", String::from_utf8_lossy(options), String::from_utf8_lossy(super_options)),
    })
}

/// The kernel writes blanks, tabs, line ends and backslashes as `\040` and so on.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = text.get(at + 1..at + 4).filter(|digits| {
            text[at] == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)) && digits[0] <= b'3'
        });
        if let Some(digits) = octal {
            plain.push(digits.iter().fold(0, |value, digit| value << 3 | (digit - b'0')));
            at += 4;
        } else {
            plain.push(text[at]);
            at += 1;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
        44 27 0:39 / /tmp/a\\040b rw shared:7 master:3 - btrfs /dev/loop0 rw,subvol=/\n\
        45 27 7:1 / /tmp/a\\040b rw - xfs /dev/loop1 rw\n";

    #[test]
    fn real_sample_is_parsed() {
        let mounts: Vec<Mount> = lines(SAMPLE.as_bytes()).filter_map(parse_line).collect();
        assert_eq!(mounts.len(), 4);
        assert_eq!((mounts[0].major, mounts[0].minor), (254, 0));
        assert_eq!(mounts[1].options, "rw,relatime,rw,blkio");
        assert_eq!(mounts[2].target, Path::new("/tmp/a b"));
        assert_eq!(mounts[2].source, Path::new("/dev/loop0"));
        assert_eq!(
            mount_of(&mounts, Path::new("/tmp/a b/c")).unwrap().fs_type,
            "xfs",
            "the last one is visible"
        );
        assert_eq!(mount_of(&mounts, Path::new("/tmp/a bc")).unwrap().fs_type, "ext4");
        assert_eq!(mount_of(&mounts[1..], Path::new("/etc")), None);
    }
}
