//! Renews the agents' leases until the run is over.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use zenoh::qos::Priority;
use zenoh::{Session, Wait};

use crate::FleetError;
use crate::protocol::{self, Renewal};

/// Agents whose lease expires end their parts and clean up.
pub const LEASE: Duration = Duration::from_secs(5);
const RENEW_INTERVAL: Duration = Duration::from_millis(500);

pub struct LeaseRenewer {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl LeaseRenewer {
    pub fn start(session: Session, id: &str, run: &str) -> Result<Self, FleetError> {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let (until, key) = (Arc::clone(&over), protocol::coordinator_key(id));
        let renewal = protocol::encode(&Renewal { run: run.to_owned() });
        let renew = move || {
            let mut is_over = until.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_over {
                // Not with `Block`: one congested agent would delay the renewals of all others. A lease
                // survives nine dropped renewals. Without a router the leases expire, as intended.
                let _ = session.put(&key, renewal.clone()).priority(Priority::InteractiveHigh).wait();
                let waited = until.1.wait_timeout(is_over, RENEW_INTERVAL);
                is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(renew);
        let thread = thread.map_err(|source| FleetError::System { what: "start a thread", source })?;
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for LeaseRenewer {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}
