use proptest::prelude::*;

use super::*;

/// A class of which each message needs 1 Mbit/s.
fn urgent(priority: u8, clients: f64, active: f64) -> Urgent {
    Urgent {
        priority,
        weight: 1.0,
        floor: 0.0,
        ceiling: f64::INFINITY,
        clients,
        message_need: 1e6,
        full_need: 1e6 * clients,
        active_need: 1e6 * active,
        is_active: active > 0.0,
        sent: 0.0,
        early_share: 0.0,
        is_expected: true,
        lends: false,
    }
}

fn bulk(floor: f64, is_active: bool) -> Class {
    Class::Bulk { weight: 1.0, floor, is_active }
}

/// Limits at 20 Mbit/s, in Mbit/s.
fn shown(classes: &[Class]) -> Vec<Option<f64>> {
    let limits = limits(Some(20e6), classes, &held(20e6, classes, true));
    limits.into_iter().map(|limit| limit.map(|limit| (limit / 1e3).round() / 1e3)).collect()
}

#[test]
fn less_urgent_class_leaves_what_more_urgent_ones_need() {
    let of = |alarms: f64, robots: f64| {
        let classes = [Class::Urgent(urgent(1, 3.0, alarms)), Class::Urgent(urgent(2, 14.0, robots))];
        shown(&classes)[1]
    };
    // An idle one keeps one message; of an active one, one more.
    assert_eq!([of(0.0, 14.0), of(1.0, 14.0), of(3.0, 14.0)], [Some(19.0), Some(18.0), Some(17.0)]);
    let classes = [Class::Urgent(urgent(1, 3.0, 3.0)), Class::Urgent(urgent(2, 14.0, 14.0))];
    assert_eq!(shown(&classes)[0], None, "the most urgent is not held");
    // What must be free before a message begins is not lent.
    let early = Urgent { early_share: 0.8, ..urgent(1, 10.0, 0.0) };
    assert_eq!(shown(&[Class::Urgent(early), classes[1]])[1], Some(12.0));
    // What the most urgent takes beyond its need comes out of what no class needs.
    let greedy = Urgent { sent: 12e6, ..urgent(1, 3.0, 3.0) };
    assert_eq!(shown(&[Class::Urgent(greedy), Class::Urgent(urgent(2, 14.0, 5.0))])[1], Some(8.0));
    assert_eq!(shown(&[Class::Urgent(greedy), classes[1]])[1], Some(14.0));
}

#[test]
fn three_classes_are_served_in_order_and_floors_are_kept() {
    let third = Urgent { floor: 2e6, ..urgent(3, 4.0, 4.0) };
    let first = Class::Urgent(urgent(1, 8.0, 8.0));
    let second = Class::Urgent(urgent(2, 12.0, 12.0));
    // 8 + 10 of 12 + the floor of 2.
    assert_eq!(shown(&[first, second, Class::Urgent(third)]), [None, Some(10.0), Some(2.0)]);
    // The floor of an idle class, and of idle bulk, is lent.
    let idle = Urgent { active_need: 0.0, is_active: false, ..third };
    assert_eq!(shown(&[first, second, Class::Urgent(idle)])[1], Some(12.0));
    assert_eq!(shown(&[first, second, bulk(2e6, false)])[1], Some(12.0));
    assert_eq!(shown(&[first, second, bulk(2e6, true)])[1], Some(10.0));
}

#[test]
fn idle_classes_can_begin_at_once_together() {
    let idle = |priority, clients| Class::Urgent(urgent(priority, clients, 0.0));
    let classes = [idle(1, 3.0), idle(2, 10.0), idle(3, 4.0)];
    // 17 of 20 are needed; each has a third of the rest.
    assert_eq!(shown(&classes), [None, Some(11.0), Some(5.0)]);
    // With a floor of bulk that sends, 5 of 20 are left.
    assert_eq!(shown(&[classes[0], classes[1], bulk(2e6, true)])[1], Some(11.667));
}

#[test]
fn classes_of_a_priority_that_do_not_fit_share_by_weight() {
    let heavy = Class::Urgent(Urgent { weight: 3.0, ..urgent(1, 20.0, 20.0) });
    let light = Class::Urgent(urgent(1, 20.0, 20.0));
    assert_eq!(shown(&[heavy, light]), [Some(15.0), Some(5.0)]);
    // If they fit, none is held.
    assert_eq!(
        shown(&[Class::Urgent(urgent(1, 10.0, 10.0)), Class::Urgent(urgent(1, 10.0, 10.0))]),
        [None; 2]
    );
    // With an estimated capacity the most urgent are never held.
    assert_eq!(held(20e6, &[heavy, light], false), [false, false]);
}

#[test]
fn what_nobody_needs_is_shared_with_bulk_and_grows_with_use() {
    let first = Class::Urgent(urgent(1, 1.0, 0.0));
    let second = urgent(2, 1.0, 1.0);
    // Alone, it has all but the message of the first.
    assert_eq!(shown(&[first, Class::Urgent(second)])[1], Some(19.0));
    assert_eq!(shown(&[first, Class::Urgent(second), bulk(0.0, true)])[1], Some(1.0));
    let busy = Urgent { sent: 4e6, ..second };
    assert_eq!(shown(&[first, Class::Urgent(busy), bulk(0.0, true)])[1], Some(7.0));
    let busy = Urgent { sent: 10e6, ..second };
    // 1 + 18 / 2.
    assert_eq!(shown(&[first, Class::Urgent(busy), bulk(0.0, true)])[1], Some(10.0));
}

