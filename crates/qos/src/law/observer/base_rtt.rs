//! Round-trip time of a peer without a queue.

use std::collections::VecDeque;

/// Seconds whose minima are remembered.
const SECONDS: u64 = 60;
/// Which of the minima counts: a few may be too low.
const RANK: usize = 2;

/// The greater of the kernel's minimum and the third smallest minimum of a second over the last minute: the
/// kernel's minimum alone can be lower than any packet of full size achieves.
#[derive(Debug, Clone, Default)]
pub struct BaseRtt {
    kernel_s: Option<f64>,
    /// Second and least round-trip time in it.
    minima: VecDeque<(u64, f64)>,
    third_s: Option<f64>,
}

impl BaseRtt {
    /// Takes the least `tcpi_min_rtt` of the peer's sockets, in seconds.
    pub fn set_kernel_minimum(&mut self, min_rtt_s: f64) {
        self.kernel_s = Some(min_rtt_s);
    }

    /// Takes a round-trip time, in seconds.
    pub fn observe(&mut self, now_ns: u64, rtt_s: f64) {
        let second = now_ns / 1_000_000_000;
        match self.minima.back_mut() {
            Some((last, least)) if *last == second && rtt_s >= *least => return,
            Some((last, least)) if *last == second => *least = rtt_s,
            _ => self.minima.push_back((second, rtt_s)),
        }
        while self.minima.front().is_some_and(|(first, _)| first + SECONDS <= second) {
            self.minima.pop_front();
        }
        let mut least: Vec<f64> = self.minima.iter().map(|(_, least)| *least).collect();
        least.sort_by(f64::total_cmp);
        self.third_s = least.get(RANK).copied();
    }

    /// In seconds; `None` before the first sample.
    pub fn value_s(&self) -> Option<f64> {
        self.kernel_s.into_iter().chain(self.third_s).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn third_smallest_minimum_of_a_second_counts_if_it_is_greater() {
        let mut base = BaseRtt::default();
        assert_eq!(base.value_s(), None);
        base.set_kernel_minimum(0.001);
        let second = |second: u64| second * 1_000_000_000;
        for (at, rtt_s) in [(0, 0.009), (0, 0.004), (1, 0.002)] {
            base.observe(second(at), rtt_s);
            assert_eq!(base.value_s(), Some(0.001), "too few seconds");
        }
        base.observe(second(2), 0.003);
        assert_eq!(base.value_s(), Some(0.004));
        base.set_kernel_minimum(0.005);
        assert_eq!(base.value_s(), Some(0.005));
        base.set_kernel_minimum(0.001);
        // After a minute the old ones are forgotten.
        for at in 61..64 {
            base.observe(second(at), 0.02);
        }
        assert_eq!(base.value_s(), Some(0.02));
    }
}
