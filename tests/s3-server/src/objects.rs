//! Buckets and their objects.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use s3s::dto::Metadata;

/// What comes with an object's body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
    pub content_encoding: Option<String>,
    pub metadata: Option<Metadata>,
}

#[derive(Debug)]
pub(crate) struct Object {
    pub body: Arc<Stored>,
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    pub modified: SystemTime,
    pub facts: Facts,
}

/// Where a body is kept.
#[derive(Debug)]
pub(crate) enum Stored {
    Memory(Bytes),
    /// A file of its own, which is removed with the object.
    File(PathBuf),
}

impl Stored {
    pub(crate) fn read(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File(path) => fs::read(path).map(Bytes::from),
        }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if let Self::File(path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

pub(crate) type Objects = BTreeMap<String, Arc<Object>>;

#[derive(Debug)]
pub(crate) struct Buckets {
    buckets: Mutex<BTreeMap<String, Objects>>,
    folder: Option<PathBuf>,
    files: AtomicU64,
}

impl Buckets {
    pub(crate) fn new(folder: Option<PathBuf>) -> io::Result<Self> {
        folder.as_ref().map_or(Ok(()), fs::create_dir_all)?;
        Ok(Self { buckets: Mutex::default(), folder, files: AtomicU64::new(0) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Objects>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn create(&self, bucket: &str) {
        self.lock().entry(bucket.to_owned()).or_default();
    }

    /// Keeps a body, in a file if there is a folder.
    pub(crate) fn store(&self, bytes: Bytes) -> io::Result<Arc<Stored>> {
        let Some(folder) = &self.folder else { return Ok(Arc::new(Stored::Memory(bytes))) };
        let path = folder.join(format!("{:08}", self.files.fetch_add(1, Ordering::Relaxed)));
        fs::write(&path, &bytes)?;
        Ok(Arc::new(Stored::File(path)))
    }

    /// An object that has just been written.
    pub(crate) fn object(&self, bytes: Bytes, facts: Facts) -> io::Result<Object> {
        let (size, etag) = (bytes.len() as u64, hex(&Md5::digest(&bytes)));
        Ok(Object { body: self.store(bytes)?, size, etag, modified: SystemTime::now(), facts })
    }

    pub(crate) fn put_directly(&self, bucket: &str, key: &str, body: &[u8]) -> io::Result<()> {
        let object = self.object(Bytes::copy_from_slice(body), Facts::default())?;
        let mut buckets = self.lock();
        let objects = buckets.get_mut(bucket).ok_or(io::ErrorKind::NotFound)?;
        objects.insert(key.to_owned(), Arc::new(object));
        Ok(())
    }

    pub(crate) fn sizes(&self, bucket: &str) -> BTreeMap<String, u64> {
        let buckets = self.lock();
        let objects = buckets.get(bucket).into_iter().flatten();
        objects.map(|(key, object)| (key.clone(), object.size)).collect()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
