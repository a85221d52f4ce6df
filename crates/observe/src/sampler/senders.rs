//! What holds the target's connections back, by the kernel's own account of each (`TCP_INFO`).
//!
//! The kernel divides the time in which a connection has data to send or on its way into that in which the peer's
//! receive window held it back, that in which its own send buffer did (the program had no room to write more), and
//! the rest, in which it waited for the network (`tcpi_busy_time`, `tcpi_rwnd_limited`, `tcpi_sndbuf_limited` of
//! `linux/tcp.h`; the clocks are `tcp_chrono_start` and its kin in `net/ipv4/tcp_output.c`, since Linux 4.10).

use std::collections::HashMap;
use std::io;

use sys::clock::monotonic_ns;
use sys::net::TcpInfo;
use sys::netlink::Connections;
use sys::thread::thread_cpu_ns;

/// A reading walks the kernel's table of all connections; the next one waits until this many times its cost has
/// passed, so that the readings take at most 0.2 % of a core, however many connections there are.
const PAUSE: u64 = 500;

/// What the last reading said.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SendersReading {
    /// Connections over which the target can send.
    pub connections: u64,
    /// How long those that were open at this reading and the one before it waited for the network, in % of the time
    /// in between, on average; `None` when there is none.
    pub limited_percent: Option<f64>,
}

/// Follows the target's connections.
#[derive(Debug)]
pub struct Senders {
    connections: Connections,
    /// By cookie, how long each has waited for the network in its life, in us.
    waited_us: HashMap<u64, u64>,
    at_ns: u64,
    due_ns: u64,
    last: SendersReading,
}

impl Senders {
    /// Those to `port`, in the network namespace of process `namespace_of`.
    pub fn open(port: u16, namespace_of: Option<i32>) -> io::Result<Self> {
        let connections = Connections::open(port, namespace_of)?;
        let last = SendersReading::default();
        Ok(Self { connections, waited_us: HashMap::new(), at_ns: 0, due_ns: 0, last })
    }

    /// What the last reading said, which may be this one.
    pub fn read(&mut self) -> Option<SendersReading> {
        let now_ns = monotonic_ns();
        if now_ns < self.due_ns {
            return Some(self.last);
        }
        let cpu_from_ns = thread_cpu_ns();
        let mut waited_us = HashMap::with_capacity(self.waited_us.len());
        let mut connections = 0;
        let taken = self.connections.read(&mut |connection| {
            connections += 1;
            waited_us.extend(waited_for_network_us(&connection.info).map(|us| (connection.cookie, us)));
        });
        self.due_ns = now_ns.saturating_add(PAUSE * thread_cpu_ns().saturating_sub(cpu_from_ns));
        taken.ok()?;
        let limited_percent = limited_percent(&self.waited_us, &waited_us, now_ns - self.at_ns);
        (self.waited_us, self.at_ns) = (waited_us, now_ns);
        self.last = SendersReading { connections, limited_percent };
        Some(self.last)
    }
}

/// How long a connection has waited for the network in its life; `None` on a kernel that does not count it.
fn waited_for_network_us(info: &TcpInfo) -> Option<u64> {
    let others = info.rwnd_limited_us?.saturating_add(info.sndbuf_limited_us?);
    Some(info.busy_us?.saturating_sub(others))
}

/// The mean over the connections that are in both. One that came or went in between was not open for a known time.
fn limited_percent(before: &HashMap<u64, u64>, now: &HashMap<u64, u64>, elapsed_ns: u64) -> Option<f64> {
    let both = now.iter().filter_map(|(cookie, us)| Some(us.saturating_sub(*before.get(cookie)?)));
    let (sum_us, n) = both.fold((0, 0u64), |(sum, n), us| (sum + us, n + 1));
    let elapsed_us = elapsed_ns as f64 / 1e3;
    // The kernel counts in ticks of up to 10 ms, so a short interval may come out a little over its length.
    (n > 0 && elapsed_ns > 0).then(|| (100.0 * sum_us as f64 / (n as f64 * elapsed_us)).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(busy_us: u64, rwnd_limited_us: u64, sndbuf_limited_us: u64) -> TcpInfo {
        TcpInfo {
            busy_us: Some(busy_us),
            rwnd_limited_us: Some(rwnd_limited_us),
            sndbuf_limited_us: Some(sndbuf_limited_us),
            ..TcpInfo::default()
        }
    }

    #[test]
    fn only_what_neither_window_nor_buffer_explains_is_the_networks() {
        for (busy, rwnd, sndbuf, network) in
            [(900, 0, 0, 900), (900, 900, 0, 0), (900, 500, 300, 100), (0, 0, 0, 0), (900, 904, 0, 0)]
        {
            assert_eq!(waited_for_network_us(&info(busy, rwnd, sndbuf)), Some(network));
        }
        let old = TcpInfo { busy_us: None, ..info(0, 0, 0) };
        assert_eq!(waited_for_network_us(&old), None, "an old kernel does not count it");
    }

    #[test]
    fn connections_are_told_apart_and_averaged() {
        let before = HashMap::from([(1, 1_000_000), (2, 5), (3, 7)]);
        // 1 waited all the second, 2 not at all; 3 has gone and 4 has come.
        let now = HashMap::from([(1, 2_000_000), (2, 5), (4, 900_000)]);
        assert_eq!(limited_percent(&before, &now, 1_000_000_000), Some(50.0));
        assert_eq!(limited_percent(&before, &HashMap::from([(4, 9)]), 1_000_000_000), None);
        assert_eq!(limited_percent(&HashMap::new(), &now, 1_000_000_000), None);
        assert_eq!(limited_percent(&before, &now, 0), None);
    }
}
