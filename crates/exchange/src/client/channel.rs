//! A connection of a client once it stands, and the handshakes until then.

use std::sync::Arc;

use sys::net::TcpSocket;

use super::http2::Http2;
use super::protocol::Protocol;
use super::transport::Transport;
use crate::http::tls;

/// How bytes become messages on a connection.
#[derive(Debug)]
pub(super) enum Channel {
    /// One message after the other: kagiri's own, or HTTP/1.1.
    Stream(Transport),
    Http2(Box<Http2>),
}

impl Channel {
    pub(super) const fn socket(&self) -> &Arc<TcpSocket> {
        match self {
            Self::Stream(transport) => transport.socket(),
            Self::Http2(http2) => http2.socket(),
        }
    }

    /// The protocol used on a connection to a URL.
    pub(super) fn name(&self, protocol: &Protocol) -> Option<&'static str> {
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
pub(super) enum Handshake {
    Tls(Transport),
    /// The server's first frame of HTTP/2 is waited for.
    FirstFrame(Box<Http2>),
}

/// What came of a step of the handshakes.
#[derive(Debug)]
pub(super) enum Step {
    Waiting(Handshake),
    Done(Channel),
}

impl Handshake {
    /// Begins on a connected socket. `confirms`: wait until the server has shown that it speaks HTTP/2.
    ///
    /// # Errors
    /// A sentence: why the connection is of no use.
    pub(super) fn begin(socket: TcpSocket, protocol: &Protocol, confirms: bool) -> Result<Step, String> {
        let Protocol::Http { tls, is_http2, .. } = protocol else {
            return Ok(Step::Done(Channel::Stream(Transport::plain(socket))));
        };
        match tls {
            Some(tls) => {
                let session = tls.connection().map_err(|error| error.to_string())?;
                Self::Tls(Transport::with_tls(socket, session)).step(protocol, confirms)
            }
            // Without TLS there is nothing to choose it by: the client knows that the server speaks it.
            None if *is_http2 => first_frame(Http2::begin(Transport::plain(socket))?, confirms),
            None => Ok(Step::Done(Channel::Stream(Transport::plain(socket)))),
        }
    }

    /// Goes on as far as can be now.
    pub(super) fn step(self, protocol: &Protocol, confirms: bool) -> Result<Step, String> {
        let mut transport = match self {
            Self::Tls(transport) => transport,
            Self::FirstFrame(http2) => return first_frame(*http2, confirms),
        };
        if !transport.continue_handshake().map_err(|error| error.to_string())? {
            return Ok(Step::Waiting(Self::Tls(transport)));
        }
        let demands_http2 = matches!(protocol, Protocol::Http { is_http2: true, .. });
        match transport.protocol() == Some(tls::ALPN_H2) {
            true => first_frame(Http2::begin(transport)?, confirms),
            false if demands_http2 => Err("the server does not speak HTTP/2".to_owned()),
            false => Ok(Step::Done(Channel::Stream(transport))),
        }
    }
}

fn first_frame(mut http2: Http2, confirms: bool) -> Result<Step, String> {
    let silent = |why: String| format!("the server does not speak HTTP/2 as it should ({why})");
    if http2.drive().map_err(silent)?.is_closed {
        return Err(silent("it closed the connection".to_owned()));
    }
    Ok(match confirms && !http2.is_confirmed() {
        true => Step::Waiting(Handshake::FirstFrame(Box::new(http2))),
        false => Step::Done(Channel::Http2(Box::new(http2))),
    })
}

/// The connection of a client.
#[derive(Debug)]
pub(super) enum Link {
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
    /// The socket of a connection that stands.
    pub(super) fn socket(&self) -> Option<&TcpSocket> {
        match self {
            Self::Open { channel, .. } => Some(channel.socket()),
            Self::None | Self::Connecting | Self::Handshake(_) => None,
        }
    }
}
