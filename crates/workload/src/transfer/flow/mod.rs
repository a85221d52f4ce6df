//! Flows: the bytes that one thread moves over one socket in one direction, and groups of them.
//!
//! A [`Group`] takes connected sockets with an order each, drives them by threads of its own, can be asked how far it is
//! at any time, and ends by bytes, by time, with the peer, or when it is told to. How it moves the bytes is named in its
//! report: what a host can carry depends on it.
//!
//! | side | engine | what it does |
//! |---|---|---|
//! | TCP sender | `write` | calls of 1 MiB that copy from a block in the core's own cache |
//! | | `splice` | references to pages that a pipe holds (tee(2), splice(2)): nothing is copied |
//! | TCP receiver | `copy` | reads into this program's memory |
//! | | `discard` | lets the kernel free what came unread (`MSG_TRUNC`) |
//! | UDP sender | segmented | one call for many datagrams, which the kernel or the device cuts (`UDP_SEGMENT`) |
//! | | single | one call a datagram, where that is not to be had |
//! | UDP receiver | `copy`, `discard` | one call for datagrams that came in a row (`UDP_GRO`), each counted; above 8 Gbit/s it sleeps 0.1 ms instead of being woken for each, and times what comes 1 ms in 50 |

mod alone;
mod asking;
pub(in crate::transfer) mod calls;
mod cell;
mod choice;
mod content;
mod course;
mod crew;
mod crowd;
mod error;
#[expect(clippy::module_inception, reason = "the house's word for one of them")]
mod flow;
mod group;
mod nap;
mod order;
mod pace;
pub mod probe;
mod tally;
mod tcp_receive;
mod tcp_send;
mod udp_receive;
mod udp_send;
mod usage;
mod vigil;

pub(super) use cell::Cell;
pub(super) use content::{BLOCK_BYTES, block, fill};
pub(super) use course::Turn;
pub(super) use crew::{Crew, Orders, WAIT_NS, cpus, threads_for};
pub(super) use flow::report_of;
pub(super) use group::{Member, close};
pub(super) use tcp_send::failed;
pub(super) use usage::Usage;

pub use choice::EngineChoice;
pub use error::FlowError;
pub use flow::FlowSocket;
pub use group::{Group, GroupReport, GroupSetting, room_for};
pub use order::{
    Direction, End, Ended, Engine, FlowCount, FlowOrder, FlowReport, Mode, Protocol, Side, Stamp,
    ThreadReport, Transit,
};
