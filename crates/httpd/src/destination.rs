//! Where the content of an upload goes: into a file that has no name yet, or into the pool.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use pool::{Pool, PoolError, Writer};
use sys::file::{Directory, PendingFile, Published};

use super::conditional::Validator;
use super::handler::refuse_open;
use super::response::Response;

/// Space reserved ahead of an upload of unknown length.
const RESERVE_STEP_BYTES: u64 = 64 << 20;
/// An upload reserves at most this part of the free space before its content comes.
const RESERVE_SHARE: u64 = 2;

/// Dropping it leaves nothing behind.
#[derive(Debug)]
pub enum Destination {
    File(FileDestination),
    Pool(PoolDestination),
}

/// The entity tag of what was uploaded, and whether there was a file of this name.
pub type Stored = (String, Published);

impl Destination {
    /// Appends `content`, which ends at `end`; the whole is at most `bytes_max` long.
    pub fn store(&mut self, content: &[u8], end: u64, bytes_max: u64) -> Result<(), Response> {
        match self {
            Self::File(file) => file.store(content, end, bytes_max).map_err(|e| refuse_write(&e)),
            Self::Pool(pool) => pool.store(content, end, bytes_max).map_err(|e| refuse_pool(&e)),
        }
    }

    /// Gives the content its name; `only_new`: if nothing has it. When this returns, both are on the disk.
    pub fn finish(self, len_bytes: u64, only_new: bool) -> Result<Stored, Response> {
        match self {
            Self::File(file) => file.finish(len_bytes, only_new).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => refuse_version(),
                _ => refuse_write(&e),
            }),
            Self::Pool(pool) => pool.finish(only_new),
        }
    }
}

#[derive(Debug)]
pub struct FileDestination {
    pending: PendingFile,
    name: OsString,
    /// Space asked for so far; `None`: this file system cannot reserve.
    reserved_bytes: Option<u64>,
}

impl FileDestination {
    /// In `directory`. `len_bytes`: how long it will be, if that is known.
    pub fn begin(directory: Directory, name: OsString, len_bytes: Option<u64>) -> Result<Self, Response> {
        let pending = PendingFile::create(directory).map_err(|e| refuse_write(&e))?;
        let reserved_bytes = match len_bytes {
            Some(len) => reserve_all(&pending, len).map_err(|e| refuse_write(&e))?,
            None => Some(0),
        };
        Ok(Self { pending, name, reserved_bytes })
    }

    fn store(&mut self, content: &[u8], end: u64, bytes_max: u64) -> io::Result<()> {
        if let Some(reserved) = self.reserved_bytes
            && end > reserved
        {
            let free = self.pending.space().map_or(u64::MAX, |space| space.available_bytes);
            let step = step(reserved, free, end, bytes_max);
            self.reserved_bytes = match self.pending.reserve(reserved, step, false) {
                Ok(true) => Some(reserved + step),
                // Less than a whole step may still be free: the writes show it.
                Ok(false) | Err(_) => None,
            };
        }
        let mut file = self.pending.file();
        file.write_all(content)
    }

    fn finish(self, len_bytes: u64, only_new: bool) -> io::Result<Stored> {
        self.pending.file().set_len(len_bytes)?;
        let tag = Validator::of(&self.pending.file().metadata()?).etag;
        if only_new {
            self.pending.publish_new(&self.name)?;
            return Ok((tag, Published::Created));
        }
        Ok((tag, self.pending.publish(&self.name)?))
    }
}

/// How much more to reserve for content that comes to `end`, beyond what is reserved, and to `bytes_max` at
/// most.
fn step(reserved_bytes: u64, free_bytes: u64, end: u64, bytes_max: u64) -> u64 {
    let share = RESERVE_STEP_BYTES.min(free_bytes / RESERVE_SHARE);
    share.max(end - reserved_bytes).min(bytes_max - reserved_bytes)
}

/// Reserves an upload of `len_bytes` in one request, so that the file system can lay it out in one piece;
/// returns how much is reserved. What no single upload may take at once is reserved step by step.
fn reserve_all(pending: &PendingFile, len_bytes: u64) -> io::Result<Option<u64>> {
    // Some file systems do not know their size.
    let space = pending.space().ok().filter(|space| space.total_bytes > 0);
    match space.map(|space| space.available_bytes) {
        Some(free) if len_bytes > free => Err(io::ErrorKind::StorageFull.into()),
        Some(free) if len_bytes > free / RESERVE_SHARE => Ok(Some(0)),
        _ => Ok(pending.reserve(0, len_bytes, true)?.then_some(len_bytes)),
    }
}

