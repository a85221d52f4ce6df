//! Whose turn it is to open UDP streams: their first datagram says nothing but where it comes from.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::transfer::control::{Bell, Cookie};

/// A line of sessions for each address that clients have. The first in line has its turn.
#[derive(Debug, Default)]
pub struct Turns {
    line: Mutex<Vec<Place>>,
}

#[derive(Debug)]
struct Place {
    address: IpAddr,
    cookie: Cookie,
    bell: Arc<Bell>,
}

/// A place in the line; dropped, it is the next one's turn.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    address: IpAddr,
    cookie: Cookie,
}

impl Turns {
    fn line(&self) -> MutexGuard<'_, Vec<Place>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session whose turn it is among those of `address`.
    pub fn holder(&self, address: IpAddr) -> Option<Cookie> {
        let address = address.to_canonical();
        self.line().iter().find(|place| place.address == address).map(|place| place.cookie)
    }

    pub(super) fn line_up(self: &Arc<Self>, address: IpAddr, cookie: Cookie, bell: Arc<Bell>) -> Turn {
        // A client that came over IPv4 to a socket of both families has an address of either kind.
        let address = address.to_canonical();
        self.line().push(Place { address, cookie, bell });
        Turn { turns: self.clone(), address, cookie }
    }
}

impl Turn {
    pub(super) fn has_come(&self) -> bool {
        self.turns.holder(self.address) == Some(self.cookie)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = self.turns.line();
        line.retain(|place| place.cookie != self.cookie);
        if let Some(next) = line.iter().find(|place| place.address == self.address) {
            next.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_address_at_a_time() {
        let turns = Arc::new(Turns::default());
        let line_up = |address: &str| {
            turns.line_up(address.parse().unwrap(), Cookie::random(), Arc::new(Bell::new().unwrap()))
        };
        let [first, second, other] = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"].map(line_up);
        assert!(first.has_come() && !second.has_come() && other.has_come());
        drop(first);
        assert!(second.has_come());
        assert_eq!(turns.holder("10.0.0.1".parse().unwrap()), Some(second.cookie));
        drop((second, other));
        assert_eq!(turns.holder("10.0.0.1".parse().unwrap()), None);
    }
}
