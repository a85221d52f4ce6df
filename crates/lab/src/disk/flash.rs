//! Access times of a flash disk: latency on one of its channels, and transfer on a shared bus.

use super::mechanism::{Direction, MechanismStats, transfer_ns};
use super::model::Flash;

#[derive(Debug)]
pub(super) struct FlashDisk {
    model: Flash,
    channels_ns: Vec<u64>,
    bus_ns: u64,
    /// End of the last read: the data behind it has been read ahead.
    next: u64,
    written_ns: u64,
    pub(super) effort: MechanismStats,
}

impl FlashDisk {
    pub(super) fn new(model: &Flash) -> Self {
        let channels_ns = vec![0; model.channels.max(1) as usize];
        Self {
            model: model.clone(),
            channels_ns,
            bus_ns: 0,
            next: u64::MAX,
            written_ns: 0,
            effort: MechanismStats::default(),
        }
    }

    pub(super) fn access(&mut self, now_ns: u64, direction: Direction, offset: u64, bytes: u64) -> u64 {
        let Some(channel) = self.channels_ns.iter_mut().min() else { return now_ns };
        let begin_ns = now_ns.max(*channel);
        let busy_before_ns = self.bus_ns.max(now_ns);
        let done_ns = match direction {
            Direction::Read => {
                // First the chip, then the bus.
                let latency_ns = if offset == self.next { 0 } else { self.model.read_latency.ns() };
                self.effort.hits += u64::from(latency_ns == 0);
                self.next = offset + bytes;
                let ready_ns = begin_ns + latency_ns;
                let rate = self.model.rate_read.byte_per_s();
                self.bus_ns = ready_ns.max(self.bus_ns) + transfer_ns(bytes, rate);
                *channel = self.bus_ns;
                self.bus_ns
            }
            Direction::Write => {
                let rate = self.model.rate_write.byte_per_s();
                self.bus_ns = begin_ns.max(self.bus_ns) + transfer_ns(bytes, rate);
                *channel = self.bus_ns + self.model.write_latency.ns();
                self.written_ns = self.written_ns.max(*channel);
                *channel
            }
        };
        self.effort.busy_ns += done_ns.saturating_sub(busy_before_ns);
        done_ns
    }

    pub(super) fn flush(&mut self, now_ns: u64) -> u64 {
        now_ns.max(self.written_ns)
    }
}
