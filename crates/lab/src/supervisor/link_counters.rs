//! Traffic of links, as counted by the kernel at their ends.

use std::collections::BTreeMap;
use std::path::Path;

use sys::netlink::Queue;
use sys::proc::NetDevice;

use super::network::Network;
use crate::state::{LinkCounters, LinkEndCounters, LinkState};

type EndIndex = (usize, usize);

/// Counters of all links, without links that cannot be read.
pub(super) fn count(network: &Network, links: &[LinkState]) -> Vec<LinkCounters> {
    let mut ends = BTreeMap::<&str, Vec<(EndIndex, &str)>>::new();
    for (index, link) in links.iter().enumerate() {
        for (side, end) in link.ends.iter().enumerate() {
            ends.entry(&end.namespace).or_default().push(((index, side), &end.device));
        }
    }
    let mut sent = BTreeMap::<EndIndex, LinkEndCounters>::new();
    for (namespace, devices) in ends {
        let counted = network.of(namespace).and_then(|there| Ok(there.within(|| count_here(&devices))?));
        sent.extend(counted.unwrap_or_default());
    }
    let of = |(index, link): (usize, &LinkState)| {
        let [up, down] = [0, 1].map(|side| sent.get(&(index, side)).copied());
        Some(LinkCounters { link: link.number, up: up?, down: down? })
    };
    links.iter().enumerate().filter_map(of).collect()
}

/// In the namespace of this thread.
fn count_here(devices: &[(EndIndex, &str)]) -> Vec<(EndIndex, LinkEndCounters)> {
    let thread = sys::thread::thread_id();
    let count = |device: &str| {
        let counted = NetDevice::open_of_pid(Path::new("/"), thread, device).ok()?.read().ok()?;
        // The queue, not the device, drops packets that exceed the rate.
        let queue = Queue::open(device, None).ok()?;
        let queue = queue.and_then(|mut queue| queue.read().ok()?.drops).unwrap_or_default();
        let dropped = counted.tx_dropped + queue;
        Some(LinkEndCounters { packets: counted.tx_packets, bytes: counted.tx_bytes, dropped })
    };
    devices.iter().filter_map(|(index, device)| Some((*index, count(device)?))).collect()
}
