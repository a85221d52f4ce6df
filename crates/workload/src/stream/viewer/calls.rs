//! The players' calls to the kernel, by the names under which their table shows them.

use base::timeline::CallTimes;
use serde::{Deserialize, Serialize};
use sys::span::SpanName;

pub(super) static CONNECT: SpanName = SpanName::new("connect");
pub(super) static SEND: SpanName = SpanName::new("send");
pub(super) static RECV: SpanName = SpanName::new("recv");
pub(super) static RECV_TRUNCATED: SpanName = SpanName::new("recv (MSG_TRUNC)");
pub(super) static EPOLL_WAIT: SpanName = SpanName::new("epoll_pwait2");
pub(super) static SLEEP: SpanName = SpanName::new("clock_nanosleep");

/// Where the time of one host's players went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlayerCalls {
    /// On which host; absent where all played on one.
    pub host: Option<String>,
    /// Their calls, from their start to their end.
    pub times: CallTimes,
}
