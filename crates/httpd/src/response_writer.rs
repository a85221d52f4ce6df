//! Sending heads and files.

use sys::net::{Moved, TcpSocket};

use super::response::{Content, Response, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    Complete,
    /// More could be sent at once.
    Partial,
    /// The socket has no room.
    Blocked,
    /// It cannot go on, for this reason.
    Failed(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub bytes: u64,
    pub file_bytes: usize,
    pub state: SendState,
}

const CUT: &str = "the file became shorter while it was sent";
const PEER_GONE: &str = "client left before the answer was sent";

#[derive(Debug, Default)]
pub struct ResponseWriter {
    /// To be sent before the file.
    out: Vec<u8>,
    out_sent: usize,
    file: Option<Source>,
    offset_bytes: u64,
    left_bytes: u64,
    /// Whether segments that are not full wait for the next slice.
    corked: bool,
}

impl ResponseWriter {
    /// Begins a response, in place of what is unsent. Returns the length of its head.
    pub fn begin(&mut self, response: Response, date: &str, keep_alive: bool, head_only: bool) -> u64 {
        self.out.clear();
        self.out_sent = 0;
        (self.file, self.left_bytes) = (None, 0);
        response.write_head(&mut self.out, date, keep_alive);
        let head_bytes = self.out.len() as u64;
        match response.content {
            _ if head_only => {}
            Content::None => {}
            Content::Bytes(bytes) => self.out.extend_from_slice(&bytes),
            Content::File { source, offset_bytes, len_bytes } => {
                (self.file, self.offset_bytes, self.left_bytes) = (Some(source), offset_bytes, len_bytes);
            }
        }
        head_bytes
    }

    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// If the file takes several slices, sends them as one run of full segments.
    pub fn cork(&mut self, socket: &TcpSocket, slice_bytes: usize) {
        if self.left_bytes > slice_bytes as u64 {
            // A socket that refuses only sends smaller segments.
            self.corked = socket.set_cork(true).is_ok();
        }
    }

    /// Ends the response; whether a file was being sent.
    pub fn end(&mut self, socket: &TcpSocket) -> bool {
        if std::mem::take(&mut self.corked) {
            // The last segment must not wait for more. Fails only when the peer is gone; the next call
            // reports it.
            let _ = socket.set_cork(false);
        }
        self.file.take().is_some()
    }

    pub fn queue(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Sends what is queued, without the file.
    pub fn flush(&mut self, socket: &TcpSocket) -> Sent {
        let (before, mut state) = (self.out_sent, SendState::Complete);
        while self.out_sent < self.out.len() {
            match socket.send(&self.out[self.out_sent..], self.left_bytes > 0) {
                Ok(Moved::Bytes(n)) => self.out_sent += n,
                Ok(Moved::WouldBlock) => {
                    state = SendState::Blocked;
                    break;
                }
                Ok(Moved::End) | Err(_) => {
                    state = SendState::Failed(PEER_GONE);
                    break;
                }
            }
        }
        let bytes = (self.out_sent - before) as u64;
        if state == SendState::Complete && self.out_sent > 0 {
            // Give the memory back: a stream sends its head once and then files for minutes.
            self.out = Vec::new();
            self.out_sent = 0;
        }
        Sent { bytes, file_bytes: 0, state }
    }

    /// Sends what is queued and one slice of the file. The hot path: for an established stream one `sendfile`
    /// and nothing else.
    pub fn send(&mut self, socket: &TcpSocket, slice_bytes: usize) -> Sent {
        let mut sent = self.flush(socket);
        let Some(file) = self.file.as_ref().filter(|_| self.left_bytes > 0) else { return sent };
        if sent.state != SendState::Complete {
            return sent;
        }
        let ask = usize::try_from(self.left_bytes).unwrap_or(usize::MAX).min(slice_bytes);
        let Some((fd, offset_bytes, ask)) = file.piece_at(self.offset_bytes, ask) else {
            return Sent { state: SendState::Failed(CUT), ..sent };
        };
        sent.state = match socket.send_file(fd, offset_bytes, ask) {
            Ok(Moved::Bytes(n)) => {
                self.offset_bytes += n as u64;
                self.left_bytes -= n as u64;
                sent.bytes += n as u64;
                sent.file_bytes = n;
                match self.left_bytes {
                    0 => SendState::Complete,
                    // Less than asked for: the socket is full, and the kernel has noted that its room is
                    // waited for. (If it was the file that ended, the stall check finds out.)
                    _ if n < ask => SendState::Blocked,
                    _ => SendState::Partial,
                }
            }
            Ok(Moved::WouldBlock) => SendState::Blocked,
            Ok(Moved::End) => SendState::Failed(CUT),
            Err(e) if e.is_peer_gone() => SendState::Failed(PEER_GONE),
            Err(_) => SendState::Failed("the file cannot be read"),
        };
        sent
    }
}
