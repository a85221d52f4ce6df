//! What a report keeps of many events: a few evenly chosen ones, the worst ones, a middling one.

use crate::daq::report::{Arrival, EventPicture, Interval, SlowEvent};

/// Evenly chosen items: every one at first; whenever there are too many, every other one goes, and so of those to come.
#[derive(Debug, Clone)]
pub struct Evenly<T> {
    items: Vec<T>,
    most: usize,
    stride: u64,
    seen: u64,
}

impl<T> Evenly<T> {
    /// Keeps `most` (at least two) at once.
    pub fn new(most: usize) -> Self {
        Self { items: Vec::new(), most: most.max(2), stride: 1, seen: 0 }
    }

    /// Offers an item, which is made only if it is kept.
    pub fn offer(&mut self, make: impl FnOnce() -> T) {
        let kept = self.seen.is_multiple_of(self.stride);
        self.seen += 1;
        if !kept {
            return;
        }
        self.items.push(make());
        if self.items.len() > self.most {
            let mut at = 0;
            self.items.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// What was kept, in the order in which it was offered.
    pub fn into_items(self) -> Vec<T> {
        self.items
    }
}

/// The slowest events.
#[derive(Debug, Clone)]
pub struct Worst {
    events: Vec<SlowEvent>,
    most: usize,
}

impl Worst {
    /// Keeps so many.
    pub const fn new(most: usize) -> Self {
        Self { events: Vec::new(), most }
    }

    /// Offers one.
    pub fn offer(&mut self, event: SlowEvent) {
        // Sorted seldom: up to twice as many are kept meanwhile.
        self.events.push(event);
        if self.events.len() >= self.most * 2 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.events.sort_by(|a, b| b.took_ns.cmp(&a.took_ns).then(a.event.cmp(&b.event)));
        self.events.truncate(self.most);
    }

    /// The slowest first.
    pub fn into_events(mut self) -> Vec<SlowEvent> {
        self.cut();
        self.events
    }
}

/// A middling event and the worst one.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    middling: Option<EventPicture>,
    worst: Option<EventPicture>,
}

impl Pictures {
    /// Offers an event; `median_ns` is what events usually take.
    pub fn offer(
        &mut self,
        event: u64,
        took_ns: u64,
        complete: bool,
        median_ns: Option<u64>,
        arrivals: impl Fn() -> Vec<Arrival>,
    ) {
        let picture = || {
            let mut arrivals = arrivals();
            arrivals.sort_unstable_by_key(|arrival| arrival.source);
            EventPicture { event, took_ns, complete, arrivals }
        };
        if let Some(median_ns) = median_ns.filter(|_| complete) {
            let off = |took_ns: u64| took_ns.abs_diff(median_ns);
            // Not for every little: it costs a copy.
            if self.middling.as_ref().is_none_or(|middling| off(took_ns) * 2 < off(middling.took_ns)) {
                self.middling = Some(picture());
            }
        }
        // One that was given up without anything having come shows nothing.
        let worse = |worst: &EventPicture| (took_ns, !complete) > (worst.took_ns, !worst.complete);
        if self.worst.as_ref().is_none_or(worse) {
            self.worst = Some(picture());
        }
    }

    /// The middling event first.
    pub fn into_pictures(self) -> Vec<EventPicture> {
        let worst = self.worst.filter(|worst| self.middling.as_ref().is_none_or(|m| m.event != worst.event));
        self.middling.into_iter().chain(worst).collect()
    }
}

/// At most so many intervals.
const INTERVALS_MAX: usize = 100;

/// What happened over time, in intervals that grow longer while there would be too many.
#[derive(Debug, Clone)]
pub struct Intervals {
    from_ns: u64,
    length_ns: u64,
    intervals: Vec<Interval>,
}

impl Intervals {
    /// From `from_ns` on. `hold_ns`: how long it will last, where that is known.
    pub fn new(from_ns: u64, hold_ns: Option<u64>) -> Self {
        let length_ns = hold_ns.map_or(10_000_000, |hold_ns| hold_ns / 50).max(1_000_000);
        Self { from_ns, length_ns, intervals: Vec::new() }
    }

