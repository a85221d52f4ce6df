//! How long a full window of events was under way.
//!
//! If the end of an event triggers the next one, a window of W events is W chains of events. Counted over the
//! hold, which begins and ends within events, up to W events would be missing; so each chain is measured from
//! its first trigger in the hold to its last end. Nothing follows the last events, which shortens them by a
//! sixth at most: hence [`EVENTS_MIN`].

use std::collections::VecDeque;

/// Shorter chains are not representative.
const EVENTS_MIN: usize = 10;

/// The first trigger and the last end of each chain, in any order.
#[derive(Debug, Clone)]
pub(crate) struct ThroughputWindow {
    chains: usize,
    first_ns: Vec<u64>,
    last_ns: VecDeque<u64>,
    ended: usize,
}

impl ThroughputWindow {
    /// `window`: events under way at once.
    pub(crate) fn new(window: u32) -> Self {
        Self { chains: window as usize, first_ns: Vec::new(), last_ns: VecDeque::new(), ended: 0 }
    }

    pub(crate) fn triggered(&mut self, at_ns: u64) {
        if self.first_ns.len() < self.chains {
            self.first_ns.push(at_ns);
        }
    }

    pub(crate) fn ended(&mut self, at_ns: u64) {
        if self.last_ns.len() >= self.chains {
            self.last_ns.pop_front();
        }
        self.last_ns.push_back(at_ns);
        self.ended += 1;
    }

    /// Mean length of the chains, s; `None`: fewer than [`EVENTS_MIN`] events per chain.
    pub(crate) fn lasted_s(&self) -> Option<f64> {
        let sum = |times: &mut dyn Iterator<Item = &u64>| times.map(|&ns| u128::from(ns)).sum::<u128>();
        let (from, to) = (sum(&mut self.first_ns.iter()), sum(&mut self.last_ns.iter()));
        let lasted_s = to.checked_sub(from)? as f64 / 1e9 / self.chains as f64;
        (self.ended >= EVENTS_MIN * self.chains && lasted_s > 0.0).then_some(lasted_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port that serves one event after the other, in `each_ns`, while `window` events wait; with the
    /// hold's bounds.
    fn served(window: u32, each_ns: u64, from_ns: u64, to_ns: u64) -> (u64, ThroughputWindow) {
        let (mut flow, mut events) = (ThroughputWindow::new(window), 0);
        let mut triggers: VecDeque<u64> = (0..window).map(|_| 0).collect();
        for end_ns in (1..).map(|turn| turn * each_ns) {
            let Some(due_ns) = triggers.pop_front() else { break };
            if due_ns >= from_ns {
                events += 1;
                flow.ended(end_ns);
            }
            if end_ns < to_ns {
                triggers.push_back(end_ns);
                if end_ns >= from_ns {
                    flow.triggered(end_ns);
                }
            }
        }
        (events, flow)
    }

    #[test]
    fn throughput_of_a_busy_port_is_exact() {
        for (window, from_ns) in [(1, 1_000), (2, 1_049), (2, 1_000), (8, 12_345), (100, 9_999)] {
            let (events, flow) = served(window, 50, from_ns, from_ns + 60_000);
            let each_ns = flow.lasted_s().unwrap() * 1e9 / events as f64;
            assert!((each_ns - 50.0).abs() < 0.01, "{window} from {from_ns}: {each_ns} ns");
        }
    }

    #[test]
    fn too_few_events_give_no_result() {
        assert_eq!(ThroughputWindow::new(2).lasted_s(), None);
        let (events, flow) = served(8, 1_000, 8_000, 86_500);
        assert_eq!((events, flow.lasted_s()), (79, None));
        let (events, flow) = served(8, 1_000, 8_000, 87_500);
        assert!(events == 80 && flow.lasted_s().is_some());
    }
}
