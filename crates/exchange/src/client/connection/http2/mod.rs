//! HTTP/2 on a connection, by the library `h2` (RFC 9113): up to a number of requests at a time, each on its
//! stream.
//!
//! The library is asynchronous, and the event loop is not: whenever the socket is ready, the loop polls the
//! library by hand, until it neither moves nor asks to be polled again.

mod io;
mod stream;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use h2::client::{Connection, SendRequest};
use sys::clock::monotonic_ns;
use sys::net::{Event, TcpSocket};

use self::io::{Io, ReadySet, Signals, SlotWaker};
use self::stream::Stream;
use super::transport::Transport;
use crate::payload::Body;

pub(crate) use self::stream::Ending;

/// Window of a response and of the connection: a reply of any usual size needs no waiting for updates.
const WINDOW_BYTES: u32 = 16 << 20;
/// Streams until the server has said how many it allows: it should allow as many (RFC 9113, 6.5.2).
const STREAMS_UNTOLD: usize = 100;
/// Polls of a connection before others have their turn.
const POLLS_MAX: usize = 64;

/// What became of a request, by the number of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The kernel has its last byte.
    Written { number: u64, at_ns: u64 },
    /// It is over, and so is its stream.
    Ended { number: u64, at_ns: u64, ending: Ending },
}

/// What a poll brought beside the events of streams.
#[derive(Debug, Default)]
pub(crate) struct Driven {
    /// Bytes moved in either direction, or more is to be done.
    pub(crate) has_moved: bool,
    /// Why the connection has ended, if it has.
    pub(crate) closed: Option<String>,
}

/// A place for a stream; the next one uses it again.
struct Slot {
    waker: Waker,
    stream: Option<Stream>,
}

/// A connection of HTTP/2.
pub(crate) struct Http2 {
    connection: Connection<Io, Bytes>,
    requests: SendRequest<Bytes>,
    slots: Vec<Slot>,
    /// Slots without a stream.
    free: Vec<usize>,
    ready: Arc<ReadySet>,
    /// Slots that are polled now.
    polled: Vec<usize>,
    /// Slots whose requests the library has whole, and the kernel perhaps not.
    unwritten: Vec<usize>,
    /// Most streams at a time, as wanted.
    streams: usize,
    /// Most streams at a time that the server allows.
    allowed: usize,
    /// Most streams that were in use at a time.
    in_use_max: usize,
    /// No more requests are sent on this connection.
    is_retiring: bool,
    received_ns: u64,
    socket: Arc<TcpSocket>,
    signals: Arc<Signals>,
    waker: Waker,
}

impl std::fmt::Debug for Http2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2").field("socket", &self.socket).finish_non_exhaustive()
    }
}

fn words(error: &h2::Error) -> String {
    let by_server = if error.is_remote() { "the server ended it" } else { "the exchange failed" };
    match (error.get_io(), error.reason()) {
        (Some(io), _) => io.to_string(),
        (None, Some(Reason::HTTP_1_1_REQUIRED)) => "HTTP/2: the server demands HTTP/1.1".to_owned(),
        (None, Some(reason)) => format!("HTTP/2: {by_server}: {reason:?} ({})", reason.description()),
        (None, None) => format!("HTTP/2: {error}"),
    }
}

