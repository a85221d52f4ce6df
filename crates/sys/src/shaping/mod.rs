//! Changes of what running programs send: pacing rates and priorities of their sockets
//! ([`ManagedSockets`]), an HTB in front of an interface ([`Htb`]), and network settings ([`Sysctl`]).
//!
//! Every change is in the undo journal before it is made. It outlives this program all the same, so a second
//! process, the [`Guardian`], undoes all of it when this one is killed.

mod guardian;
mod htb;
mod managed_sockets;
mod new_sockets;
mod sysctl;
mod token_bucket;

pub use guardian::{GuardReport, Guardian, guard};
pub use htb::{Htb, HtbClass};
pub use managed_sockets::{ManagedSockets, SocketTarget};
pub use new_sockets::NewSockets;
pub use sysctl::Sysctl;
pub use token_bucket::TokenBucket;

pub use crate::netlink::traffic_control::{BucketRate, ClassReading};
