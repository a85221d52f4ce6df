//! What an agent holds for a run: its lease, and its parts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use base::part::{Endpoints, HostContext, Live, Part, PartError, Progress};
use base::permit::Permit;
use serde_json::Value;
use sys::clock::monotonic_ns;

use crate::lateness::Late;

/// A part that several threads may look at.
#[derive(Clone)]
pub struct Slot {
    part: Arc<Mutex<Box<dyn Part>>>,
    /// What it may do.
    permit: Arc<dyn Permit>,
    /// It is being prepared, or is about to be.
    is_preparing: Arc<AtomicBool>,
    /// Raised when it is to give up.
    stop: Arc<AtomicBool>,
}

impl Slot {
    /// A part that was built.
    pub fn new(part: Box<dyn Part>, permit: Arc<dyn Permit>) -> Self {
        Self { part: Arc::new(Mutex::new(part)), permit, is_preparing: Arc::default(), stop: Arc::default() }
    }

    /// The part, once nobody else works with it. One that panicked is there still, to be dropped or to say so itself.
    pub fn part(&self) -> MutexGuard<'_, Box<dyn Part>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It will be prepared: who stops it before that is over has it give up.
    pub fn will_prepare(&self) {
        self.is_preparing.store(true, Ordering::Release);
    }

    /// Let it acquire what it needs; may take minutes, and ends soon after [`Slot::give_up`].
    ///
    /// # Errors
    /// The part's own, or that it was given up before.
    pub fn prepare(&self, peers: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        let own =
            HostContext { permit: Arc::clone(&self.permit), stop: Arc::clone(&self.stop), ..host.clone() };
        let mut part = self.part();
        if own.stop_requested() {
            return Err(PartError::new("stopped before it was prepared"));
        }
        let prepared = part.prepare(peers, &own);
        self.is_preparing.store(false, Ordering::Release);
        prepared
    }

    /// End it, for its report. One that is being prepared gives up first; to one at work its flag would say that the
    /// whole run is given up.
    ///
    /// # Errors
    /// The part's own.
    pub fn stop(&self) -> Result<Value, PartError> {
        if self.is_preparing.load(Ordering::Acquire) {
            self.give_up();
        }
        self.part().stop()
    }

    /// The run is over for it.
    pub fn give_up(&self) {
        self.stop.store(true, Ordering::Relaxed);
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

/// A part of a run that is over. A thread that still works with it drops it last.
pub struct Ending {
    /// Its name.
    pub name: String,
    part: Weak<Mutex<Box<dyn Part>>>,
}

impl Ending {
    /// Whether it has ended and released everything.
    pub fn is_gone(&self) -> bool {
        self.part.strong_count() == 0
    }
}

/// Whose a run is; nobody's, where no run is held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// All that were placed and are not gone, those that are being stopped among them.
    placed: Vec<Ending>,
    /// How late the last start was.
    pub start_late: Late,
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
            placed: Vec::new(),
            start_late: Late::default(),
        };
        held.renew();
        held
    }

    /// Take a part; returns the one of that name that was there, which has been told to give up.
    pub fn place(&mut self, name: String, slot: Slot) -> Option<Slot> {
        self.placed.retain(|part| !part.is_gone());
        self.placed.push(Ending { name: name.clone(), part: Arc::downgrade(&slot.part) });
        let replaced = self.parts.insert(name, slot);
        replaced.inspect(Slot::give_up)
    }

    /// What is to be gone when this has been dropped.
    pub fn endings(&self) -> Vec<Ending> {
        let ending = |part: &Ending| Ending { name: part.name.clone(), part: Weak::clone(&part.part) };
        self.placed.iter().map(ending).collect()
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
        self.parts.values().for_each(Slot::give_up);
        // In the order opposite to that of their making: players before their server.
        while let Some((_, slot)) = self.parts.pop_last() {
            drop(slot);
        }
    }
}
