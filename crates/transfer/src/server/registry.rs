//! The running sessions of iperf3's clients by cookie.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use sys::net::TcpSocket;

use crate::control::{Cookie, Sessions, StopHandle};
use crate::flow::{FlowCount, Side};
use crate::iperf3::{Arrival, SessionStatus, TestReport};

#[derive(Debug, Clone)]
pub struct SessionView {
    pub cookie: Cookie,
    /// Its client's control connection.
    pub peer: SocketAddr,
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
    Done,
    /// Its cookie is unknown: it may open a session.
    New(TcpSocket),
    Refused(TcpSocket),
}

pub(super) type Registry = Sessions<Cookie, Entry, TestReport>;

impl Registry {
    /// Passes a connection to the session that expects it.
    pub(super) fn admit(&self, cookie: Cookie, socket: TcpSocket, sequence: u64) -> Admission {
        let sessions = self.entries();
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
        self.entries().get(&cookie).map(make)
    }

    pub(super) fn view(&self) -> Vec<SessionView> {
        let view = |(cookie, entry): (&Cookie, &Entry)| SessionView {
            cookie: *cookie,
            peer: entry.peer,
            title: entry.status.parameters().and_then(|parameters| parameters.title),
            started_ns: entry.status.started_ns(),
            streams: entry.status.counts(),
        };
        self.entries().iter().map(view).collect()
    }
}
