//! What each socket did while it was observed.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use sys::net::TcpInfo;
use sys::netlink::{Flow, FlowSampler};

/// A socket, and what it did meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct SocketUse {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub is_tcp: bool,
    /// Time with data in flight or to send (`tcpi_busy_time`), and of that limited by the peer's receive
    /// window and by the send buffer.
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    /// Largest number of bytes seen that were written and not sent yet (`tcpi_notsent_bytes`).
    pub notsent_bytes_max: u64,
    /// The rate at which data arrived at the peer, as last seen.
    pub delivery_bytes_per_s: Option<u64>,
    /// Least round-trip time seen by the kernel (`tcpi_min_rtt`).
    pub rtt_min_us: Option<u64>,
    /// Sizes of its buffers as last seen (`SK_MEMINFO_SNDBUF`, `SK_MEMINFO_RCVBUF`).
    pub send_buffer_bytes: Option<u64>,
    pub receive_buffer_bytes: Option<u64>,
    /// Datagrams that it dropped (`SK_MEMINFO_DROPS`).
    pub drops: u64,
}

impl SocketUse {
    /// What fits into its path: delivery rate by least round-trip time.
    pub fn bandwidth_delay_bytes(&self) -> Option<u64> {
        let product = u128::from(self.delivery_bytes_per_s?) * u128::from(self.rtt_min_us?) / 1_000_000;
        u64::try_from(product).ok()
    }
}

/// The counters of a socket at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    busy_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
    drops: u64,
}

impl Totals {
    fn of_flow(flow: &Flow) -> Self {
        let empty = TcpInfo::default();
        let info = flow.tcp.as_ref().unwrap_or(&empty);
        Self {
            busy_us: info.busy_us.unwrap_or_default(),
            rwnd_limited_us: info.rwnd_limited_us.unwrap_or_default(),
            sndbuf_limited_us: info.sndbuf_limited_us.unwrap_or_default(),
            drops: flow.memory.map_or(0, |memory| memory.drops.into()),
        }
    }
}

struct Watched {
    first: Totals,
    seen: SocketUse,
}

/// All TCP and UDP sockets of the network namespace of this thread.
pub struct Sockets {
    sampler: FlowSampler,
    watched: HashMap<u64, Watched>,
    samples: u64,
}

impl Sockets {
    /// Errors: the kernel does not list sockets (`CONFIG_INET_DIAG`).
    pub fn open() -> io::Result<Self> {
        Ok(Self { sampler: FlowSampler::open(None)?, watched: HashMap::new(), samples: 0 })
    }

    /// Lists them once.
    pub fn sample(&mut self) -> io::Result<()> {
        let Self { sampler, watched, samples } = self;
        let is_first = *samples == 0;
        *samples += 1;
        sampler.read(&mut |flow| watch(watched, &flow, is_first))
    }

    /// What they did since the first listing.
    pub fn used(self) -> Vec<SocketUse> {
        self.watched.into_values().map(|watched| watched.seen).collect()
    }
}

fn watch(watched: &mut HashMap<u64, Watched>, flow: &Flow, is_first: bool) {
    let now = Totals::of_flow(flow);
    let one = watched.entry(flow.cookie).or_insert_with(|| Watched {
        // A socket that was made meanwhile counts from its beginning.
        first: if is_first { now } else { Totals::default() },
        seen: unused(flow),
    });
    let (first, seen) = (&one.first, &mut one.seen);
    if seen.is_tcp && flow.tcp.is_none() {
        // Without TCP_INFO there is nothing to add.
        return;
    }
    seen.busy_us = now.busy_us.saturating_sub(first.busy_us);
    seen.rwnd_limited_us = now.rwnd_limited_us.saturating_sub(first.rwnd_limited_us);
    seen.sndbuf_limited_us = now.sndbuf_limited_us.saturating_sub(first.sndbuf_limited_us);
    seen.drops = now.drops.saturating_sub(first.drops);
    if let Some(info) = &flow.tcp {
        seen.notsent_bytes_max = seen.notsent_bytes_max.max(info.notsent_bytes.unwrap_or_default().into());
        seen.rtt_min_us = info.min_rtt_us.map(u64::from).or(seen.rtt_min_us);
        seen.delivery_bytes_per_s = info.delivery_bytes_per_s.or(seen.delivery_bytes_per_s);
    }
    if let Some(memory) = flow.memory {
        seen.send_buffer_bytes = Some(memory.send_max.into());
        seen.receive_buffer_bytes = Some(memory.receive_max.into());
    }
}

fn unused(flow: &Flow) -> SocketUse {
    SocketUse {
        local: flow.local,
        peer: flow.peer,
        is_tcp: flow.tcp.is_some(),
        busy_us: 0,
        rwnd_limited_us: 0,
        sndbuf_limited_us: 0,
        notsent_bytes_max: 0,
        delivery_bytes_per_s: None,
        rtt_min_us: None,
        send_buffer_bytes: None,
        receive_buffer_bytes: None,
        drops: 0,
    }
}

#[cfg(test)]
mod tests {
    use sys::netlink::SocketMemory;

    use super::*;

    fn flow(cookie: u64, busy_us: u64, sndbuf_limited_us: u64) -> Flow {
        let info = TcpInfo {
            busy_us: Some(busy_us),
            sndbuf_limited_us: Some(sndbuf_limited_us),
            notsent_bytes: Some(u32::try_from(busy_us).unwrap()),
            ..TcpInfo::default()
        };
        Flow {
            local: "127.0.0.1:1".parse().unwrap(),
            peer: "127.0.0.1:2".parse().unwrap(),
            interface: 0,
            state: 1,
            cookie,
            inode: 1,
            uid: 0,
            unread_bytes: 0,
            unsent_bytes: 0,
            memory: Some(SocketMemory { send_max: 4096, ..SocketMemory::default() }),
            priority: None,
            tcp: Some(info),
            congestion: None,
        }
    }

    #[test]
    fn old_connections_count_from_the_first_listing_and_new_ones_from_their_beginning() {
        let mut watched = HashMap::new();
        watch(&mut watched, &flow(1, 1000, 500), true);
        watch(&mut watched, &flow(1, 3000, 600), false);
        watch(&mut watched, &flow(2, 70, 60), false);
        let seen = |cookie: u64| &watched[&cookie].seen;
        assert_eq!((seen(1).busy_us, seen(1).sndbuf_limited_us), (2000, 100));
        assert_eq!((seen(2).busy_us, seen(2).sndbuf_limited_us), (70, 60));
        assert_eq!((seen(1).notsent_bytes_max, seen(1).send_buffer_bytes), (3000, Some(4096)));
    }

    #[test]
    fn connection_without_tcp_info_keeps_what_it_did() {
        let mut watched = HashMap::new();
        watch(&mut watched, &flow(1, 0, 0), true);
        watch(&mut watched, &flow(1, 900, 90), false);
        let mut ended = flow(1, 0, 0);
        ended.tcp = None;
        watch(&mut watched, &ended, false);
        assert_eq!((watched[&1].seen.busy_us, watched[&1].seen.sndbuf_limited_us), (900, 90));
    }
}
