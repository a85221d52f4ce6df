use std::time::Duration;

use reactor::StopHandle;

use super::*;
use crate::part_settings::{PortEndpoint, SourcesTask};
use crate::settings::{DaqSettings, FragmentSizes};
use crate::wire::{FragmentFlags, FragmentHeader};

const RUN: u32 = 7;
const SOURCES: u32 = 3;

/// Sources without connections: what they would send stays queued.
fn group(window: u32) -> Worker {
    let settings = DaqSettings { sources: SOURCES.into(), window, ..DaqSettings::default() };
    let ports = vec!["port".to_owned()];
    let task = SourcesTask { settings, ports, source_first: 0, sources: SOURCES, seed: 1 };
    let addresses = vec!["127.0.0.1:9".parse().unwrap()];
    let at = PortEndpoint { addresses, groups: Vec::new(), run: RUN, watch: Default::default(), pid: 0 };
    let sizes = FragmentSizes::new(&task.settings.size, task.seed, "").unwrap();
    let config = SourcesConfig::new(&task, &[at], sizes);
    let mut events = EventLoop::new(Arc::new(StopHandle::new().unwrap()), 1).unwrap();
    Worker::new(Arc::new(config), 0, SOURCES as usize, 1, events.reactor().registry()).unwrap()
}

fn order(kind: Kind, event: u64, first_source: u32, sources: u32) -> Order {
    Order { event, first_source, ..Order::new(kind, RUN, 0, sources) }
}

impl Worker {
    fn receive_order(&mut self, order: &Order) {
        order_handler::handle_order(&mut self.context, &mut self.links[0], order, Delivery::Multicast, 1);
    }

    fn triggered(&mut self, event: u64) {
        self.receive_order(&order(Kind::Trigger, event, 0, SOURCES));
    }

    /// The queued events of each source.
    fn waiting(&self) -> Vec<Vec<u64>> {
        let events =
            |connection: &Connection| connection.pending.iter().map(|pending| pending.event).collect();
        self.links[0].connections.iter().map(events).collect()
    }
}

#[test]
fn batched_orders_are_sent_together_in_order() {
    let mut group = group(4);
    group.triggered(0);
    assert_eq!(group.waiting(), vec![vec![0_u64; 0]; 3], "further orders may wait to be read");
    group.triggered(1);
    assert_eq!((group.waiting(), group.links[0].batched.len()), (vec![vec![0, 1]; 3], 0));
    // The order of 2 is lost.
    group.triggered(3);
    assert_eq!(group.waiting(), vec![vec![0, 1, 2, 3]; 3]);
    let flags = group.links[0].connections[0].pending.iter().map(|pending| pending.flags);
    assert!(flags.eq([0, 0, FragmentFlags::CATCHUP, 0]));
    assert_eq!(group.context.counters.report.orders_missed, 1);
}

#[test]
fn batch_queues_each_fragment_once_per_addressed_source() {
    let mut group = group(8);
    group.triggered(0);
    group.triggered(1);
    assert_eq!(group.links[0].batched.len(), 2, "event 1 does not repeat event 0");
    sender::send_batched(&mut group.context, &mut group.links[0]);
    assert_eq!(group.waiting(), vec![vec![0, 1]; 3]);
    group.receive_order(&order(Kind::Trigger, 2, 0, 2));
    group.receive_order(&order(Kind::Trigger, 3, 1, 2));
    sender::send_batched(&mut group.context, &mut group.links[0]);
    assert_eq!(group.waiting(), [vec![0, 1, 2], vec![0, 1, 2, 3], vec![0, 1, 3]]);
}

#[test]
fn small_window_and_grants_are_not_batched() {
    let mut few = group(2);
    few.triggered(0);
    assert_eq!(few.waiting(), vec![vec![0]; 3]);
    let mut granted = group(8);
    granted.receive_order(&order(Kind::Grant, 0, 1, 1));
    assert_eq!(granted.waiting(), [vec![], vec![0], vec![]]);
}

#[test]
fn stop_clears_queue_and_batch() {
    let mut group = group(8);
    group.triggered(0);
    group.receive_order(&order(Kind::Stop, 0, 0, SOURCES));
    assert!(group.links[0].batched.is_empty() && group.waiting() == vec![vec![0_u64; 0]; 3]);
    group.triggered(1);
    assert!(group.links[0].batched.is_empty());
}

#[test]
fn clock_answer_has_the_arrival_of_the_probe_however_late_it_is_read() {
    let mut group = group(4);
    let builder = UdpSocket::bind("127.0.0.1:0").unwrap();
    builder.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let at = ("127.0.0.1", group.context.udp_port);
    let late_ns = 20_000_000;
    // The kernel begins to stamp arrivals a moment after the first socket asks for it, and gives a datagram
    // that came before the time of its reading: socket(7).
    let has_arrival = (0..50).any(|event| {
        builder.send_to(&order(Kind::Sync, event, 0, SOURCES).encode(), at).unwrap();
        std::thread::sleep(Duration::from_nanos(late_ns));
        group.read_udp();
        let mut bytes = [0; HEADER_BYTES_MAX];
        let length = builder.recv(&mut bytes).unwrap();
        let (answer, _) = FragmentHeader::decode(&bytes[..length]).unwrap();
        assert_eq!((answer.kind, answer.event), (Kind::Sync, event));
        // It was read after the sleep, and arrived before.
        answer.order_received_ns + late_ns <= answer.sent_ns
    });
    assert!(has_arrival, "each of 50 answers has the time at which its probe was read");
}
