//! Loop devices: a file as a block device, with direct I/O. loop(4).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::journal::{EntryId, Journal, Undo};
use crate::proc::BlockDevice;
use crate::{Error, Result};

const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
/// The kernel detaches the file when the last user closes or unmounts the device.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// The file is read past the page cache, or everything would be cached twice.
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Attempts to attach: another program may take the free device first.
const TRIES: usize = 16;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h (since Linux 5.8).
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// A loop device of this program. Dropping it detaches the file.
///
/// It stays open here, so the kernel keeps it until it is mounted or dropped; were this program killed before
/// that, the kernel would detach it by itself.
#[derive(Debug)]
pub struct LoopDevice {
    journal: Journal,
    entry: EntryId,
    path: PathBuf,
    block: BlockDevice,
    direct_io: bool,
    device: Option<File>,
}

impl LoopDevice {
    /// Makes a block device of the file `image`. Errors: no rights, no loop driver, no free device.
    pub fn attach(journal: &Journal, image: &Path) -> Result<Self> {
        let image = super::real(image)?;
        let backing = OpenOptions::new().read(true).write(true).open(&image);
        let backing = backing.map_err(|error| Error::file("open", &image, error))?;
        let control = Path::new("/dev/loop-control");
        let control_file = OpenOptions::new().read(true).write(true).open(control);
        let control_file = control_file.map_err(|error| Error::file("open", control, error))?;
        for _ in 0..TRIES {
            // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns a number.
            let number = unsafe { libc::ioctl(control_file.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(Error::file("get a free loop device from", control, io::Error::last_os_error()));
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let undo = Undo::DetachLoop { device: path.clone(), backing_file: image.clone() };
            let entry = journal.record(undo)?;
            match configure(&path, &backing) {
                Ok(device) => return Self::attached(journal, entry, path, device),
                Err(error) => {
                    journal.done(entry)?;
                    if error.raw_os_error() != Some(libc::EBUSY) {
                        return Err(Error::file("attach a file to", &path, error));
                    }
                }
            }
        }
        Err(Error::Refused(format!(
            "every free loop device was taken by another program, {TRIES} times in a row"
        )))
    }

    fn attached(journal: &Journal, entry: EntryId, path: PathBuf, device: File) -> Result<Self> {
        let block = BlockDevice::from_special_file(Path::new("/"), &path);
        let block = block.ok().flatten();
        let Some(block) = block else {
            drop(device);
            journal.undo(entry);
            return Err(Error::Refused(format!("{} does not appear in /sys/dev/block", path.display())));
        };
        let direct_io = std::fs::read_to_string(format!("/sys/block/{}/loop/dio", block.name));
        let direct_io = direct_io.is_ok_and(|text| text.trim() == "1");
        Ok(Self { journal: journal.clone(), entry, path, block, direct_io, device: Some(device) })
    }

    /// Its special file, `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn block_device(&self) -> &BlockDevice {
        &self.block
    }

    /// Whether the file is read past the page cache. `false` on a file system that cannot do it, such as
    /// tmpfs: then a read limit on the device works, but the file's pages in memory make it faster than
    /// it should be.
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// Sets whether the kernel treats the device as rotational (ext4's allocator, some schedulers).
    ///
    /// Nothing is to be undone: the kernel forgets it when another file is attached. Error: no rights.
    pub fn set_rotational(&self, rotational: bool) -> Result<()> {
        let file = PathBuf::from(format!("/sys/block/{}/queue/rotational", self.block.name));
        std::fs::write(&file, if rotational { "1" } else { "0" }).map_err(|e| Error::file("write", &file, e))
    }

    /// Closes the device: from now on only a mount keeps it.
    pub(super) fn release(&mut self) {
        self.device = None;
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.release();
        // What cannot be detached stays in the journal, which reports it.
        self.journal.undo(self.entry);
    }
}

fn configure(device: &Path, backing: &File) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(device)?;
    let try_with = |flags: u32| {
        // SAFETY: every field of the structure is an integer or an array of them, for which zero is a value.
        let mut config: LoopConfig = unsafe { std::mem::zeroed() };
        config.fd = u32::try_from(backing.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
        config.info.flags = flags;
        // SAFETY: the structure has the kernel's layout and outlives the call, and both descriptors are open.
        let code = unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    match try_with(LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO) {
        // Older kernels refuse direct I/O instead of going on without it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => try_with(LO_FLAGS_AUTOCLEAR)?,
        other => other?,
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<LoopInfo64>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
    }
}
