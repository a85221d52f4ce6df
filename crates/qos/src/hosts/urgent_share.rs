//! Divides what a class of urgent messages may send on all hosts among these hosts.

use crate::SOCKET_RATE_MIN;
use crate::allocate::{Share, weighted_max_min};

/// An urgent class as it sends on one host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UrgentUse {
    /// TCP sockets with a message on its way.
    pub active: usize,
    /// What these messages need, in bit/s; 0: their size is not known.
    pub need: f64,
}

/// What each host may send of each class, in bit/s; 0: no limit. `limits`: of the classes on all hosts
/// together, in bit/s; `None`: no limit. `uses`: by host, then by class of the policy.
///
/// Hosts with messages on their way share the limit by what these need. A host without keeps a part to begin
/// with until its next report: all of the limit while the class is idle everywhere, because a host divides it
/// by the clients of the policy; otherwise an even part beside the hosts that send.
pub fn urgent_shares(limits: &[Option<f64>], uses: &[Vec<UrgentUse>]) -> Vec<Vec<f64>> {
    let mut all = vec![vec![0.0; limits.len()]; uses.len()];
    for (class, limit) in limits.iter().enumerate() {
        let Some(limit) = *limit else { continue };
        let of_host = |host: &Vec<UrgentUse>| host.get(class).copied().unwrap_or_default();
        let of_class: Vec<UrgentUse> = uses.iter().map(of_host).collect();
        for (host, rate) in all.iter_mut().zip(of_one_class(limit, &of_class)) {
            host[class] = rate;
        }
    }
    all
}

fn of_one_class(limit: f64, uses: &[UrgentUse]) -> Vec<f64> {
    let sending = uses.iter().filter(|host| host.active > 0).count();
    let begin = if sending == 0 { limit } else { limit / (sending + 1) as f64 };
    let share = |host: &UrgentUse| Share {
        weight: host.need.max(1.0),
        least: SOCKET_RATE_MIN * host.active as f64,
        most: if host.active > 0 { limit } else { 0.0 },
    };
    let shares: Vec<Share> = uses.iter().map(share).collect();
    let parts = weighted_max_min(limit, &shares);
    let of_host = |(host, part): (&UrgentUse, f64)| if host.active > 0 { part } else { begin };
    // A rate of 0 would be no limit.
    uses.iter().zip(parts).map(of_host).map(|rate| rate.max(SOCKET_RATE_MIN)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDLE: UrgentUse = UrgentUse { active: 0, need: 0.0 };

    fn sending(active: usize) -> UrgentUse {
        UrgentUse { active, need: 1e6 * active as f64 }
    }

    /// Of one class, in Mbit/s.
    fn shown(limit: f64, uses: &[UrgentUse]) -> Vec<f64> {
        let uses: Vec<Vec<UrgentUse>> = uses.iter().map(|host| vec![*host]).collect();
        urgent_shares(&[Some(limit)], &uses).iter().map(|host| (host[0] / 1e3).round() / 1e3).collect()
    }

    #[test]
    fn hosts_share_the_limit_of_a_class_by_what_their_messages_need() {
        assert_eq!(shown(8e6, &[sending(2), sending(6)]), [2.0, 6.0]);
        assert_eq!(shown(4e6, &[sending(2), sending(6)]), [1.0, 3.0]);
        // The size of the messages is not known.
        let unknown = UrgentUse { active: 2, need: 0.0 };
        assert_eq!(shown(8e6, &[unknown, unknown]), [4.0, 4.0]);
        // No socket gets less than its least rate.
        assert_eq!(shown(2e6, &[sending(1), UrgentUse { active: 10, need: 1.0 }]), [1.36, 0.64]);
    }

    #[test]
    fn idle_host_can_begin() {
        assert_eq!(shown(8e6, &[IDLE, IDLE]), [8.0, 8.0]);
        assert_eq!(shown(8e6, &[sending(3), IDLE]), [8.0, 4.0]);
        assert_eq!(shown(0.0, &[IDLE]), [0.064]);
    }

    #[test]
    fn class_without_limit_and_host_without_report_are_not_limited() {
        assert_eq!(urgent_shares(&[None], &[vec![sending(1)]]), [[0.0]]);
        assert_eq!(urgent_shares(&[None, Some(8e6)], &[Vec::new()]), [[0.0, 8e6]]);
    }

    proptest! {
        #[test]
        fn hosts_that_send_keep_to_the_limit_and_each_has_a_rate(
            limit in 0.0f64..1e9,
            hosts in proptest::collection::vec((0usize..20, 0.0f64..1e8), 1..20),
        ) {
            let uses = hosts.into_iter().map(|(active, need)| UrgentUse { active, need });
            let uses: Vec<UrgentUse> = uses.collect();
            let rates = of_one_class(limit, &uses);
            let sending = rates.iter().zip(&uses).filter(|(_, host)| host.active > 0);
            let sent: f64 = sending.map(|(rate, _)| rate).sum();
            let most = limit + SOCKET_RATE_MIN * uses.len() as f64;
            prop_assert!(sent <= most * (1.0 + 1e-9), "{sent} of {limit}");
            let most = limit.max(SOCKET_RATE_MIN) * (1.0 + 1e-9);
            prop_assert!(rates.iter().all(|rate| (SOCKET_RATE_MIN..=most).contains(rate)));
        }
    }
}
