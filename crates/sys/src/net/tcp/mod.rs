//! TCP sockets and listeners.

mod blocking_io;
mod info;
mod listener;
mod options;
mod packet_options;
mod socket;

pub(super) use blocking_io::is_unsupported;
pub use info::TcpInfo;
pub use listener::{ListenOptions, Listener};
pub use options::SocketOptions;
pub use packet_options::PacketOptions;
pub use socket::{ConnectState, Moved, TcpSocket};
