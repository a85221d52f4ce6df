//! A connection of a client once it stands, and the handshakes until then.

mod http2;
mod transport;

use std::sync::Arc;

use sys::net::{Event, NetError, TcpSocket};

use super::protocol::Protocol;
use crate::http::tls;
use transport::Transport;

pub(crate) use http2::{Ending, Http2, StreamEvent};
pub(crate) use transport::TransportError;

/// How bytes become messages on a connection.
#[derive(Debug)]
pub(crate) enum Channel {
    /// One message after the other: kagiri's own, or HTTP/1.1.
    Stream(Transport),
    Http2(Box<Http2>),
}

impl Channel {
    pub(crate) const fn socket(&self) -> &Arc<TcpSocket> {
        match self {
            Self::Stream(transport) => transport.socket(),
            Self::Http2(http2) => http2.socket(),
        }
    }

    /// The protocol used on a connection to a URL.
    pub(crate) fn name(&self, protocol: &Protocol) -> Option<&'static str> {
        let Protocol::Http { tls, .. } = protocol else { return None };
        Some(match (self, tls.is_some()) {
            (Self::Stream(_), false) => "HTTP/1.1",
            (Self::Stream(_), true) => "HTTP/1.1 over TLS",
            (Self::Http2(_), false) => "HTTP/2",
            (Self::Http2(_), true) => "HTTP/2 over TLS",
        })
    }
}

/// The handshakes behind TCP's, as far as they have come.
#[derive(Debug)]
pub(crate) enum Handshake {
    Tls(Transport),
    /// The server's first frame of HTTP/2 is waited for.
    FirstFrame(Box<Http2>),
}

/// Why a connection is of no use: the handshake that failed, with its reason in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// There is no connection.
    #[error("{0}")]
    Tcp(String),
    #[error("{0}")]
    Tls(String),
    #[error("{0}")]
    Http2(String),
    #[error("the handshake did not end in time")]
    Late,
}

impl From<NetError> for HandshakeError {
    fn from(error: NetError) -> Self {
        Self::Tcp(error.to_string())
    }
}

/// What came of a step of the handshakes.
#[derive(Debug)]
pub(crate) enum Step {
    Waiting(Handshake),
    Done(Channel),
}

impl Handshake {
    /// Begins on a connected socket. `confirms`: wait until the server has shown that it speaks HTTP/2.
    ///
    /// # Errors
    /// The connection is of no use.
    pub(crate) fn begin(
        socket: TcpSocket,
        protocol: &Protocol,
        confirms: bool,
    ) -> Result<Step, HandshakeError> {
        let Protocol::Http { tls, is_http2, .. } = protocol else {
            return Ok(Step::Done(Channel::Stream(Transport::plain(socket))));
        };
        match tls {
            Some(tls) => {
                let session = tls.connection().map_err(|error| HandshakeError::Tls(error.to_string()))?;
                Self::Tls(Transport::with_tls(socket, session)).step(protocol, confirms)
            }
            // Without TLS there is nothing to choose it by: the client knows that the server speaks it.
            None if *is_http2 => first_frame(begin_http2(Transport::plain(socket), protocol)?, confirms),
            None => Ok(Step::Done(Channel::Stream(Transport::plain(socket)))),
        }
    }

    /// Continues as far as possible without waiting.
    pub(crate) fn step(self, protocol: &Protocol, confirms: bool) -> Result<Step, HandshakeError> {
        let mut transport = match self {
            Self::Tls(transport) => transport,
            Self::FirstFrame(http2) => return first_frame(*http2, confirms),
        };
        let is_complete = transport.continue_handshake();
        if !is_complete.map_err(|error| HandshakeError::Tls(error.to_string()))? {
            return Ok(Step::Waiting(Self::Tls(transport)));
        }
        let demands_http2 = matches!(protocol, Protocol::Http { is_http2: true, .. });
        match transport.protocol() == Some(tls::ALPN_H2) {
            true => first_frame(begin_http2(transport, protocol)?, confirms),
            false if demands_http2 => {
                Err(HandshakeError::Http2("the server does not speak HTTP/2".to_owned()))
            }
            false => Ok(Step::Done(Channel::Stream(transport))),
        }
    }
}

fn begin_http2(transport: Transport, protocol: &Protocol) -> Result<Http2, HandshakeError> {
    Http2::begin(transport, protocol.streams()).map_err(HandshakeError::Http2)
}

fn first_frame(mut http2: Http2, confirms: bool) -> Result<Step, HandshakeError> {
    let silent =
        |why: String| HandshakeError::Http2(format!("the server does not speak HTTP/2 as it should ({why})"));
    if let Some(why) = http2.drive(&mut Vec::new()).closed {
        return Err(silent(why));
    }
    Ok(match confirms && !http2.is_confirmed() {
        true => Step::Waiting(Handshake::FirstFrame(Box::new(http2))),
        false => Step::Done(Channel::Http2(Box::new(http2))),
    })
}

/// The connection of a client.
#[derive(Debug)]
pub(crate) enum Link {
    None,
    Connecting,
    /// TCP's connection stands, and other handshakes follow.
    Handshake(Handshake),
    /// `is_first`: nothing was sent yet.
    Open {
        channel: Channel,
        is_first: bool,
    },
}

impl Link {
    /// An event of the socket. Without a handshake or a channel, nothing is known of the socket anyway.
    pub(crate) fn after_event(&mut self, event: Event) {
        match self {
            Self::Handshake(Handshake::Tls(transport))
            | Self::Open { channel: Channel::Stream(transport), .. } => {
                transport.readiness.after_event(event);
            }
            Self::Handshake(Handshake::FirstFrame(http2))
            | Self::Open { channel: Channel::Http2(http2), .. } => http2.after_event(event),
            Self::None | Self::Connecting => {}
        }
    }

    /// Whether a read of it would wait.
    pub(crate) const fn waits(&self) -> bool {
        matches!(self, Self::Open { channel: Channel::Stream(transport), .. } if transport.waits())
    }

    /// The socket of a connection that stands.
    pub(crate) fn socket(&self) -> Option<&TcpSocket> {
        match self {
            Self::Open { channel, .. } => Some(channel.socket()),
            Self::None | Self::Connecting | Self::Handshake(_) => None,
        }
    }
}
