use super::*;
use crate::daq::builder::memory::{Held, Memory};
use crate::daq::wire::PieceFlags;

const SOURCES: u32 = 300;

#[test]
fn parts_make_a_whole_in_any_order() {
    let room = Memory::new(1 << 20, 1, 100).take(&mut Held::default(), 0, 100).expect("room");
    let piece = Piece {
        kind: Kind::Fragment,
        flags: PieceFlags::default(),
        run: 1,
        builder: 0,
        event: 0,
        source: 0,
        payload_bytes: 0,
        order_received_ns: 0,
        sent_ns: 0,
        clock_error_ns: 0,
        sequence: 0,
        payload_crc: 0,
    };
    let mut parts = Parts { room, piece, whole_bytes: 100, came: Vec::new() };
    assert_eq!(parts.gaps().collect::<Vec<_>>(), [(0, 100)]);
    assert!(parts.add(20, 40) && parts.add(60, 80) && !parts.add(25, 40));
    assert!(!parts.add(50, 50) && !parts.add(99, 99), "nothing is nothing new");
    assert_eq!(parts.gaps().collect::<Vec<_>>(), [(0, 20), (40, 20), (80, 20)]);
    assert!(parts.add(30, 70) && parts.add(80, 100) && !parts.is_whole());
    assert_eq!(parts.gaps().collect::<Vec<_>>(), [(0, 20)]);
    assert!(parts.add(0, 20) && parts.is_whole() && parts.gaps().count() == 0);
}

/// An event under way of which nothing came; all its sources were told to send.
fn begun() -> (Gathering, Table) {
    let (mut gathering, mut table) = (Gathering::default(), Table::new(SOURCES));
    gathering.turn_on();
    table.begin(3, 0, 0, true);
    gathering.begin(3, 0);
    gathering.ordered(3, SOURCES);
    (gathering, table)
}

#[test]
fn all_that_are_missing_are_asked_in_turn() {
    let (mut gathering, mut table) = begun();
    let slot = table.slot_of(3).unwrap();
    table.slot(slot).present.insert(1);
    assert_eq!(gathering.due(QUIET_NS - 1, &table, SOURCES), None);
    let mut asked = [0_u32; SOURCES as usize];
    let mut rounds = 0;
    while let Some(due_ns) = gathering.next_due_ns() {
        let (event, whom) = gathering.due(due_ns, &table, SOURCES).unwrap();
        assert_eq!((event, whom.len()), (3, REQUESTS_AT_ONCE));
        whom.iter().for_each(|&source| asked[source as usize] += 1);
        assert!(gathering.due(due_ns, &table, SOURCES).is_none(), "no more at once");
        rounds += 1;
    }
    let of_others: Vec<u32> =
        (0_u32..).zip(asked).filter(|(source, _)| *source != 1).map(|(_, n)| n).collect();
    let (least, most) = (*of_others.iter().min().unwrap(), *of_others.iter().max().unwrap());
    assert!(least >= TRIES && most <= least + 1, "{least} to {most} times");
    assert_eq!(asked[1], 0, "it is there");
    assert!(rounds <= TRIES * SOURCES.div_ceil(REQUESTS_AT_ONCE as u32), "{rounds} rounds");
}

#[test]
fn asking_goes_on_as_long_as_it_brings_anything() {
    let (mut gathering, table) = begun();
    let mut now_ns = 0;
    for _ in 0..5 * TRIES {
        for _ in 0..4 {
            now_ns = gathering.next_due_ns().unwrap();
            assert!(gathering.due(now_ns, &table, SOURCES).is_some());
        }
        gathering.came(3, now_ns);
        assert_eq!(gathering.next_due_ns(), Some(now_ns + QUIET_NS), "the pause begins anew");
    }
    while let Some(due_ns) = gathering.next_due_ns() {
        assert!(gathering.due(due_ns, &table, SOURCES).is_some());
    }
    assert!(gathering.was_asked_for(3) && !gathering.was_asked_for(4));
    // Others are told to send only then.
    gathering.ordered(3, SOURCES);
    assert_eq!(gathering.next_due_ns(), None, "these were told before");
    gathering.ordered(3, SOURCES + 1);
    assert!(gathering.next_due_ns().is_some());
    gathering.end(3);
    assert_eq!(gathering.next_due_ns(), None);
}

#[test]
fn who_was_not_told_to_send_is_not_asked() {
    let (mut gathering, mut table) = begun();
    table.begin(4, 0, 0, true);
    gathering.end(3);
    gathering.begin(4, 0);
    for _ in 0..10 * TRIES {
        let due_ns = gathering.next_due_ns().unwrap();
        assert_eq!(gathering.due(due_ns, &table, SOURCES), Some((4, Vec::new())));
    }
    gathering.ordered(4, 2);
    let due_ns = gathering.next_due_ns().unwrap();
    assert_eq!(gathering.due(due_ns, &table, SOURCES), Some((4, vec![0, 1])));
}