#[test]
fn ceiling_holds_even_the_most_urgent_class_and_without_a_capacity() {
    let capped = Class::Urgent(Urgent { ceiling: 3e6, ..urgent(1, 2.0, 1.0) });
    assert_eq!(shown(&[capped]), [Some(3.0)]);
    let classes = [capped, Class::Urgent(urgent(2, 1.0, 1.0))];
    assert_eq!(limits(None, &classes, &[false, true]), [Some(3e6), None]);
}

#[test]
fn bulk_leaves_what_is_needed_or_sent() {
    let classes = [
        Class::Urgent(urgent(1, 3.0, 0.0)),
        Class::Urgent(Urgent { sent: 5e6, message_need: 4e6, full_need: 4e6, ..urgent(2, 1.0, 4.0) }),
        bulk(0.0, true),
    ];
    let held = held(20e6, &classes, true);
    assert_eq!(kept_from_bulk(&classes, &held, &[]), [1e6, 5e6, 0.0]);
    let limits = limits(Some(20e6), &classes, &held);
    assert_eq!(kept_from_bulk(&classes, &held, &limits), [1e6, 8.5e6, 0.0]);
    let Class::Urgent(first) = classes[0] else { panic!() };
    let unexpected = Class::Urgent(Urgent { is_expected: false, ..first });
    assert_eq!(kept_from_bulk(&[unexpected, classes[1]], &held, &[]), [0.0, 5e6]);
}

fn any_class() -> impl Strategy<Value = Class> {
    let urgent = (
        (1u8..4, 0.1f64..10.0, 0.0f64..5e6, proptest::option::of(64e3f64..40e6)),
        (1u32..20, 0.0f64..5e6, 0u32..20, 0.0f64..40e6, 0.0f64..1.0),
    )
        .prop_map(
            |((priority, weight, floor, above), (clients, message_need, active, sent, early_share))| {
                Class::Urgent(Urgent {
                    weight,
                    floor,
                    ceiling: above.map_or(f64::INFINITY, |above| floor + above),
                    message_need,
                    full_need: message_need * f64::from(clients),
                    active_need: message_need * f64::from(active),
                    is_active: active > 0,
                    sent,
                    early_share,
                    ..urgent(priority, f64::from(clients), 0.0)
                })
            },
        );
    let bulk = (0.1f64..10.0, 0.0f64..5e6, any::<bool>())
        .prop_map(|(weight, floor, is_active)| Class::Bulk { weight, floor, is_active });
    prop_oneof![3 => urgent, 1 => bulk]
}

proptest! {
    #[test]
    fn held_classes_leave_the_needs_of_more_urgent_ones(
        usable in 10e6f64..100e6,
        classes in proptest::collection::vec(any_class(), 1..7),
    ) {
        let held = held(usable, &classes, true);
        let limits = limits(Some(usable), &classes, &held);
        let floors: f64 = classes.iter().map(|class| match class {
            Class::Urgent(urgent) => urgent.floor(),
            Class::Bulk { floor, .. } => *floor,
        }).sum();
        for (at, class) in classes.iter().enumerate() {
            let Class::Urgent(own) = class else { prop_assert_eq!(limits[at], None); continue };
            let Some(limit) = limits[at] else { continue };
            prop_assert!(limit.is_finite() && limit >= SOCKET_RATE_MIN);
            prop_assert!(limit <= own.ceiling.max(SOCKET_RATE_MIN) + 1.0);
            let above: f64 = classes.iter().map(|other| match other {
                Class::Urgent(other) if other.priority < own.priority => other.need(),
                _ => 0.0,
            }).sum();
            // Only its floor is before them.
            let most = (usable - above).max(own.floor()).max(SOCKET_RATE_MIN);
            prop_assert!(!held[at] || floors > usable || limit <= most + 1.0, "{} {}", limit, most);
        }
        // What active held classes may send fits, if the needs of all fit.
        let of = |of: fn(&Urgent) -> f64| -> f64 {
            let all = classes.iter().filter_map(|class| match class {
                Class::Urgent(urgent) => Some(of(urgent)),
                Class::Bulk { .. } => None,
            });
            all.sum()
        };
        let sums = classes.iter().zip(&limits).zip(&held).map(|((class, limit), held)| match (class, limit) {
            (Class::Urgent(urgent), Some(limit)) if urgent.is_active && *held => *limit,
            (Class::Urgent(urgent), _) => urgent.need(),
            _ => 0.0,
        });
        let (sum, needs) = (sums.sum::<f64>(), of(|urgent| urgent.need().max(urgent.floor())));
        prop_assert!(needs + floors > usable || sum <= usable + 1.0, "{} of {}", sum, usable);
    }
}
