//! The sessions that run, by their cookies.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::transfer::control::{Bell, Cookie};
use crate::transfer::flow::{FlowCount, Side};
use crate::transfer::iperf3::{Arrival, Live, TestReport};

/// Reports kept for whoever asks; older ones are dropped.
const REPORTS_MAX: usize = 1024;

/// A session as others see it.
#[derive(Debug, Clone)]
pub struct SessionView {
    /// The cookie that names it.
    pub cookie: Cookie,
    /// Its client's control connection.
    pub peer: SocketAddr,
    /// What the client calls it.
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
    pub(super) bell: Arc<Bell>,
    pub(super) live: Arc<Live>,
    pub(super) arrivals: Sender<Arrival>,
}

/// What is done with a connection whose cookie is an iperf3 client's.
pub(super) enum Admission {
    /// It was handed to its session, or refused.
    Done,
    /// Nobody knows its cookie: it may open a session.
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

    /// Hands a connection to the session that waits for it.
    pub(super) fn admit(&self, cookie: Cookie, socket: sys::net::TcpSocket, sequence: u64) -> Admission {
        let sessions = self.sessions();
        let Some(entry) = sessions.get(&cookie) else { return Admission::New(socket) };
        if !entry.live.take_place() {
            return Admission::Refused(socket);
        }
        // If the session has just ended, the connection ends with the channel.
        let _ = entry.arrivals.send(Arrival::Tcp { socket, sequence });
        entry.bell.ring();
        Admission::Done
    }

    /// Makes something of a session, if it still runs.
    pub(super) fn with<T>(&self, cookie: Cookie, make: impl FnOnce(&Entry) -> T) -> Option<T> {
        self.sessions().get(&cookie).map(make)
    }

    pub(super) fn stop_all(&self) {
        self.sessions().values().for_each(|entry| entry.bell.stop());
    }

    pub(super) fn view(&self) -> Vec<SessionView> {
        let view = |(cookie, entry): (&Cookie, &Entry)| SessionView {
            cookie: *cookie,
            peer: entry.peer,
            title: entry.live.parameters().and_then(|parameters| parameters.title),
            started_ns: entry.live.started_ns(),
            streams: entry.live.counts(),
        };
        self.sessions().iter().map(view).collect()
    }

    pub(super) fn take_reports(&self) -> Vec<TestReport> {
        self.reports().drain(..).collect()
    }
}
