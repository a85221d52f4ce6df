//! The running sessions of kagiri's own clients, and the results of those that ended.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sys::net::{TcpSocket, UdpFlow};

use super::message::SessionOrder;
use super::session_id::SessionId;
use crate::control::StopHandle;
use crate::report::DirectionReport;

/// Results of sessions to keep; older ones are dropped.
const ENDS_MAX: usize = 1024;

/// How the sessions of kagiri's own clients are conducted.
#[derive(Debug, Clone)]
pub struct NativeSettings {
    /// What an order must carry; every client is served without.
    pub key: Option<String>,
    /// Sessions at once; further clients are refused.
    pub sessions_max: usize,
    /// Flows of one session, both ways together.
    pub flows_max: u32,
    /// How long each step of a session's preparation may take.
    pub step: Duration,
    /// How long a client may take from its flows' opening to its start: the others of its run get ready
    /// meanwhile.
    pub start_within: Duration,
}

impl Default for NativeSettings {
    fn default() -> Self {
        Self {
            key: None,
            sessions_max: 256,
            flows_max: 60_000,
            step: Duration::from_secs(10),
            start_within: Duration::from_secs(600),
        }
    }
}

/// The result of a session at the server.
#[derive(Debug)]
pub struct SessionEnd {
    pub peer: SocketAddr,
    /// What it asked for; absent where it did not come to that.
    pub order: Option<SessionOrder>,
    /// This end of its flows, by direction.
    pub directions: Vec<DirectionReport>,
    /// Why it broke off, where it did.
    pub problem: Option<String>,
}

/// A data connection that came for a session, by its flow's number.
pub(super) enum Arrival {
    Tcp(u32, TcpSocket),
    Udp(u32, UdpFlow),
}

pub(super) struct Entry {
    /// The client's address. Datagrams go only there, never to a third host.
    pub(super) peer: IpAddr,
    /// This end's address that the client connected to.
    pub(super) local: IpAddr,
    pub(super) stop_handle: Arc<StopHandle>,
    pub(super) arrivals: Sender<Arrival>,
    /// Flows that are still expected, by number.
    pub(super) expected: Vec<bool>,
}

impl Entry {
    /// Marks an expected flow as arrived.
    pub(super) fn take_place(&mut self, number: u32) -> bool {
        let place = self.expected.get_mut(number as usize);
        place.is_some_and(|expected| std::mem::replace(expected, false))
    }
}

#[derive(Default)]
pub(super) struct Sessions {
    entries: Mutex<BTreeMap<SessionId, Entry>>,
    ends: Mutex<VecDeque<SessionEnd>>,
    pub(super) open: AtomicUsize,
}

impl Sessions {
    pub(super) fn entries(&self) -> MutexGuard<'_, BTreeMap<SessionId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on flows of these numbers are expected.
    pub(super) fn expect(&self, name: SessionId, flows: u32) {
        if let Some(entry) = self.entries().get_mut(&name) {
            entry.expected = vec![true; flows as usize];
        }
    }

    pub(super) fn leave(&self, name: SessionId, end: Option<SessionEnd>) {
        self.entries().remove(&name);
        self.open.fetch_sub(1, Ordering::AcqRel);
        let Some(end) = end else { return };
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() >= ENDS_MAX {
            ends.pop_front();
        }
        ends.push_back(end);
    }

    pub(super) fn take_ends(&self) -> Vec<SessionEnd> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}
