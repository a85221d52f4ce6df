//! Names of the spans of kernel calls on the data paths.

use sys::span::SpanName;

pub(crate) static SENDMSG: SpanName = SpanName::new("sendmsg");
pub(crate) static SEND: SpanName = SpanName::new("send");
pub(crate) static TEE: SpanName = SpanName::new("tee");
pub(crate) static SPLICE: SpanName = SpanName::new("splice");
pub(crate) static RECV: SpanName = SpanName::new("recv");
pub(crate) static RECV_TRUNCATED: SpanName = SpanName::new("recv (MSG_TRUNC)");
pub(crate) static RECVMSG: SpanName = SpanName::new("recvmsg");
pub(crate) static EPOLL_WAIT: SpanName = SpanName::new("epoll_pwait2");
/// All polls in vain of a spinning thread between two events: one span, as millions of calls say nothing.
pub(crate) static POLLING: SpanName = SpanName::new("polling");
pub(crate) static SLEEP: SpanName = SpanName::new("clock_nanosleep");
