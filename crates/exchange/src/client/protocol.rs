//! What is sent for a message, and what ends its reply, for kagiri's server and for HTTP.

use bytes::Bytes;

use crate::http::tls::TlsClient;
use crate::http::{Fed, Request, ResponseParser};
use crate::payload::{self, Body};
use crate::wire::{HEADER_BYTES, Hello, MessageHeader, Purpose, ReplyHeader};

const HEAD: usize = HEADER_BYTES as usize;
/// From this status on a reply is an error.
const STATUS_ERROR: u16 = 400;

/// Whom the clients of a trial talk to.
#[derive(Debug, Clone)]
pub(crate) enum Protocol {
    Native {
        trial: u64,
        key: u64,
    },
    /// `is_http2`: HTTP/2 is demanded; over TLS, the server may choose it anyway. `streams`: its most
    /// requests at a time on a connection.
    Http {
        request: Box<Request>,
        body: Option<Bytes>,
        tls: Option<TlsClient>,
        is_http2: bool,
        streams: usize,
    },
}

impl Protocol {
    /// Most requests of HTTP/2 at a time on a connection.
    pub(super) const fn streams(&self) -> usize {
        match self {
            Self::Native { .. } => 1,
            Self::Http { streams, .. } => *streams,
        }
    }

    /// The size of the file that is the body of each request.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        match self {
            Self::Http { body: Some(body), .. } => Some(body.len() as u64),
            _ => None,
        }
    }

    /// The request of HTTP/2 for a message of this size.
    pub(super) fn http2(&self, bytes: u64) -> Result<(http::Request<()>, Option<Body>), String> {
        let Self::Http { request, body, .. } = self else { return Err("it is no URL".to_owned()) };
        let body = match body {
            Some(file) => Some(Body::File(file.clone())),
            None => request.has_body.then_some(Body::Payload(bytes)),
        };
        Ok((request.v2(body.as_ref().map_or(0, Body::bytes))?, body))
    }
}

/// The bytes of one message: a head, and a body that is a file's or the payload block's.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    head: Vec<u8>,
    bytes: u64,
    sent: u64,
}

impl Outgoing {
    /// The next message; `hello`: it is the first of its connection.
    pub(super) fn set(&mut self, protocol: &Protocol, header: MessageHeader, is_first: bool) {
        self.sent = 0;
        match protocol {
            Protocol::Native { trial, key } => {
                self.head.clear();
                if is_first {
                    let hello = Hello { purpose: Purpose::Messages, trial: *trial, key: *key };
                    self.head.extend_from_slice(&hello.to_bytes());
                }
                self.head.extend_from_slice(&header.to_bytes());
                self.bytes = self.head.len() as u64 + header.bytes - HEAD as u64;
            }
            Protocol::Http { request, body, .. } => {
                let body_bytes = body.as_ref().map_or(header.bytes, |body| body.len() as u64);
                request.write_head(body_bytes, &mut self.head);
                self.bytes = self.head.len() as u64 + body_bytes;
            }
        }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.sent == self.bytes
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// The next bytes to send, and whether more follow. `scratch` joins the head with the body's beginning.
    pub(super) fn part<'a>(&self, protocol: &'a Protocol, scratch: &'a mut [u8]) -> (&'a [u8], bool) {
        let head = self.head.len() as u64;
        let left = self.bytes - self.sent;
        let file = match protocol {
            Protocol::Http { body: Some(body), .. } => Some(&body[..]),
            _ => None,
        };
        let part: &[u8] = if self.sent < head {
            let of_head = &self.head[self.sent as usize..];
            scratch[..of_head.len()].copy_from_slice(of_head);
            // Behind the head the scratch holds payload already.
            let end = scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if let Some(file) = file {
                let of_body = end - of_head.len();
                scratch[of_head.len()..end].copy_from_slice(&file[..of_body]);
            }
            &scratch[..end]
        } else {
            let at = self.sent - head;
            match file {
                Some(file) => &file[at as usize..],
                None => payload::slice(at, left),
            }
        };
        (part, (part.len() as u64) < left)
    }
}

/// A reply that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    /// Of kagiri's server: which message it answers.
    pub(super) number: Option<u64>,
    pub(super) server_ns: Option<u64>,
    /// Of HTTP, if it is an error.
    pub(super) bad_status: Option<u16>,
    pub(super) keeps_alive: bool,
}

