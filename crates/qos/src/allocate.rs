//! Shares a capacity among classes: by priority, by weight, above floors, below ceilings.

/// Share of the capacity that is allocated; the rest keeps the queue short.
pub const USABLE: f64 = 0.97;

/// What one class, or one process of a class, asks for. Rates in bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// 1 is served first.
    pub priority: u8,
    pub weight: f64,
    /// `None`: bulk, which takes what is left.
    pub need: Option<f64>,
    /// Reserved before anything else is allocated.
    pub floor: f64,
    /// Infinite without a limit.
    pub ceiling: f64,
}

impl Claim {
    /// The most that the claim can use.
    fn most(&self) -> f64 {
        self.need.unwrap_or(f64::INFINITY).max(self.floor).min(self.ceiling)
    }
}

/// One party of [`weighted_max_min`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    pub weight: f64,
    pub least: f64,
    pub most: f64,
}

/// Rates in bit/s, in the order of the claims; their sum is at most `usable`.
///
/// Floors are reserved first (in proportion, if they exceed `usable`). Needs are met in the order of
/// priority; where a priority does not fit, its members share what is left by weight. Bulk gets the rest by
/// weight.
pub fn allocate(usable: f64, claims: &[Claim]) -> Vec<f64> {
    let floors: f64 = claims.iter().map(|claim| claim.floor.min(claim.ceiling)).sum();
    let scale = if floors > usable { usable / floors } else { 1.0 };
    let mut rates: Vec<f64> = claims.iter().map(|claim| scale * claim.floor.min(claim.ceiling)).collect();
    let mut left = (usable - rates.iter().sum::<f64>()).max(0.0);
    for group in groups(claims) {
        let shares: Vec<Share> = group
            .iter()
            .map(|&at| Share { weight: claims[at].weight, least: rates[at], most: claims[at].most() })
            .collect();
        let reserved: f64 = shares.iter().map(|share| share.least).sum();
        for (&at, rate) in group.iter().zip(weighted_max_min(reserved + left, &shares)) {
            left -= rate - rates[at];
            rates[at] = rate;
        }
        left = left.max(0.0);
    }
    rates
}

/// Indices of claims that are served together: the needs of each priority, then all bulk.
fn groups(claims: &[Claim]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    let rank = |at: usize| (claims[at].need.is_none(), claims[at].need.map(|_| claims[at].priority));
    order.sort_by_key(|&at| rank(at));
    order.chunk_by(|&a, &b| rank(a) == rank(b)).map(<[usize]>::to_vec).collect()
}

