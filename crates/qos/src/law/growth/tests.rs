//! When a search for a faster link begins and ends.

use super::*;

const TICK: GrowthInput = GrowthInput {
    now_ns: 0,
    capacity: 20e6,
    delivered: 12e6,
    is_queue: false,
    is_urgent_active: false,
    is_beside_others: false,
};

fn at(s: f64) -> GrowthInput {
    GrowthInput { now_ns: (s * 1e9) as u64, ..TICK }
}

#[test]
fn message_that_was_faster_begins_a_search_which_is_doubted_after_one_in_vain() {
    let mut hold = Hold::default();
    hold.confirmed(0, 20e6);
    let shown = |hold: &mut Hold, tick| {
        hold.faster_shown_ticks = 1;
        hold.bound(tick)
    };
    let beside = GrowthInput { is_beside_others: true, ..at(1.0) };
    assert_eq!([shown(&mut hold, beside), hold.bound(at(1.1))], [Bound::Held, Bound::Held]);
    assert_eq!(shown(&mut hold, at(2.0)), Bound::Searching);
    let message = GrowthInput { is_urgent_active: true, ..at(2.1) };
    assert_eq!(hold.bound(message), Bound::Searching, "a message does not end it");
    assert_eq!(hold.bound(GrowthInput { is_queue: true, ..at(2.2) }), Bound::Confirmed);
    assert_eq!(shown(&mut hold, at(12.1)), Bound::Held, "a shaper may have let the message pass");
    assert_eq!(hold.bound(at(12.2)), Bound::Searching, "the usual one");
    assert_eq!(hold.bound(GrowthInput { delivered: 22e6, ..at(12.3) }), Bound::Free);
    hold.confirmed(13_000_000_000, 50e6);
    assert_eq!(shown(&mut hold, at(13.1)), Bound::Searching);
}

#[test]
fn search_by_a_message_that_found_more_leaves_no_doubt() {
    let mut hold = Hold::default();
    hold.confirmed(0, 5e6);
    hold.faster_shown_ticks = 1;
    assert_eq!(hold.bound(GrowthInput { capacity: 5e6, delivered: 5e6, ..at(1.0) }), Bound::Searching);
    assert_eq!(hold.bound(GrowthInput { capacity: 5e6, ..at(1.1) }), Bound::Free);
    hold.confirmed(2_000_000_000, 20e6);
    hold.faster_shown_ticks = 1;
    assert_eq!(hold.bound(at(2.1)), Bound::Searching, "the link has become faster again");
}

fn searching() -> Hold {
    let mut hold = Hold::default();
    hold.confirmed(0, 20e6);
    assert_eq!([hold.bound(at(9.9)), hold.bound(at(10.0))], [Bound::Held, Bound::Searching]);
    hold
}

#[test]
fn search_ends_with_a_queue_or_with_more_than_was_known() {
    let mut hold = searching();
    assert_eq!(hold.bound(GrowthInput { delivered: 20.5e6, ..at(10.1) }), Bound::Searching);
    assert_eq!(hold.bound(GrowthInput { is_queue: true, ..at(10.2) }), Bound::Confirmed);
    assert_eq!([hold.bound(at(20.1)), hold.bound(at(20.2))], [Bound::Held, Bound::Searching]);
    let mut hold = searching();
    assert_eq!(hold.bound(GrowthInput { delivered: 22e6, ..at(10.1) }), Bound::Free);
    assert_eq!(hold.bound(at(30.0)), Bound::Free, "until a queue shows how much");
    hold.confirmed(30_000_000_000, 20e6);
    assert_eq!(hold.bound(at(30.1)), Bound::Held);
    // Bulk does not use its rate.
    let mut hold = searching();
    assert_eq!([hold.bound(at(11.0)), hold.bound(at(11.1))], [Bound::Searching, Bound::Held]);
}

#[test]
fn search_is_made_more_often_while_the_capacity_changes() {
    let mut hold = Hold::default();
    hold.confirmed(0, 20e6);
    hold.confirmed(1_000_000_000, 17e6);
    assert_eq!(hold.bound(at(10.9)), Bound::Held, "that is no change");
    hold.confirmed(11_000_000_000, 15e6);
    let mut beside = hold.clone();
    assert_eq!(beside.bound(GrowthInput { is_beside_others: true, ..at(20.9) }), Bound::Held);
    assert_eq!([hold.bound(at(13.9)), hold.bound(at(14.0))], [Bound::Held, Bound::Searching]);
    // It finds nothing; the next is made as soon.
    assert_eq!(hold.bound(GrowthInput { is_queue: true, ..at(14.1) }), Bound::Confirmed);
    assert_eq!([hold.bound(at(17.0)), hold.bound(at(17.2))], [Bound::Held, Bound::Searching]);
    hold.confirmed(70_000_000_000, 15e6);
    assert_eq!([hold.bound(at(79.9)), hold.bound(at(80.0))], [Bound::Held, Bound::Searching]);
}

#[test]
fn messages_without_a_pause_do_not_put_off_a_search_for_ever() {
    let mut hold = Hold::default();
    hold.confirmed(0, 20e6);
    let message = |s| GrowthInput { is_urgent_active: true, ..at(s) };
    assert_eq!([hold.bound(message(10.0)), hold.bound(message(14.9))], [Bound::Held, Bound::Held]);
    assert_eq!([hold.bound(message(15.0)), hold.bound(message(15.1))], [Bound::Searching, Bound::Searching]);
    assert_eq!(hold.bound(GrowthInput { is_queue: true, ..message(15.2) }), Bound::Confirmed);
    assert_eq!(hold.bound(message(29.0)), Bound::Held, "the next is put off, too");
}

#[test]
fn message_ends_a_search_which_is_made_again_soon() {
    let mut hold = searching();
    let message = |s| GrowthInput { is_urgent_active: true, ..at(s) };
    assert_eq!(hold.bound(message(10.1)), Bound::Held);
    assert_eq!([hold.bound(at(11.0)), hold.bound(message(11.2))], [Bound::Held, Bound::Held]);
    assert_eq!(hold.bound(at(11.3)), Bound::Searching, "none begins beside a message");
    for again in 1..5 {
        let s = 11.3 + 2.0 * f64::from(again);
        assert_eq!([hold.bound(message(s - 1.9)), hold.bound(at(s))], [Bound::Held, Bound::Searching]);
    }
    assert_eq!(hold.bound(message(19.4)), Bound::Searching, "a sixth message does not end it");
}
