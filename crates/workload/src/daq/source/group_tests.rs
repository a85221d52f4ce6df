use super::super::send;
use super::*;
use crate::daq::settings::DaqSettings;
use crate::daq::task::{PortFacts, SourcesTask};
use crate::daq::wire::{Kind, PieceFlags};

const RUN: u32 = 7;
const SOURCES: u32 = 3;

/// Sources that have no connection yet: what they are to send waits.
fn group(window: u32) -> Group {
    let settings = DaqSettings { sources: SOURCES.into(), window, ..DaqSettings::default() };
    let ports = vec!["port".to_owned()];
    let task = SourcesTask { settings, ports, source_first: 0, sources: SOURCES, seed: 1 };
    let at = PortFacts { addresses: vec!["127.0.0.1:9".parse().unwrap()], groups: Vec::new(), run: RUN };
    let told = Told::new(&task, &[at], "").unwrap();
    Group::new(Arc::new(told), 0, SOURCES as usize, 1, 0).unwrap()
}

fn order(kind: Kind, event: u64, first_source: u32, sources: u32) -> Order {
    Order { first_source, sources, ..Order::of_event(kind, RUN, event) }
}

impl Group {
    fn told_of(&mut self, order: &Order) {
        orders::follow(&mut self.desk, &mut self.lanes[0], order, Way::Multicast, 1);
    }

    fn triggered(&mut self, event: u64) {
        self.told_of(&order(Kind::Trigger, event, 0, SOURCES));
    }

    /// The events that each source is to send, in that order.
    fn waiting(&self) -> Vec<Vec<u64>> {
        let events =
            |connection: &Connection| connection.pending.iter().map(|pending| pending.event).collect();
        self.lanes[0].connections.iter().map(events).collect()
    }
}

#[test]
fn what_is_heard_together_is_sent_together_and_in_order() {
    let mut group = group(4);
    group.triggered(0);
    assert_eq!(group.waiting(), vec![vec![0_u64; 0]; 3], "further orders may wait to be read");
    group.triggered(1);
    assert_eq!((group.waiting(), group.lanes[0].together.len()), (vec![vec![0, 1]; 3], 0));
    // The order of 2 was lost.
    group.triggered(3);
    assert_eq!(group.waiting(), vec![vec![0, 1, 2, 3]; 3]);
    let flags = group.lanes[0].connections[0].pending.iter().map(|pending| pending.flags);
    assert!(flags.eq([0, 0, PieceFlags::CATCHUP, 0]));
    assert_eq!(group.desk.account.orders_missed, 1);
}

#[test]
fn nothing_waits_twice_and_each_source_for_what_it_was_told() {
    let mut group = group(8);
    group.triggered(0);
    group.triggered(1);
    assert_eq!(group.lanes[0].together.len(), 2, "1 does not tell of 0 again");
    send::roll_together(&mut group.desk, &mut group.lanes[0]);
    assert_eq!(group.waiting(), vec![vec![0, 1]; 3]);
    group.told_of(&order(Kind::Trigger, 2, 0, 2));
    group.told_of(&order(Kind::Trigger, 3, 1, 2));
    send::roll_together(&mut group.desk, &mut group.lanes[0]);
    assert_eq!(group.waiting(), [vec![0, 1, 2], vec![0, 1, 2, 3], vec![0, 1, 3]]);
}

#[test]
fn a_window_of_two_and_grants_are_followed_at_once() {
    let mut few = group(2);
    few.triggered(0);
    assert_eq!(few.waiting(), vec![vec![0]; 3]);
    let mut granted = group(8);
    granted.told_of(&order(Kind::Grant, 0, 1, 1));
    assert_eq!(granted.waiting(), [vec![], vec![0], vec![]]);
}

#[test]
fn who_is_told_to_stop_sends_nothing_more() {
    let mut group = group(8);
    group.triggered(0);
    group.told_of(&order(Kind::Stop, 0, 0, SOURCES));
    assert!(group.lanes[0].together.is_empty() && group.waiting() == vec![vec![0_u64; 0]; 3]);
    group.triggered(1);
    assert!(group.lanes[0].together.is_empty());
}
