//! The way of a group of sources to one builder.

use std::collections::VecDeque;
use std::net::SocketAddr;

use sys::net::MulticastReceiver;

use super::connection::{Connection, State};
use super::events::Events;

/// How long a builder may take to end the connections after it has said that the run is over.
const GRACE_NS: u64 = 500_000_000;

/// Sources of a group that send their fragments of an event one after another, each so much later than the one before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wave {
    pub(super) event: u64,
    pub(super) received_ns: u64,
    pub(super) flags: u16,
    /// The next source's place in the group, and where to end.
    pub(super) next: usize,
    pub(super) end: usize,
}

/// The way to one builder.
#[derive(Debug)]
pub(super) struct Lane {
    /// Its place among the lanes, which is the builder's number.
    pub(super) index: usize,
    pub(super) address: SocketAddr,
    pub(super) ear: Option<MulticastReceiver>,
    pub(super) events: Events,
    pub(super) waves: VecDeque<Wave>,
    /// Waves that were just heard of, and wait for further orders to be read: to be sent together.
    pub(super) together: Vec<Wave>,
    /// By the source's place in the group.
    pub(super) connections: Vec<Connection>,
    /// How many of them ended for good.
    pub(super) ended: usize,
    /// Whether the builder said that the run is over.
    pub(super) is_stopped: bool,
    /// When it is over whatever is still open; `u64::MAX` before it was stopped.
    pub(super) over_ns: u64,
    /// When the last fragment was sent.
    pub(super) last_sent_ns: u64,
    /// Its event.
    pub(super) last_event: u64,
    /// Which that was when it was asked the last but one time whether connections are to be looked at, and the last time.
    pub(super) asked_events: [u64; 2],
}

impl Lane {
    /// The builder's number.
    pub(super) fn builder(&self) -> u16 {
        self.index as u16
    }

    /// Whether nothing more is to be done for this builder.
    pub(super) fn is_over(&self) -> bool {
        self.ended == self.connections.len()
    }

    /// Ends what is still open when the builder has had its moment to do so.
    pub(super) fn end_in_time(&mut self, now_ns: u64) {
        if self.over_ns <= now_ns {
            (0..self.connections.len()).for_each(|place| self.end(place));
            self.over_ns = u64::MAX;
        }
    }

    /// The builder said that the run is over: nothing more is sent, and it has a moment to end the connections itself.
    pub(super) fn hush(&mut self, now_ns: u64) {
        if self.is_stopped {
            return;
        }
        (self.is_stopped, self.over_ns) = (true, now_ns.saturating_add(GRACE_NS));
        self.waves.clear();
        self.together.clear();
        for connection in &mut self.connections {
            connection.pending.clear();
        }
    }

    /// Ends a connection on which nothing more will come.
    pub(super) fn end(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if connection.state == State::Ended {
            return;
        }
        self.ended += 1;
        if let Some(socket) = connection.end() {
            // Nothing is under way any more; without this each port would be kept for a minute, and the next trials find
            // none.
            let _ = socket.reset_on_close();
        }
    }
}
