//! The bytes of a connection: plain, or by TLS.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use sys::net::{Moved, NetError, TcpSocket};

use crate::http::tls;
use crate::readiness::Readiness;

/// Encrypted bytes that are read at once: two records of the largest size.
const RECEIVE_BYTES: usize = 32 << 10;

/// Why a connection carries no more bytes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("TLS: {}", tls::explain(.0))]
    Tls(rustls::Error),
    /// By a library's own words.
    #[error("{0}")]
    Io(std::io::Error),
}

/// TLS on a connection, with encrypted bytes that have come and are not decrypted yet.
#[derive(Debug)]
struct TlsState {
    session: ClientConnection,
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

#[derive(Debug)]
pub(crate) struct Transport {
    /// Shared with the sampler.
    socket: Arc<TcpSocket>,
    /// Of the socket, which is not read in vain.
    pub(super) readiness: Readiness,
    tls: Option<Box<TlsState>>,
    /// Whether it has ended without the peer's notice, so that data may be missing (RFC 8446, section 6.1).
    is_truncated: bool,
    /// Whether [`Self::recv_waiting`] waits.
    waits: bool,
}

impl Transport {
    pub(crate) fn plain(socket: TcpSocket) -> Self {
        Self {
            socket: Arc::new(socket),
            readiness: Readiness::UNKNOWN,
            tls: None,
            is_truncated: false,
            waits: false,
        }
    }

    /// `session` has not sent anything yet.
    pub(crate) fn with_tls(socket: TcpSocket, session: ClientConnection) -> Self {
        let tls = TlsState { session, bytes: vec![0; RECEIVE_BYTES], from: 0, to: 0 };
        Self { tls: Some(Box::new(tls)), ..Self::plain(socket) }
    }

    pub(crate) const fn socket(&self) -> &Arc<TcpSocket> {
        &self.socket
    }

    /// Lets [`Self::recv_waiting`] wait up to `wait`. Over TLS it never waits.
    pub(crate) fn set_wait(&mut self, wait: Duration) {
        self.waits = self.tls.is_none() && self.socket.set_wait(Some(wait)).is_ok();
    }

    /// Whether [`Self::recv_waiting`] would wait: nothing is known to have come.
    pub(crate) const fn waits(&self) -> bool {
        self.waits && !self.readiness.may_read()
    }

    pub(crate) const fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Does as much of the handshake as can be done now; whether it is complete.
    pub(crate) fn continue_handshake(&mut self) -> Result<bool, TransportError> {
        loop {
            let is_flushed = self.flush()?;
            let Some(tls) = &self.tls else { return Ok(true) };
            if !tls.session.is_handshaking() {
                return Ok(is_flushed);
            }
            match self.decrypt_some() {
                Ok(Moved::Bytes(_)) => {}
                Ok(Moved::WouldBlock) => return Ok(false),
                Ok(Moved::End) => {
                    let why = "the server closed the connection during the TLS handshake";
                    return Err(TransportError::Io(std::io::Error::other(why)));
                }
                Err(error) => {
                    // The alert says why to the server.
                    let _ = self.flush();
                    return Err(error);
                }
            }
        }
    }

    /// What the handshake chose (ALPN).
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.session.alpn_protocol()
    }

    /// Takes bytes to send. Over TLS those taken may not be with the kernel yet: see [`Self::flush`].
    pub(crate) fn send(&mut self, bytes: &[u8], more: bool) -> Result<Moved, TransportError> {
        if self.tls.is_none() {
            return Ok(self.socket.send(bytes, more)?);
        }
        if !self.flush()? {
            return Ok(Moved::WouldBlock);
        }
        let Some(tls) = &mut self.tls else { return Ok(Moved::WouldBlock) };
        let taken = tls.session.writer().write(bytes).map_err(TransportError::Io)?;
        self.flush()?;
        Ok(Moved::Bytes(taken))
    }

    /// Whether the kernel has all bytes that were sent; gives it more.
    pub(crate) fn flush(&mut self) -> Result<bool, TransportError> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.session.wants_write() {
            match tls.session.write_tls(&mut Socket(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(TransportError::Io(error)),
            }
        }
        Ok(true)
    }

    /// Receives into `buffer`.
    pub(crate) fn recv(&mut self, buffer: &mut [u8]) -> Result<Moved, TransportError> {
        if self.tls.is_none() {
            if !self.readiness.may_read() {
                return Ok(Moved::WouldBlock);
            }
            let moved = self.socket.recv(buffer)?;
            self.readiness.after_read(moved, buffer.len());
            return Ok(moved);
        }
        let mut have = 0;
        loop {
            let Some(tls) = &mut self.tls else { return Ok(Moved::End) };
            match tls.session.reader().read(&mut buffer[have..]) {
                Ok(0) if have == 0 => return Ok(Moved::End),
                Ok(0) => return Ok(Moved::Bytes(have)),
                Ok(bytes) => {
                    have += bytes;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(TransportError::Io(error)),
            }
            match self.decrypt_some() {
                Ok(Moved::Bytes(_)) => {}
                // What came before the end, or before an error, is returned first.
                _ if have > 0 => return Ok(Moved::Bytes(have)),
                ended => return ended,
            }
        }
    }

    /// As [`Self::recv`], and waits for the first bytes ([`Self::set_wait`]).
    pub(crate) fn recv_waiting(&mut self, buffer: &mut [u8]) -> Result<Moved, TransportError> {
        if !self.waits {
            return self.recv(buffer);
        }
        let moved = self.socket.recv_waiting(buffer)?;
        self.readiness.after_read(moved, buffer.len());
        Ok(moved)
    }

    /// Decrypts some of what has come.
    fn decrypt_some(&mut self) -> Result<Moved, TransportError> {
        let Some(tls) = &mut self.tls else { return Ok(Moved::End) };
        if tls.from == tls.to {
            if !self.readiness.may_read() {
                return Ok(Moved::WouldBlock);
            }
            let moved = self.socket.recv(&mut tls.bytes)?;
            self.readiness.after_read(moved, tls.bytes.len());
            match moved {
                Moved::Bytes(bytes) => (tls.from, tls.to) = (0, bytes),
                Moved::End => {
                    self.is_truncated = true;
                    return Ok(Moved::End);
                }
                Moved::WouldBlock => return Ok(Moved::WouldBlock),
            }
        }
        let mut rest = &tls.bytes[tls.from..tls.to];
        let taken = tls.session.read_tls(&mut rest).map_err(TransportError::Io)?;
        if taken == 0 {
            // Nothing counts after the peer's notice of its end.
            return Ok(Moved::End);
        }
        tls.from += taken;
        tls.session.process_new_packets().map_err(TransportError::Tls)?;
        self.flush()?;
        Ok(Moved::Bytes(taken))
    }
}

/// A socket as rustls writes to it.
struct Socket<'a>(&'a TcpSocket);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.send(bytes, false) {
            Ok(Moved::Bytes(bytes)) => Ok(bytes),
            Ok(Moved::WouldBlock | Moved::End) => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.source),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
