use super::*;
use crate::assembly::fragment_memory::{EventMemory, FragmentMemory};
use crate::wire::Kind;

const SOURCES: u32 = 300;

#[test]
fn parts_complete_a_fragment_in_any_order() {
    let memory = FragmentMemory::new(1 << 20, 1 << 20, 1, 100).allocate(&mut EventMemory::default(), 0, 100);
    let memory = memory.expect("memory");
    let header = FragmentHeader::new(Kind::Fragment, 1, 0, 0);
    let mut partial = PartialFragment { memory, header, whole_bytes: 100, received: Vec::new() };
    assert_eq!(partial.gaps().collect::<Vec<_>>(), [(0, 100)]);
    assert!(partial.add(20, 40) && partial.add(60, 80) && !partial.add(25, 40));
    assert!(!partial.add(50, 50) && !partial.add(99, 99), "an empty range is not new");
    assert_eq!(partial.gaps().collect::<Vec<_>>(), [(0, 20), (40, 20), (80, 20)]);
    assert!(partial.add(30, 70) && partial.add(80, 100) && !partial.is_complete());
    assert_eq!(partial.gaps().collect::<Vec<_>>(), [(0, 20)]);
    assert!(partial.add(0, 20) && partial.is_complete() && partial.gaps().count() == 0);
}

/// An event whose sources were all ordered to send; nothing has arrived.
fn ordered_event() -> (DatagramReassembler, EventTable) {
    let (mut reassembler, mut table) = (DatagramReassembler::default(), EventTable::new(SOURCES));
    reassembler.is_requesting = true;
    table.begin(3, 0, 0);
    reassembler.begin_event(3, 0);
    reassembler.add_order(3, SOURCES);
    (reassembler, table)
}

#[test]
fn missing_sources_are_asked_round_robin() {
    let (mut reassembler, mut table) = ordered_event();
    let slot = table.slot_of(3).unwrap();
    table.event_mut(slot).present.insert(1);
    assert_eq!(reassembler.next_request(QUIET_NS - 1, &table, SOURCES), None);
    let mut asked = [0_u32; SOURCES as usize];
    let mut rounds = 0;
    while let Some(due_ns) = reassembler.next_due_ns() {
        let (event, sources) = reassembler.next_request(due_ns, &table, SOURCES).unwrap();
        assert_eq!((event, sources.len()), (3, REQUESTS_AT_ONCE));
        sources.iter().for_each(|&source| asked[source as usize] += 1);
        assert!(reassembler.next_request(due_ns, &table, SOURCES).is_none(), "not before the next interval");
        rounds += 1;
    }
    let of_others: Vec<u32> =
        (0_u32..).zip(asked).filter(|(source, _)| *source != 1).map(|(_, n)| n).collect();
    let (least, most) = (*of_others.iter().min().unwrap(), *of_others.iter().max().unwrap());
    assert!(least >= TRIES && most <= least + 1, "{least} to {most} times");
    assert_eq!(asked[1], 0, "its fragment arrived");
    assert!(rounds <= TRIES * SOURCES.div_ceil(REQUESTS_AT_ONCE as u32), "{rounds} rounds");
}

#[test]
fn requests_continue_while_bytes_arrive() {
    let (mut reassembler, table) = ordered_event();
    let mut now_ns = 0;
    for _ in 0..5 * TRIES {
        for _ in 0..4 {
            now_ns = reassembler.next_due_ns().unwrap();
            assert!(reassembler.next_request(now_ns, &table, SOURCES).is_some());
        }
        reassembler.bytes_arrived(3, now_ns);
        assert_eq!(reassembler.next_due_ns(), Some(now_ns + QUIET_NS), "the quiet period restarts");
    }
    while let Some(due_ns) = reassembler.next_due_ns() {
        assert!(reassembler.next_request(due_ns, &table, SOURCES).is_some());
    }
    assert!(reassembler.was_requested(3) && !reassembler.was_requested(4));
    // A further order restarts the requests.
    reassembler.add_order(3, SOURCES);
    assert_eq!(reassembler.next_due_ns(), None, "these had been ordered before");
    reassembler.add_order(3, SOURCES + 1);
    assert!(reassembler.next_due_ns().is_some());
    reassembler.end_event(3);
    assert_eq!(reassembler.next_due_ns(), None);
}

#[test]
fn sources_without_order_are_not_asked() {
    let (mut reassembler, mut table) = ordered_event();
    table.begin(4, 0, 0);
    reassembler.end_event(3);
    reassembler.begin_event(4, 0);
    for _ in 0..10 * TRIES {
        let due_ns = reassembler.next_due_ns().unwrap();
        assert_eq!(reassembler.next_request(due_ns, &table, SOURCES), Some((4, Vec::new())));
    }
    reassembler.add_order(4, 2);
    let due_ns = reassembler.next_due_ns().unwrap();
    assert_eq!(reassembler.next_request(due_ns, &table, SOURCES), Some((4, vec![0, 1])));
}