#[derive(Debug)]
pub struct PoolDestination {
    pool: Pool,
    writer: Writer,
    /// Space asked for so far, so that it is in few pieces.
    reserved_bytes: u64,
    /// Its path from the root.
    name: String,
    /// The directory of that path, if there is one: a file there is replaced too.
    directory: Option<Directory>,
}

impl PoolDestination {
    /// `len_bytes`: how long it will be, if that is known.
    pub fn begin(
        pool: &Pool,
        name: String,
        directory: Option<Directory>,
        len_bytes: Option<u64>,
    ) -> Result<Self, Response> {
        let mut writer = pool.begin().map_err(|e| refuse_pool(&e))?;
        let free = pool.free_bytes();
        let reserved_bytes = match len_bytes {
            Some(len) if len > free => return Err(no_space().closing()),
            Some(len) if len <= free / RESERVE_SHARE => len,
            _ => 0,
        };
        writer.reserve(reserved_bytes).map_err(|e| refuse_pool(&e))?;
        Ok(Self { pool: pool.clone(), writer, reserved_bytes, name, directory })
    }

    fn store(&mut self, content: &[u8], end: u64, bytes_max: u64) -> pool::Result<()> {
        if end > self.reserved_bytes {
            let step = step(self.reserved_bytes, self.pool.free_bytes(), end, bytes_max);
            // Less than a whole step may still be free: the writes show it.
            if self.writer.reserve(self.reserved_bytes + step).is_ok() {
                self.reserved_bytes += step;
            }
        }
        self.writer.write_all(content)
    }

    fn finish(self, only_new: bool) -> Result<Stored, Response> {
        let committed =
            if only_new { self.writer.commit_new(&self.name) } else { self.writer.commit(&self.name) };
        let committed = committed.map_err(|e| refuse_pool(&e))?;
        let name = OsStr::new(self.name.rsplit('/').next().unwrap_or_default());
        // If it cannot be removed, the pool's is served all the same.
        let has_replaced = self.directory.is_some_and(|directory| directory.remove_file(name).is_ok());
        let published =
            if committed.replaced || has_replaced { Published::Replaced } else { Published::Created };
        Ok((Validator::of_pool_file(&committed.file).etag, published))
    }
}

/// The answer where the preconditions do not hold.
pub fn refuse_version() -> Response {
    Response::refusal(412, "the file is not the version asked for")
}

fn no_space() -> Response {
    Response::refusal(507, "no space left")
}

fn refuse_write(error: &io::Error) -> Response {
    let refusal = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_space(),
        io::ErrorKind::FileTooLarge => Response::refusal(413, "longer than the file system allows"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Response::refusal(403, "no permission to write here")
        }
        io::ErrorKind::IsADirectory => Response::refusal(409, "a directory has this name"),
        _ => Response::refusal(500, "the upload cannot be stored"),
    };
    refusal.closing()
}

/// The answer for a change that the pool does not take.
pub fn refuse_pool(error: &PoolError) -> Response {
    let refusal = match error {
        _ if error.is_full() => no_space(),
        PoolError::Broken { .. } => Response::refusal(
            500,
            "the pool takes no changes since it cannot be written; see to its disk, then restart the server",
        ),
        PoolError::NameTaken(_) => return refuse_version(),
        PoolError::Name(_) => Response::refusal(403, "not a name for a file in a pool"),
        PoolError::Io { source, .. } => return refuse_write(source),
        _ => Response::refusal(500, "the pool cannot be changed"),
    };
    refusal.closing()
}

/// The answer for a directory that cannot be opened to change what is in it.
pub fn refuse_directory(error: &io::Error) -> Response {
    const ELOOP: i32 = 40;
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Response::refusal(409, "no such directory"),
        _ if error.raw_os_error() == Some(ELOOP) => {
            Response::refusal(403, "a directory of the path is a symbolic link")
        }
        _ => refuse_open(error),
    }
}
