//! One stream's connection: request, read head and body, request again at the content's end. Never blocks.

use std::net::SocketAddr;

use sys::net::{Moved, NetError, TcpSocket};
use sys::span::{SpanName, time};

use super::sink::Sink;
use crate::content::Content;
use crate::http::url::Url;
use crate::http::{self, HeadReader, HttpError};

static SEND: SpanName = SpanName::new("send");
static RECV: SpanName = SpanName::new("recv");
static RECV_TRUNCATED: SpanName = SpanName::new("recv (MSG_TRUNC)");

/// A head is read in small pieces: body bytes that come with it are copied, whatever the depth.
const HEAD_PIECE_BYTES: usize = 4096;

/// Where all streams of a group read from.
#[derive(Debug)]
pub struct ContentSource {
    pub url: Url,
    pub address: SocketAddr,
    /// `SO_RCVBUF`.
    pub receive_buffer_bytes: u64,
}

/// Why a stream broke.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("{0}")]
    Net(#[from] NetError),
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("the server closed the connection without a response")]
    NoResponse,
    #[error("the connection broke {missing_bytes} bytes before the content's end: {source}")]
    Broken { missing_bytes: u64, source: std::io::Error },
    #[error("the server ended {missing_bytes} bytes before the content's end")]
    Truncated { missing_bytes: u64 },
}

#[derive(Debug)]
enum Phase {
    Idle,
    Unconnected,
    Connecting,
    Requesting { sent_bytes: usize },
    Head,
    Body,
}

#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    socket: Option<TcpSocket>,
    request: Vec<u8>,
    reader: HeadReader,
    from_bytes: u64,
    /// Bytes of its body still to come.
    left_bytes: u64,
    keep_alive: bool,
    /// This connection has carried a response before.
    is_reused: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadProgress {
    pub bytes: u64,
    /// The head of the response has been read.
    pub is_open: bool,
}

impl Connection {
    pub fn new(from_bytes: u64) -> Self {
        Self {
            phase: Phase::Idle,
            socket: None,
            request: Vec::new(),
            reader: HeadReader::default(),
            from_bytes,
            left_bytes: 0,
            keep_alive: false,
            is_reused: false,
        }
    }

    /// Whether the next connection is to be made now.
    #[inline]
    pub fn needs_connection(&self) -> bool {
        matches!(self.phase, Phase::Unconnected)
    }

    pub fn connecting(&mut self) {
        self.phase = Phase::Connecting;
        self.socket = None;
    }

    pub fn connected(&mut self, source: &ContentSource, socket: TcpSocket) {
        self.socket = Some(socket);
        self.is_reused = false;
        self.begin_request(source);
    }

    fn begin_request(&mut self, source: &ContentSource) {
        self.request = http::get(&source.url, self.from_bytes, None);
        self.phase = Phase::Requesting { sent_bytes: 0 };
    }

    pub fn socket(&self) -> Option<&TcpSocket> {
        self.socket.as_ref()
    }

