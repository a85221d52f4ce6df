//! What limits the target's connections, by the kernel's counters of each (`TCP_INFO`).
//!
//! The kernel divides the time in which a connection has data to send or on its way into that in which the
//! peer's receive window held it back, that in which its own send buffer did (the program had no room to
//! write more), and the rest, in which it waited for the network (`tcpi_busy_time`, `tcpi_rwnd_limited`,
//! `tcpi_sndbuf_limited` of `linux/tcp.h`; see `tcp_chrono_start` in `net/ipv4/tcp_output.c`, since Linux
//! 4.10).
//!
//! That clock also runs while a part of a segment is held for what follows (`TCP_CORK`, `MSG_MORE`), as
//! zero-copy servers do: a server that waits for its CPU or disk then looks busy all the time. So the rest
//! counts only for a connection that, when it is sampled, has data in flight or a whole segment to send.

use std::collections::HashMap;
use std::io;

use sys::clock::monotonic_ns;
use sys::net::TcpInfo;
use sys::netlink::Connections;
use sys::thread::thread_cpu_ns;

/// A reading walks the kernel's table of all connections; the next one waits until this many times its cost
/// has passed, so that the readings take at most 0.2 % of a core, however many connections there are.
const PAUSE: u64 = 500;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SendersReading {
    pub connections: u64,
    /// Mean time that connections open at both this reading and the one before waited for the network, in %
    /// of the time in between; `None` without such a connection.
    pub limited_percent: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waits {
    /// Total time that it has waited for the network, a held part of a segment included.
    waited_us: u64,
    /// Whether there is more than such a part to wait for now.
    is_waiting: bool,
}

/// Follows the target's connections, by cookie.
#[derive(Debug)]
pub struct Senders {
    connections: Connections,
    known: HashMap<u64, Waits>,
    at_ns: u64,
    due_ns: u64,
    last: SendersReading,
}

impl Senders {
    /// Those to `port`, in the network namespace of process `namespace_of`.
    pub fn open(port: u16, namespace_of: Option<i32>) -> io::Result<Self> {
        let connections = Connections::open(port, namespace_of)?;
        let last = SendersReading::default();
        Ok(Self { connections, known: HashMap::new(), at_ns: 0, due_ns: 0, last })
    }

    /// The result of the last reading, which may be this one.
    pub fn read(&mut self) -> Option<SendersReading> {
        let now_ns = monotonic_ns();
        if now_ns < self.due_ns {
            return Some(self.last);
        }
        let cpu_from_ns = thread_cpu_ns();
        let mut known = HashMap::with_capacity(self.known.len());
        let mut connections = 0;
        let taken = self.connections.read(&mut |connection| {
            connections += 1;
            known.extend(waits(&connection.info).map(|waits| (connection.cookie, waits)));
        });
        self.due_ns = now_ns.saturating_add(PAUSE * thread_cpu_ns().saturating_sub(cpu_from_ns));
        taken.ok()?;
        let limited_percent = limited_percent(&self.known, &known, now_ns - self.at_ns);
        (self.known, self.at_ns) = (known, now_ns);
        self.last = SendersReading { connections, limited_percent };
        Some(self.last)
    }
}

/// `None` on a kernel that does not count it.
fn waits(info: &TcpInfo) -> Option<Waits> {
    let others = info.rwnd_limited_us?.saturating_add(info.sndbuf_limited_us?);
    let is_whole = info.notsent_bytes? >= info.send_mss_bytes?.max(1);
    Some(Waits {
        waited_us: info.busy_us?.saturating_sub(others),
        is_waiting: is_whole || info.unacked_segments? > 0,
    })
}

/// The mean over the connections that are in both. A connection that was opened or closed in between was open
/// for an unknown time.
fn limited_percent(before: &HashMap<u64, Waits>, now: &HashMap<u64, Waits>, elapsed_ns: u64) -> Option<f64> {
    let both = now.iter().filter_map(|(cookie, waits)| {
        let us = waits.waited_us.saturating_sub(before.get(cookie)?.waited_us);
        Some(if waits.is_waiting { us } else { 0 })
    });
    let (sum_us, n) = both.fold((0, 0u64), |(sum, n), us| (sum + us, n + 1));
    let elapsed_us = elapsed_ns as f64 / 1e3;
    // The kernel counts in ticks of up to 10 ms, so the sum can slightly exceed a short interval.
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
            notsent_bytes: Some(0),
            send_mss_bytes: Some(1448),
            unacked_segments: Some(0),
            ..TcpInfo::default()
        }
    }

    #[test]
    fn network_limited_excludes_window_and_buffer() {
        for (busy, rwnd, sndbuf, network) in
            [(900, 0, 0, 900), (900, 900, 0, 0), (900, 500, 300, 100), (0, 0, 0, 0), (900, 904, 0, 0)]
        {
            assert_eq!(waits(&info(busy, rwnd, sndbuf)).unwrap().waited_us, network);
        }
        let old = TcpInfo { busy_us: None, ..info(0, 0, 0) };
        assert_eq!(waits(&old), None, "an old kernel does not count it");
    }

    #[test]
    fn corked_segment_counts_as_waiting_for_the_program() {
        for (notsent, unacked, is_waiting) in [(0, 0, false), (1447, 0, false), (1448, 0, true), (0, 1, true)]
        {
            let seen =
                TcpInfo { notsent_bytes: Some(notsent), unacked_segments: Some(unacked), ..info(900, 0, 0) };
            assert_eq!(waits(&seen).unwrap().is_waiting, is_waiting, "{notsent} {unacked}");
        }
    }

    #[test]
    fn connections_are_distinguished_and_averaged() {
        let of = |all: &[(u64, u64, bool)]| -> HashMap<u64, Waits> {
            all.iter()
                .map(|&(cookie, waited_us, is_waiting)| (cookie, Waits { waited_us, is_waiting }))
                .collect()
        };
        let before = of(&[(1, 1_000_000, true), (2, 5, true), (3, 7, true), (5, 0, true), (6, 0, true)]);
        // 1 waited all the second, 2 not at all, 5 half of it, 6 for its program; 3 has gone and 4 has come.
        let now =
            of(&[(1, 2_000_000, true), (2, 5, true), (4, 9, true), (5, 500_000, true), (6, 999_999, false)]);
        assert_eq!(limited_percent(&before, &now, 1_000_000_000), Some(37.5));
        assert_eq!(limited_percent(&before, &of(&[(4, 9, true)]), 1_000_000_000), None);
        assert_eq!(limited_percent(&HashMap::new(), &now, 1_000_000_000), None);
        assert_eq!(limited_percent(&before, &now, 0), None);
    }
}
