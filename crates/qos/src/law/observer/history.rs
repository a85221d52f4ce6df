//! What was delivered in the last ticks.

use std::collections::VecDeque;

/// Ticks that are remembered.
const TICKS: usize = 4;

/// One tick. Rates in bit/s.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tick {
    pub duration_s: f64,
    pub urgent_bit_per_s: f64,
    pub bulk_bit_per_s: f64,
    pub delivered_segments: u64,
    pub retransmitted_segments: u64,
}

impl Tick {
    pub fn total_bit_per_s(&self) -> f64 {
        self.urgent_bit_per_s + self.bulk_bit_per_s
    }
}

#[derive(Debug, Clone, Default)]
pub struct History {
    ticks: VecDeque<Tick>,
}

impl History {
    pub fn push(&mut self, tick: Tick) {
        if self.ticks.len() == TICKS {
            self.ticks.pop_front();
        }
        self.ticks.push_back(tick);
    }

    pub fn clear(&mut self) {
        self.ticks.clear();
    }

    fn mean(&self, ticks: usize, rate: impl Fn(&Tick) -> f64) -> f64 {
        let last = self.ticks.iter().rev().take(ticks);
        let (bits, s) = last
            .fold((0.0, 0.0), |(bits, s), tick| (bits + rate(tick) * tick.duration_s, s + tick.duration_s));
        if s > 0.0 { bits / s } else { 0.0 }
    }

    /// Delivered by all managed sockets over the last `ticks`, in bit/s.
    pub fn delivered(&self, ticks: usize) -> f64 {
        self.mean(ticks, Tick::total_bit_per_s)
    }

    /// Delivered by urgent sockets over the last `ticks`, in bit/s.
    pub fn urgent(&self, ticks: usize) -> f64 {
        self.mean(ticks, |tick| tick.urgent_bit_per_s)
    }

    /// Delivered by bulk sockets over the last `ticks`, in bit/s.
    pub fn bulk(&self, ticks: usize) -> f64 {
        self.mean(ticks, |tick| tick.bulk_bit_per_s)
    }

    /// Segments delivered and retransmitted in the last `ticks`.
    pub fn segments(&self, ticks: usize) -> (u64, u64) {
        self.ticks.iter().rev().take(ticks).fold((0, 0), |(delivered, retransmitted), tick| {
            (delivered + tick.delivered_segments, retransmitted + tick.retransmitted_segments)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted_by_time_and_forget_after_four_ticks() {
        let mut history = History::default();
        assert_eq!(history.delivered(2), 0.0);
        for (duration_s, bulk_bit_per_s) in [(9.0, 9.0), (0.1, 1.0), (0.1, 2.0), (0.1, 3.0), (0.3, 5.0)] {
            let tick = Tick {
                duration_s,
                bulk_bit_per_s,
                urgent_bit_per_s: 1.0,
                delivered_segments: 7,
                ..Tick::default()
            };
            history.push(tick);
        }
        assert!((history.bulk(2) - 4.5).abs() < 1e-9);
        assert!((history.delivered(2) - 5.5).abs() < 1e-9);
        assert!((history.bulk(9) - 2.1 / 0.6).abs() < 1e-9);
        assert_eq!((history.urgent(4), history.segments(3)), (1.0, (21, 0)));
    }
}
