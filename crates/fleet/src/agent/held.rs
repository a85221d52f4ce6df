//! What an agent holds for a run: its lease, and its parts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use base::part::{HostContext, Live, Part, Progress};
use base::permit::Permit;
use sys::clock::monotonic_ns;

/// A part that several threads may look at.
#[derive(Clone)]
pub struct Slot {
    part: Arc<Mutex<Box<dyn Part>>>,
    /// What it may do.
    pub permit: Arc<dyn Permit>,
}

impl Slot {
    /// A part that was built.
    pub fn new(part: Box<dyn Part>, permit: Arc<dyn Permit>) -> Self {
        Self { part: Arc::new(Mutex::new(part)), permit }
    }

    /// The part, once nobody else works with it. One that panicked is there still, to be dropped or to say so itself.
    pub fn part(&self) -> MutexGuard<'_, Box<dyn Part>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers that it sees now.
    pub fn live(&self) -> Live {
        self.part.try_lock().map(|mut part| part.live()).unwrap_or_default()
    }

    /// How far it is; one that is being prepared is at work.
    pub fn progress(&self) -> Progress {
        match self.part.try_lock() {
            Ok(mut part) => part.progress(),
            Err(TryLockError::Poisoned(part)) => part.into_inner().progress(),
            Err(TryLockError::WouldBlock) => Progress::Running { done: None },
        }
    }
}

/// Whose a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The coordinator's id, which renews the lease.
    pub id: String,
    /// What policies know it by.
    pub name: String,
    /// Where the fleet's hosts are reached.
    pub fleet: Vec<IpAddr>,
}

/// What is held for a run. Dropping it ends everything.
pub struct Held {
    /// The run.
    pub run: String,
    /// Whose it is.
    pub owner: Owner,
    lease_ns: u64,
    until_ns: AtomicU64,
    /// What the host offers to this run's parts; its flag is raised when the run is over.
    pub host: HostContext,
    /// The parts by name.
    pub parts: BTreeMap<String, Slot>,
    /// How late the last start was; 0 while it is not known.
    pub start_late_ns: Arc<AtomicU64>,
}

impl Held {
    /// For a run of this coordinator.
    pub fn new(run: String, owner: Owner, lease_ms: u64, host: HostContext) -> Self {
        let lease_ns = lease_ms.saturating_mul(1_000_000);
        let held = Self {
            run,
            owner,
            lease_ns,
            until_ns: AtomicU64::new(0),
            host: HostContext { stop: Arc::new(AtomicBool::new(false)), ..host },
            parts: BTreeMap::new(),
            start_late_ns: Arc::default(),
        };
        held.renew();
        held
    }

    /// The coordinator has given a sign of life.
    pub fn renew(&self) {
        self.until_ns.store(monotonic_ns().saturating_add(self.lease_ns), Ordering::Relaxed);
    }

    /// Whether it has given none for as long as the lease.
    pub fn is_expired(&self) -> bool {
        monotonic_ns() > self.until_ns.load(Ordering::Relaxed)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A part in the middle of preparing sees this and returns; its own thread drops it then.
        self.host.stop.store(true, Ordering::Relaxed);
        // In the order opposite to that of their making: players before their server.
        while let Some((_, slot)) = self.parts.pop_last() {
            drop(slot);
        }
    }
}
