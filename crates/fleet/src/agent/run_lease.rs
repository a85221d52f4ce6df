//! An agent's lease for one run, with the run's parts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use base::part::{AnyPart, Endpoints, HostContext, Live, PartError, Progress};
use base::permit::Permit;
use serde_json::Value;
use sys::clock::monotonic_ns;

use crate::wakeup_latency::WakeupLatency;

#[derive(Clone)]
pub struct PartSlot {
    part: Arc<Mutex<Box<dyn AnyPart>>>,
    permit: Arc<dyn Permit>,
    /// Being prepared, or about to be.
    is_preparing: Arc<AtomicBool>,
    /// Set when the part is to give up.
    stop: Arc<AtomicBool>,
}

impl PartSlot {
    pub fn new(part: Box<dyn AnyPart>, permit: Arc<dyn Permit>) -> Self {
        Self { part: Arc::new(Mutex::new(part)), permit, is_preparing: Arc::default(), stop: Arc::default() }
    }

    /// Locks the part. A part that panicked stays usable, to be dropped or to report the panic.
    pub fn part(&self) -> MutexGuard<'_, Box<dyn AnyPart>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on [`PartSlot::stop`] interrupts the preparation.
    pub fn mark_preparing(&self) {
        self.is_preparing.store(true, Ordering::Release);
    }

    /// Lets the part acquire what it needs. May take minutes; ends soon after [`PartSlot::request_stop`].
    /// Errors: The part's own error, or a stop request before.
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

    /// Ends the part and returns its report. Interrupts a preparation; a running part ends without the stop
    /// flag, which would mean that the whole run is given up.
    pub fn stop(&self) -> Result<Value, PartError> {
        if self.is_preparing.load(Ordering::Acquire) {
            self.request_stop();
        }
        self.part().stop()
    }

    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn live(&self) -> Live {
        self.part.try_lock().map(|mut part| part.live()).unwrap_or_default()
    }

    /// A part that is being prepared is running.
    pub fn progress(&self) -> Progress {
        match self.part.try_lock() {
            Ok(mut part) => part.progress(),
            Err(TryLockError::Poisoned(part)) => part.into_inner().progress(),
            Err(TryLockError::WouldBlock) => Progress::Running { done: None },
        }
    }
}

/// A part of a run that has ended. The thread that still uses it drops it.
pub struct EndingPart {
    pub name: String,
    part: Weak<Mutex<Box<dyn AnyPart>>>,
}

impl EndingPart {
    pub fn is_dropped(&self) -> bool {
        self.part.strong_count() == 0
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOwner {
    pub id: String,
    pub name: String,
    /// Addresses of the fleet's hosts.
    pub fleet: Vec<IpAddr>,
}

/// Dropping it ends all parts.
pub struct RunLease {
    pub run: String,
    pub owner: RunOwner,
    lease_ns: u64,
    expires_ns: AtomicU64,
    /// Its stop flag is set when the run ends.
    pub host: HostContext,
    pub parts: BTreeMap<String, PartSlot>,
    /// All parts placed and not yet dropped, also those that are being stopped.
    placed: Vec<EndingPart>,
    pub start_late: WakeupLatency,
}

impl RunLease {
    pub fn new(run: String, owner: RunOwner, lease_ms: u64, host: HostContext) -> Self {
        let lease_ns = lease_ms.saturating_mul(1_000_000);
        let lease = Self {
            run,
            owner,
            lease_ns,
            expires_ns: AtomicU64::new(0),
            host: HostContext { stop: Arc::new(AtomicBool::new(false)), ..host },
            parts: BTreeMap::new(),
            placed: Vec::new(),
            start_late: WakeupLatency::default(),
        };
        lease.renew();
        lease
    }

    /// Adds a part. Returns the part that it replaces, which is asked to stop.
    pub fn place(&mut self, name: String, slot: PartSlot) -> Option<PartSlot> {
        self.placed.retain(|part| !part.is_dropped());
        self.placed.push(EndingPart { name: name.clone(), part: Arc::downgrade(&slot.part) });
        let replaced = self.parts.insert(name, slot);
        replaced.inspect(PartSlot::request_stop)
    }

    pub fn ending_parts(&self) -> Vec<EndingPart> {
        let ending =
            |part: &EndingPart| EndingPart { name: part.name.clone(), part: Weak::clone(&part.part) };
        self.placed.iter().map(ending).collect()
    }

    pub fn renew(&self) {
        self.expires_ns.store(monotonic_ns().saturating_add(self.lease_ns), Ordering::Relaxed);
    }

    pub fn is_expired(&self) -> bool {
        monotonic_ns() > self.expires_ns.load(Ordering::Relaxed)
    }
}

impl Drop for RunLease {
    fn drop(&mut self) {
        // A part that is being prepared sees the flag and returns; its own thread drops it then.
        self.host.stop.store(true, Ordering::Relaxed);
        self.parts.values().for_each(PartSlot::request_stop);
        // One after the other, so that each part's threads end before the next part is dropped.
        while let Some((_, slot)) = self.parts.pop_last() {
            drop(slot);
        }
    }
}
