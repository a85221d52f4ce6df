//! Processes: starting, signalling and awaiting them, which sockets they hold, and changing those sockets.

mod fd_table;
mod foreign_socket;
mod helper_command;
mod pidfd;
mod program;
mod socket_owners;
pub(crate) mod spawner;

pub use foreign_socket::{ForeignProcess, ForeignSocketError, PacingRate, SocketChange, SocketSettings};
pub(crate) use helper_command::HelperCommand;
pub(crate) use pidfd::{KILL_FOR, PidFd, end_all, kill_group};
pub use pidfd::{interrupt, is_running, terminate};
pub use program::{Program, user_name};
pub use socket_owners::{SocketHolder, SocketOwners, find_holders};
