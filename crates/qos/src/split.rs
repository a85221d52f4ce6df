//! Splits the rate of an urgent class over its sockets.

use crate::SOCKET_RATE_MIN;

/// A socket that begins at a lower rate, bit/s, follows a higher one only after some tenths of a second.
const START: f64 = 1e6;

/// An urgent class that is held to a rate. Rates in bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sending {
    /// The most that the class may send.
    pub limit: f64,
    /// Messages that may be on their way at the same time.
    pub clients: f64,
    /// What the largest message needs; 0: not known.
    pub message_need: f64,
    /// What the messages on their way need.
    pub active_need: f64,
    pub sockets: usize,
    /// Sockets with a message on its way.
    pub active: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    /// Of all sockets with a message on its way, together.
    pub active: f64,
    /// Of each other socket, and of each new one, until the next tick.
    pub idle: f64,
}

impl Sending {
    /// All messages of the class can begin at once. Beside others, one begins at no more than it needs, and
    /// those leave as much of the class's rate as they do not need: all together keep to it.
    pub fn parts(&self) -> Parts {
        let active = self.active as f64;
        let more = if self.sockets > self.active { active + 1.0 } else { 1.0 };
        let even = self.limit / self.clients.max(more);
        let beside = if active > 0.0 && self.message_need > 0.0 { even.min(self.message_need) } else { even };
        let idle = beside.max(START.min(self.message_need).min(self.limit)).max(SOCKET_RATE_MIN);
        let may_begin = active > 0.0 && (active < self.clients || self.sockets > self.active);
        let left = if may_begin { idle.min((self.limit - self.active_need).max(0.0)) } else { 0.0 };
        Parts { active: (self.limit - left).max(SOCKET_RATE_MIN), idle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROBOTS: Sending =
        Sending { limit: 40e6, clients: 14.0, message_need: 3e6, active_need: 0.0, sockets: 14, active: 0 };

    #[test]
    fn message_begins_at_its_need_and_a_lone_one_gets_the_rest() {
        let even = 40e6 / 14.0;
        assert_eq!(ROBOTS.parts().idle, even);
        let one = Sending { active: 1, active_need: 3e6, ..ROBOTS };
        assert_eq!(one.parts(), Parts { active: 40e6 - even, idle: even });
        let all = Sending { active: 14, active_need: 42e6, ..ROBOTS };
        assert_eq!(all.parts().active, 40e6);
        // Those that are on their way are not slowed below their need for one that may begin.
        let most = Sending { active: 13, active_need: 39e6, ..ROBOTS };
        assert_eq!(most.parts(), Parts { active: 39e6, idle: even });
        // Where the rate is not enough for all, a lone one can still begin.
        let slow = Sending { limit: 5e6, ..ROBOTS };
        assert_eq!(slow.parts().idle, 1e6);
    }

    #[test]
    fn class_with_one_client_is_not_held_below_its_limit() {
        let one = Sending { clients: 1.0, sockets: 1, ..ROBOTS };
        assert_eq!(one.parts().idle, 40e6);
        let active = Sending { active: 1, active_need: 3e6, ..one };
        assert_eq!(active.parts().active, 40e6);
        // A second socket, beyond the clients of the policy.
        assert_eq!(Sending { sockets: 2, ..active }.parts(), Parts { active: 37e6, idle: 3e6 });
        let unknown = Sending { message_need: 0.0, active_need: 0.0, ..ROBOTS };
        assert!((unknown.parts().idle - 40e6 / 14.0).abs() < 1.0);
    }

    proptest! {
        #[test]
        fn no_socket_is_unlimited_and_one_message_more_fits(
            limit in 20e6f64..1e9, clients in 1u32..100, message_need in 0.0f64..1e8,
            sockets in 0usize..200, active in 0usize..200,
        ) {
            let active = active.min(sockets);
            let active_need = message_need * active as f64;
            let sending =
                Sending { limit, clients: f64::from(clients), message_need, active_need, sockets, active };
            let Parts { active: of_active, idle } = sending.parts();
            prop_assert!(of_active >= SOCKET_RATE_MIN && idle >= SOCKET_RATE_MIN);
            prop_assert!(of_active <= limit && idle <= limit);
            let is_full = active == sockets || active_need + idle > limit;
            prop_assert!(active == 0 || is_full || of_active + idle <= limit + 1.0);
        }
    }
}
