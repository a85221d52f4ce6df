//! The access log: every request with its outcome.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Get,
    Head,
    Put,
    Copy,
    Delete,
    /// `POST ?delete` with many keys.
    DeleteMany,
    List,
    /// A request of a multipart upload.
    Multipart,
    /// Of a bucket or of the service.
    Other,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Entry {
    pub at: SystemTime,
    pub kind: Kind,
    pub method: String,
    pub bucket: String,
    /// Decoded; empty for requests of a bucket.
    pub key: String,
    pub query: String,
    /// Of the answer; 0 if there was none.
    pub status: u16,
    /// Bytes of the request's body that were read.
    pub bytes_in: u64,
    /// Bytes of the answer's body that were sent.
    pub bytes_out: u64,
    /// Until the answer began.
    pub answered_after: Duration,
    /// Until the answer's last byte was handed to the connection, if it was.
    pub done_after: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// Entries that were forgotten.
    forgotten: usize,
    file: Option<File>,
}

#[derive(Debug)]
pub(crate) struct AccessLog(Mutex<State>);

impl AccessLog {
    pub(crate) fn new(file: Option<&Path>) -> io::Result<Self> {
        let open = |path| File::options().append(true).create(true).open(path);
        let file = file.map(open).transpose()?;
        Ok(Self(Mutex::new(State { file, ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request that has arrived; its number is for `update`.
    pub(crate) fn add(&self, entry: Entry) -> usize {
        let mut state = self.lock();
        state.entries.push(entry);
        state.forgotten + state.entries.len() - 1
    }

    pub(crate) fn update(&self, number: usize, change: impl FnOnce(&mut Entry)) {
        let mut state = self.lock();
        let Some(at) = number.checked_sub(state.forgotten) else { return };
        if let Some(entry) = state.entries.get_mut(at) {
            change(entry);
        }
    }

    /// Writes the line of a request that is done.
    pub(crate) fn write(&self, number: usize) {
        let mut state = self.lock();
        let Some(entry) = number.checked_sub(state.forgotten).and_then(|at| state.entries.get(at)) else {
            return;
        };
        let line = line(entry);
        if let Some(file) = &mut state.file {
            // A log on a full disk must not stop the server.
            let _ = file.write_all(line.as_bytes());
        }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.forgotten += state.entries.len();
        state.entries.clear();
    }
}

/// `time method bucket key ?query status bytes-in bytes-out answered-ms done-ms`; `-` where there is nothing.
fn line(entry: &Entry) -> String {
    let at_s = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.replace(['\n', ' '], "+") };
    let ms = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
    format!(
        "{at_s:.6} {} {} {} {} {} {} {} {} {}\n",
        entry.method,
        or_dash(&entry.bucket),
        or_dash(&entry.key),
        or_dash(&entry.query),
        entry.status,
        entry.bytes_in,
        entry.bytes_out,
        ms(entry.answered_after),
        entry.done_after.map_or_else(|| "-".to_owned(), ms),
    )
}
