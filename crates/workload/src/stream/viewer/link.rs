//! One stream's connection: connect, ask, read the head, read the body, ask again at the content's end.
//!
//! Nothing here waits. A small state machine is driven by whoever has a reason to believe that it can go on.

use std::net::SocketAddr;

use sys::net::{ConnectState, Moved, NetError, SocketOptions, TcpSocket};
use sys::span::time;

use super::calls::{CONNECT, RECV, RECV_TRUNCATED, SEND};
use super::film::Film;
use super::http::{self, HeadReader, HttpError};
use super::sink::Sink;
use super::url::Url;

/// A head is read in pieces of this size: what of the body comes along has been copied, whatever the depth.
const HEAD_PIECE_BYTES: usize = 4096;

/// What all streams of a group share.
#[derive(Debug)]
pub struct Source {
    /// Where the content is.
    pub url: Url,
    /// The server's address.
    pub address: SocketAddr,
    /// `SO_RCVBUF`.
    pub receive_buffer_bytes: u64,
}

/// Why a stream broke.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The kernel said so.
    #[error("{0}")]
    Net(#[from] NetError),
    /// The server said something that a player cannot use.
    #[error("{0}")]
    Http(#[from] HttpError),
    /// The connection was closed before the head.
    #[error("the server closed the connection without an answer")]
    Silent,
    /// The connection broke before the body's end.
    #[error("the connection broke {missing_bytes} bytes before the content's end: {source}")]
    Broken {
        /// How much was still to come.
        missing_bytes: u64,
        /// The kernel's words.
        source: std::io::Error,
    },
    /// The connection was closed before the body's end.
    #[error("the server ended {missing_bytes} bytes before the content's end")]
    Early {
        /// How much was still to come.
        missing_bytes: u64,
    },
}

#[derive(Debug)]
enum Phase {
    Idle,
    Connecting,
    Asking { sent_bytes: usize },
    Head,
    Body,
}

/// The connection of one stream.
#[derive(Debug)]
pub struct Link {
    phase: Phase,
    socket: Option<TcpSocket>,
    request: Vec<u8>,
    reader: HeadReader,
    /// First byte of the request that is open.
    from_bytes: u64,
    /// Bytes of its body still to come.
    left_bytes: u64,
    keep_alive: bool,
    /// This connection has carried an answer before.
    reused: bool,
}

/// What reading achieved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Got {
    /// Bytes of content.
    pub bytes: u64,
    /// The head of the first answer has been read by now.
    pub opened: bool,
}

impl Link {
    /// A connection that is to ask for the content from `from_bytes` on.
    #[must_use]
    pub fn new(from_bytes: u64) -> Self {
        Self {
            phase: Phase::Idle,
            socket: None,
            request: Vec::new(),
            reader: HeadReader::default(),
            from_bytes,
            left_bytes: 0,
            keep_alive: false,
            reused: false,
        }
    }

    /// Begin to connect.
    ///
    /// # Errors
    /// [`LinkError::Net`].
    pub fn connect(&mut self, source: &Source) -> Result<(), LinkError> {
        // A full buffer of this size holds a fraction of a second; a buffer that grows by itself hides 10 s of film.
        let options = SocketOptions {
            receive_buffer_bytes: Some(source.receive_buffer_bytes),
            nodelay: Some(true),
            ..SocketOptions::default()
        };
        self.socket = Some(time(&CONNECT, || TcpSocket::connect_start(source.address, None, &options))?);
        self.phase = Phase::Connecting;
        self.reused = false;
        Ok(())
    }

    /// The socket, while there is one.
    #[must_use]
    pub fn socket(&self) -> Option<&TcpSocket> {
        self.socket.as_ref()
    }

