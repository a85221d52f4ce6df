//! Which peers are reached through the bottleneck.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sys::clock::Deadline;
use sys::netlink::Flow;
use sys::proc::{interface_number, interface_to};

/// How long the route to a peer is taken for known.
const ROUTE_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Routes {
    interface: String,
    /// Whether a peer is reached through the bottleneck, and until when that is taken for known.
    known: HashMap<IpAddr, (bool, Deadline)>,
}

impl Routes {
    pub(super) fn through(interface: &str) -> Self {
        Self { interface: interface.to_owned(), known: HashMap::new() }
    }

    pub(super) fn forget_old(&mut self) {
        self.known.retain(|_, (_, known)| !known.passed());
    }

    /// Number of the interface; `None`: there is none of this name.
    pub(super) fn interface(&self) -> Option<u32> {
        interface_number(&self.interface)
    }

    /// Whether a peer is reached through the interface, if that is known.
    pub(super) fn known(&self, peer: IpAddr) -> Option<bool> {
        self.known.get(&peer).map(|(is_through, _)| *is_through)
    }

    /// Looks for the route if it is not known.
    pub(super) fn is_through(&mut self, peer: SocketAddr) -> bool {
        let interface = &self.interface;
        let known = self.known.entry(peer.ip()).or_insert_with(|| {
            // A peer without a route is reached through no interface.
            let is_through = interface_to(peer).is_ok_and(|name| name == *interface);
            (is_through, Deadline::after(ROUTE_FOR))
        });
        known.0
    }
}

/// Whether a UDP socket without a peer may send through the interface of this number.
pub(super) fn may_leave_through(flow: &Flow, interface: Option<u32>) -> bool {
    !flow.local.ip().is_loopback() && (flow.interface == 0 || Some(flow.interface) == interface)
}
