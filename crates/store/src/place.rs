//! Where runs lie, and how the file is opened.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::{StoreError, schema};

/// Trials are written in moments; a process that holds the lock for longer is stuck.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The smallest page that SQLite knows (sqlite.org/fileformat.html), and with it the smallest file.
const HEADER_PAGE_BYTES_MIN: u64 = 512;
/// Room for a run of some dozens of trials with their series.
const ROOM_BYTES: usize = 1 << 20;
/// How long to wait between two attempts at what SQLite does not wait for itself.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The runs of one results folder.
#[derive(Debug)]
pub struct Store {
    pub(crate) db: Connection,
    path: PathBuf,
}

impl Store {
    /// Where results go: `$KAGIRI_DATA`, else `$XDG_DATA_HOME/kagiri`, else `~/.local/share/kagiri` (XDG Base
    /// Directory Specification). `lookup` reads a variable of the environment.
    pub fn default_dir<T: Into<PathBuf>>(lookup: impl Fn(&str) -> Option<T>) -> Result<PathBuf, StoreError> {
        let set = |name| lookup(name).map(T::into).filter(|path| !path.as_os_str().is_empty());
        if let Some(own) = set("KAGIRI_DATA") {
            return Ok(own);
        }
        // "If an implementation encounters a relative path ... it should consider the path invalid and ignore
        // it."
        if let Some(data) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
            return Ok(data.join("kagiri"));
        }
        set("HOME").map(|home| home.join(".local/share/kagiri")).ok_or(StoreError::NoPlace)
    }

    /// Open the runs of a folder; the folder (mode 0700) and the file (0600) are made where they do not
    /// exist.
    ///
    /// # Errors
    /// No permission, no space, a newer layout, a damaged file. A file that cannot be used is left as it is.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let folder = |source| StoreError::Folder { path: dir.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(folder)?;
        let path = dir.join("runs.sqlite");
        // Only where there is none: closing any descriptor of a file drops this process's POSIX locks on it,
        // and with them those of a connection that is open elsewhere in the process
        // (sqlite.org/howtocorrupt.html).
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StoreError::Folder { path, source: error });
            }
            _ => {}
        }
        refuse_remnant(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&path, flags).map_err(|e| StoreError::from_sql(&path, e))?;
        prepare(&mut db, &path)?;
        Ok(Self { db, path })
    }

    /// Open the runs of a folder to read them: where there are none yet, nothing is made, and the list is
    /// empty.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("runs.sqlite");
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut db = Connection::open_in_memory().map_err(|e| StoreError::from_sql(&path, e))?;
                prepare(&mut db, &path)?;
                Ok(Self { db, path })
            }
            _ => Self::open(dir),
        }
    }

    /// Makes sure that results can be written, by writing: a full or read-only disk must not be reported only
    /// after minutes, when the first trial ends. What is stored stays as it is.
    ///
    /// # Errors
    /// As [`Self::add_trial`]: a full disk, a file that may not be written, a lock that is not given back.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        // The number that is there already, written again: it goes through the lock and the log to the disk.
        let layout = self.db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
        layout
            .and_then(|layout| self.db.pragma_update(None, "user_version", layout))
            .map_err(|error| self.sql(error))?;
        // A log that has grown before takes that number on a full disk too, but not the trials that follow.
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let room = tempfile::tempfile_in(folder)
            .and_then(|mut file| file.write_all(&vec![0; ROOM_BYTES]).and_then(|()| file.sync_all()));
        room.map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Full { path: self.path.clone() }
            }
            io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { path: self.path.clone() },
            _ => StoreError::Folder { path: folder.to_owned(), source },
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// SQLite's error with the file's name.
    pub(crate) fn sql(&self, error: rusqlite::Error) -> StoreError {
        StoreError::from_sql(&self.path, error)
    }
}

/// SQLite takes a file of less than 512 bytes for a new one and writes over it; and it throws away the log of
/// an empty one. Neither is what a file of ours ever looks like, so it is what is left of one.
fn refuse_remnant(path: &Path) -> Result<(), StoreError> {
    // The log is looked at first: another process that makes the file at this moment fills it before it has a
    // log.
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log_bytes = fs::metadata(&log).map_or(0, |found| found.len());
    let found = fs::metadata(path).map_err(|source| StoreError::Folder { path: path.to_owned(), source })?;
    let remnant = match found.len() {
        0 => log_bytes > 0,
        bytes => bytes < HEADER_PAGE_BYTES_MIN,
    };
    if !remnant {
        return Ok(());
    }
    Err(StoreError::Damaged {
        path: path.to_owned(),
        detail: format!("{} bytes are left of it", found.len()),
    })
}

fn prepare(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sql = |error| StoreError::from_sql(path, error);
    // Until it is known that the file is ours to write, not even its write-ahead log is folded into it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sql)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(sql)?;
    schema::check(db, path)?;
    use_wal(db).map_err(sql)?;
    // FULL: a trial that was stored survives a power cut, for the price of one fsync per trial.
    db.pragma_update(None, "synchronous", "FULL").map_err(sql)?;
    db.pragma_update(None, "foreign_keys", true).map_err(sql)?;
    db.pragma_update_and_check(None, "journal_size_limit", 1 << 24, |_| Ok(())).map_err(sql)?;
    schema::migrate(db, path)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(sql)?;
    Ok(())
}

/// Readers and a writer side by side. SQLite does not wait for others when it changes this mode, so we do.
fn use_wal(db: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == rusqlite::ErrorCode::DatabaseBusy && Instant::now() < deadline =>
            {
                thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_set_variable_chooses_the_folder() {
        for (set, expected) in [
            (&[("KAGIRI_DATA", "/k"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")][..], "/k"),
            (&[("KAGIRI_DATA", ""), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")], "/x/kagiri"),
            (&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")], "/h/.local/share/kagiri"),
        ] {
            let lookup = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            assert_eq!(Store::default_dir(lookup).unwrap(), Path::new(expected));
        }
        assert!(matches!(Store::default_dir(|_| None::<PathBuf>), Err(StoreError::NoPlace)));
    }
}
