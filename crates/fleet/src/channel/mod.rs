//! A channel of short messages between two hosts of a fleet, for a program that does other things meanwhile:
//! nothing here waits, but for [`Channel::connect`]. On `tls/` endpoints it is TLS 1.3 with the fleet's
//! certificates; without encryption it stays on this machine, as the fleet's own links do
//! ([`crate::endpoint`]).
//!
//! A message is its length (two bytes, little-endian) and as many bytes.

mod listener;
mod stream;

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection};
use sys::clock::Deadline;

pub use listener::Listener;
use stream::Stream;

use crate::endpoint::Endpoint;
use crate::identity::connect_error;
use crate::identity::{Credentials, LISTENER_LOG};
use crate::tunnel::tls;

/// Longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Received and not read yet: then nothing more is received.
const INCOMING_BYTES_MAX: usize = 16 * MESSAGE_BYTES_MAX;
const HEAD_BYTES: usize = 2;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel {
    stream: Stream,
    tls: Option<Box<Connection>>,
    /// Who may be at the other end; `None`: whose certificate is in order.
    members: Option<Arc<Vec<String>>>,
    /// Name in the other side's certificate, once it is checked.
    peer: Option<String>,
    /// When the other side's certificate expires.
    expiry: Option<Deadline>,
    incoming: Vec<u8>,
    /// Without TLS, which keeps its own.
    outgoing: Vec<u8>,
    is_ended: bool,
}

/// Whether the bundle can secure a channel.
/// Errors: its fleet has passwords, which only zenoh checks.
pub fn check_credentials(credentials: Option<&Credentials>) -> Result<(), String> {
    match credentials.filter(|credentials| credentials.uses_passwords()) {
        Some(credentials) => Err(format!(
            "{}: this fleet has passwords; make one with certificates: 'kagiri fleet init' without \
             --password",
            credentials.dir.display()
        )),
        None => Ok(()),
    }
}

impl Channel {
    /// Connects; the handshake follows while the channel is used. `protocol`: what the listener has to speak.
    /// Errors: nothing listens there, or the bundle's files cannot be used.
    pub fn connect(
        endpoint: &Endpoint,
        credentials: Option<&Credentials>,
        protocol: &[u8],
        within: Duration,
    ) -> io::Result<Self> {
        let stream = Stream::connect(endpoint, within)?;
        let tls = match (endpoint, credentials) {
            (Endpoint::Tls { host, .. }, Some(credentials)) => {
                let config = Arc::new(tls::client(credentials, protocol)?);
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
                Some(Box::new(connection.into()))
            }
            (Endpoint::Tls { .. }, None) => return Err(io::Error::other("tls/... needs credentials")),
            _ => None,
        };
        Ok(Self::new(stream, tls, None))
    }

    fn new(stream: Stream, tls: Option<Box<Connection>>, members: Option<Arc<Vec<String>>>) -> Self {
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        Self { stream, tls, members, peer: None, expiry: None, incoming, outgoing, is_ended: false }
    }

    /// Name in the other side's certificate; `None` before the end of the handshake, and without TLS.
    pub fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Address of the other side, for messages to people.
    pub fn address(&self) -> String {
        self.stream.address()
    }

    /// Sends a message. `false`: it was not sent, because an earlier one has not left yet, or the handshake
    /// has not ended.
    /// Errors: the channel has ended, or the message is too long.
    pub fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the message is longer than the channel takes",
            ));
        }
        self.flush()?;
        let is_busy = match &self.tls {
            Some(tls) => tls.wants_write() || tls.is_handshaking() || self.peer.is_none(),
            None => !self.outgoing.is_empty(),
        };
        if is_busy {
            return Ok(false);
        }
        let frame = [&(message.len() as u16).to_le_bytes()[..], message].concat();
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(&frame)?,
            None => self.outgoing.extend(frame),
        }
        self.flush()?;
        Ok(true)
    }

    /// The next message that has arrived.
    /// Errors: the channel has ended, the other side's certificate is refused, or it sends no messages.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.expiry.as_ref().is_some_and(Deadline::passed) {
            return Err(io::Error::other("the other side's certificate has expired"));
        }
        if let Some(message) = self.take()? {
            return Ok(Some(message));
        }
        let filled = self.fill();
        // An alert says to the other side what is wrong with it.
        let flushed = self.flush();
        filled?;
        let message = self.take()?;
        match message {
            None if self.is_ended => {
                Err(io::Error::new(ErrorKind::UnexpectedEof, "the other side has closed the connection"))
            }
            None => flushed.map(|()| None),
            some => Ok(some),
        }
    }

    /// A whole message of what has arrived.
    fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((head, rest)) = self.incoming.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes(*head));
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the other side sends no messages of this kind",
            ));
        }
        let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.incoming.drain(..HEAD_BYTES + length);
        Ok(Some(message))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        while self.incoming.len() < INCOMING_BYTES_MAX && !self.is_ended {
            let read = match &mut self.tls {
                Some(tls) => tls.read_tls(&mut self.stream),
                None => self.stream.read(&mut bytes),
            };
            match read {
                Ok(0) => self.is_ended = true,
                Ok(length) if self.tls.is_none() => self.incoming.extend(&bytes[..length]),
                Ok(_) => self.decrypt(&mut bytes)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What has arrived over TLS.
    fn decrypt(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let state = tls.process_new_packets();
        let state = state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        self.is_ended |= state.peer_has_closed();
        if self.peer.is_none() && !tls.is_handshaking() {
            let peer = tls::peer(tls.peer_certificates());
            self.expiry = tls::left(peer.as_ref()).map(Deadline::after);
            let name = peer.map(|peer| peer.holder).unwrap_or_default();
            if self.members.as_ref().is_some_and(|members| !members.contains(&name)) {
                return Err(io::Error::other(format!("{name} is not in the list of members")));
            }
            self.peer = Some(name);
        }
        loop {
            match tls.reader().read(bytes) {
                Ok(0) => return Ok(()),
                Ok(length) => self.incoming.extend(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            let written = match &mut self.tls {
                Some(tls) if tls.wants_write() => tls.write_tls(&mut self.stream),
                None if !self.outgoing.is_empty() => self.stream.write(&self.outgoing),
                _ => return Ok(()),
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) if self.tls.is_none() => drop(self.outgoing.drain(..length)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Why a channel ended, in words of the side that connected.
pub fn explain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.contains("NoApplicationProtocol") {
        true => {
            "another service of this fleet listens there; name the port of 'kagiri qos coordinate'".into()
        }
        false => connect_error::explain(std::slice::from_ref(&text)).unwrap_or(text),
    }
}

/// Why a host that connected was refused.
pub fn explain_refusal(address: &str, error: &io::Error) -> String {
    let line = format!("{LISTENER_LOG}{address}: {error}");
    connect_error::explain(std::slice::from_ref(&line)).unwrap_or(line)
}

#[cfg(test)]
mod tests;
