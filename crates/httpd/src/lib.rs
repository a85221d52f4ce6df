//! The embedded content server: HTTP/1.1 over zero-copy sends.
//!
//! GET and HEAD with single ranges (a request for several ranges gets the whole file, as RFC 9110 allows),
//! conditional requests, keep-alive and pipelining, directories as a page or as JSON, uploads by PUT (which
//! can go into a segment pool, [`pool`]), DELETE, an access log and a load page at `/.kagiri/load`.
//! [`Limits`] bounds the memory, connections and time that a peer can take; every refusal and every expired
//! deadline is logged with its reason.
//!
//! Reading content that is not in memory blocks its worker, and with it the worker's other streams: with slow
//! storage and many streams give the server more threads.

pub mod chunked;
pub mod conditional;
mod config;
mod connection;
mod context;
mod cpu_cost;
pub mod date;
mod delete;
mod destination;
mod handler;
mod listing;
mod load_page;
mod log;
mod mime;
pub mod range;
pub mod request;
mod request_reader;
mod reserved;
mod response;
mod response_writer;
mod stats;
pub mod target;
mod upload;
mod worker;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use reactor::{EventLoop, ThreadGroup, ThreadSpec};
use sys::clock::Deadline;
use sys::file::Directory;
use sys::net::{ListenOptions, Listener, NetError, SocketOptions, Waker};

pub use config::{AccessLog, Limits, ServerConfig, ServerError};
pub use stats::ServerStats;

use context::WorkerContext;
use handler::Handler;
use stats::Shared;
use worker::Worker;

/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 512;
/// Descriptors a server needs beside two for each connection.
const DESCRIPTORS_SPARE: u64 = 64;

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    shared: Arc<Shared>,
    workers: ThreadGroup<Result<(), NetError>>,
    log_thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts serving. When this returns the port is open.
    /// Errors: [`ServerError`]: the root, the address, the log or a number is not usable, or a thread cannot
    /// be had.
    pub fn start(config: ServerConfig) -> Result<Self, ServerError> {
        check(&config)?;
        let send_buffer_bytes = config.send_buffer();
        let root = Directory::open(&config.root)?;
        let writer = open_log(config.access_log)?;
        let socket = SocketOptions {
            // The end of a response must not wait for the acknowledgement of what is before it.
            nodelay: Some(true),
            send_buffer_bytes,
            congestion: config.congestion_control,
            ..SocketOptions::default()
        };
        let options = ListenOptions { socket, ..ListenOptions::default() };
        let mut listener = Some(Listener::bind(config.listen, &options).map_err(ServerError::Listen)?);
        let local = listener.as_ref().map_or(config.listen, Listener::local_addr);
        let mut limits = config.limits;
        limits.connections_max = affordable(limits.connections_max);
        let wakers = (0..config.threads).map(|_| Waker::new()).collect::<Result<Vec<_>, NetError>>()?;
        let shared = Arc::new(Shared::new(wakers, limits.connections_per_peer_max));
        let is_loopback = local.ip().is_loopback();
        let handler = Arc::new(Handler {
            root,
            upload: config.upload,
            pool: config.pool,
            is_loopback,
            shared: shared.clone(),
        });
        let (log, log_thread) = log::start(shared.clone(), writer).map_err(ServerError::Thread)?;
        let workers = ThreadGroup::new(0)?;
        let mut server = Self { local, shared: shared.clone(), workers, log_thread: Some(log_thread) };
        // On an error below this drops before `server`, which waits for the log's thread: that ends with the
        // last sender.
        let log = log;
        for (index, worker) in shared.workers.iter().enumerate() {
            let context = WorkerContext::new(
                handler.clone(),
                worker.clone(),
                limits.clone(),
                log.clone(),
                config.cost_ns_per_byte,
            );
            let mut events = EventLoop::new(server.workers.control().stop_handle(), EVENTS_MAX)?;
            let mut worker = Worker::new(index, shared.clone(), context);
            // The first worker listens.
            worker.watch(events.reactor(), listener.take())?;
            let cpu = config.cpus.get(index % config.cpus.len().max(1)).copied();
            let spec = ThreadSpec { name: format!("kagiri-http-{index}"), cpu, ..ThreadSpec::default() };
            server.workers.spawn(spec, move |_| worker.run(&mut events))?;
        }
        Ok(server)
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }

    /// The kernel's ids of the worker threads that have begun, for reading their CPU time.
    pub fn thread_ids(&self) -> Vec<i32> {
        let ids = self.shared.workers.iter().map(|worker| worker.thread_id.load(Ordering::Relaxed));
        ids.filter(|&id| id != 0).collect()
    }

    /// Closes every connection, writes the rest of the log and returns the last numbers.
    pub fn stop(mut self) -> ServerStats {
        self.halt();
        self.shared.stats()
    }

    fn halt(&mut self) {
        self.workers.stop();
        // A worker's error or panic is of no use to a server that ends. A panic was printed by its thread.
        drop(self.workers.finish(Deadline::after(Duration::MAX)));
        // A worker holds a sender of the log until it ends, so the log's thread ends after the workers.
        if let Some(thread) = self.log_thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

fn check(config: &ServerConfig) -> Result<(), ServerError> {
    let refuse = |what: &str| Err(ServerError::Config(what.to_owned()));
    if config.threads == 0 || config.threads > 1024 {
        return refuse(&format!("{} threads; give 1 to 1024", config.threads));
    }
    if !(0.0..=1e6).contains(&config.cost_ns_per_byte) {
        return refuse(&format!("a cost of {} ns per byte; give 0 to 1000000", config.cost_ns_per_byte));
    }
    let limits = &config.limits;
    if !(256..=1 << 20).contains(&limits.header_bytes_max) {
        return refuse(&format!("a request head of {} bytes; give 256 to 1048576", limits.header_bytes_max));
    }
    if limits.headers_max == 0 || limits.headers_max > 10_000 || limits.connections_max == 0 {
        return refuse("no header fields, more than 10000, or no connections");
    }
    if !config.cpus.is_empty() {
        let allowed = sys::thread::online_cpus().map_err(ServerError::Thread)?;
        if let Some(cpu) = config.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return refuse(&format!("CPU {cpu}; this process may use {allowed:?}"));
        }
    }
    Ok(())
}

fn open_log(log: Option<AccessLog>) -> Result<Option<Box<dyn Write + Send>>, ServerError> {
    match log {
        None => Ok(None),
        Some(AccessLog::Writer(writer)) => Ok(Some(writer)),
        Some(AccessLog::Path(path)) => {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
            let file = file.map_err(|source| ServerError::AccessLog { path, source })?;
            Ok(Some(Box::new(file)))
        }
    }
}

/// As many connections as there are descriptors for: each may need one for its socket and one for its file.
fn affordable(connections_max: usize) -> usize {
    let wanted = (connections_max as u64).saturating_mul(2).saturating_add(DESCRIPTORS_SPARE);
    match sys::thread::raise_file_limit(wanted) {
        Ok(limit) => {
            let room = limit.saturating_sub(DESCRIPTORS_SPARE) / 2;
            connections_max.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1)
        }
        // Unknown: accepting copes with running out.
        Err(_) => connections_max,
    }
}
