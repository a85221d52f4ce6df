//! Network namespaces: hosts of their own on one machine. network_namespaces(7), ip-netns(8).
//!
//! Programs are put into a namespace with setns(2) before they run, not with `ip netns exec`, which mounts
//! `/sys` anew.

mod namespace;
mod subnet;

use std::time::Duration;

use crate::process::HelperCommand;

pub use namespace::{Namespace, enter};
pub use subnet::Subnet;

const IP: HelperCommand =
    HelperCommand { program: "ip", package: "iproute2", purpose: "make network namespaces" };
const TC: HelperCommand =
    HelperCommand { program: "tc", package: "iproute2", purpose: "limit the rate of a link" };
const TOOL_FOR: Duration = Duration::from_secs(10);
