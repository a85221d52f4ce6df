//! Flows: streams of bytes over one socket in one direction.
//!
//! | side | engine | how |
//! |---|---|---|
//! | TCP sender | `write` | calls of 1 MiB that copy from a block in the core's own cache |
//! | | `splice` | references to pages that a pipe holds (tee(2), splice(2)): no copy |
//! | TCP receiver | `copy` | reads into this program's memory |
//! | | `discard` | the kernel frees the bytes unread (`MSG_TRUNC`) |
//! | UDP sender | segmented | one call for many datagrams, cut by kernel or device (`UDP_SEGMENT`) |
//! | | single | one call for each datagram, where the kernel cannot cut |
//! | UDP receiver | `copy`, `discard` | one call for datagrams that came in a row (`UDP_GRO`), each counted |
//!
//! Above 8 Gbit/s a UDP receiver sleeps 0.1 ms instead of being woken for each datagram; it times 1 ms in 50.

mod datagram_stats;
mod engines;
#[expect(clippy::module_inception, reason = "a flow is one of the flows")]
mod flow;
mod flow_spec;
mod flow_state;
pub mod probe;
mod read_size;
mod rx_moderation;
mod tcp;
mod udp_receive;
mod udp_send;

pub use flow::{GroupSetting, start};
pub use flow_spec::{Direction, End, FlowSpec, Protocol, Side, Stamp};

pub use crate::driver::{
    EndReason, Engine, EngineChoice, FlowCount, FlowError, FlowReport, FlowSocket, Group, GroupReport, Mode,
    ThreadReport, Transit, room_for,
};
