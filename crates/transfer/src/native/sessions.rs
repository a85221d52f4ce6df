//! The running sessions of kagiri's own clients, and the results of those that ended.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use sys::net::{TcpSocket, UdpFlow};

use super::message::SessionOrder;
use super::session_id::SessionId;
use crate::control::{self, StopHandle};
use crate::report::DirectionReport;

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
            start_within: Duration::from_secs(60),
        }
    }
}

#[derive(Debug)]
pub struct SessionEnd {
    pub peer: SocketAddr,
    /// What it asked for; absent where it did not come to that.
    pub order: Option<SessionOrder>,
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

pub(super) type Sessions = control::Sessions<SessionId, Entry, SessionEnd>;

impl Sessions {
    /// From now on flows of these numbers are expected.
    pub(super) fn expect(&self, name: SessionId, flows: u32) {
        if let Some(entry) = self.entries().get_mut(&name) {
            entry.expected = vec![true; flows as usize];
        }
    }
}
