//! The token bucket in front of a link of a lab, whose rate changes: tc-tbf(8).

use crate::netlink::traffic_control::{BucketRate, TrafficControl};
use crate::{Error, Result};

/// A token bucket that is the root queueing discipline of an interface. It belongs to its maker: to
/// drop this changes nothing, and no journal has its changes, which end with the discipline.
#[derive(Debug)]
pub struct TokenBucket {
    control: TrafficControl,
    interface: String,
    device: u32,
    handle: u32,
}

impl TokenBucket {
    /// Of `interface`, in the network namespace of this thread.
    /// Errors: no such interface, or its root is no token bucket.
    pub fn open(interface: &str) -> Result<Self> {
        let failed = |error| Error::call(format!("look at the queue of {interface}"), error);
        let device = nix::net::if_::if_nametoindex(interface).map_err(|error| failed(error.into()))?;
        let mut control = TrafficControl::open().map_err(failed)?;
        match control.root_of(device).map_err(failed)? {
            Some(root) if root.kind == "tbf" => {
                Ok(Self { control, interface: interface.to_owned(), device, handle: root.handle })
            }
            other => {
                let found = other.map_or_else(|| "no queueing discipline".to_owned(), |root| root.kind);
                Err(Error::Refused(format!("{interface} has {found} instead of a token bucket (tc-tbf(8))")))
            }
        }
    }

    /// Changes the rate at once, also for packets that wait. Needs root.
    /// Errors: the discipline or its interface has been deleted or replaced.
    pub fn set(&mut self, rate: BucketRate) -> Result<()> {
        let changed = self.control.change_bucket(self.device, self.handle, rate);
        changed.map_err(|error| Error::call(format!("change the rate of {}", self.interface), error))
    }
}
