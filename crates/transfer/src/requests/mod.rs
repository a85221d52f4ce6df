//! Requests and responses: how long one takes, and how many there are a second.
//!
//! Each flow is a loop of its own:
//!
//! | loop | when the next request is sent | from when latency counts |
//! |---|---|---|
//! | closed | when the last has its response, or is given up | from the sending |
//! | open | at moments of a schedule, whatever the responses do | from the intended moment |
//!
//! | waiting | what a thread does | for |
//! |---|---|---|
//! | block | one flow, closed loop: `send` and a `recv` that sleeps; else `epoll_pwait2` | most programs |
//! | spin | polls the socket | the least latency; a whole core |
//!
//! Over a connection responses come in the order of their requests. A datagram begins with the low bytes of
//! its number, as many as fit it and its response, at most 8; its response begins with the same. A request
//! without a response within a second is given up.

mod exchange;
mod in_flight;
mod request_flow;
mod request_spec;
mod requester;
mod responder;
mod start;

pub use request_spec::{RequestEnd, RequestSide, RequestSpec};
pub use start::start;
