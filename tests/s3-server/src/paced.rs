//! A body whose bytes are counted and held back to the rate.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::faults::{Direction, Gate};

/// Called with the bytes so far at every frame, and with `true` at the end.
pub(crate) type Counted = Box<dyn FnMut(u64, bool) + Send + Sync>;

pub(crate) struct Paced<B> {
    inner: Pin<Box<B>>,
    gate: Arc<Gate>,
    direction: Direction,
    held: Option<(Frame<Bytes>, Pin<Box<Sleep>>)>,
    bytes: u64,
    counted: Counted,
}

impl<B> Paced<B> {
    pub(crate) fn new(inner: B, gate: Arc<Gate>, direction: Direction, counted: Counted) -> Self {
        Self { inner: Box::pin(inner), gate, direction, held: None, bytes: 0, counted }
    }
}

impl<B: Body<Data = Bytes>> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.held.is_none() {
            let frame = match ready!(this.inner.as_mut().poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    (this.counted)(this.bytes, true);
                    return Poll::Ready(None);
                }
            };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            this.bytes += bytes as u64;
            (this.counted)(this.bytes, this.inner.is_end_stream());
            match this.gate.pass(this.direction, bytes) {
                Some(at) if bytes > 0 => {
                    this.held = Some((frame, Box::pin(sleep_until(Instant::from_std(at)))));
                }
                _ => return Poll::Ready(Some(Ok(frame))),
            }
        }
        if let Some((_, sleep)) = &mut this.held {
            ready!(sleep.as_mut().poll(context));
        }
        Poll::Ready(this.held.take().map(|(frame, _)| Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
