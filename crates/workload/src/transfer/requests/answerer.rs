//! An answerer: for each request that has come whole, an answer.

use sys::net::Moved;

use super::super::flow::{BLOCK_BYTES, Ended, FlowSocket, Orders, Turn, block, failed};
use super::order::RequestEnd;
use super::talk::{Desk, Progress, Sizes, receive, send};

/// The answering side of a flow.
#[derive(Debug)]
pub(super) struct Answerer {
    sizes: Sizes,
    end: RequestEnd,
    /// Requests that have come whole.
    requests: u64,
    /// What has come of the request that is under way; of a connection.
    partly: usize,
    /// What is left to be sent. While anything is, nothing is received: what answers wait here is bounded.
    owed_bytes: u64,
    /// The number of the request that is to be answered; of UDP.
    number: u64,
    /// When it last moved.
    moved_ns: u64,
    pub(super) progress: Progress,
}

impl Answerer {
    pub(super) fn new(sizes: Sizes, end: RequestEnd, progress: Progress) -> Self {
        let moved_ns = progress.now_ns;
        Self { sizes, end, requests: 0, partly: 0, owed_bytes: 0, number: 0, moved_ns, progress }
    }

    pub(super) fn send(&mut self, socket: &FlowSocket, desk: &mut Desk) -> Turn {
        if self.owed_bytes == 0 {
            return if self.is_done() { Turn::Over(Ended::Done) } else { Turn::Blocked };
        }
        let bytes = match socket {
            // No more than a block, so that it fits.
            FlowSocket::Tcp(_) => &block()[..self.owed_bytes.min(BLOCK_BYTES as u64) as usize],
            FlowSocket::Udp(_) => {
                self.sizes.write_number(&mut desk.datagram, self.number);
                &desk.datagram[..self.sizes.answer]
            }
        };
        match send(socket, bytes, desk.spins) {
            Ok(Moved::Bytes(bytes)) => {
                self.owed_bytes -= bytes as u64;
                self.moved_ns = self.progress.now_ns;
                Turn::Moved
            }
            Ok(Moved::WouldBlock | Moved::End) => Turn::Blocked,
            Err(error) => Turn::Over(self.broken(socket, &error)),
        }
    }

    pub(super) fn receive(&mut self, socket: &FlowSocket, desk: &mut Desk) -> Turn {
        let bytes = match receive(socket, &mut desk.room, desk.spins) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return Turn::Blocked,
            Ok(Moved::End) if self.partly == 0 => return Turn::Over(Ended::ByPeer),
            Ok(Moved::End) => {
                let why = format!("the peer closed the connection {} bytes into a request", self.partly);
                return Turn::Over(Ended::Failed(why));
            }
            Err(error) => return Turn::Over(self.broken(socket, &error)),
        };
        self.moved_ns = self.progress.look();
        let whole = match socket {
            FlowSocket::Tcp(_) => {
                self.progress.came(bytes);
                self.partly += bytes;
                let whole = self.partly / self.sizes.request;
                self.partly %= self.sizes.request;
                whole as u64
            }
            FlowSocket::Udp(_) => {
                // One that is too short for its number is nobody's request.
                let Some(number) = self.sizes.read_number(&desk.room[..bytes]) else { return Turn::Moved };
                self.progress.datagram_came(bytes);
                self.number = number;
                1
            }
        };
        self.requests += whole;
        self.owed_bytes = whole * self.sizes.answer as u64;
        Turn::Moved
    }

    pub(super) fn awaits(&self) -> bool {
        self.owed_bytes == 0
    }

    fn is_done(&self) -> bool {
        match self.end {
            RequestEnd::AtNs(end_ns) => self.progress.now_ns >= end_ns,
            RequestEnd::Requests(requests) => self.requests >= requests,
            RequestEnd::Peer => false,
        }
    }

    pub(super) fn overdue(&mut self, orders: &Orders) -> Option<Ended> {
        let now_ns = self.progress.look();
        match self.end {
            RequestEnd::AtNs(end_ns) if now_ns >= end_ns => Some(Ended::Done),
            _ => orders.silence(self.moved_ns, now_ns),
        }
    }

    /// A UDP peer that is gone has no other way of saying so.
    fn broken(&self, socket: &FlowSocket, error: &sys::net::NetError) -> Ended {
        let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
        match socket {
            FlowSocket::Udp(_) if is_refused => Ended::ByPeer,
            _ => failed(error, self.progress.bytes()),
        }
    }
}