/// What bytes brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    More,
    /// A reply that ended with the byte before this one.
    Reply(usize, Reply),
    Wrong,
}

/// The replies of one connection.
#[derive(Debug)]
pub(super) enum Incoming {
    Native { head: [u8; HEAD], have: usize, left: u64 },
    Http(Box<ResponseParser>),
}

impl Incoming {
    pub(super) fn new(protocol: &Protocol) -> Self {
        match protocol {
            Protocol::Native { .. } => Self::Native { head: [0; HEAD], have: 0, left: 0 },
            Protocol::Http { request, .. } => Self::Http(Box::new(ResponseParser::new(request.is_head))),
        }
    }

    /// Forgets what has come: a new connection.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Native { have, left, .. } => (*have, *left) = (0, 0),
            Self::Http(parser) => parser.reset(),
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Came {
        match self {
            Self::Native { head, have, left } => {
                let mut at = 0;
                if *have < HEAD {
                    at = bytes.len().min(HEAD - *have);
                    head[*have..*have + at].copy_from_slice(&bytes[..at]);
                    *have += at;
                    if *have < HEAD {
                        return Came::More;
                    }
                    let Some(header) = ReplyHeader::from_bytes(head) else { return Came::Wrong };
                    *left = header.bytes - HEAD as u64;
                }
                let taken = (*left).min((bytes.len() - at) as u64);
                *left -= taken;
                at += taken as usize;
                if *left > 0 {
                    return Came::More;
                }
                *have = 0;
                let Some(header) = ReplyHeader::from_bytes(head) else { return Came::Wrong };
                let (number, server_ns) = (Some(header.number), Some(header.server_ns));
                Came::Reply(at, Reply { number, server_ns, bad_status: None, keeps_alive: true })
            }
            Self::Http(parser) => match parser.feed(bytes) {
                Fed::More => Came::More,
                Fed::Wrong => Came::Wrong,
                Fed::Done { taken, status, keeps_alive } => {
                    Came::Reply(taken, of_status(status, keeps_alive))
                }
            },
        }
    }

    /// The reply that the end of the connection completes.
    pub(super) fn closed(&self) -> Option<Reply> {
        match self {
            Self::Native { .. } => None,
            Self::Http(parser) => parser.closed().map(|status| of_status(status, false)),
        }
    }
}

pub(super) fn of_status(status: u16, keeps_alive: bool) -> Reply {
    let bad_status = (status >= STATUS_ERROR).then_some(status);
    Reply { number: None, server_ns: None, bad_status, keeps_alive }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_sent_whole_however_little_the_kernel_takes() {
        let protocol = Protocol::Native { trial: 1, key: 2 };
        let header = MessageHeader { bytes: 300_000, reply_bytes: 24, number: 5 };
        for step in [1_usize, 7, 4096, usize::MAX] {
            let (mut out, mut sent) = (Outgoing::default(), Vec::new());
            let mut scratch = payload::slice(0, 4096).to_vec();
            out.set(&protocol, header, true);
            while !out.is_complete() {
                let (part, more) = out.part(&protocol, &mut scratch);
                let taken = part.len().min(if sent.len() > 100 { part.len() } else { step });
                assert_eq!(more, sent.len() + part.len() < 300_032);
                sent.extend_from_slice(&part[..taken]);
                out.advance(taken);
            }
            assert_eq!(sent.len(), 300_032);
            assert!(Hello::from_bytes(sent.first_chunk().unwrap()).is_some());
            assert_eq!(MessageHeader::from_bytes(sent[32..56].try_into().unwrap()), Some(header));
        }
    }

    #[test]
    fn replies_end_where_they_end_however_they_are_cut() {
        let reply = |number, bytes| ReplyHeader { bytes, number, server_ns: 9 }.to_bytes();
        let bytes = [&reply(3, 30)[..], &[0; 6], &reply(4, 24)[..]].concat();
        for piece in 1..=bytes.len() {
            let mut incoming = Incoming::new(&Protocol::Native { trial: 0, key: 0 });
            let mut numbers = Vec::new();
            for part in bytes.chunks(piece) {
                let mut rest = part;
                while !rest.is_empty() {
                    match incoming.take(rest) {
                        Came::More => break,
                        Came::Reply(taken, reply) => {
                            numbers.extend(reply.number);
                            rest = &rest[taken..];
                        }
                        Came::Wrong => panic!(),
                    }
                }
            }
            assert_eq!(numbers, [3, 4], "{piece}");
        }
    }
}