    /// Whether the body flows.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Body)
    }

    /// How far the connection has come, for a message about a stream that never began.
    #[must_use]
    pub fn waiting_for(&self) -> &'static str {
        match self.phase {
            Phase::Idle => "its turn",
            Phase::Connecting => "the connection",
            Phase::Asking { .. } | Phase::Head => "an answer",
            Phase::Body => "content",
        }
    }

    /// Go on as far as possible, reading no more than `wanted_bytes` of content. `buffer` is scratch space.
    ///
    /// # Errors
    /// [`LinkError`]: this stream has ended.
    #[inline]
    pub fn go_on(
        &mut self,
        source: &Source,
        film: &Film,
        sink: &mut Sink,
        buffer: &mut [u8],
        wanted_bytes: u64,
    ) -> Result<Got, LinkError> {
        let mut got = Got::default();
        if !self.is_open() {
            got.bytes = match self.open(source, film, sink, buffer) {
                // A server may close a connection that it kept at any moment; then a new one is due (RFC 9112, 9.3.1).
                Err(LinkError::Silent | LinkError::Net(_)) if self.reused && self.reader.is_empty() => {
                    self.connect(source)?;
                    0
                }
                other => other?,
            };
            if !self.is_open() {
                return Ok(got);
            }
        }
        got.opened = true;
        got.bytes += self.read_body(sink, film, buffer, wanted_bytes.saturating_sub(got.bytes))?;
        if self.left_bytes == 0 {
            self.ask_again(source, film, sink)?;
        }
        Ok(got)
    }

    /// Everything before the body. Returns how much of the body came with the head.
    fn open(
        &mut self,
        source: &Source,
        film: &Film,
        sink: &mut Sink,
        buffer: &mut [u8],
    ) -> Result<u64, LinkError> {
        let Some(socket) = &self.socket else { return Ok(0) };
        if matches!(self.phase, Phase::Connecting) {
            if socket.connect_result()? == ConnectState::InProgress {
                return Ok(0);
            }
            self.request = http::get(&source.url, self.from_bytes, None);
            self.phase = Phase::Asking { sent_bytes: 0 };
        }
        if let Phase::Asking { sent_bytes } = &mut self.phase {
            while *sent_bytes < self.request.len() {
                match time(&SEND, || socket.send(&self.request[*sent_bytes..], false))? {
                    Moved::Bytes(n) => *sent_bytes += n,
                    Moved::WouldBlock | Moved::End => return Ok(0),
                }
            }
            self.phase = Phase::Head;
        }
        self.read_head(film, sink, buffer)
    }

    fn read_head(&mut self, film: &Film, sink: &mut Sink, buffer: &mut [u8]) -> Result<u64, LinkError> {
        let Some(socket) = self.socket.as_ref().filter(|_| matches!(self.phase, Phase::Head)) else {
            return Ok(0);
        };
        let room = buffer.len().min(HEAD_PIECE_BYTES);
        loop {
            let n = match time(&RECV, || socket.recv(&mut buffer[..room]))? {
                Moved::Bytes(n) => n,
                Moved::WouldBlock => return Ok(0),
                Moved::End => return Err(LinkError::Silent),
            };
            let Some((head, used)) = self.reader.feed(&buffer[..n])? else { continue };
            let body_bytes = head.body_from(self.from_bytes, film.timeline.total_bytes())?;
            let ahead = (n - used).min(usize::try_from(body_bytes).unwrap_or(usize::MAX));
            sink.take(film, &buffer[used..used + ahead]);
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
        film: &Film,
        buffer: &mut [u8],
        wanted_bytes: u64,
    ) -> Result<u64, LinkError> {
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
            match moved.map_err(|error| LinkError::Broken { missing_bytes, source: error.source })? {
                Moved::Bytes(n) => {
                    if !sink.discards() {
                        sink.take(film, &buffer[..n]);
                    }
                    got += n as u64;
                    self.left_bytes -= n as u64;
                    if n < asked {
                        // The queue is empty; asking again would cost a call to hear just that.
                        break;
                    }
                }
                Moved::WouldBlock => break,
                Moved::End => return Err(LinkError::Early { missing_bytes }),
            }
        }
        Ok(got)
    }

    /// The content has ended: go on at its beginning, over the same connection if the server lets us.
    fn ask_again(&mut self, source: &Source, film: &Film, sink: &mut Sink) -> Result<(), LinkError> {
        sink.wrap();
        self.from_bytes = film.timeline.base_bytes();
        if self.keep_alive {
            self.reused = true;
            self.request = http::get(&source.url, self.from_bytes, None);
            self.phase = Phase::Asking { sent_bytes: 0 };
            return Ok(());
        }
        self.connect(source)
    }
}
