//! One request on its stream: its body goes out, and its response comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};

use crate::payload::{BLOCK_BYTES, Body};

/// Largest piece of a body that is handed over at once.
const PIECE_BYTES: usize = BLOCK_BYTES;

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The response is complete, with this status.
    Status(u16),
    /// The server did not process the request, which can be sent again (RFC 9113, section 8.7).
    Refused(String),
    /// The server ended the stream alone.
    Reset(String),
    /// The connection ended.
    Broken(String),
}

impl From<h2::Error> for Ending {
    fn from(error: h2::Error) -> Self {
        let why = super::words(&error);
        let by = |reason| error.is_remote() && error.reason() == Some(reason);
        match () {
            () if error.is_reset() && by(Reason::REFUSED_STREAM) => Self::Refused(why),
            // A stream beyond the last one that the server announced to process.
            () if error.is_go_away() && by(Reason::NO_ERROR) => Self::Refused(why),
            () if error.is_reset() => Self::Reset(why),
            () => Self::Broken(why),
        }
    }
}

/// A request under way.
pub(super) struct Stream {
    /// The number of the message.
    pub(super) number: u64,
    send: SendStream<Bytes>,
    body: Body,
    sent: u64,
    is_handed_over: bool,
    response: Option<ResponseFuture>,
    receive: Option<RecvStream>,
    status: u16,
}

/// What a poll of a stream brought.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// Some of the body was handed over.
    pub(super) has_advanced: bool,
    /// The library has the whole request since this poll.
    pub(super) is_handed_over: bool,
    pub(super) ending: Option<Ending>,
}

impl Stream {
    /// `body`: what follows the head that was sent, if anything does.
    pub(super) fn new(
        number: u64,
        send: SendStream<Bytes>,
        body: Option<Body>,
        response: ResponseFuture,
    ) -> Self {
        Self {
            number,
            send,
            is_handed_over: body.is_none(),
            body: body.unwrap_or(Body::Payload(0)),
            sent: 0,
            response: Some(response),
            receive: None,
            status: 0,
        }
    }

    /// Whether the library has the whole request.
    pub(super) const fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// Sends and receives what can be now.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        let was_handed_over = self.is_handed_over;
        let mut polled = Polled::default();
        let ended = self.hand_over(cx, &mut polled.has_advanced).and_then(|()| self.receive(cx));
        polled.is_handed_over = self.is_handed_over && !was_handed_over;
        polled.ending = match ended {
            Ok(true) => Some(Ending::Status(self.status)),
            Ok(false) => None,
            Err(error) => Some(error.into()),
        };
        polled
    }

    /// Ends the stream before its response; the connection continues.
    pub(super) fn cancel(mut self) {
        self.send.send_reset(Reason::CANCEL);
    }

    /// Hands as much of the body to the library as the windows allow.
    fn hand_over(&mut self, cx: &mut Context<'_>, has_advanced: &mut bool) -> Result<(), h2::Error> {
        while !self.is_handed_over {
            let left = self.body.bytes() - self.sent;
            self.send.reserve_capacity(usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES));
            let allowed = match self.send.poll_capacity(cx) {
                Poll::Ready(Some(allowed)) => allowed?,
                // A server may reply without reading the body.
                Poll::Ready(None) => return Ok(()),
                Poll::Pending => self.send.capacity(),
            };
            if allowed == 0 {
                break;
            }
            let piece = self.body.piece(self.sent, allowed.min(PIECE_BYTES));
            self.sent += piece.len() as u64;
            self.is_handed_over = self.sent == self.body.bytes();
            self.send.send_data(piece, self.is_handed_over)?;
            *has_advanced = true;
        }
        Ok(())
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
    use super::*;

    #[test]
    fn body_is_cut_into_pieces_without_a_rest() {
        let file = Body::File(Bytes::from(vec![7; 1000]));
        assert_eq!((file.piece(0, 600).len(), file.piece(600, 600).len()), (600, 400));
        let payload = Body::Payload(PIECE_BYTES as u64 + 10);
        assert_eq!(payload.piece(0, usize::MAX).len(), PIECE_BYTES);
        assert_eq!(payload.piece(PIECE_BYTES as u64, PIECE_BYTES).len(), 10);
    }
}