/// Shares `total` by weight, such that each gets at least `least`, at most `most`, and none could get more
/// without taking it from one that has less for its weight (max-min fairness: Bertsekas and Gallager, Data
/// Networks, 6.5.2). If `total` is below the sum of `least`, each gets a part of it in proportion.
pub fn weighted_max_min(total: f64, shares: &[Share]) -> Vec<f64> {
    let least: f64 = shares.iter().map(|share| share.least).sum();
    if least >= total {
        let scale = if least > 0.0 { total / least } else { 0.0 };
        return shares.iter().map(|share| scale * share.least).collect();
    }
    if shares.iter().map(|share| share.most).sum::<f64>() <= total {
        return shares.iter().map(|share| share.most).collect();
    }
    // Every share is clamp(level * weight, least, most). Their sum grows piecewise linearly with the level:
    // walk along its corners to where it is `total`.
    let mut corners: Vec<(f64, f64)> = shares
        .iter()
        .flat_map(|share| {
            [(share.least / share.weight, share.weight), (share.most / share.weight, -share.weight)]
        })
        .collect();
    corners.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut level, mut sum, mut slope) = (0.0, least, 0.0);
    for (corner, change) in corners {
        let next = sum + slope * (corner - level);
        if slope > 0.0 && next >= total {
            break;
        }
        (level, sum, slope) = (corner, if slope > 0.0 { next } else { sum }, slope + change);
    }
    if slope > 0.0 {
        level += (total - sum) / slope;
    }
    shares
        .iter()
        .map(|share| (level * share.weight).clamp(share.least, share.most.max(share.least)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(priority: u8, need: Option<f64>) -> Claim {
        Claim { priority, weight: 1.0, need, floor: 0.0, ceiling: f64::INFINITY }
    }

    #[test]
    fn priorities_are_served_in_order_and_bulk_gets_the_rest() {
        let claims = [claim(5, None), claim(2, Some(30.0)), claim(1, Some(20.0))];
        assert_eq!(allocate(100.0, &claims), [50.0, 30.0, 20.0]);
        assert_eq!(allocate(40.0, &claims), [0.0, 20.0, 20.0]);
        let floor = Claim { floor: 10.0, ..claims[0] };
        assert_eq!(allocate(40.0, &[floor, claims[1], claims[2]]), [10.0, 10.0, 20.0]);
        let ceiling = Claim { ceiling: 5.0, ..claims[2] };
        assert_eq!(allocate(40.0, &[floor, claims[1], ceiling]), [10.0, 25.0, 5.0]);
    }

    #[test]
    fn class_that_does_not_fit_is_shared_by_weight() {
        let heavy = Claim { weight: 3.0, ..claim(1, Some(60.0)) };
        assert_eq!(allocate(40.0, &[heavy, claim(1, Some(60.0))]), [30.0, 10.0]);
        // What a small need leaves goes to the others.
        assert_eq!(allocate(40.0, &[heavy, claim(1, Some(4.0))]), [36.0, 4.0]);
        let floored = Claim { floor: 25.0, ..claim(1, Some(60.0)) };
        assert_eq!(allocate(40.0, &[heavy, floored]), [15.0, 25.0]);
    }

    #[test]
    fn floors_beyond_the_capacity_shrink_in_proportion() {
        let floored = |floor| Claim { floor, ..claim(5, None) };
        assert_eq!(allocate(10.0, &[floored(30.0), floored(10.0)]), [7.5, 2.5]);
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        (1u8..4, 0.1f64..10.0, proptest::option::of(0.0f64..100.0), 0.0f64..20.0, 0.0f64..80.0).prop_map(
            |(priority, weight, need, floor, above)| Claim {
                priority,
                weight,
                need,
                floor,
                ceiling: floor + above,
            },
        )
    }

    proptest! {
        #[test]
        fn allocation_fits_and_respects_floors_and_ceilings(
            usable in 0.0f64..300.0,
            claims in proptest::collection::vec(any_claim(), 0..12),
        ) {
            let rates = allocate(usable, &claims);
            let floors: f64 = claims.iter().map(|claim| claim.floor).sum();
            prop_assert!(rates.iter().sum::<f64>() <= usable + 1e-6);
            for (claim, rate) in claims.iter().zip(&rates) {
                prop_assert!(*rate <= claim.ceiling + 1e-6);
                prop_assert!(floors > usable || *rate >= claim.floor - 1e-6);
                prop_assert!(*rate <= claim.most() + 1e-6);
            }
            // A need is missed only if nothing is left for lower priorities beyond their floors.
            for (urgent, rate) in claims.iter().zip(&rates).filter(|(claim, _)| claim.need.is_some()) {
                if *rate < urgent.most() - 1e-6 {
                    let below = claims.iter().zip(&rates).filter(|(claim, _)| {
                        claim.need.is_none() || claim.priority > urgent.priority
                    });
                    for (claim, rate) in below {
                        prop_assert!(*rate <= claim.floor + 1e-6);
                    }
                }
            }
        }

        #[test]
        fn shares_add_up_and_are_fair(
            total in 0.0f64..200.0,
            shares in proptest::collection::vec((0.1f64..5.0, 0.0f64..10.0, 0.0f64..50.0), 1..10),
        ) {
            let shares: Vec<Share> = shares
                .into_iter()
                .map(|(weight, least, more)| Share { weight, least, most: least + more })
                .collect();
            let rates = weighted_max_min(total, &shares);
            let most: f64 = shares.iter().map(|share| share.most).sum();
            let sum: f64 = rates.iter().sum();
            prop_assert!((sum - total.min(most)).abs() < 1e-6, "{sum} of {total}");
            if shares.iter().map(|share| share.least).sum::<f64>() < total {
                for (a, rate_a) in shares.iter().zip(&rates) {
                    for (b, rate_b) in shares.iter().zip(&rates) {
                        let richer = rate_a / a.weight > rate_b / b.weight + 1e-6;
                        prop_assert!(!richer || *rate_a <= a.least + 1e-6 || *rate_b >= b.most - 1e-6);
                    }
                }
            }
        }
    }
}
