//! The clients of one host: threads with an event loop each.

mod busiest;
#[allow(clippy::module_inception, reason = "the client is what this folder is about")]
mod client;
mod connection;
mod message;
pub mod part;
mod protocol;
mod sampler;
mod schedule;
mod shared;
mod stats;
mod worker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reactor::{EventLoop, ThreadControl, ThreadError, ThreadGroup, ThreadSpec};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::NetError;

use self::client::Client;
use self::schedule::Place;
use self::shared::Unconnected;
use self::stats::ClassStats;
use self::worker::Worker;
use crate::report::ClientsReport;
use crate::settings::Sizes;

pub(crate) use self::protocol::Protocol;
pub(crate) use self::shared::WorkerSpec;

const EVENTS_MAX: usize = 256;
/// A thread runs this many clients before a further one helps.
const CLIENTS_PER_THREAD: usize = 64;
/// Descriptors beside those of the clients.
const OTHER_FILES: u64 = 128;

/// Some clients of a class that run on this host.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    /// The number of the class.
    pub(crate) class: usize,
    pub(crate) sizes: Option<Sizes>,
    /// The first client's number within its class.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// The first client's number among all of the trial.
    pub(crate) number: u32,
}

/// What a group of clients needs beside what its threads share.
#[derive(Debug, Clone)]
pub(crate) struct GroupSpec {
    pub(crate) worker: WorkerSpec,
    pub(crate) shares: Vec<Share>,
    /// 0: as many as are of use.
    pub(crate) threads: u32,
    pub(crate) seed: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error(
        "{clients} clients need {needed} open files, and this process may have {limit}; raise the limit \
         (ulimit -n) or use fewer clients"
    )]
    Files { clients: usize, needed: u64, limit: u64 },
    #[error(transparent)]
    Unconnected(Unconnected),
    #[error("the run was stopped while its clients connected")]
    Stopped,
}

/// How far the threads are before the start.
#[derive(Debug, Default)]
struct StartBarrier {
    ready: AtomicUsize,
    problem: Mutex<Option<Unconnected>>,
}

/// Clients that are connected and wait for the start.
#[derive(Debug)]
pub(crate) struct Group {
    threads: ThreadGroup<Result<ClientsReport, NetError>>,
    barrier: Arc<StartBarrier>,
    number: usize,
}

impl Group {
    /// Makes the clients and begins to connect them.
    pub(crate) fn new(spec: &GroupSpec) -> Result<Self, GroupError> {
        let clients = clients(spec);
        let needed = clients.len() as u64 + OTHER_FILES;
        let limit = sys::thread::raise_file_limit(needed).unwrap_or(needed);
        if limit < needed {
            return Err(GroupError::Files { clients: clients.len(), needed, limit });
        }
        let number = threads(clients.len(), spec.threads as usize);
        let mut shares: Vec<Vec<Client>> = (0..number).map(|_| Vec::new()).collect();
        for (index, client) in clients.into_iter().enumerate() {
            shares[index % number].push(client);
        }
        let barrier = Arc::new(StartBarrier::default());
        let mut group = ThreadGroup::new(u64::MAX)?;
        for (index, share) in shares.into_iter().enumerate() {
            let (worker, barrier) = (spec.worker.clone(), barrier.clone());
            let name = format!("exchange-{index}");
            let thread = ThreadSpec { name, is_precise: true, ..ThreadSpec::default() };
            group.spawn(thread, move |control| run(worker, share, control, &barrier))?;
        }
        Ok(Self { threads: group, barrier, number })
    }

