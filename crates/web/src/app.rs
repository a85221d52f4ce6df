//! What all handlers share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;
use store::{Store, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::agents::Agents;
use crate::config::{Commands, Config};
use crate::error::{ApiError, ApiResult};
use crate::jobs::Jobs;
use crate::pages::Pages;
use crate::program::Program;
use crate::security::Token;
use crate::security::origin::Names;

/// Open streams of events.
pub const VIEWERS_MAX: usize = 256;

pub type Shared = Arc<App>;

pub struct App {
    pub token: Token,
    pub names: Names,
    pub is_tls: bool,
    pub jobs: Arc<Jobs>,
    pub program: Arc<Program>,
    pub agents: Agents,
    pub pages: Pages,
    pub commands: Arc<dyn Commands>,
    pub fleet: Vec<OsString>,
    pub data_dir: PathBuf,
    /// Folder of the console itself, below the stored runs.
    pub folder: PathBuf,
    pub version: &'static str,
    pub host_name: String,
    pub started: Timestamp,
    pub requests: AtomicU64,
    /// The list of the ready plans, once it was asked for.
    pub ready_plans: OnceLock<Value>,
    /// Held while a policy or a setting changes.
    changing: tokio::sync::Mutex<()>,
    viewers: Arc<Semaphore>,
}

impl App {
    pub fn new(
        config: Config,
        folder: PathBuf,
        token: Token,
        jobs: Arc<Jobs>,
        program: Arc<Program>,
    ) -> Self {
        let is_tls = config.tls.is_some();
        let names = config.names.into_iter().chain([config.host_name.clone()]);
        Self {
            token,
            names: Names::new(names, is_tls),
            is_tls,
            jobs,
            program,
            agents: Agents::default(),
            pages: Pages::new(config.pages),
            commands: config.commands,
            fleet: config.fleet,
            data_dir: config.data_dir,
            folder,
            version: config.version,
            host_name: config.host_name,
            started: Timestamp::now(),
            requests: AtomicU64::new(0),
            ready_plans: OnceLock::new(),
            changing: tokio::sync::Mutex::new(()),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
        }
    }

    pub fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A place among the viewers.
    /// Errors: all are taken.
    pub fn viewer(&self) -> ApiResult<OwnedSemaphorePermit> {
        Arc::clone(&self.viewers).try_acquire_owned().map_err(|_| {
            ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("{VIEWERS_MAX} pages watch already; close some of them"),
            )
        })
    }

    /// Errors: a job measures on this machine, and a change of it is not wanted meanwhile.
    pub fn check_not_measuring(&self, is_wanted: bool) -> ApiResult<()> {
        let jobs = self.jobs.snapshot();
        match jobs.iter().find(|job| job.state.is_active() && job.targets.is_here) {
            Some(job) if !is_wanted => {
                let refusal = ApiError::conflict(format!(
                    "job {} ('{}') measures on this machine, and a change now would falsify its results; \
                     wait until it has ended, or do it all the same (\"while_measuring\": true)",
                    job.id, job.name
                ));
                Err(ApiError { field: Some("while_measuring".to_owned()), ..refusal })
            }
            _ => Ok(()),
        }
    }

    pub fn viewers(&self) -> usize {
        VIEWERS_MAX - self.viewers.available_permits()
    }

    /// Works on the stored runs, on a thread that may wait for the disk.
    pub async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let folder = self.data_dir.clone();
        blocking(move || {
            let mut store = Store::open_to_read(&folder)?;
            work(&mut store)
        })
        .await
    }

    /// Why the stored runs cannot be used.
    pub async fn store_problem(&self) -> Option<String> {
        let folder = self.data_dir.clone();
        let opened = blocking(move || {
            Ok(Store::open_to_read(&folder).map(drop).map_err(|e: StoreError| e.to_string()))
        });
        opened.await.ok()?.err()
    }
}

/// Changes something of this host, one change at a time. It is done to its end even if its client leaves: the
/// server drops the handler of a connection that closes.
pub async fn change<T: Send + 'static, F: Future<Output = ApiResult<T>> + Send + 'static>(
    app: Shared,
    work: impl FnOnce(Shared) -> F,
) -> ApiResult<T> {
    let work = work(app.clone());
    let done = tokio::spawn(async move {
        let _one = app.changing.lock().await;
        work.await
    });
    done.await.unwrap_or_else(|_| Err(failed()))
}

/// The handler of a request panicked.
pub fn failed() -> ApiError {
    ApiError::internal("the request failed in the server; please report this")
}

/// Does what may wait for a disk or another process on a thread of its own.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(failed()))
}
