//! A small S3 server for tests. It keeps buckets in memory (the bodies in files if a folder is given), checks
//! the signatures of requests (Signature Version 4, by the crate `s3s`), and takes directory markers (keys
//! that end in `/`) as the objects they are, so that s3fs and rclone can mount it. It can be slow, limit its
//! rate, and refuse a share of the requests with `503 SlowDown`; its access log is what tests compare results
//! with.

mod faults;
mod front;
mod listing;
mod log;
mod multipart;
mod objects;
mod paced;
mod service;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub use self::faults::Faults;
pub use self::log::{Entry, Kind};

use self::faults::Gate;
use self::front::Front;
use self::log::AccessLog;
use self::objects::Buckets;

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    pub access_key: String,
    pub secret_key: String,
    /// Buckets that are there from the beginning.
    pub buckets: Vec<String>,
    /// Where the bodies of objects are kept; in memory if there is none. The list of objects is always in
    /// memory, and ends with the server.
    pub folder: Option<PathBuf>,
    /// A file to which every request adds a line.
    pub log_file: Option<PathBuf>,
    pub faults: Faults,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            access_key: "test-access-key".to_owned(),
            secret_key: "test-secret-key".to_owned(),
            buckets: vec!["test".to_owned()],
            folder: None,
            log_file: None,
            faults: Faults::default(),
        }
    }
}

/// A running server. It ends when it is dropped.
pub struct Server {
    addr: SocketAddr,
    config: Config,
    buckets: Arc<Buckets>,
    log: Arc<AccessLog>,
    gate: Arc<Gate>,
    runtime: Mutex<Option<Runtime>>,
}

impl Server {
    /// Listens and answers on threads of its own.
    ///
    /// # Errors
    /// The address cannot be listened on, or the folder or the log file cannot be made.
    pub fn start(config: Config) -> io::Result<Self> {
        let buckets = Arc::new(Buckets::new(config.folder.clone())?);
        config.buckets.iter().for_each(|name| buckets.create(name));
        let log = Arc::new(AccessLog::new(config.log_file.as_deref())?);
        let gate = Arc::new(Gate::new(config.faults.clone()));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(config.listen))?;
        let addr = listener.local_addr()?;
        let front = Front::new(&config, Arc::clone(&buckets), Arc::clone(&log), Arc::clone(&gate));
        runtime.spawn(Arc::new(front).accept(listener));
        Ok(Self { addr, config, buckets, log, gate, runtime: Mutex::new(Some(runtime)) })
    }

    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// As `AWS_ENDPOINT_URL` takes it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Every request so far, in the order of their arrival.
    #[must_use]
    pub fn log(&self) -> Vec<Entry> {
        self.log.entries()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        self.log.clear();
    }

    /// Applies to requests from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.gate.set(faults);
    }

    /// Keys of a bucket with the sizes of their objects.
    #[must_use]
    pub fn keys(&self, bucket: &str) -> BTreeMap<String, u64> {
        self.buckets.sizes(bucket)
    }

    /// Puts an object without a request.
    ///
    /// # Errors
    /// There is no such bucket, or its file cannot be written.
    pub fn put(&self, bucket: &str, key: &str, body: &[u8]) -> io::Result<()> {
        self.buckets.put_directly(bucket, key, body)
    }

    /// Dies as by `kill -9`: closes all connections at once, and no port listens any more.
    pub fn kill(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
