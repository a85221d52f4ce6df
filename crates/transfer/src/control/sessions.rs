//! The running sessions of a server by key, and the reports of those that ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reports to keep; older ones are dropped.
const REPORTS_MAX: usize = 1024;

pub(crate) struct Sessions<K, E, R> {
    entries: Mutex<BTreeMap<K, E>>,
    reports: Mutex<VecDeque<R>>,
}

impl<K, E, R> Default for Sessions<K, E, R> {
    fn default() -> Self {
        Self { entries: Mutex::default(), reports: Mutex::default() }
    }
}

impl<K: Ord + Copy, E, R> Sessions<K, E, R> {
    pub(crate) fn entries(&self) -> MutexGuard<'_, BTreeMap<K, E>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }

    /// The reports of sessions that ended since the last call; of very many only the latest.
    pub(crate) fn take_reports(&self) -> Vec<R> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn leave(&self, key: K, report: Option<R>) {
        self.entries().remove(&key);
        let Some(report) = report else { return };
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() >= REPORTS_MAX {
            reports.pop_front();
        }
        reports.push_back(report);
    }
}

impl<K: Ord + Copy + Send + 'static, E: Send + 'static, R: Send + 'static> Sessions<K, E, R> {
    /// Runs an entered session on a thread of its own. However that ends, the session leaves.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        key: K,
        session: impl FnOnce() -> R + Send + 'static,
    ) -> std::io::Result<()> {
        let presence = Presence { sessions: self.clone(), key, report: None };
        let run = move || {
            let mut presence = presence;
            presence.report = Some(session());
        };
        std::thread::Builder::new().name("transfer-session".to_owned()).spawn(run).map(drop)
    }
}

/// Dropping it removes the session and stores its report.
struct Presence<K: Ord + Copy, E, R> {
    sessions: Arc<Sessions<K, E, R>>,
    key: K,
    report: Option<R>,
}

impl<K: Ord + Copy, E, R> Drop for Presence<K, E, R> {
    fn drop(&mut self) {
        self.sessions.leave(self.key, self.report.take());
    }
}
