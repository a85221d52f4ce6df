//! The calls to the kernel on the data paths, by the names under which a timeline shows them.

use sys::span::{Handle, Joined, SpanName};

use super::crew::Orders;

pub(in crate::transfer) static SENDMSG: SpanName = SpanName::new("sendmsg");
pub(in crate::transfer) static SEND: SpanName = SpanName::new("send");
pub(in crate::transfer) static TEE: SpanName = SpanName::new("tee");
pub(in crate::transfer) static SPLICE: SpanName = SpanName::new("splice");
pub(in crate::transfer) static RECV: SpanName = SpanName::new("recv");
pub(in crate::transfer) static RECV_TRUNCATED: SpanName = SpanName::new("recv (MSG_TRUNC)");
pub(in crate::transfer) static RECVMSG: SpanName = SpanName::new("recvmsg");
pub(in crate::transfer) static EPOLL_WAIT: SpanName = SpanName::new("epoll_pwait2");
/// No call but many: a thread that spins asks again and again, and its whole wait is told as one.
pub(in crate::transfer) static POLLING: SpanName = SpanName::new("polling");
pub(in crate::transfer) static SLEEP: SpanName = SpanName::new("clock_nanosleep");

/// Lets a recorder time this thread's calls from the start on, where one is given, for as long as what is returned lives: a
/// receiver that waits for the common start does not wait for its sender.
pub(in crate::transfer) fn record(recorder: Option<&Handle>, orders: &Orders) -> Option<Joined> {
    let joined = recorder.map(Handle::join);
    if joined.is_some() {
        orders.sleep_until_start();
    }
    joined
}
