//! A responder: sends an answer to each complete request.

use sys::net::Moved;

use super::exchange::{Progress, Sizes, ThreadBuffers, receive, send};
use super::request_spec::RequestEnd;
use crate::driver::{BLOCK_BYTES, EndReason, FlowSocket, SilenceLimit, Step, block, broken};

#[derive(Debug)]
pub(super) struct Responder {
    sizes: Sizes,
    end: RequestEnd,
    /// Complete requests.
    requests: u64,
    /// Received bytes of the current request; connections only.
    partly: usize,
    /// Bytes left to send. While there are any, nothing is received, which bounds the waiting answers.
    owed_bytes: u64,
    /// The number of the request to answer; UDP only.
    number: u64,
    moved_ns: u64,
    pub(super) progress: Progress,
}

impl Responder {
    pub(super) fn new(sizes: Sizes, end: RequestEnd, progress: Progress) -> Self {
        let moved_ns = progress.now_ns;
        Self { sizes, end, requests: 0, partly: 0, owed_bytes: 0, number: 0, moved_ns, progress }
    }

    pub(super) fn send(&mut self, socket: &FlowSocket, buffers: &mut ThreadBuffers) -> Step {
        if self.owed_bytes == 0 {
            return if self.is_done() { Step::Over(EndReason::Done) } else { Step::Blocked };
        }
        let bytes = match socket {
            // No more than a block, so that it fits.
            FlowSocket::Tcp(_) => &block()[..self.owed_bytes.min(BLOCK_BYTES as u64) as usize],
            FlowSocket::Udp(_) => {
                self.sizes.write_number(&mut buffers.datagram, self.number);
                &buffers.datagram[..self.sizes.answer]
            }
        };
        match send(socket, bytes, buffers.spins) {
            Ok(Moved::Bytes(bytes)) => {
                self.owed_bytes -= bytes as u64;
                self.moved_ns = self.progress.now_ns;
                Step::Moved
            }
            Ok(Moved::WouldBlock | Moved::End) => Step::Blocked,
            Err(error) => Step::Over(self.end_reason(socket, &error)),
        }
    }

    pub(super) fn receive(&mut self, socket: &FlowSocket, buffers: &mut ThreadBuffers) -> Step {
        let bytes = match receive(socket, &mut buffers.receive, buffers.spins) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return Step::Blocked,
            Ok(Moved::End) if self.partly == 0 => return Step::Over(EndReason::ByPeer),
            Ok(Moved::End) => {
                let why = format!("the peer closed the connection {} bytes into a request", self.partly);
                return Step::Over(EndReason::Failed(why));
            }
            Err(error) => return Step::Over(self.end_reason(socket, &error)),
        };
        self.moved_ns = self.progress.read_clock();
        let whole = match socket {
            FlowSocket::Tcp(_) => {
                self.progress.add_bytes(bytes);
                self.partly += bytes;
                let whole = self.partly / self.sizes.request;
                self.partly %= self.sizes.request;
                whole as u64
            }
            FlowSocket::Udp(_) => {
                // A datagram that is too short for its number is no request.
                let Some(number) = self.sizes.read_number(&buffers.receive[..bytes]) else {
                    return Step::Moved;
                };
                self.progress.add_datagram(bytes);
                self.number = number;
                1
            }
        };
        self.requests += whole;
        self.owed_bytes = whole * self.sizes.answer as u64;
        Step::Moved
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

    pub(super) fn check(&mut self, silence: SilenceLimit) -> Step {
        let now_ns = self.progress.read_clock();
        match self.end {
            RequestEnd::AtNs(end_ns) if now_ns >= end_ns => Step::Over(EndReason::Done),
            _ => silence.check(self.moved_ns, now_ns),
        }
    }

    /// A UDP socket shows a closed peer by this error only.
    fn end_reason(&self, socket: &FlowSocket, error: &sys::net::NetError) -> EndReason {
        let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
        match socket {
            FlowSocket::Udp(_) if is_refused => EndReason::ByPeer,
            _ => broken(error, self.progress.count.bytes),
        }
    }
}
