//! What links have carried, as the kernel counts it at their ends.

use std::collections::BTreeMap;
use std::path::Path;

use sys::netlink::Queue;
use sys::proc::NetDevice;

use super::network::Network;
use crate::state::{LinkCount, LinkState, Sent};

/// Where a number belongs: which link, and which of its ends.
type Place = (usize, usize);

/// Each link's count, in their order; one whose ends cannot be read is not among them.
pub(super) fn count(network: &Network, links: &[LinkState]) -> Vec<LinkCount> {
    let mut ends = BTreeMap::<&str, Vec<(Place, &str)>>::new();
    for (index, link) in links.iter().enumerate() {
        for (side, end) in link.ends.iter().enumerate() {
            ends.entry(&end.namespace).or_default().push(((index, side), &end.device));
        }
    }
    let mut sent = BTreeMap::<Place, Sent>::new();
    for (namespace, devices) in ends {
        let counted = network.of(namespace).and_then(|there| Ok(there.within(|| count_here(&devices))?));
        sent.extend(counted.unwrap_or_default());
    }
    let of = |(index, link): (usize, &LinkState)| {
        let [up, down] = [0, 1].map(|side| sent.get(&(index, side)).copied());
        Some(LinkCount { link: link.number, up: up?, down: down? })
    };
    links.iter().enumerate().filter_map(of).collect()
}

/// In the namespace that this thread is in.
fn count_here(devices: &[(Place, &str)]) -> Vec<(Place, Sent)> {
    let thread = sys::thread::thread_id();
    let count = |device: &str| {
        let counted = NetDevice::open_of_pid(Path::new("/"), thread, device).ok()?.read().ok()?;
        // What waits for a rate, and finds no room, is dropped by the queue and not by the device.
        let queue = Queue::open(device, None).ok()?;
        let queue = queue.and_then(|mut queue| queue.read().ok()?.drops).unwrap_or_default();
        let dropped = counted.tx_dropped + queue;
        Some(Sent { packets: counted.tx_packets, bytes: counted.tx_bytes, dropped })
    };
    devices.iter().filter_map(|(place, device)| Some((*place, count(device)?))).collect()
}
