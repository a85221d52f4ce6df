//! Network namespaces: hosts of their own on one machine. network_namespaces(7), ip-netns(8).
//!
//! Programs are put into a namespace with setns(2) before they run, not with `ip netns exec`, which mounts
//! `/sys` anew.

mod namespace;
mod subnet;

use std::time::Duration;

use crate::helper_command::HelperCommand;

pub(crate) use namespace::end_processes_in;
pub use namespace::{Namespace, enter};
pub use subnet::Subnet;

const IP: HelperCommand =
    HelperCommand { program: "ip", package: "iproute2", purpose: "make network namespaces" };
const TC: HelperCommand =
    HelperCommand { program: "tc", package: "iproute2", purpose: "limit the rate of a link" };
const TOOL_FOR: Duration = Duration::from_secs(10);
const PREFIX: &str = "kagiri-";

/// Where namespaces have their names, by the custom of `ip netns`.
const FOLDER: &str = "/run/netns";

/// Whether a namespace's name says that this program made it.
pub(crate) fn is_our_namespace(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
}
