//! The HTTP server of the console in the browser: pages, an API that `openapi.json` describes, and events;
//! and the client of this API ([`client`]).
//!
//! Runs are processes of this program (`kagiri run`), and so is what changes the kernel's settings or the
//! sockets of other programs: each has its own undo journal, and none ends with this server.

mod agents;
mod api;
mod app;
pub mod client;
mod config;
mod detached;
mod error;
mod guard;
mod jobs;
mod json;
mod pages;
mod plans;
mod program;
mod report_answer;
mod routes;
mod security;
mod server;

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};

use crate::app::App;
pub use crate::config::{
    CheckedPlan, Commands, Config, PlanLength, PlanProblem, Targets, TlsFiles, TuneOptions,
};
use crate::jobs::Jobs;
use crate::program::Program;
use crate::security::Token;

/// Threads for requests; what waits for the disk has others.
const THREADS: usize = 2;
const BLOCKING_THREADS_MAX: usize = 64;
/// Plans of others may nest deeply, as far as their parsers allow.
const THREAD_STACK_BYTES: usize = 4 << 20;

/// Serves until `stop` is set. `ready` gets the address and the login token once it listens.
/// Errors: the address is in use or unsafe, another server uses the folder, or the token cannot be read.
pub fn serve(
    config: Config,
    stop: Arc<AtomicBool>,
    ready: impl FnOnce(SocketAddr, &str),
) -> anyhow::Result<()> {
    check_listen(config.listen, config.tls.is_some()).map_err(anyhow::Error::msg)?;
    let folder = config.data_dir.join("console");
    jobs::make_folder(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let _lock = lock(&folder)?;
    let token = Token::load_or_make(&folder.join("token"))?;
    let tls = config.tls.as_ref().map(server::acceptor).transpose()?;
    let program = Arc::new(Program::new(&config.program, &config.data_dir));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_stack_size(THREAD_STACK_BYTES)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    let served = runtime.block_on(async {
        let listener = server::listen(config.listen).await?;
        let address = listener.local_addr()?;
        // After the port is taken: a second server must not follow the jobs of the first.
        let jobs = Jobs::open(
            &folder.join("jobs"),
            Arc::clone(&program),
            config.fleet.clone(),
            &config.data_dir,
            &config.host_name,
        )?;
        plans::write_all_companions(&folder.join("plans")).context("cannot write the ready plans")?;
        let app = Arc::new(App::new(config, folder.clone(), token, jobs, program));
        ready(address, app.token.text());
        server::serve(listener, tls, routes::router(&app), stop).await
    });
    // Streams of events would keep it from ending.
    runtime.shutdown_background();
    served
}

/// Errors: other hosts could read the token.
pub fn check_listen(listen: SocketAddr, is_tls: bool) -> Result<(), String> {
    match listen.ip().is_loopback() || is_tls {
        true => Ok(()),
        false => Err(format!(
            "--listen {listen}: the login would cross the network in clear text; add --tls CERT --key KEY, \
             or listen at 127.0.0.1 and use ssh -L"
        )),
    }
}

/// Keeps a second server from the same jobs.
fn lock(folder: &std::path::Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let what = || format!("cannot lock {}", path.display());
    let file = File::options().create(true).truncate(false).write(true).open(&path).with_context(what)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => bail!(
            "another 'kagiri serve' uses {}; use that one, or set KAGIRI_DATA to another folder",
            folder.display()
        ),
        Err(std::fs::TryLockError::Error(error)) => Err(error).with_context(what),
    }
}