impl Http2 {
    /// Begins HTTP/2 on a connection, for at most `streams` requests at a time: the preface is sent.
    pub(crate) fn begin(transport: Transport, streams: usize) -> Result<Self, String> {
        let (signals, socket) = (Arc::<Signals>::default(), transport.socket().clone());
        let waker = Waker::from(signals.clone());
        let io = Io { transport, signals: signals.clone() };
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_UNTOLD)
            .enable_push(false);
        let handshake = pin!(builder.handshake::<_, Bytes>(io));
        // It only sends 24 bytes; the send buffer of a new connection is empty.
        match handshake.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok((requests, connection))) => Ok(Self {
                allowed: connection.max_concurrent_send_streams(),
                connection,
                requests,
                slots: Vec::new(),
                free: Vec::new(),
                ready: Arc::new(ReadySet::new(streams)),
                polled: Vec::new(),
                unwritten: Vec::new(),
                streams,
                in_use_max: 0,
                is_retiring: false,
                received_ns: 0,
                socket,
                signals,
                waker,
            }),
            Poll::Ready(Err(error)) => Err(words(&error)),
            Poll::Pending => Err("HTTP/2: a new connection took no bytes".to_owned()),
        }
    }

    pub(crate) const fn socket(&self) -> &Arc<TcpSocket> {
        &self.socket
    }

    /// An event of the socket.
    pub(crate) fn after_event(&self, event: Event) {
        if event.is_readable() {
            self.signals.is_readable.store(true, Ordering::Relaxed);
        }
        if event.is_peer_done() {
            self.signals.is_peer_done.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the server has begun to speak HTTP/2: its first frame was a valid one.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.signals.has_received.load(Ordering::Relaxed) || self.received_ns > 0
    }

    pub(crate) const fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Most streams that were in use at a time, and how many the server allows; `None`: it has not said.
    pub(crate) fn streams(&self) -> (usize, Option<usize>) {
        (self.in_use_max, self.is_confirmed().then_some(self.allowed))
    }

    /// Whether a request can be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room_beside(0)
    }

    /// The same while so many streams that are not in use count as if they were.
    pub(crate) fn has_room_beside(&self, paused: usize) -> bool {
        !self.is_retiring && self.in_use() + paused < self.streams.min(self.allowed)
    }

    /// Sends no more requests; those under way continue.
    pub(crate) const fn retire(&mut self) {
        self.is_retiring = true;
    }

    /// Whether it is of no more use.
    pub(crate) const fn is_retired(&self) -> bool {
        self.is_retiring && self.in_use() == 0
    }

    pub(crate) const fn has_received_since(&self, at_ns: u64) -> bool {
        self.received_ns >= at_ns
    }

    /// Begins a request; `false`: it cannot be now.
    ///
    /// # Errors
    /// The library does not accept the request.
    pub(crate) fn send(
        &mut self,
        number: u64,
        request: http::Request<()>,
        body: Option<Body>,
    ) -> Result<bool, String> {
        if !self.has_room() {
            return Ok(false);
        }
        match self.requests.poll_ready(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(Ok(())) => {}
            // The server announced the end of the connection, or it broke, which the next poll will say.
            Poll::Ready(Err(_)) => {
                self.retire();
                return Ok(false);
            }
            Poll::Pending => return Ok(false),
        }
        let body = body.filter(|body| body.bytes() > 0);
        let sent = self.requests.send_request(request, body.is_none());
        let (response, send) = sent.map_err(|error| words(&error))?;
        let stream = Stream::new(number, send, body, response);
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.slots.len();
            let waker = Waker::from(Arc::new(SlotWaker { ready: self.ready.clone(), slot }));
            self.slots.push(Slot { waker, stream: None });
            slot
        });
        if stream.is_handed_over() {
            self.unwritten.push(slot);
        }
        self.slots[slot].stream = Some(stream);
        // Its first poll lets the library know whom to wake.
        self.ready.insert(slot);
        self.in_use_max = self.in_use_max.max(self.in_use());
        Ok(true)
    }

    /// Cancels a request (RST_STREAM); the next poll tells the server.
    pub(crate) fn cancel(&mut self, number: u64) {
        let is_it = |slot: &Slot| slot.stream.as_ref().is_some_and(|stream| stream.number == number);
        if let Some(slot) = self.slots.iter().position(is_it)
            && let Some(stream) = self.release(slot)
        {
            stream.cancel();
        }
    }

    /// Empties a slot.
    fn release(&mut self, slot: usize) -> Option<Stream> {
        let stream = self.slots[slot].stream.take()?;
        self.unwritten.retain(|one| *one != slot);
        self.free.push(slot);
        Some(stream)
    }

    /// Sends and receives what can be now; adds to `events` what became of requests.
    pub(crate) fn drive(&mut self, events: &mut Vec<StreamEvent>) -> Driven {
        let mut driven = Driven::default();
        let waker = self.waker.clone();
        let mut cx = Context::from_waker(&waker);
        let mut has_more = true;
        for _ in 0..POLLS_MAX {
            self.signals.is_woken.store(false, Ordering::Relaxed);
            self.signals.is_blocked.store(false, Ordering::Relaxed);
            match Pin::new(&mut self.connection).poll(&mut cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => driven.closed = Some("the server closed the connection".to_owned()),
                Poll::Ready(Err(error)) => driven.closed = Some(words(&error)),
            }
            let has_advanced = self.poll_streams(events);
            let is_woken = self.signals.is_woken.load(Ordering::Relaxed);
            has_more = driven.closed.is_none() && (has_advanced || is_woken || !self.ready.is_empty());
            if !has_more {
                break;
            }
        }
        self.allowed = self.connection.max_concurrent_send_streams();
        driven.has_moved = self.signals.has_moved.swap(false, Ordering::Relaxed) | has_more;
        driven
    }

    /// Lets the streams that were woken send and receive; whether any handed something over.
    fn poll_streams(&mut self, events: &mut Vec<StreamEvent>) -> bool {
        let mut known_ns = None;
        let mut now_ns = || *known_ns.get_or_insert_with(monotonic_ns);
        if self.signals.has_received.swap(false, Ordering::Relaxed) {
            self.received_ns = now_ns();
        }
        // Only what the windows allow is handed over, so that nothing of it can be held back.
        if !self.signals.is_blocked.load(Ordering::Relaxed) {
            for slot in self.unwritten.drain(..) {
                let number = self.slots[slot].stream.as_ref().map(|stream| stream.number);
                events.extend(number.map(|number| StreamEvent::Written { number, at_ns: now_ns() }));
            }
        }
        let mut has_advanced = false;
        let mut polled = std::mem::take(&mut self.polled);
        self.ready.take(&mut polled);
        for slot in polled.drain(..) {
            let Slot { waker, stream: Some(stream) } = &mut self.slots[slot] else { continue };
            let found = stream.poll(&mut Context::from_waker(waker));
            has_advanced |= found.has_advanced;
            if found.is_handed_over {
                self.unwritten.push(slot);
            }
            if let Some(ending) = found.ending {
                events.push(StreamEvent::Ended { number: stream.number, at_ns: now_ns(), ending });
                // A request that the server did not read to its end is reset by the library.
                self.release(slot);
            }
        }
        self.polled = polled;
        has_advanced
    }
}