    /// Waits until all clients are connected, or `is_stopped`.
    pub(crate) fn wait_ready(&self, is_stopped: impl Fn() -> bool) -> Result<(), GroupError> {
        loop {
            let problem = self.barrier.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match problem {
                Some(problem) => return Err(GroupError::Unconnected(problem)),
                None if self.barrier.ready.load(Ordering::Acquire) == self.number => return Ok(()),
                None if is_stopped() => return Err(GroupError::Stopped),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    pub(crate) fn begin(&self, start_ns: u64) {
        self.threads.begin(start_ns);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.threads.is_finished()
    }

    /// Ends all clients, and reports.
    pub(crate) fn stop(mut self) -> Result<ClientsReport, GroupError> {
        self.threads.stop();
        let mut reports = Vec::new();
        for result in self.threads.finish(Deadline::after(Duration::from_secs(2))) {
            reports.push(result??);
        }
        Ok(ClientsReport::of_all(reports).unwrap_or_default())
    }
}

fn clients(spec: &GroupSpec) -> Vec<Client> {
    let of_share = |share: &Share| {
        let share = share.clone();
        let class = &spec.worker.classes[share.class];
        let protocol = &spec.worker.protocol;
        let client = move |index: u64| {
            let seed = spec.seed ^ (share.class as u64) << 32;
            let place = Place { index: share.first + index, clients: class.clients, seed };
            let number = share.number + index as u32;
            let mut client = Client::new(class, share.class, number, place, protocol);
            client.sizes = share.sizes.clone();
            client
        };
        (0..share.count).map(client).collect::<Vec<_>>()
    };
    spec.shares.iter().flat_map(of_share).collect()
}

fn threads(clients: usize, wanted: usize) -> usize {
    let cpus = sys::thread::online_cpus().map_or(1, |cpus| cpus.len().max(1));
    let usual = clients.div_ceil(CLIENTS_PER_THREAD).min(cpus);
    if wanted == 0 { usual.max(1) } else { wanted.min(clients).max(1) }
}

/// One thread: connects, waits for the start, and runs to the end.
fn run(
    spec: WorkerSpec,
    clients: Vec<Client>,
    control: &ThreadControl,
    barrier: &StartBarrier,
) -> Result<ClientsReport, NetError> {
    let mut events = EventLoop::new(control.stop_handle(), EVENTS_MAX)?;
    let target = |class: &crate::settings::Class| class.target.map(|target| target.ns());
    let stats = spec.classes.iter().map(|class| ClassStats::new(&class.name, target(class), spec.sample_ns));
    let mut counts = vec![0; spec.classes.len()];
    clients.iter().for_each(|client| counts[client.class] += 1);
    let (stats, server) = (stats.collect(), spec.server.to_string());
    let mut worker = Worker::new(spec, clients, stats);
    worker.connect(events.reactor());
    while !worker.is_ready() && worker.problem.is_none() && !control.is_stopped() {
        events.poll_once(&mut worker, u64::MAX)?;
    }
    if let Some(problem) = &worker.problem {
        *barrier.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.clone());
    }
    barrier.ready.fetch_add(1, Ordering::Release);
    // The start is announced by a wake-up.
    while control.start_ns() == u64::MAX && worker.problem.is_none() && !control.is_stopped() {
        events.poll_once(&mut worker, u64::MAX)?;
    }
    if control.start_ns() != u64::MAX {
        worker.begin(control.start_ns(), events.reactor());
    }
    while !worker.is_over() && !control.is_stopped() {
        if !worker.wait_in_call(events.reactor()) {
            events.poll_once(&mut worker, u64::MAX)?;
        }
    }
    worker.end();
    let stopped = !worker.is_over();
    let hold_s = worker.hold_s();
    let Worker { shared, busiest, .. } = worker;
    let protocol_used = shared.protocol_used.map(str::to_owned);
    let slot_ns = shared.stats.iter().map(ClassStats::slot_ns).max().unwrap_or(1);
    let stats = shared.stats.into_iter().zip(counts);
    Ok(ClientsReport {
        classes: stats.map(|(stats, count)| stats.into_report(count, slot_ns)).collect(),
        hold_s,
        slot_s: slot_ns as f64 / 1e9,
        busiest: busiest.end(monotonic_ns()),
        stopped,
        broke_off: None,
        protocol_used,
        server,
    })
}