    /// The interval that a moment lies in; what lies before the first counts for that.
    pub fn at(&mut self, now_ns: u64) -> &mut Interval {
        let since_ns = now_ns.saturating_sub(self.from_ns);
        while since_ns / self.length_ns >= INTERVALS_MAX as u64 {
            self.length_ns *= 2;
            let halves = self.intervals.len().div_ceil(2);
            for at in 0..halves {
                let one = self.intervals[at * 2];
                let other = self.intervals.get(at * 2 + 1).copied().unwrap_or_default();
                self.intervals[at] = Interval {
                    complete: one.complete + other.complete,
                    incomplete: one.incomplete + other.incomplete,
                    vetoed: one.vetoed + other.vetoed,
                    payload_bytes: one.payload_bytes + other.payload_bytes,
                    completion_max_ns: one.completion_max_ns.max(other.completion_max_ns),
                    ..one
                };
            }
            self.intervals.truncate(halves);
        }
        let at = (since_ns / self.length_ns) as usize;
        if self.intervals.len() <= at {
            self.intervals.resize(at + 1, Interval::default());
        }
        &mut self.intervals[at]
    }

    /// All of them until the hold's end, with their times after `start_ns`.
    pub fn into_intervals(mut self, start_ns: u64, to_ns: u64) -> Vec<Interval> {
        if to_ns > self.from_ns {
            self.at(to_ns - 1);
        }
        for (interval, k) in self.intervals.iter_mut().zip(1..) {
            let end_ns = (self.from_ns + k * self.length_ns).min(to_ns.max(self.from_ns + 1));
            let begin_ns = self.from_ns + (k - 1) * self.length_ns;
            interval.end_s = end_ns.saturating_sub(start_ns) as f64 / 1e9;
            interval.length_s = end_ns.saturating_sub(begin_ns) as f64 / 1e9;
        }
        self.intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daq::report::Cause;

    #[test]
    fn few_are_kept_evenly() {
        let mut few = Evenly::new(10);
        for k in 0..1000 {
            few.offer(|| k);
        }
        let kept = few.into_items();
        assert!((5..=10).contains(&kept.len()), "{kept:?}");
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == kept[1] - kept[0]), "{kept:?}");
    }

    #[test]
    fn the_worst_come_first() {
        let mut worst = Worst::new(3);
        for event in 0..100_u64 {
            worst.offer(SlowEvent {
                event,
                took_ns: event * 37 % 100,
                complete: true,
                source: 0,
                sent_after_ns: None,
                arrived_after_ns: None,
                repeats: 0,
                cause: Cause::Host,
            });
        }
        assert_eq!(worst.into_events().iter().map(|event| event.took_ns).collect::<Vec<_>>(), [99, 98, 97]);
    }

    #[test]
    fn a_middling_and_the_worst_event_are_pictured() {
        let mut pictures = Pictures::default();
        for (event, took_ns) in [(0, 90), (1, 101), (2, 100), (3, 300), (4, 98)] {
            pictures.offer(event, took_ns, true, Some(100), Vec::new);
        }
        let events: Vec<u64> = pictures.into_pictures().iter().map(|picture| picture.event).collect();
        assert_eq!(events, [2, 3]);
    }

    #[test]
    fn intervals_grow_and_lose_nothing() {
        let mut intervals = Intervals::new(1_000_000_000, None);
        for k in 0..5_000_u64 {
            let interval = intervals.at(1_000_000_000 + k * 1_000_000);
            interval.complete += 1;
            interval.completion_max_ns = interval.completion_max_ns.max(k);
        }
        let all = intervals.into_intervals(500_000_000, 5_995_000_000);
        assert!(all.len() <= INTERVALS_MAX && all.len() >= 40, "{}", all.len());
        assert_eq!(all.iter().map(|interval| interval.complete).sum::<u64>(), 5_000);
        assert!(all.windows(2).all(|pair| (pair[1].end_s - pair[0].end_s - pair[1].length_s).abs() < 1e-9));
        let last = all.last().unwrap();
        assert!((last.end_s - 5.495).abs() < 1e-9 && last.completion_max_ns == 4_999, "{last:?}");
    }
}
