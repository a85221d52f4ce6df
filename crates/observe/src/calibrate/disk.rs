//! Sequential read rate of the disk below a directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::outcome::Ceiling;
use base::statistics::median;
use sys::clock::{Deadline, monotonic_ns};
use sys::disk::drop_file_cache;
use sys::file::{Directory, PendingFile};
use sys::proc::mounts::{mount_of, mounts};

use super::{CalibrateError, REPEATS, spread_percent};

const BLOCK_BYTES: usize = 1 << 20;
const FILE_BYTES_MOST: u64 = 256 << 20;
/// Least size of the file: the caches of disks are of this size.
const FILE_BYTES_LEAST: u64 = 16 << 20;
/// Concurrent requests: enough to keep a current disk busy.
const THREADS: u64 = 4;
/// Direct reads need buffers and offsets aligned to the disk's blocks; 4 KiB fits all disks.
const ALIGNMENT: usize = 4096;
/// After this number of bytes the writer waits for the disk, so that the deadline is kept.
const SYNC_EVERY_BYTES: u64 = 16 << 20;
const WRITE_WITHIN: Duration = Duration::from_secs(15);
const READ_WITHIN: Duration = Duration::from_secs(8);
const WATCH_EVERY: Duration = Duration::from_millis(5);

/// The ceiling of sequential reading in bit/s on the file system that holds `directory`: the median of 3
/// readings of a file of up to 256 MiB past the page cache (`O_DIRECT`, 1 MiB requests, 4 at a time), or,
/// where that is refused, of ordinary readings after the file's pages were dropped. Takes at most 40 s, on
/// most disks a few.
///
/// A cache below the kernel (the host of a virtual machine) answers as part of the disk.
/// Errors: The directory's file system is in memory, has too little room or is too slow for 16 MiB in 15 s;
/// no permission; `stopped` said so. Nothing is left behind.
pub fn disk_read(
    directory: &Path,
    say: &mut dyn FnMut(&str),
    stopped: &dyn Fn() -> bool,
) -> Result<Ceiling, CalibrateError> {
    refuse_memory(directory)?;
    let wanted_bytes = room(directory)?;
    say(&format!("disk: writing {} MiB to read from", wanted_bytes >> 20));
    let pending = PendingFile::create(Directory::open(directory)?);
    let pending = pending.map_err(|source| failed("create a file in", directory, source))?;
    let bytes = write(pending.file(), directory, wanted_bytes, stopped)?;
    // The file has no name; this path leads to it while it is open.
    let path = PathBuf::from(format!("/proc/self/fd/{}", pending.file().as_raw_fd()));
    let reader = Reader::open(&path).map_err(|source| failed("open a file in", directory, source))?;
    let mut rates = Vec::with_capacity(REPEATS);
    for round in 1..=REPEATS {
        say(&format!("disk: reading {} MiB, {round} of {REPEATS}", bytes >> 20));
        rates.push(reader.rate_bit_per_s(bytes, directory, stopped)?);
    }
    let value = median(&rates).expect("REPEATS is not 0");
    let how = reader.how();
    let spread = spread_percent(&rates);
    let source = format!(
        "calibrated: median of 3 sequential reads of {} MiB, {how}, spread {spread:.0} %",
        bytes >> 20
    );
    Ok(Ceiling { value, source })
}

fn failed(action: &'static str, directory: &Path, source: io::Error) -> CalibrateError {
    CalibrateError::File { action, path: directory.display().to_string(), source }
}

fn refuse_memory(directory: &Path) -> Result<(), CalibrateError> {
    let real = directory.canonicalize().map_err(|source| failed("find", directory, source))?;
    let mounts = mounts(Path::new("/")).map_err(|source| failed("read the mount of", directory, source))?;
    match mount_of(&mounts, &real) {
        Some(mount) if ["tmpfs", "ramfs", "hugetlbfs"].contains(&mount.fs_type.as_str()) => {
            Err(CalibrateError::NotMeasured(format!(
                "{} is in memory ({}), not on a disk; choose a directory on the disk that is to be measured",
                directory.display(),
                mount.fs_type
            )))
        }
        _ => Ok(()),
    }
}

/// Size limit of the file: at most a quarter of the free space.
fn room(directory: &Path) -> Result<u64, CalibrateError> {
    let available = sys::disk::space(directory)?.available_bytes;
    let bytes = (available / 4).min(FILE_BYTES_MOST) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    if bytes >= FILE_BYTES_LEAST {
        return Ok(bytes);
    }
    Err(CalibrateError::NotMeasured(format!(
        "{} has {} MiB free and {} are needed; free some space or choose another directory",
        directory.display(),
        available >> 20,
        (4 * FILE_BYTES_LEAST) >> 20
    )))
}

