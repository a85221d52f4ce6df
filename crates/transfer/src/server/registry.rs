//! The running sessions by cookie.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::control::{Cookie, StopHandle};
use crate::flow::{FlowCount, Side};
use crate::iperf3::{Arrival, SessionStatus, TestReport};

/// Reports to keep; older ones are dropped.
const REPORTS_MAX: usize = 1024;

#[derive(Debug, Clone)]
pub struct SessionView {
    pub cookie: Cookie,
    /// Its client's control connection.
    pub peer: SocketAddr,
    /// The client's title for the test.
    pub title: Option<String>,
    /// When its data began to flow, monotonic ns.
    pub started_ns: Option<u64>,
    /// What this end does with each stream, and its counts.
    pub streams: Vec<(Side, FlowCount)>,
}

pub(super) struct Entry {
    pub(super) peer: SocketAddr,
    /// This end's address that the client connected to.
    pub(super) local: SocketAddr,
    pub(super) stop_handle: Arc<StopHandle>,
    pub(super) status: Arc<SessionStatus>,
    pub(super) arrivals: Sender<Arrival>,
}

/// The result of offering a connection with an iperf3 cookie.
pub(super) enum Admission {
    /// It was passed to its session.
    Done,
    /// Its cookie is unknown: it may open a session.
    New(sys::net::TcpSocket),
    /// It is not expected.
    Refused(sys::net::TcpSocket),
}

#[derive(Default)]
pub(super) struct Registry {
    sessions: Mutex<BTreeMap<Cookie, Entry>>,
    reports: Mutex<VecDeque<TestReport>>,
}

impl Registry {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Cookie, Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reports(&self) -> MutexGuard<'_, VecDeque<TestReport>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.sessions().len()
    }

    pub(super) fn enter(&self, cookie: Cookie, entry: Entry) {
        self.sessions().insert(cookie, entry);
    }

    pub(super) fn leave(&self, cookie: Cookie, report: Option<TestReport>) {
        self.sessions().remove(&cookie);
        let Some(report) = report else { return };
        let mut reports = self.reports();
        if reports.len() >= REPORTS_MAX {
            reports.pop_front();
        }
        reports.push_back(report);
    }

    /// Passes a connection to the session that expects it.
    pub(super) fn admit(&self, cookie: Cookie, socket: sys::net::TcpSocket, sequence: u64) -> Admission {
        let sessions = self.sessions();
        let Some(entry) = sessions.get(&cookie) else { return Admission::New(socket) };
        if !entry.status.take_place() {
            return Admission::Refused(socket);
        }
        // If the session has just ended, the connection is closed with the channel.
        let _ = entry.arrivals.send(Arrival::Tcp { socket, sequence });
        entry.stop_handle.wake();
        Admission::Done
    }

    /// Calls `make` with a session, if it still runs.
    pub(super) fn with<T>(&self, cookie: Cookie, make: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.sessions().get(&cookie).map(make)
    }

    pub(super) fn stop_all(&self) {
        self.sessions().values().for_each(|entry| entry.stop_handle.stop());
    }

    pub(super) fn view(&self) -> Vec<SessionView> {
        let view = |(cookie, entry): (&Cookie, &Entry)| SessionView {
            cookie: *cookie,
            peer: entry.peer,
            title: entry.status.parameters().and_then(|parameters| parameters.title),
            started_ns: entry.status.started_ns(),
            streams: entry.status.counts(),
        };
        self.sessions().iter().map(view).collect()
    }

    pub(super) fn take_reports(&self) -> Vec<TestReport> {
        self.reports().drain(..).collect()
    }
}
