//! Samples the queues of the followed processes' sockets.

use std::collections::BTreeSet;
use std::time::Duration;

use base::timeline::Counter;
use sys::clock::monotonic_ns;
use sys::netlink::{Sockets, inodes_of};
use sys::thread::thread_cpu_ns;

/// How often at most.
const EVERY: Duration = Duration::from_millis(20);
/// Sampling may take this share of a CPU, as a divisor: on machines with very many sockets it is less
/// frequent.
const SHARE: u64 = 50;
/// How long the owners of sockets are cached.
const OWNERS_FOR: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
struct Look {
    at_ns: u64,
    unread_bytes: u64,
    unsent_bytes: u64,
    window_bytes: u64,
}

/// Sums over all sockets of the followed processes.
#[derive(Debug)]
pub struct SocketWatch {
    sockets: Sockets,
    own: BTreeSet<u64>,
    owners_until_ns: u64,
    next_ns: u64,
    looks: Looks,
}

/// Samples over a time of any length: whenever there are too many, every second one is dropped, and the
/// interval doubles.
#[derive(Debug)]
struct Looks {
    all: Vec<Look>,
    most: usize,
    every_ns: u64,
}

impl Looks {
    fn add(&mut self, look: Look) {
        if self.all.len() >= self.most.max(2) {
            let mut is_kept = false;
            self.all.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.every_ns *= 2;
        }
        self.all.push(look);
    }
}

impl SocketWatch {
    /// In the network namespace of process `namespace_of`, or in this one's; keeps at most `most` samples.
    /// `None` if the kernel does not report it.
    pub fn open(namespace_of: Option<i32>, most: usize) -> Option<Self> {
        let sockets = Sockets::open(namespace_of).ok()?;
        let looks = Looks { all: Vec::new(), most, every_ns: EVERY.as_nanos() as u64 };
        Some(Self { sockets, own: BTreeSet::new(), owners_until_ns: 0, next_ns: 0, looks })
    }

    /// Samples, if a sample is due.
    pub fn look(&mut self, processes: impl FnOnce() -> BTreeSet<u32>) {
        let at_ns = monotonic_ns();
        if at_ns < self.next_ns {
            return;
        }
        let cpu_ns = thread_cpu_ns();
        if at_ns >= self.owners_until_ns {
            self.own = processes().into_iter().flat_map(inodes_of).collect();
            self.owners_until_ns = at_ns + OWNERS_FOR.as_nanos() as u64;
        }
        let mut look = Look { at_ns, unread_bytes: 0, unsent_bytes: 0, window_bytes: 0 };
        let read = match self.own.is_empty() {
            true => Ok(()),
            false => self.sockets.read(&mut |socket| {
                if self.own.contains(&socket.inode) {
                    look.unread_bytes += u64::from(socket.unread_bytes);
                    look.unsent_bytes += u64::from(socket.unsent_bytes);
                    look.window_bytes += socket.congestion_window_bytes.unwrap_or(0);
                }
            }),
        };
        // A failed sample is left out: missing is not zero.
        if read.is_ok() {
            self.looks.add(look);
        }
        let took_ns = thread_cpu_ns() - cpu_ns;
        self.next_ns = at_ns + self.looks.every_ns.max(took_ns * SHARE);
    }

    /// The series between two moments, without those that were always 0.
    pub fn counters(&self, from_ns: u64, to_ns: u64) -> Vec<Counter> {
        let within = || self.looks.all.iter().filter(|look| (from_ns..=to_ns).contains(&look.at_ns));
        let counter = |name: &str, of: fn(&Look) -> u64| Counter {
            name: name.to_owned(),
            points: within().map(|look| (look.at_ns - from_ns, of(look))).collect(),
        };
        let all = [
            counter("receive queues", |look| look.unread_bytes),
            counter("send queues", |look| look.unsent_bytes),
            counter("congestion windows", |look| look.window_bytes),
        ];
        all.into_iter().filter(|counter| counter.points.iter().any(|(_, bytes)| *bytes > 0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_samples_are_thinned_to_fit() {
        let mut looks = Looks { all: Vec::new(), most: 100, every_ns: 1 };
        let mut at_ns = 0;
        for _ in 0..530 {
            looks.add(Look { at_ns, unread_bytes: 0, unsent_bytes: 0, window_bytes: 0 });
            at_ns += looks.every_ns;
        }
        assert!((50..=100).contains(&looks.all.len()), "{}", looks.all.len());
        let apart: Vec<u64> = looks.all.windows(2).map(|two| two[1].at_ns - two[0].at_ns).collect();
        assert!(apart.iter().all(|ns| *ns == looks.every_ns), "evenly over the whole time: {apart:?}");
    }
}
