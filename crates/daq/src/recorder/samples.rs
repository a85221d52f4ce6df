//! Samples of many events: evenly spaced ones, the slowest, a typical one; and totals per interval.

use crate::report::{Arrival, EventPicture, Interval, SlowEvent};

/// Evenly spaced items: whenever there are too many, every other one is dropped, and the distance doubles.
#[derive(Debug, Clone)]
pub(crate) struct EvenSample<T> {
    items: Vec<T>,
    most: usize,
    stride: u64,
    seen: u64,
}

impl<T> EvenSample<T> {
    /// Keeps at most `most` (at least two).
    pub(crate) fn new(most: usize) -> Self {
        Self { items: Vec::new(), most: most.max(2), stride: 1, seen: 0 }
    }

    /// Offers an item; it is only made if it is kept.
    pub(crate) fn offer(&mut self, make: impl FnOnce() -> T) {
        self.seen += 1;
        if !(self.seen - 1).is_multiple_of(self.stride) {
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

    pub(crate) fn into_items(self) -> Vec<T> {
        self.items
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SlowestEvents {
    events: Vec<SlowEvent>,
    most: usize,
}

impl SlowestEvents {
    pub(crate) const fn new(most: usize) -> Self {
        Self { events: Vec::new(), most }
    }

    pub(crate) fn offer(&mut self, event: SlowEvent) {
        // Sorted rarely: up to twice as many are kept.
        self.events.push(event);
        if self.events.len() >= self.most * 2 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.events.sort_by(|a, b| b.took_ns.cmp(&a.took_ns).then(a.event.cmp(&b.event)));
        self.events.truncate(self.most);
    }

    pub(crate) fn into_events(mut self) -> Vec<SlowEvent> {
        self.cut();
        self.events
    }
}

/// A typical event (near the median) and the worst one.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExampleEvents {
    typical: Option<EventPicture>,
    worst: Option<EventPicture>,
}

impl ExampleEvents {
    pub(crate) fn offer(
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
            // Only for a clear improvement: it costs a copy.
            if self.typical.as_ref().is_none_or(|typical| off(took_ns) * 2 < off(typical.took_ns)) {
                self.typical = Some(picture());
            }
        }
        // An event without any fragment shows nothing.
        let worse = |worst: &EventPicture| (took_ns, !complete) > (worst.took_ns, !worst.complete);
        if self.worst.as_ref().is_none_or(worse) {
            self.worst = Some(picture());
        }
    }

    /// The typical event first.
    pub(crate) fn into_pictures(self) -> Vec<EventPicture> {
        let worst = self.worst.filter(|worst| self.typical.as_ref().is_none_or(|m| m.event != worst.event));
        self.typical.into_iter().chain(worst).collect()
    }
}

const INTERVALS_MAX: usize = 100;

/// Totals per interval; intervals are merged when there are too many.
#[derive(Debug, Clone)]
pub(crate) struct Intervals {
    from_ns: u64,
    length_ns: u64,
    intervals: Vec<Interval>,
}

impl Intervals {
    /// `hold_ns`: the length of the hold, if known.
    pub(crate) fn new(from_ns: u64, hold_ns: Option<u64>) -> Self {
        let length_ns = hold_ns.map_or(10_000_000, |hold_ns| hold_ns / 50).max(1_000_000);
        Self { from_ns, length_ns, intervals: Vec::new() }
    }

    /// The interval of a time; earlier times count for the first one.
    pub(crate) fn at(&mut self, now_ns: u64) -> &mut Interval {
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

    /// All intervals until the hold's end, with times relative to `start_ns`.
    pub(crate) fn into_intervals(mut self, start_ns: u64, to_ns: u64) -> Vec<Interval> {
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

    #[test]
    fn even_sample_is_evenly_spaced() {
        let mut few = EvenSample::new(10);
        for k in 0..1000 {
            few.offer(|| k);
        }
        let items = few.into_items();
        assert!((5..=10).contains(&items.len()), "{items:?}");
        assert!(items.windows(2).all(|pair| pair[1] - pair[0] == items[1] - items[0]), "{items:?}");
    }

    #[test]
    fn slowest_events_come_first() {
        let mut worst = SlowestEvents::new(3);
        for event in 0..100_u64 {
            worst.offer(SlowEvent { event, took_ns: event * 37 % 100, ..SlowEvent::default() });
        }
        assert_eq!(worst.into_events().iter().map(|event| event.took_ns).collect::<Vec<_>>(), [99, 98, 97]);
    }

    #[test]
    fn typical_and_worst_event_are_kept() {
        let mut pictures = ExampleEvents::default();
        for (event, took_ns) in [(0, 90), (1, 101), (2, 100), (3, 300), (4, 98)] {
            pictures.offer(event, took_ns, true, Some(100), Vec::new);
        }
        let events: Vec<u64> = pictures.into_pictures().iter().map(|picture| picture.event).collect();
        assert_eq!(events, [2, 3]);
    }

    #[test]
    fn intervals_merge_without_loss() {
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
