//! Reads the memory of sockets, a few at a time.

use reactor::InfoSampler;

use super::client::Client;
use super::stats::ClassStats;

const SAMPLES_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct SocketSampler {
    sampler: InfoSampler,
    /// Total and largest memory of each class in the pass under way.
    pass: Vec<(u64, u64)>,
    keeps_clients: bool,
}

impl SocketSampler {
    pub(super) fn new(period_ns: u64, classes: usize, keeps_clients: bool) -> Self {
        Self { sampler: InfoSampler::new(period_ns), pass: vec![(0, 0); classes], keeps_clients }
    }

    /// When there is something to read.
    pub(super) const fn next_ns(&self) -> u64 {
        self.sampler.next_ns()
    }

    /// Reads some, if it is time.
    pub(super) fn sample(&mut self, clients: &[Client], stats: &mut [ClassStats], now_ns: u64) {
        if self.sampler.is_due(now_ns) {
            self.sampler.begin();
        }
        let range = self.sampler.take(clients.len(), SAMPLES_AT_ONCE);
        let is_last = !range.is_empty() && range.end == clients.len();
        for client in &clients[range] {
            let Some(socket) = client.link.socket() else { continue };
            let Ok(memory) = socket.memory() else { continue };
            let bytes = memory.used_bytes();
            let (total, most) = &mut self.pass[client.class];
            (*total, *most) = (*total + bytes, (*most).max(bytes));
            if self.keeps_clients {
                stats[client.class].memory_of(client.number, now_ns, bytes);
            }
        }
        if is_last {
            for (stats, pass) in stats.iter_mut().zip(&mut self.pass) {
                let (total, most) = std::mem::take(pass);
                stats.memory(now_ns, total, most);
            }
        }
    }
}
