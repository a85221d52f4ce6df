//! Uploads in several parts.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use md5::{Digest as _, Md5};

use crate::objects::{Facts, Stored, hex};

#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub body: Arc<Stored>,
    pub size: u64,
    pub md5: [u8; 16],
}

#[derive(Debug)]
pub(crate) struct Upload {
    pub bucket: String,
    pub key: String,
    pub facts: Facts,
    pub parts: BTreeMap<i32, Part>,
}

#[derive(Debug, Default)]
struct State {
    uploads: BTreeMap<String, Upload>,
    count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<State>);

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, bucket: String, key: String, facts: Facts) -> String {
        let mut state = self.lock();
        state.count += 1;
        let id = format!("upload-{}", state.count);
        state.uploads.insert(id.clone(), Upload { bucket, key, facts, parts: BTreeMap::new() });
        id
    }

    /// Whether there is such an upload.
    pub(crate) fn add(&self, id: &str, number: i32, part: Part) -> bool {
        let mut state = self.lock();
        let Some(upload) = state.uploads.get_mut(id) else { return false };
        upload.parts.insert(number, part);
        true
    }

    pub(crate) fn end(&self, id: &str) -> Option<Upload> {
        self.lock().uploads.remove(id)
    }

    /// Number, size and MD5 of the parts of an upload.
    pub(crate) fn parts(&self, id: &str) -> Option<Vec<(i32, u64, String)>> {
        let state = self.lock();
        let parts = state.uploads.get(id)?.parts.iter();
        Some(parts.map(|(number, part)| (*number, part.size, hex(&part.md5))).collect())
    }

    /// Number and key of the uploads to a bucket.
    pub(crate) fn of_bucket(&self, bucket: &str) -> Vec<(String, String)> {
        let state = self.lock();
        let uploads = state.uploads.iter().filter(|(_, upload)| upload.bucket == bucket);
        uploads.map(|(id, upload)| (id.clone(), upload.key.clone())).collect()
    }
}

/// The parts in one, and its ETag: the MD5 of the parts' MD5, with their number.
pub(crate) fn joined(parts: &[Part]) -> io::Result<(Bytes, String)> {
    let mut body = BytesMut::new();
    let mut all = Md5::new();
    for part in parts {
        body.extend_from_slice(&part.body.read()?);
        all.update(part.md5);
    }
    Ok((body.freeze(), format!("{}-{}", hex(&all.finalize()), parts.len())))
}
