//! The order in which sessions open UDP streams: a first datagram shows only its source address.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::control::{Cookie, StopHandle};

/// A queue of sessions for each client address. The first one may open streams.
#[derive(Debug, Default)]
pub struct UdpAcceptQueue {
    line: Mutex<Vec<Place>>,
}

#[derive(Debug)]
struct Place {
    address: IpAddr,
    cookie: Cookie,
    stop_handle: Arc<StopHandle>,
}

/// A place in the queue. Dropping it lets the next session open its streams.
#[derive(Debug)]
pub(super) struct AcceptSlot {
    udp_queue: Arc<UdpAcceptQueue>,
    address: IpAddr,
    cookie: Cookie,
}

impl UdpAcceptQueue {
    fn line(&self) -> MutexGuard<'_, Vec<Place>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first session in the queue of `address`.
    pub fn holder(&self, address: IpAddr) -> Option<Cookie> {
        let address = address.to_canonical();
        self.line().iter().find(|place| place.address == address).map(|place| place.cookie)
    }

    pub(super) fn line_up(
        self: &Arc<Self>,
        address: IpAddr,
        cookie: Cookie,
        stop_handle: Arc<StopHandle>,
    ) -> AcceptSlot {
        // A dual-stack socket shows an IPv4 client with either kind of address.
        let address = address.to_canonical();
        self.line().push(Place { address, cookie, stop_handle });
        AcceptSlot { udp_queue: self.clone(), address, cookie }
    }
}

impl AcceptSlot {
    pub(super) fn has_come(&self) -> bool {
        self.udp_queue.holder(self.address) == Some(self.cookie)
    }
}

impl Drop for AcceptSlot {
    fn drop(&mut self) {
        let mut line = self.udp_queue.line();
        line.retain(|place| place.cookie != self.cookie);
        if let Some(next) = line.iter().find(|place| place.address == self.address) {
            next.stop_handle.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_admits_one_session_per_address() {
        let udp_queue = Arc::new(UdpAcceptQueue::default());
        let line_up = |address: &str| {
            udp_queue.line_up(
                address.parse().unwrap(),
                Cookie::random(),
                Arc::new(StopHandle::new().unwrap()),
            )
        };
        let [first, second, other] = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"].map(line_up);
        assert!(first.has_come() && !second.has_come() && other.has_come());
        drop(first);
        assert!(second.has_come());
        assert_eq!(udp_queue.holder("10.0.0.1".parse().unwrap()), Some(second.cookie));
        drop((second, other));
        assert_eq!(udp_queue.holder("10.0.0.1".parse().unwrap()), None);
    }
}
