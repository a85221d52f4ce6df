//! A file of `/proc` or `/sys` that stays open and is read repeatedly from its start.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Large enough for most sources; grows where one is larger.
const FIRST_BYTES: usize = 4096;
/// Larger (or endless) files are truncated here.
const MOST_BYTES: usize = 4 << 20;

/// An open file and the buffer it is read into.
///
/// Reading at offset 0 makes the kernel produce the content anew, so no `open` and `close` is needed per
/// reading (they are most of the cost of a `/proc` file), and the buffer is kept, so nothing is allocated.
#[derive(Debug)]
pub(crate) struct ProcFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl ProcFile {
    pub(crate) fn open(root: &Path, relative: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_path(root.join(relative))
    }

    pub(crate) fn open_path(path: PathBuf) -> io::Result<Self> {
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path, buffer: Vec::new() }),
            Err(error) => Err(with_path(&path, &error)),
        }
    }

    /// Reads a source of one record. One system call.
    pub(crate) fn read_once(&mut self) -> io::Result<&[u8]> {
        self.read_from_start(true)
    }

    /// Reads a source that the kernel returns in pieces. At least two system calls.
    pub(crate) fn read_all(&mut self) -> io::Result<&[u8]> {
        self.read_from_start(false)
    }

    fn read_from_start(&mut self, once: bool) -> io::Result<&[u8]> {
        if self.buffer.is_empty() {
            self.buffer.resize(FIRST_BYTES, 0);
        }
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                if filled >= MOST_BYTES {
                    break;
                }
                let larger = self.buffer.len() * 2;
                self.buffer.resize(larger, 0);
            }
            match self.file.read_at(&mut self.buffer[filled..], filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(with_path(&self.path, &error)),
            }
            if once && filled < self.buffer.len() {
                break;
            }
        }
        Ok(&self.buffer[..filled])
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

pub(crate) fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The error for a source whose content is not what the kernel's documentation says.
pub(crate) fn malformed(path: &Path, expected: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: expected {expected}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_grow_the_buffer_and_are_reread() {
        let dir = tempfile::tempdir().unwrap();
        let long = vec![b'x'; 3 * FIRST_BYTES + 17];
        std::fs::write(dir.path().join("a"), &long).unwrap();
        let mut kept = ProcFile::open(dir.path(), "a").unwrap();
        assert_eq!(kept.read_once().unwrap(), long);
        assert_eq!(kept.read_all().unwrap(), long);
        std::fs::write(dir.path().join("a"), b"short").unwrap();
        assert_eq!(kept.read_once().unwrap(), b"short");
    }

    #[test]
    fn parse_error_names_the_file() {
        let error = ProcFile::open(Path::new("/nowhere"), "proc/stat").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/nowhere/proc/stat"));
    }

    #[test]
    fn many_records_are_all_read() {
        // /proc/self/maps of this process is longer than one page, handed out in records.
        let mut kept = ProcFile::open(Path::new("/"), "proc/self/smaps").unwrap();
        let read = kept.read_all().unwrap();
        assert!(read.len() > FIRST_BYTES);
        assert!(read.windows(6).any(|part| part == b"[vdso]" || part == b"[stack"));
    }
}
