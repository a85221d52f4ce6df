//! How much the UDP sockets of each bulk class may send. UDP has no pacing of its own: a queueing discipline
//! in front of the interface holds it to a rate, class by class.

use crate::SOCKET_RATE_MIN;
use crate::allocate::{Share, weighted_max_min};

/// What a class may need next whose TCP has sent all it had: a multiple of its rate, and more, bit/s.
const TCP_GROWTH: f64 = 1.3;
const TCP_START: f64 = 1e6;
/// Share of a class's part that its UDP sockets get beside TCP sockets that could use all of it.
const BESIDE_TCP: f64 = 0.5;

/// A bulk class as it sends now. Rates in bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BulkUse {
    pub weight: f64,
    pub floor: f64,
    /// Infinite without a limit.
    pub ceiling: f64,
    /// What its TCP sockets send.
    pub tcp_bit_per_s: f64,
    /// Whether data waits in one of its TCP sockets.
    pub is_tcp_backlogged: bool,
    /// Whether its UDP sockets send.
    pub is_udp_active: bool,
}

impl BulkUse {
    /// The most that the class can use.
    pub fn most(&self) -> f64 {
        let wanted = match (self.is_udp_active || self.is_tcp_backlogged, self.tcp_bit_per_s > 0.0) {
            (true, _) => f64::INFINITY,
            (false, true) => TCP_GROWTH * self.tcp_bit_per_s + TCP_START,
            (false, false) => 0.0,
        };
        wanted.min(self.ceiling)
    }

    fn share(&self) -> Share {
        let most = self.most();
        Share { weight: self.weight, least: self.floor.min(most), most }
    }
}

/// What the UDP sockets of each class may send at most, bit/s, if all bulk together gets `bulk`. A class
/// whose UDP sockets are silent gets as much as if they had just begun.
pub fn datagram_ceilings(bulk: f64, classes: &[BulkUse]) -> Vec<f64> {
    let shares: Vec<Share> = classes.iter().map(BulkUse::share).collect();
    let parts = weighted_max_min(bulk, &shares);
    let ceiling = |(at, class): (usize, &BulkUse)| {
        let part = match class.is_udp_active {
            true => parts[at],
            false => {
                let mut shares = shares.clone();
                shares[at] = BulkUse { is_udp_active: true, ..*class }.share();
                weighted_max_min(bulk, &shares)[at]
            }
        };
        let own = match class.is_tcp_backlogged {
            true => BESIDE_TCP * part,
            false => part - class.tcp_bit_per_s,
        };
        own.max(SOCKET_RATE_MIN).min(class.ceiling)
    };
    classes.iter().enumerate().map(ceiling).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: BulkUse = BulkUse {
        weight: 1.0,
        floor: 0.0,
        ceiling: f64::INFINITY,
        tcp_bit_per_s: 0.0,
        is_tcp_backlogged: false,
        is_udp_active: false,
    };

    #[test]
    fn active_classes_share_and_idle_ones_can_start() {
        let active = BulkUse { is_udp_active: true, ..IDLE };
        assert_eq!(datagram_ceilings(20e6, &[active]), [20e6]);
        assert_eq!(datagram_ceilings(20e6, &[active, active]), [10e6, 10e6]);
        assert_eq!(datagram_ceilings(20e6, &[active, IDLE]), [20e6, 10e6]);
        let limited = BulkUse { ceiling: 5e6, ..active };
        assert_eq!(datagram_ceilings(20e6, &[limited, active]), [5e6, 15e6]);
        let heavy = BulkUse { weight: 3.0, ..active };
        assert_eq!(datagram_ceilings(20e6, &[heavy, active]), [15e6, 5e6]);
        // Never nothing: a socket could not even say that it has data.
        assert_eq!(datagram_ceilings(0.0, &[active]), [SOCKET_RATE_MIN]);
    }

    #[test]
    fn tcp_of_the_class_and_of_others_is_left_its_part() {
        let mixed = BulkUse { is_udp_active: true, is_tcp_backlogged: true, tcp_bit_per_s: 4e6, ..IDLE };
        assert_eq!(datagram_ceilings(20e6, &[mixed]), [10e6]);
        let satisfied = BulkUse { is_tcp_backlogged: false, ..mixed };
        assert_eq!(datagram_ceilings(20e6, &[satisfied]), [16e6]);
        // Another class that sends 2 Mbit/s and has no more keeps room to grow.
        let other = BulkUse { tcp_bit_per_s: 2e6, ..IDLE };
        let active = BulkUse { is_udp_active: true, ..IDLE };
        assert_eq!(datagram_ceilings(20e6, &[active, other])[0], 20e6 - 3.6e6);
    }
}
