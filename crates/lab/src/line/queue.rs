//! Packets in transit, with their delivery times. Pure: time is an argument.

use std::collections::VecDeque;

use super::LineSpec;

/// Memory per packet beside its bytes, so that small packets are limited as well.
const PACKET_OVERHEAD_BYTES: u64 = 64;
const SPARE_MAX: usize = 4096;
/// EtherType of ARP (RFC 826).
const ARP: [u8; 2] = [0x08, 0x06];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketFate {
    Queued,
    /// Lost on purpose.
    Lost,
    Dropped,
}

/// One direction of a line.
#[derive(Debug)]
pub(super) struct Queue {
    delay_ns: u64,
    loss: f64,
    random: fastrand::Rng,
    bytes: u64,
    bytes_max: u64,
    packets: VecDeque<(u64, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Queue {
    /// Direction 0 is from the first end to the second. Each direction has its own random sequence.
    pub(super) fn new(line: &LineSpec, direction: u64) -> Self {
        Self {
            delay_ns: line.delay_ns,
            loss: line.loss,
            random: fastrand::Rng::with_seed(line.seed ^ (line.link as u64) << 1 ^ direction),
            bytes: 0,
            bytes_max: line.bytes_max,
            packets: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, frame: &[u8], now_ns: u64) -> PacketFate {
        let is_arp = frame.get(12..14) == Some(&ARP);
        // Drawn for every packet that can be lost, so that the sequence does not depend on drops.
        if self.loss > 0.0 && !is_arp && self.random.f64() < self.loss {
            return PacketFate::Lost;
        }
        let cost = frame.len() as u64 + PACKET_OVERHEAD_BYTES;
        if self.bytes + cost > self.bytes_max {
            return PacketFate::Dropped;
        }
        self.bytes += cost;
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        self.packets.push_back((now_ns.saturating_add(self.delay_ns), buffer));
        PacketFate::Queued
    }

    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.packets.front().map(|(due_ns, _)| *due_ns)
    }

    pub(super) fn pop(&mut self, now_ns: u64, take: impl FnOnce(&[u8], u64)) -> bool {
        if self.next_due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return false;
        }
        let Some((due_ns, buffer)) = self.packets.pop_front() else { return false };
        self.bytes -= buffer.len() as u64 + PACKET_OVERHEAD_BYTES;
        take(&buffer, due_ns);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LineEnd;

    fn line(delay_ns: u64, loss: f64, seed: u64, bytes_max: u64) -> LineSpec {
        let end = || LineEnd { namespace: "kagiri-x".into(), device: "eth0".into() };
        LineSpec { link: 1, ends: [end(), end()], delay_ns, loss, seed, bytes_max }
    }

    fn fates(seed: u64, direction: u64, frame: &[u8]) -> Vec<PacketFate> {
        let mut queue = Queue::new(&line(0, 0.1, seed, 1 << 30), direction);
        (0..10_000).map(|now| queue.push(frame, now)).collect()
    }

    #[test]
    fn packets_arrive_in_order_after_their_delay() {
        let mut queue = Queue::new(&line(100, 0.0, 1, 1 << 20), 0);
        for (now, byte) in [(0, 1u8), (5, 2), (50, 3)] {
            assert_eq!(queue.push(&[byte; 60], now), PacketFate::Queued);
        }
        let mut arrived = Vec::new();
        let mut look = |queue: &mut Queue, now| {
            while queue.pop(now, |frame, due| arrived.push((frame[0], due))) {}
            arrived.clone()
        };
        assert_eq!(look(&mut queue, 99), []);
        assert_eq!(look(&mut queue, 105), [(1, 100), (2, 105)]);
        assert_eq!(queue.next_due_ns(), Some(150));
        assert_eq!(look(&mut queue, 1000), [(1, 100), (2, 105), (3, 150)]);
        assert_eq!(queue.next_due_ns(), None);
    }

    #[test]
    fn bytes_in_transit_are_limited() {
        let mut queue = Queue::new(&line(100, 0.0, 1, 3 * (1000 + PACKET_OVERHEAD_BYTES)), 0);
        let fates: Vec<_> = (0..5).map(|now| queue.push(&[0; 1000], now)).collect();
        assert_eq!(
            fates,
            [
                PacketFate::Queued,
                PacketFate::Queued,
                PacketFate::Queued,
                PacketFate::Dropped,
                PacketFate::Dropped
            ]
        );
        assert!(queue.pop(100, |_, _| {}));
        assert_eq!(queue.push(&[0; 1000], 100), PacketFate::Queued, "there is room again");
    }

    #[test]
    fn loss_follows_the_seed_and_spares_arp() {
        let frame = [0; 60];
        assert_eq!(fates(7, 0, &frame), fates(7, 0, &frame));
        assert_ne!(fates(7, 0, &frame), fates(8, 0, &frame));
        assert_ne!(fates(7, 0, &frame), fates(7, 1, &frame), "each direction for itself");
        let lost = fates(7, 0, &frame).iter().filter(|fate| **fate == PacketFate::Lost).count();
        // Ten standard deviations of a binomial distribution around 1000.
        assert!((700..1300).contains(&lost), "{lost}");
        let mut arp = frame;
        arp[12..14].copy_from_slice(&ARP);
        assert!(fates(7, 0, &arp).iter().all(|fate| *fate == PacketFate::Queued));
    }
}
