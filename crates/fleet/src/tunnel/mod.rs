//! The secured link between agent and coordinator: TLS 1.3 around zenoh's link over a UNIX socket.
//!
//! zenoh's own TLS link uses one TLS session from two tasks without a lock
//! (<https://github.com/eclipse-zenoh/zenoh/issues/2557>). Here one lock guards each session, and zenoh sees
//! plain sockets in folders that only this user can enter. A TCP port on loopback would be open to all users
//! of the machine.
//!
//! ```text
//! agent's zenoh -- UNIX -- connector == TLS over TCP == acceptor -- UNIX -- coordinator's zenoh
//! ```
//!
//! In a fleet with certificates, the acceptor sends the verified member a secret: its password for zenoh,
//! valid for this run of the coordinator. So the name in zenoh's access control is the certificate's.

mod acceptor;
mod carry;
mod connector;
mod private_dir;
mod tls;
mod welcome;

pub use acceptor::{LINKS_PER_MEMBER_MAX, Listener};
pub use carry::Tunnel;
pub use connector::connect;
