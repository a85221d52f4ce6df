//! The secured link between agent and coordinator: TLS 1.3 over TCP.
//!
//! The handshake, and what it checks, is done here, on threads of its own. Then zenoh takes the stream
//! (`zenoh_link_tls`, which replaces zenoh's own link of this name: that one is unsound). In a fleet with
//! certificates, the verified name of the certificate is the link's name in zenoh's access control.

mod acceptor;
mod connector;
mod runtime;
pub(crate) mod tls;
mod welcome;

pub use acceptor::{Acceptor, LINKS_PER_MEMBER_MAX, Listener};
pub use connector::connect;