    /// Whether a body is being received.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Body)
    }

    /// What the connection waits for, for the message about a stream that never began.
    pub fn waiting_for(&self) -> &'static str {
        match self.phase {
            Phase::Idle => "its start",
            Phase::Unconnected | Phase::Connecting => "the connection",
            Phase::Requesting { .. } | Phase::Head => "a response",
            Phase::Body => "content",
        }
    }

    /// Do what is possible without blocking, reading at most `wanted_bytes` of content. `buffer` is scratch
    /// space.
    /// Errors: [`ConnectionError`]; the stream has ended.
    #[inline]
    pub fn advance(
        &mut self,
        source: &ContentSource,
        content: &Content,
        sink: &mut Sink,
        buffer: &mut [u8],
        wanted_bytes: u64,
    ) -> Result<ReadProgress, ConnectionError> {
        let mut read = ReadProgress::default();
        if !self.is_open() {
            read.bytes = match self.open(content, sink, buffer) {
                // A server may close a kept connection at any moment: connect again (RFC 9112, 9.3.1).
                Err(ConnectionError::NoResponse | ConnectionError::Net(_))
                    if self.is_reused && self.reader.is_empty() =>
                {
                    self.phase = Phase::Unconnected;
                    0
                }
                other => other?,
            };
            if !self.is_open() {
                return Ok(read);
            }
        }
        read.is_open = true;
        read.bytes += self.read_body(sink, content, buffer, wanted_bytes.saturating_sub(read.bytes))?;
        if self.left_bytes == 0 {
            self.request_next_lap(source, content, sink);
        }
        Ok(read)
    }

    /// Everything before the body. Returns the bytes of the body that came with the head.
    fn open(
        &mut self,
        content: &Content,
        sink: &mut Sink,
        buffer: &mut [u8],
    ) -> Result<u64, ConnectionError> {
        let Some(socket) = &self.socket else { return Ok(0) };
        if let Phase::Requesting { sent_bytes } = &mut self.phase {
            while *sent_bytes < self.request.len() {
                match time(&SEND, || socket.send(&self.request[*sent_bytes..], false))? {
                    Moved::Bytes(n) => *sent_bytes += n,
                    Moved::WouldBlock | Moved::End => return Ok(0),
                }
            }
            self.phase = Phase::Head;
        }
        self.read_head(content, sink, buffer)
    }

    fn read_head(
        &mut self,
        content: &Content,
        sink: &mut Sink,
        buffer: &mut [u8],
    ) -> Result<u64, ConnectionError> {
        let Some(socket) = self.socket.as_ref().filter(|_| matches!(self.phase, Phase::Head)) else {
            return Ok(0);
        };
        let room = buffer.len().min(HEAD_PIECE_BYTES);
        loop {
            let n = match time(&RECV, || socket.recv(&mut buffer[..room]))? {
                Moved::Bytes(n) => n,
                Moved::WouldBlock => return Ok(0),
                Moved::End => return Err(ConnectionError::NoResponse),
            };
            let Some((head, used)) = self.reader.feed(&buffer[..n])? else { continue };
            let body_bytes = head.body_from(self.from_bytes, content.timeline.total_bytes())?;
            let ahead = (n - used).min(usize::try_from(body_bytes).unwrap_or(usize::MAX));
            sink.feed(content, &buffer[used..used + ahead]);
            self.left_bytes = body_bytes - ahead as u64;
            self.keep_alive = head.keep_alive;
            self.phase = Phase::Body;
            return Ok(ahead as u64);
        }
    }

    #[inline]
    fn read_body(
        &mut self,
        sink: &mut Sink,
        content: &Content,
        buffer: &mut [u8],
        wanted_bytes: u64,
    ) -> Result<u64, ConnectionError> {
        let Some(socket) = &self.socket else { return Ok(0) };
        let mut got = 0;
        while got < wanted_bytes && self.left_bytes > 0 {
            let room = usize::try_from((wanted_bytes - got).min(self.left_bytes)).unwrap_or(usize::MAX);
            let (asked, moved) = if sink.discards() {
                (room, time(&RECV_TRUNCATED, || socket.recv_discard(room)))
            } else {
                let room = room.min(buffer.len());
                (room, time(&RECV, || socket.recv(&mut buffer[..room])))
            };
            let missing_bytes = self.left_bytes;
            match moved.map_err(|error| ConnectionError::Broken { missing_bytes, source: error.source })? {
                Moved::Bytes(n) => {
                    if !sink.discards() {
                        sink.feed(content, &buffer[..n]);
                    }
                    got += n as u64;
                    self.left_bytes -= n as u64;
                    if n < asked {
                        // The queue is empty; another call would only return EAGAIN.
                        break;
                    }
                }
                Moved::WouldBlock => break,
                Moved::End => return Err(ConnectionError::Truncated { missing_bytes }),
            }
        }
        Ok(got)
    }

    /// At the content's end: request it from its beginning, on the same connection if the server keeps it.
    fn request_next_lap(&mut self, source: &ContentSource, content: &Content, sink: &mut Sink) {
        sink.wrap();
        self.from_bytes = content.timeline.base_bytes();
        if self.keep_alive {
            self.is_reused = true;
            self.begin_request(source);
        } else {
            self.phase = Phase::Unconnected;
        }
    }
}
