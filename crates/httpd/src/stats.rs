//! Counters of the server, and what its threads share.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use sys::net::{TcpSocket, Waker};

/// The server's numbers; totals count from the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerStats {
    pub connections: u64,
    /// Of those, sending a file now.
    pub streams: u64,
    /// Content sent per second, over the last second or so; `None` within the first second.
    pub rate_bit_per_s: Option<u64>,
    /// CPU time of the whole process over the same time, in percent of one core.
    pub process_cpu_percent: Option<f64>,
    pub uptime_s: f64,
    /// Bytes of responses sent, with their heads.
    pub sent_bytes: u64,
    pub uploaded_bytes: u64,
    pub accepted: u64,
    /// Requests responded to, with refused ones.
    pub requests: u64,
    pub refused: u64,
    /// Connections ended by a deadline.
    pub timed_out: u64,
    /// Connections dropped because the table was full.
    pub evicted: u64,
    /// Lines dropped because the access log was too slow.
    pub log_lines_dropped: u64,
    pub threads: u64,
}

/// Counters of one worker, written by it alone. On cache lines of their own: the hot path writes them.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Counters {
    pub streams: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub uploaded_bytes: AtomicU64,
    pub requests: AtomicU64,
    pub refused: AtomicU64,
    pub timed_out: AtomicU64,
    pub evicted: AtomicU64,
}

/// Adds to a counter that only this thread writes: a load and a store, no locked instruction.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// What other threads see of a worker.
#[derive(Debug)]
pub struct WorkerShared {
    pub counters: Counters,
    pub waker: Waker,
    /// Connections, with those in the inbox.
    pub connections: AtomicU64,
    pub thread_id: AtomicI32,
    inbox: Mutex<Vec<(TcpSocket, SocketAddr)>>,
}

/// Connections in an inbox at most.
const INBOX_MAX: usize = 1024;

impl WorkerShared {
    pub fn new(waker: Waker) -> Self {
        Self {
            counters: Counters::default(),
            waker,
            connections: AtomicU64::new(0),
            thread_id: AtomicI32::new(0),
            inbox: Mutex::new(Vec::new()),
        }
    }

    /// Puts a connection into the inbox; returns it when the inbox is full.
    pub fn hand_over(&self, socket: TcpSocket, peer: SocketAddr) -> Result<(), TcpSocket> {
        let mut inbox = lock(&self.inbox);
        if inbox.len() >= INBOX_MAX {
            return Err(socket);
        }
        inbox.push((socket, peer));
        drop(inbox);
        self.waker.wake();
        Ok(())
    }

    pub fn take_inbox(&self) -> Vec<(TcpSocket, SocketAddr)> {
        std::mem::take(&mut *lock(&self.inbox))
    }
}

#[derive(Debug)]
pub struct Shared {
    pub workers: Vec<Arc<WorkerShared>>,
    pub accepted: AtomicU64,
    pub log_lines_dropped: AtomicU64,
    pub started_ns: u64,
    rate: Mutex<Rate>,
    peers: Mutex<HashMap<IpAddr, usize>>,
    per_peer_max: Option<usize>,
}

/// The two newest readings, about a second apart.
#[derive(Debug, Default)]
struct Rate {
    at_ns: u64,
    sent_bytes: u64,
    cpu_ns: u64,
    bit_per_s: Option<u64>,
    cpu_percent: Option<f64>,
}

impl Shared {
    pub fn new(wakers: Vec<Waker>, per_peer_max: Option<usize>) -> Self {
        let started_ns = sys::clock::monotonic_ns();
        let cpu_ns = sys::thread::process_cpu_ns();
        Self {
            workers: wakers.into_iter().map(|waker| Arc::new(WorkerShared::new(waker))).collect(),
            accepted: AtomicU64::new(0),
            log_lines_dropped: AtomicU64::new(0),
            started_ns,
            rate: Mutex::new(Rate { at_ns: started_ns, cpu_ns, ..Rate::default() }),
            peers: Mutex::new(HashMap::new()),
            per_peer_max,
        }
    }

    /// Counts a connection of `peer`; `false`: it has the maximum already.
    pub fn admit(&self, peer: IpAddr) -> bool {
        let Some(max) = self.per_peer_max else { return true };
        let mut peers = lock(&self.peers);
        let count = peers.entry(peer).or_default();
        if *count >= max {
            return false;
        }
        *count += 1;
        true
    }

    /// Subtracts a connection that [`Shared::admit`] counted.
    pub fn release(&self, peer: IpAddr) {
        if self.per_peer_max.is_none() {
            return;
        }
        let mut peers = lock(&self.peers);
        if let Some(count) = peers.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&peer);
            }
        }
    }

    pub fn tick(&self) {
        let (at_ns, sent_bytes) = (sys::clock::monotonic_ns(), self.sum(|c| &c.sent_bytes));
        let cpu_ns = sys::thread::process_cpu_ns();
        let mut rate = lock(&self.rate);
        let span_s = at_ns.saturating_sub(rate.at_ns) as f64 / 1e9;
        if span_s > 0.0 {
            rate.bit_per_s = Some((sent_bytes.saturating_sub(rate.sent_bytes) as f64 * 8.0 / span_s) as u64);
            rate.cpu_percent = Some(cpu_ns.saturating_sub(rate.cpu_ns) as f64 / span_s / 1e7);
        }
        (rate.at_ns, rate.sent_bytes, rate.cpu_ns) = (at_ns, sent_bytes, cpu_ns);
    }

    pub fn stats(&self) -> ServerStats {
        let rate = lock(&self.rate);
        ServerStats {
            connections: self.workers.iter().map(|d| d.connections.load(Ordering::Relaxed)).sum(),
            streams: self.sum(|c| &c.streams),
            rate_bit_per_s: rate.bit_per_s,
            process_cpu_percent: rate.cpu_percent,
            uptime_s: sys::clock::monotonic_ns().saturating_sub(self.started_ns) as f64 / 1e9,
            sent_bytes: self.sum(|c| &c.sent_bytes),
            uploaded_bytes: self.sum(|c| &c.uploaded_bytes),
            accepted: self.accepted.load(Ordering::Relaxed),
            requests: self.sum(|c| &c.requests),
            refused: self.sum(|c| &c.refused),
            timed_out: self.sum(|c| &c.timed_out),
            evicted: self.sum(|c| &c.evicted),
            log_lines_dropped: self.log_lines_dropped.load(Ordering::Relaxed),
            threads: self.workers.len() as u64,
        }
    }

    fn sum(&self, pick: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|worker| pick(&worker.counters).load(Ordering::Relaxed)).sum()
    }
}

/// A lock whose data stays consistent even if a holder panicked: every update above is complete in itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