/// Writes up to `bytes` of incompressible data to the disk. Returns the number of written bytes.
fn write(
    mut file: &File,
    directory: &Path,
    bytes: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<u64, CalibrateError> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut random = fastrand::Rng::with_seed(1);
    let deadline = Deadline::after(WRITE_WITHIN);
    let mut written = 0;
    while written < bytes && !deadline.passed() {
        if stopped() {
            return Err(CalibrateError::Stopped);
        }
        random.fill(&mut block);
        file.write_all(&block).map_err(|source| failed("write a file in", directory, source))?;
        written += BLOCK_BYTES as u64;
        if written % SYNC_EVERY_BYTES == 0 || written == bytes {
            file.sync_all().map_err(|source| failed("write a file in", directory, source))?;
        }
    }
    let whole = written / SYNC_EVERY_BYTES * SYNC_EVERY_BYTES;
    if whole >= FILE_BYTES_LEAST {
        return Ok(whole);
    }
    Err(CalibrateError::NotMeasured(format!(
        "{} took only {} MiB in {} s; choose another directory",
        directory.display(),
        written >> 20,
        WRITE_WITHIN.as_secs()
    )))
}

struct Reader {
    file: File,
    path: PathBuf,
    direct: bool,
}

impl Reader {
    fn open(path: &Path) -> io::Result<Self> {
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        // Some file systems accept O_DIRECT at open and refuse the read.
        if let Ok(file) = direct
            && with_aligned(|buffer| file.read_exact_at(&mut buffer[..ALIGNMENT], 0)).is_ok()
        {
            return Ok(Self { file, path: path.to_owned(), direct: true });
        }
        Ok(Self { file: File::open(path)?, path: path.to_owned(), direct: false })
    }

    fn how(&self) -> &'static str {
        if self.direct { "O_DIRECT, 1 MiB requests, 4 at a time" } else { "page cache dropped, 4 readers" }
    }

    /// One read of the whole file, or of the part that was read by the deadline.
    fn rate_bit_per_s(
        &self,
        bytes: u64,
        directory: &Path,
        stopped: &dyn Fn() -> bool,
    ) -> Result<f64, CalibrateError> {
        if !self.direct {
            drop_file_cache(&self.path)?;
        }
        let next = AtomicU64::new(0);
        let done_bytes = AtomicU64::new(0);
        let give_up = AtomicBool::new(false);
        let started_ns = monotonic_ns();
        let deadline = Deadline::after(READ_WITHIN);
        let end_ns = std::thread::scope(|scope| {
            let one = || self.read_blocks(bytes, &next, &done_bytes, &give_up);
            let readers: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
            while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                if stopped() || !deadline.pause(WATCH_EVERY) {
                    give_up.store(true, Ordering::Relaxed);
                    break;
                }
            }
            let mut end_ns = Ok(started_ns);
            for reader in readers {
                let own = reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader died")));
                end_ns = end_ns.and_then(|end_ns| own.map(|own_ns| own_ns.max(end_ns)));
            }
            end_ns
        });
        if stopped() {
            return Err(CalibrateError::Stopped);
        }
        let end_ns = end_ns.map_err(|source| failed("read a file in", directory, source))?;
        let elapsed_ns = end_ns.saturating_sub(started_ns).max(1);
        Ok(done_bytes.load(Ordering::Relaxed) as f64 * 8e9 / elapsed_ns as f64)
    }

    /// Takes blocks that no other thread has taken, until there is none. Returns when it ended.
    fn read_blocks(
        &self,
        bytes: u64,
        next: &AtomicU64,
        done_bytes: &AtomicU64,
        give_up: &AtomicBool,
    ) -> io::Result<u64> {
        with_aligned(|buffer| {
            while !give_up.load(Ordering::Relaxed) {
                let offset = next.fetch_add(BLOCK_BYTES as u64, Ordering::Relaxed);
                if offset >= bytes {
                    break;
                }
                self.file.read_exact_at(buffer, offset)?;
                done_bytes.fetch_add(BLOCK_BYTES as u64, Ordering::Relaxed);
            }
            Ok(monotonic_ns())
        })
    }
}

/// A buffer of one block whose start is a multiple of [`ALIGNMENT`].
fn with_aligned<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut room = vec![0u8; BLOCK_BYTES + ALIGNMENT];
    let start = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    work(&mut room[start..start + BLOCK_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned() {
        for _ in 0..8 {
            with_aligned(|buffer| {
                assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
                assert_eq!(buffer.len(), BLOCK_BYTES);
            });
        }
    }

    #[test]
    fn disk_calibration_rejects_tmpfs() {
        if mount_of(&mounts(Path::new("/")).unwrap(), Path::new("/dev/shm"))
            .is_none_or(|mount| mount.fs_type != "tmpfs")
        {
            return features::skip("needs a tmpfs at /dev/shm");
        }
        let error = disk_read(Path::new("/dev/shm"), &mut |_| {}, &|| false).unwrap_err();
        assert!(error.to_string().contains("in memory"), "{error}");
        assert!(disk_read(Path::new("/nowhere"), &mut |_| {}, &|| false).is_err());
    }

    #[test]
    fn calibration_stops_on_request() {
        let here = std::env::current_exe().unwrap();
        let error = disk_read(here.parent().unwrap(), &mut |_| {}, &|| true).unwrap_err();
        assert!(matches!(error, CalibrateError::Stopped), "{error}");
    }
}
