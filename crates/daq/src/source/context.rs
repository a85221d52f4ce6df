//! What the modules of a [`worker`](super::worker) share.

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Backoff, Registry, Token};
use sys::clock::monotonic_ns;
use sys::net::{Arrivals, NetError};

use super::builder_link::BuilderLink;
use super::config::SourcesConfig;
use super::connection::State;
use super::counters::Counters;
use super::payload::Payload;
use super::tcp_info_sampler::TcpInfoSampler;
use crate::wire::{FragmentHeader, Kind};

/// Token classes. The index of a connection is its link's index times the worker's sources, plus its own.
pub(super) const CONNECTION: u8 = 1;
pub(super) const HANDSHAKE: u8 = 2;
pub(super) const UDP: Token = Token::single(3);
/// Receivers of multicast orders, which must not wait behind connections; the index is the link's.
pub(super) const MULTICAST: u8 = Token::URGENT;

/// Reconnections of one connection.
const RETRY: Backoff = Backoff { first: Duration::from_millis(100), factor: 4, retries_max: 3 };

/// The worker's state besides its links.
pub(super) struct WorkerContext {
    pub(super) config: Arc<SourcesConfig>,
    /// Group number in hellos.
    pub(super) number: u64,
    pub(super) first: u32,
    pub(super) sources: usize,
    pub(super) registry: Registry,
    pub(super) udp: Option<UdpSocket>,
    pub(super) udp_arrivals: Option<Arrivals>,
    /// 0: no UDP socket.
    pub(super) udp_port: u16,
    pub(super) udp_wants_room: bool,
    /// Link and index of sources that wait for the UDP socket.
    pub(super) udp_waiting: VecDeque<(usize, usize)>,
    pub(super) datagram: Vec<u8>,
    pub(super) payload: Payload,
    pub(super) counters: Counters,
    pub(super) sampler: TcpInfoSampler,
    /// Reconnections to schedule, with their due times.
    pub(super) retries: Vec<(Token, u64)>,
    pub(super) random: fastrand::Rng,
}

impl WorkerContext {
    /// A header of the source with this index, for the builder of `link`.
    pub(super) fn header(&self, kind: Kind, link: &BuilderLink, place: usize) -> FragmentHeader {
        let builder = link.builder();
        FragmentHeader::new(kind, self.config.run_of(builder), builder, self.first + place as u32)
    }

    pub(super) fn token(&self, link: &BuilderLink, place: usize) -> Token {
        Token::fixed(CONNECTION, (link.index * self.sources + place) as u32)
    }

    /// Handles the loss of an established connection. `error` is `None` if the builder closed it: then there
    /// is no reconnection, unless the hello was lost until the builder's deadline.
    pub(super) fn connection_lost(&mut self, link: &mut BuilderLink, place: usize, error: Option<NetError>) {
        match error {
            _ if link.is_stopped => link.end(place),
            Some(error) => self.schedule_retry(link, place, &error.source.to_string()),
            None if link.connections[place].is_hello_lost() => {
                self.schedule_retry(link, place, "the builder closed it before the hello arrived");
            }
            None => self.end_connection(link, place, "the builder closed it before the end of the run"),
        }
    }

    pub(super) fn schedule_retry(&mut self, link: &mut BuilderLink, place: usize, why: &str) {
        let connection = &mut link.connections[place];
        if connection.state == State::Ended {
            return;
        }
        connection.tries += 1;
        let Some(delay) = RETRY.delay(connection.tries) else {
            let why = format!("{why}; {} reconnections failed", RETRY.retries_max);
            return self.end_connection(link, place, &why);
        };
        connection.drop_socket();
        connection.state = State::Down;
        connection.lost_to = link.events.newest();
        connection.sent_again.clear();
        self.retries.push((self.token(link, place), monotonic_ns() + delay.as_nanos() as u64));
    }

    /// Ends a connection for good and counts the reason.
    pub(super) fn end_connection(&mut self, link: &mut BuilderLink, place: usize, why: &str) {
        let connection = &mut link.connections[place];
        if connection.state == State::Ended {
            return;
        }
        connection.end();
        link.ended += 1;
        let end_reasons = &mut self.counters.end_reasons;
        let kinds = end_reasons.len();
        match end_reasons.get_mut(why) {
            Some(number) => *number += 1,
            // Bounded, so that the report stays short.
            None if kinds < 8 => drop(end_reasons.insert(why.to_owned(), 1)),
            None => {}
        }
    }
}
