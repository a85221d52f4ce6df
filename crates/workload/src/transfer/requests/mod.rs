//! Requests and answers: how long one takes, and how many there are a second.
//!
//! A [`RequestGroup`] takes connected sockets and is either side of them. A flow is a loop of its own:
//!
//! | loop | when the next request is sent | how latency counts |
//! |---|---|---|
//! | closed | when the last is answered, or given up | from there to the whole answer |
//! | open | at moments of a schedule, whatever the answers do | from the intended moment, however late it was sent |
//!
//! | waiting | what a thread does | for |
//! |---|---|---|
//! | block | one flow, closed loop: `send` and a `recv` that sleeps, no call more; else `epoll_pwait2` to the nanosecond | what most programs see |
//! | spin | asks the socket again and again | the least latency; a whole core |
//!
//! Over a connection answers come in the order of their requests. A datagram begins with the low bytes of its number, as
//! many as fit it and its answer, at most 8; its answer begins with the same. One that is not answered within a second is
//! given up.

mod account;
mod alone;
mod answerer;
mod crowd;
mod group;
mod order;
mod requester;
mod schedule;
mod talk;
mod window;

pub use group::RequestGroup;
pub use order::{RequestEnd, RequestOrder, RequestReport, RequestSide};
