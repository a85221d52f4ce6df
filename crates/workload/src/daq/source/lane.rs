//! The way of a group of sources to one builder.

use std::collections::VecDeque;
use std::net::SocketAddr;

use sys::net::MulticastReceiver;

use super::connection::{Connection, State};
use super::events::Events;

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
    /// By the source's place in the group.
    pub(super) connections: Vec<Connection>,
    /// How many of them ended for good.
    pub(super) ended: usize,
    /// Whether the builder said that the run is over.
    pub(super) is_stopped: bool,
    /// When the last fragment was sent.
    pub(super) last_sent_ns: u64,
}

impl Lane {
    /// The builder's number.
    pub(super) fn builder(&self) -> u16 {
        self.index as u16
    }

    /// Whether nothing more will be heard from this builder.
    pub(super) fn is_over(&self) -> bool {
        self.is_stopped || self.ended == self.connections.len()
    }

    /// Ends all connections: the builder said that the run is over, and waits for nothing.
    pub(super) fn stop(&mut self) {
        if self.is_stopped {
            return;
        }
        self.is_stopped = true;
        self.waves.clear();
        for connection in self.connections.iter_mut().filter(|connection| connection.state != State::Ended) {
            self.ended += 1;
            if let Some(socket) = connection.end() {
                // Nothing is under way any more; without this each port would be kept for a minute, and the next
                // trials find none.
                let _ = socket.reset_on_close();
            }
        }
    }
}
