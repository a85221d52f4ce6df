//! HTTP/2 on a connection, by the library `h2` (RFC 9113): one request at a time.
//!
//! The library is asynchronous, and the event loop is not: whenever the socket is ready, the loop polls the
//! library by hand, until it neither moves nor asks to be polled again.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use sys::clock::monotonic_ns;
use sys::net::{Moved, TcpSocket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::transport::{Transport, TransportError};
use crate::payload::{BLOCK_BYTES, Body};

/// Window of a response and of the connection: a reply of any usual size needs no waiting for updates.
const WINDOW_BYTES: u32 = 16 << 20;
/// Largest piece of a body that is handed over at once.
const PIECE_BYTES: usize = BLOCK_BYTES;
/// Polls of a connection before others have their turn.
const POLLS_MAX: usize = 64;

/// What the polls of a connection and its transport say to each other.
#[derive(Debug, Default)]
struct Signals {
    /// The library wants to be polled again.
    is_woken: AtomicBool,
    /// The kernel took no more.
    is_blocked: AtomicBool,
    has_moved: AtomicBool,
    has_received: AtomicBool,
}

impl Wake for Signals {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Relaxed);
    }
}

/// The transport as the library uses it.
#[derive(Debug)]
struct Io {
    transport: Transport,
    signals: Arc<Signals>,
}

