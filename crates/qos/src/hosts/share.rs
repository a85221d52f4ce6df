//! Divides the rate of bulk among the classes of all hosts.

use crate::SOCKET_RATE_MIN;
use crate::allocate::{Share, weighted_max_min};
use crate::datagram_share::BulkUse;
use crate::law::{ClassSettings, START_BIT_PER_S};

/// One class as it sends on one host. Rates in bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostUse {
    /// TCP sockets that send.
    pub active: usize,
    pub tcp_bit_per_s: f64,
    pub is_tcp_backlogged: bool,
    pub is_udp_active: bool,
}

impl HostUse {
    fn is_active(&self) -> bool {
        self.active > 0 || self.is_udp_active
    }

    /// The least that its sockets send, and the most that it can use.
    fn bounds(&self) -> (f64, f64) {
        if !self.is_active() {
            return (0.0, 0.0);
        }
        let least = SOCKET_RATE_MIN * self.active.max(1) as f64;
        let used = BulkUse {
            weight: 1.0,
            floor: least,
            ceiling: f64::INFINITY,
            // One that has just begun can use what one that sends a little can.
            tcp_bit_per_s: self.tcp_bit_per_s.max(1.0),
            is_tcp_backlogged: self.is_tcp_backlogged,
            is_udp_active: self.is_udp_active,
        };
        (least, used.most().max(least))
    }
}

/// What a host gets. Rates in bit/s.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shares {
    pub bulk_bit_per_s: f64,
    /// By class of the policy; 0 for urgent classes, and for those that do not send.
    pub classes: Vec<f64>,
}

/// Shares `bulk` among the classes by weight, above their floors and below their ceilings, and each class's
/// part evenly among the hosts on which it sends: a host with many sockets gets no more than one with few, as
/// it is when hosts are on their own. What a host cannot use goes to others first; what none can use is
/// divided like the rest, so that each can grow. `uses`: by host, then by class of the policy.
///
/// A host that sends no bulk gets a rate to begin with, which the others do not lose.
pub fn shares(bulk: f64, classes: &[ClassSettings], uses: &[Vec<HostUse>]) -> Vec<Shares> {
    let use_of = |host: &Vec<HostUse>, class: usize| host.get(class).copied().unwrap_or_default();
    let bounds: Vec<Vec<(f64, f64)>> = (0..classes.len())
        .map(|class| uses.iter().map(|host| use_of(host, class).bounds()).collect())
        .collect();
    let of_class = |(at, class): (usize, &ClassSettings)| match *class {
        ClassSettings::Bulk { weight, floor, ceiling } => {
            let most: f64 = bounds[at].iter().map(|(_, most)| most).sum();
            let least: f64 = bounds[at].iter().map(|(least, _)| least).sum();
            let (used, ceiling) = (most.min(ceiling), if most > 0.0 { ceiling } else { 0.0 });
            (weight, floor.max(least).min(ceiling).min(used), used, ceiling)
        }
        ClassSettings::Urgent { .. } | ClassSettings::Program { .. } => (1.0, 0.0, 0.0, 0.0),
    };
    let parts = filled(bulk, &classes.iter().enumerate().map(of_class).collect::<Vec<_>>());
    let mut all = vec![Shares { bulk_bit_per_s: 0.0, classes: vec![0.0; classes.len()] }; uses.len()];
    for (class, part) in parts.iter().enumerate().filter(|(_, part)| **part > 0.0) {
        let of_host =
            |(least, most): &(f64, f64)| (1.0, *least, *most, if *most > 0.0 { f64::INFINITY } else { 0.0 });
        let hosts: Vec<_> = bounds[class].iter().map(of_host).collect();
        for (host, rate) in all.iter_mut().zip(filled(*part, &hosts)) {
            host.bulk_bit_per_s += rate;
            host.classes[class] = rate;
        }
    }
    let is_active = |host: &&Shares| host.bulk_bit_per_s > 0.0;
    let active = all.iter().filter(is_active).count();
    let begin = START_BIT_PER_S.min(bulk / (active + 1) as f64).max(SOCKET_RATE_MIN);
    all.iter_mut().filter(|host| host.bulk_bit_per_s <= 0.0).for_each(|host| host.bulk_bit_per_s = begin);
    all
}

