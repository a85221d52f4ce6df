//! Starting, signalling and awaiting processes: what the journal, the namespaces and the children share.

mod helper_command;
mod pidfd;
pub(crate) mod spawner;

pub(crate) use helper_command::HelperCommand;
pub(crate) use pidfd::{KILL_FOR, PidFd, end_all, kill_group};
pub use pidfd::{is_running, terminate};