fn io_error(error: TransportError) -> std::io::Error {
    match error {
        TransportError::Net(error) => error.source,
        TransportError::Io(error) => error,
        error @ TransportError::Tls(_) => std::io::Error::other(error),
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let own = self.get_mut();
        match own.transport.recv(buffer.initialize_unfilled()).map_err(io_error)? {
            Moved::Bytes(bytes) => {
                buffer.advance(bytes);
                own.signals.has_moved.store(true, Ordering::Relaxed);
                own.signals.has_received.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            Moved::End => Poll::Ready(Ok(())),
            Moved::WouldBlock => Poll::Pending,
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let own = self.get_mut();
        match own.transport.send(bytes, false).map_err(io_error)? {
            Moved::Bytes(bytes) => {
                own.signals.has_moved.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(bytes))
            }
            Moved::WouldBlock | Moved::End => {
                own.signals.is_blocked.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let own = self.get_mut();
        match own.transport.flush().map_err(io_error)? {
            true => Poll::Ready(Ok(())),
            false => {
                own.signals.is_blocked.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request under way.
struct Stream {
    send: SendStream<Bytes>,
    body: Body,
    sent: u64,
    /// Whether the library has all of the request.
    is_handed_over: bool,
    is_written: bool,
    response: Option<ResponseFuture>,
    receive: Option<RecvStream>,
    status: u16,
}

/// What a poll brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Driven {
    /// Bytes moved in either direction.
    pub(crate) has_moved: bool,
    /// When the kernel had the last byte of the request, if that has just become so.
    pub(crate) written_ns: Option<u64>,
    /// The status of a response that is complete.
    pub(crate) status: Option<u16>,
    /// The server takes no more requests on this connection.
    pub(crate) is_closed: bool,
}

/// A connection of HTTP/2.
pub(crate) struct Http2 {
    connection: Connection<Io, Bytes>,
    requests: SendRequest<Bytes>,
    stream: Option<Stream>,
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
    /// Begins HTTP/2 on a connection: the preface is sent.
    pub(crate) fn begin(transport: Transport) -> Result<Self, String> {
        let (signals, socket) = (Arc::<Signals>::default(), transport.socket().clone());
        let waker = Waker::from(signals.clone());
        let io = Io { transport, signals: signals.clone() };
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .enable_push(false);
        let handshake = pin!(builder.handshake::<_, Bytes>(io));
        // It only sends 24 bytes; the send buffer of a new connection is empty.
        match handshake.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok((requests, connection))) => {
                Ok(Self { connection, requests, stream: None, socket, signals, waker })
            }
            Poll::Ready(Err(error)) => Err(words(&error)),
            Poll::Pending => Err("HTTP/2: a new connection took no bytes".to_owned()),
        }
    }

    pub(crate) const fn socket(&self) -> &Arc<TcpSocket> {
        &self.socket
    }

    /// Whether the server has begun to speak HTTP/2: its first frame was a valid one.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.signals.has_received.load(Ordering::Relaxed)
    }

    /// Begins a request. None may be under way.
    pub(crate) fn send(&mut self, request: http::Request<()>, body: Option<Body>) -> Result<(), String> {
        let is_whole = body.as_ref().is_none_or(|body| body.bytes() == 0);
        match self.requests.poll_ready(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(words(&error)),
            Poll::Pending => return Err("HTTP/2: the server allows no request".to_owned()),
        }
        let (response, send) =
            self.requests.send_request(request, is_whole).map_err(|error| words(&error))?;
        self.stream = Some(Stream {
            send,
            body: body.unwrap_or(Body::Payload(0)),
            sent: 0,
            is_handed_over: is_whole,
            is_written: false,
            response: Some(response),
            receive: None,
            status: 0,
        });
        Ok(())
    }

    /// Sends and receives what can be now.
    pub(crate) fn drive(&mut self) -> Result<Driven, String> {
        let mut driven = Driven::default();
        let mut cx = Context::from_waker(&self.waker);
        for _ in 0..POLLS_MAX {
            self.signals.is_woken.store(false, Ordering::Relaxed);
            self.signals.is_blocked.store(false, Ordering::Relaxed);
            let mut end = None;
            match Pin::new(&mut self.connection).poll(&mut cx) {
                Poll::Pending => {}
                Poll::Ready(ended) => {
                    driven.is_closed = true;
                    end = ended.err();
                }
            }
            let is_blocked = self.signals.is_blocked.load(Ordering::Relaxed);
            let mut has_advanced = false;
            if let Some(stream) = &mut self.stream {
                // Only what the windows allow is handed over, so that nothing of it can be held back.
                if stream.is_handed_over && !is_blocked && !stream.is_written {
                    stream.is_written = true;
                    driven.written_ns = Some(monotonic_ns());
                }
                has_advanced = stream.hand_over(&mut cx).map_err(|error| words(&error))?;
                if stream.receive(&mut cx).map_err(|error| words(&error))? {
                    driven.status = Some(stream.status);
                    self.stream = None;
                }
            }
            if let Some(error) = end.filter(|_| driven.status.is_none()) {
                return Err(words(&error));
            }
            let is_woken = self.signals.is_woken.load(Ordering::Relaxed);
            if driven.status.is_some() || driven.is_closed || !(has_advanced || is_woken) {
                break;
            }
        }
        driven.has_moved = self.signals.has_moved.swap(false, Ordering::Relaxed);
        Ok(driven)
    }

    /// Whether the server announced that this connection ends; to be asked after a response.
    pub(crate) fn is_ending(&mut self) -> bool {
        matches!(self.drive(), Ok(Driven { is_closed: true, .. }) | Err(_))
    }
}

impl Stream {
    /// Hands as much of the body to the library as the windows allow; whether it took any.
    fn hand_over(&mut self, cx: &mut Context<'_>) -> Result<bool, h2::Error> {
        let mut has_advanced = false;
        while !self.is_handed_over {
            let left = self.body.bytes() - self.sent;
            self.send.reserve_capacity(usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES));
            let allowed = match self.send.poll_capacity(cx) {
                Poll::Ready(Some(allowed)) => allowed?,
                // A server may reply without reading the body.
                Poll::Ready(None) => return Ok(has_advanced),
                Poll::Pending => self.send.capacity(),
            };
            if allowed == 0 {
                break;
            }
            let piece = self.body.piece(self.sent, allowed.min(PIECE_BYTES));
            self.sent += piece.len() as u64;
            self.is_handed_over = self.sent == self.body.bytes();
            self.send.send_data(piece, self.is_handed_over)?;
            has_advanced = true;
        }
        Ok(has_advanced)
    }

    /// Receives of the response what has come; whether it is complete.
    fn receive(&mut self, cx: &mut Context<'_>) -> Result<bool, h2::Error> {
        if let Some(response) = &mut self.response {
            let Poll::Ready(response) = Pin::new(response).poll(cx) else { return Ok(false) };
            let (head, body) = response?.into_parts();
            (self.status, self.receive, self.response) = (head.status.as_u16(), Some(body), None);
        }
        let Some(receive) = &mut self.receive else { return Ok(false) };
        while let Poll::Ready(data) = receive.poll_data(cx) {
            let Some(data) = data else {
                // Trailers end a response that has them.
                let Poll::Ready(trailers) = receive.poll_trailers(cx) else { return Ok(false) };
                return trailers.map(|_| true);
            };
            let bytes = data?.len();
            receive.flow_control().release_capacity(bytes)?;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn body_is_cut_into_pieces_without_a_rest() {
        let file = Body::File(Bytes::from(vec![7; 1000]));
        assert_eq!((file.piece(0, 600).len(), file.piece(600, 600).len()), (600, 400));
        let payload = Body::Payload(PIECE_BYTES as u64 + 10);
        assert_eq!(payload.piece(0, usize::MAX).len(), PIECE_BYTES);
        assert_eq!(payload.piece(PIECE_BYTES as u64, PIECE_BYTES).len(), 10);
        assert_eq!(io_error(TransportError::Io(ErrorKind::BrokenPipe.into())).kind(), ErrorKind::BrokenPipe);
    }
}
