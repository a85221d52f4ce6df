//! One connection: what it is doing, and one step of it at a time.

mod receive;
mod send;

use std::fs::File;
use std::net::SocketAddr;

use sys::net::TcpSocket;

use super::cost::Cost;
use super::deadlines::Kind;
use super::log::{Entry, LogSender};
use super::request::{self, Quoted, Refusal};
use super::site::Site;
use super::stats::{Counters, add};
use super::upload::Upload;

/// What a worker lends a connection for one step.
pub struct Bench<'a> {
    pub site: &'a Site,
    pub counters: &'a Counters,
    pub log: &'a LogSender,
    pub cost: &'a mut Cost,
    /// Receive buffer shared by all connections of the worker.
    pub scratch: &'a mut [u8],
    /// Time of this turn on the monotonic clock.
    pub now_ns: u64,
    /// `Date` of this second.
    pub date: &'a str,
    pub header_bytes_max: usize,
    pub headers_max: usize,
    pub upload_bytes_max: u64,
    /// Content sent to one connection before the next one has its turn.
    pub slice_bytes: usize,
}

/// What a connection needs after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An event of its socket.
    Wait,
    /// Another turn: it could go on at once.
    Again,
    /// To be closed.
    Close,
}

#[derive(Debug)]
enum Phase {
    /// Reading a request head.
    Head,
    /// Storing an upload.
    Upload(Box<Upload>),
    /// Sending an answer.
    Respond(Outgoing),
    /// The answer is out and the connection ends; reading until the peer has seen it.
    Linger(u64),
}

/// What is left of an answer's content, after the bytes in `out`.
#[derive(Debug)]
struct Outgoing {
    file: Option<File>,
    offset_bytes: u64,
    left_bytes: u64,
}

/// The request being served, for the log.
#[derive(Debug, Default)]
struct Serving {
    quoted: Quoted,
    status: u16,
    head_bytes: u64,
    sent_bytes: u64,
    keep_alive: bool,
    reason: Option<&'static str>,
}

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    socket: TcpSocket,
    peer: SocketAddr,
    phase: Phase,
    /// Received and not yet used; at most a request head long.
    received: Vec<u8>,
    /// How much of `received` holds no end of a head.
    searched: usize,
    /// To be sent before any file content.
    out: Vec<u8>,
    out_sent: usize,
    serving: Serving,
    /// When the current request's first byte came, or the connection.
    since_ns: u64,
    answered: u64,
    /// Whether the socket may have something to read (edge-triggered: only an event says so again).
    readable: bool,
    /// Whether the peer's end is among what can be read. No event will say so again, so a short read is then not the
    /// last one.
    peer_done: bool,
    /// Whether segments that are not full wait for the next slice.
    corked: bool,
    progress_ns: u64,
    deadline_stale: bool,
}

impl Connection {
    /// A new one, about to send its first request.
    pub fn new(socket: TcpSocket, peer: SocketAddr, now_ns: u64) -> Self {
        Self {
            socket,
            peer,
            phase: Phase::Head,
            received: Vec::new(),
            searched: 0,
            out: Vec::new(),
            out_sent: 0,
            serving: Serving::default(),
            since_ns: now_ns,
            answered: 0,
            readable: true,
            peer_done: false,
            corked: false,
            progress_ns: now_ns,
            deadline_stale: true,
        }
    }

    /// Its socket.
    pub fn socket(&self) -> &TcpSocket {
        &self.socket
    }

    /// The other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// An event said that there is something to read, and perhaps the peer's end behind it.
    pub fn set_readable(&mut self, peer_done: bool) {
        self.readable = true;
        self.peer_done |= peer_done;
    }

    /// When it last moved bytes of an answer or an upload.
    pub fn progress_ns(&self) -> u64 {
        self.progress_ns
    }

    /// The kind of deadline it needs now.
    pub fn deadline_kind(&self) -> Kind {
        match self.phase {
            Phase::Head if self.answered > 0 && self.received.is_empty() => Kind::Idle,
            Phase::Head => Kind::Head,
            Phase::Upload(_) | Phase::Respond(_) => Kind::Stall,
            Phase::Linger(_) => Kind::Linger,
        }
    }

    /// Whether the deadline starts anew even if its kind is the same. Answers once.
    pub fn take_deadline_stale(&mut self) -> bool {
        std::mem::take(&mut self.deadline_stale)
    }

    /// Goes on as far as one turn allows.
    pub fn step(&mut self, bench: &mut Bench<'_>) -> Next {
        match &mut self.phase {
            Phase::Head => self.step_head(bench),
            Phase::Upload(_) => self.step_upload(bench),
            Phase::Respond(_) => self.step_respond(bench),
            Phase::Linger(_) => self.step_linger(),
        }
    }

    /// Answers 408 because a deadline passed; the connection ends.
    pub fn refuse_late(&mut self, bench: &mut Bench<'_>, reason: &'static str) -> Next {
        let quoted = match self.phase {
            Phase::Head => Quoted { line: request::request_line(&self.received), ..Quoted::default() },
            _ => std::mem::take(&mut self.serving.quoted),
        };
        self.refuse(bench, Refusal { status: 408, reason, quoted })
    }

    /// The connection is being closed: count and log what was under way. `why` is the server's reason, and the status
    /// to log for a request that has no answer yet.
    pub fn on_close(&mut self, bench: &mut Bench<'_>, why: Option<(u16, &'static str)>) {
        match (&self.phase, why) {
            (Phase::Respond(_), _) => {
                self.serving.reason = why.map(|(_, reason)| reason).or(self.serving.reason);
                self.log_answer(bench);
            }
            (Phase::Upload(_), Some((status, reason))) => {
                self.serving.status = status;
                self.serving.reason = Some(reason);
                self.log_answer(bench);
            }
            _ => {}
        }
    }

    /// Logs a connection that ends without an answer; nothing to say if nothing was asked, unless it is the
    /// server that ends it.
    pub fn log_unfinished(&mut self, bench: &mut Bench<'_>, status: u16, reason: &'static str) {
        if status == 400 && self.received.is_empty() {
            return;
        }
        let line = request::request_line(&self.received);
        self.serving = Serving { quoted: Quoted { line, ..Quoted::default() }, status, ..Serving::default() };
        self.serving.reason = Some(reason);
        self.log_answer(bench);
    }

    fn log_answer(&mut self, bench: &mut Bench<'_>) {
        if let Phase::Respond(Outgoing { file: Some(_), .. }) = self.phase {
            let streams = &bench.counters.streams;
            add(streams, u64::MAX);
        }
        if !bench.log.is_wanted() {
            return;
        }
        let serving = &mut self.serving;
        let now_ns = sys::clock::monotonic_ns();
        bench.log.write(Entry {
            peer: self.peer.ip(),
            ended_realtime_ns: sys::clock::realtime_ns(),
            duration_ns: now_ns.saturating_sub(self.since_ns),
            quoted: std::mem::take(&mut serving.quoted),
            status: serving.status,
            content_bytes: serving.sent_bytes.saturating_sub(serving.head_bytes),
            sent_bytes: serving.sent_bytes,
            reason: serving.reason,
        });
    }
}
