//! Direct I/O, which bypasses the page cache: open(2), `O_DIRECT`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::clock::monotonic_ns;
use crate::{Error, Result};

/// Buffers, offsets and lengths must be multiples of the block size; 4096 is one on every disk.
const BLOCK_BYTES: usize = 4096;

/// A file or block device, read and written by direct I/O in requests of one size.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    path: PathBuf,
    memory: Vec<u8>,
    start: usize,
    request_bytes: usize,
}

impl DirectFile {
    /// Opens `path` for requests of `request_bytes`, a multiple of 4096. Errors: no such file, no rights, or
    /// a file system that cannot do it (tmpfs before Linux 6.6).
    pub fn open(path: &Path, request_bytes: usize, writable: bool) -> Result<Self> {
        if request_bytes == 0 || !request_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(Error::Refused(format!("{request_bytes} B is no multiple of {BLOCK_BYTES} B")));
        }
        let file = open(path, writable)?;
        let memory = vec![0; request_bytes + BLOCK_BYTES];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        Ok(Self { file, path: path.to_owned(), memory, start, request_bytes })
    }

    /// Reads from `path` from now on, with the same memory. Errors: as [`Self::open`]; the file stays then.
    pub fn read_from(&mut self, path: &Path) -> Result<()> {
        if self.path != path {
            self.file = open(path, false)?;
            path.clone_into(&mut self.path);
        }
        Ok(())
    }

    pub fn read_at(&mut self, offset: u64) -> Result<&[u8]> {
        let memory = &mut self.memory[self.start..self.start + self.request_bytes];
        self.file.read_exact_at(memory, offset).map_err(|error| Error::file("read", &self.path, error))?;
        Ok(memory)
    }

    /// Writes one request of bytes that are all `byte` at `offset`.
    pub fn write_at(&mut self, offset: u64, byte: u8) -> Result<()> {
        self.request_mut().fill(byte);
        self.write_request_at(offset)
    }

    /// The bytes of one request: what [`Self::write_request_at`] writes. A read replaces them.
    pub fn request_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.request_bytes]
    }

    /// Writes the bytes of [`Self::request_mut`] at `offset`.
    pub fn write_request_at(&self, offset: u64) -> Result<()> {
        let memory = &self.memory[self.start..self.start + self.request_bytes];
        self.file.write_all_at(memory, offset).map_err(|error| Error::file("write", &self.path, error))
    }

    /// Waits until all that was written is on the medium (fdatasync(2)).
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error: io::Error| Error::file("synchronise", &self.path, error))
    }

    /// How long each of `count` reads takes, in nanoseconds, one after the other; each `stride_bytes` behind
    /// the last, from the beginning of the file.
    pub fn time_reads_ns(&mut self, count: u64, stride_bytes: u64) -> Result<Vec<u64>> {
        let mut took_ns = Vec::new();
        for index in 0..count {
            let begin_ns = monotonic_ns();
            self.read_at(index * stride_bytes)?;
            took_ns.push(monotonic_ns() - begin_ns);
        }
        Ok(took_ns)
    }
}

fn open(path: &Path, writable: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(writable).custom_flags(libc::O_DIRECT).open(path);
    file.map_err(|error| Error::file("open", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_writes_are_read_past_the_cache() {
        // Next to the test program, which is on a disk (`/tmp` may be memory).
        let folder = std::env::current_exe().unwrap();
        let file = tempfile::NamedTempFile::new_in(folder.parent().unwrap()).unwrap();
        let mut direct = DirectFile::open(file.path(), 8192, true).unwrap();
        direct.write_at(8192, 7).unwrap();
        direct.sync().unwrap();
        assert_eq!(super::super::resident_bytes(file.path()).unwrap(), Some(0));
        assert!(direct.read_at(8192).unwrap().iter().all(|byte| *byte == 7));
        assert!(direct.read_at(0).unwrap().iter().all(|byte| *byte == 0));
        direct.request_mut()[4096..].fill(9);
        direct.write_request_at(0).unwrap();
        let read = direct.read_at(0).unwrap();
        assert!(read[..4096].iter().all(|byte| *byte == 0) && read[4096..].iter().all(|byte| *byte == 9));
        assert_eq!(direct.time_reads_ns(2, 8192).unwrap().len(), 2);
        assert!(direct.read_at(16_384).unwrap_err().to_string().contains("read"), "behind the end");
        let other = tempfile::NamedTempFile::new_in(folder.parent().unwrap()).unwrap();
        std::fs::write(other.path(), [3; 8192]).unwrap();
        direct.read_from(other.path()).unwrap();
        assert!(direct.read_at(0).unwrap().iter().all(|byte| *byte == 3));
        assert!(direct.read_from(Path::new("/nowhere/f")).is_err());
        assert!(direct.read_at(0).unwrap().iter().all(|byte| *byte == 3));
        assert!(matches!(DirectFile::open(file.path(), 100, false), Err(Error::Refused(_))));
    }
}