/// [`weighted_max_min`] up to what each can use, and then, if something is left, up to its ceiling. Each
/// party: weight, least, most that it can use, ceiling.
fn filled(total: f64, parties: &[(f64, f64, f64, f64)]) -> Vec<f64> {
    let used: Vec<Share> =
        parties.iter().map(|&(weight, least, most, _)| Share { weight, least, most }).collect();
    let rates = weighted_max_min(total, &used);
    if rates.iter().sum::<f64>() >= total {
        return rates;
    }
    let above = |(&(weight, _, _, ceiling), &least): (&(f64, f64, f64, f64), &f64)| Share {
        weight,
        least,
        most: ceiling.max(least),
    };
    let shares: Vec<Share> = parties.iter().zip(&rates).map(above).collect();
    weighted_max_min(total, &shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BULK: ClassSettings = ClassSettings::Bulk { weight: 1.0, floor: 0.0, ceiling: f64::INFINITY };
    const URGENT: ClassSettings = ClassSettings::Program { class: 0, target_s: 0.05, message_bytes: 1e4 };
    const IDLE: HostUse =
        HostUse { active: 0, tcp_bit_per_s: 0.0, is_tcp_backlogged: false, is_udp_active: false };
    const GREEDY: HostUse = HostUse { active: 4, tcp_bit_per_s: 10e6, is_tcp_backlogged: true, ..IDLE };

    fn rates(bulk: f64, classes: &[ClassSettings], uses: &[Vec<HostUse>]) -> Vec<f64> {
        shares(bulk, classes, uses).iter().map(|host| host.bulk_bit_per_s).collect()
    }

    #[test]
    fn hosts_share_a_class_evenly_whatever_their_sockets() {
        let many = HostUse { active: 100, ..GREEDY };
        assert_eq!(rates(40e6, &[BULK, URGENT], &[vec![GREEDY, IDLE], vec![many, GREEDY]]), [20e6, 20e6]);
        // Up to the least rate of a socket.
        let sockets = HostUse { active: 500, ..GREEDY };
        assert_eq!(rates(40e6, &[BULK], &[vec![GREEDY], vec![sockets]]), [8e6, 32e6]);
    }

    #[test]
    fn what_a_host_cannot_use_goes_to_the_others() {
        let slow = HostUse { active: 1, tcp_bit_per_s: 2e6, ..IDLE };
        assert_eq!(rates(40e6, &[BULK], &[vec![GREEDY], vec![slow]]), [40e6 - 3.6e6, 3.6e6]);
        // No host can use it: it stays where one may need it.
        assert_eq!(rates(40e6, &[BULK], &[vec![slow], vec![slow]]), [20e6, 20e6]);
    }

    #[test]
    fn host_that_does_not_send_gets_a_rate_to_begin_with() {
        assert_eq!(rates(40e6, &[BULK], &[vec![GREEDY], vec![IDLE]]), [40e6, 5e6]);
        assert_eq!(rates(4e6, &[BULK], &[vec![GREEDY], vec![IDLE]]), [4e6, 2e6]);
        assert_eq!(rates(40e6, &[BULK], &[Vec::new()]), [5e6]);
    }

    #[test]
    fn weights_floors_and_ceilings_are_of_all_hosts_together() {
        let heavy = ClassSettings::Bulk { weight: 3.0, floor: 0.0, ceiling: f64::INFINITY };
        let of =
            |classes: &[ClassSettings]| shares(40e6, classes, &[vec![GREEDY, IDLE], vec![GREEDY, GREEDY]]);
        let all = of(&[BULK, heavy]);
        assert_eq!(all[0].classes, [5e6, 0.0]);
        assert_eq!(all[1].classes, [5e6, 30e6]);
        let capped = ClassSettings::Bulk { weight: 1.0, floor: 0.0, ceiling: 4e6 };
        assert_eq!(of(&[capped, BULK])[1].classes, [2e6, 36e6]);
        let floored = ClassSettings::Bulk { weight: 1.0, floor: 30e6, ceiling: f64::INFINITY };
        assert_eq!(of(&[floored, BULK])[0].classes, [15e6, 0.0]);
    }

    proptest! {
        #[test]
        fn shares_of_senders_add_up_and_no_socket_is_unlimited(
            bulk in 1e5f64..1e9,
            hosts in proptest::collection::vec(
                proptest::collection::vec((0usize..50, 0.0f64..1e8, any::<bool>(), any::<bool>()), 3), 1..20),
        ) {
            let uses: Vec<Vec<HostUse>> = hosts.into_iter().map(|host| host.into_iter()
                .map(|(active, tcp_bit_per_s, is_tcp_backlogged, is_udp_active)| HostUse {
                    active, tcp_bit_per_s, is_tcp_backlogged: is_tcp_backlogged && active > 0, is_udp_active,
                }).collect()).collect();
            let classes = [BULK, URGENT, ClassSettings::Bulk { weight: 2.0, floor: 1e6, ceiling: 1e9 }];
            let all = shares(bulk, &classes, &uses);
            let sum: f64 = all.iter().flat_map(|host| &host.classes).sum();
            prop_assert!(sum <= bulk * (1.0 + 1e-9), "{} of {}", sum, bulk);
            for (host, uses) in all.iter().zip(&uses) {
                prop_assert!(host.bulk_bit_per_s > 0.0 && host.bulk_bit_per_s.is_finite());
                prop_assert_eq!(host.classes[1], 0.0, "urgent");
                let sends = [0, 2].iter().any(|class| uses[*class].is_active());
                let sum: f64 = host.classes.iter().sum();
                prop_assert!(!sends || (sum / host.bulk_bit_per_s - 1.0).abs() < 1e-9);
                for class in [0, 2] {
                    prop_assert!(uses[class].is_active() == (host.classes[class] > 0.0));
                }
            }
        }
    }
}
