//! Names of the spans of kernel calls on the data paths, and the waits of a receiver as spans.

use sys::span::{Entered, SpanName, enter};

pub(crate) static SENDMSG: SpanName = SpanName::new("sendmsg");
pub(crate) static SEND: SpanName = SpanName::new("send");
pub(crate) static TEE: SpanName = SpanName::new("tee");
pub(crate) static SPLICE: SpanName = SpanName::new("splice");
pub(crate) static RECV: SpanName = SpanName::new("recv");
pub(crate) static RECV_TRUNCATED: SpanName = SpanName::new("recv (MSG_TRUNC)");
pub(crate) static RECVMSG: SpanName = SpanName::new("recvmsg");
pub(crate) static EPOLL_WAIT: SpanName = SpanName::new("epoll_pwait2");
/// All polls of a spinning thread between two events: one span instead of millions of calls.
pub(crate) static POLLING: SpanName = SpanName::new("polling");
pub(crate) static SLEEP: SpanName = SpanName::new("clock_nanosleep");

/// Times a receiver's calls. Blocking calls return now and then without data, to check for a stop: calls
/// until data comes are one wait. A wait that ends without data is left out.
#[derive(Debug, Default)]
pub(crate) struct WaitSpan {
    is_blocking: bool,
    waiting: Option<Entered>,
}

impl WaitSpan {
    /// Whether calls wait in the kernel from now on.
    pub(crate) fn set_blocking(&mut self, is_blocking: bool) {
        self.is_blocking = is_blocking;
    }

    /// Times `call`; `came`: whether it brought data.
    pub(crate) fn time<T>(
        &mut self,
        name: &SpanName,
        call: impl FnOnce() -> T,
        came: impl FnOnce(&T) -> bool,
    ) -> T {
        let span = self.waiting.take().unwrap_or_else(|| enter(name));
        let result = call();
        if self.is_blocking && !came(&result) {
            self.waiting = Some(span);
        }
        result
    }
}

impl Drop for WaitSpan {
    fn drop(&mut self) {
        self.waiting.take().into_iter().for_each(Entered::discard);
    }
}
