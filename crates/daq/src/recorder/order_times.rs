//! When the sources were ordered to send for an event.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OrderedRange {
    first_source: u32,
    sources: u32,
    at_ns: u64,
}

impl OrderedRange {
    const fn covers(&self, source: u32) -> bool {
        source >= self.first_source && source - self.first_source < self.sources
    }
}

/// Reused for the next event, to save allocations.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderTimes {
    first: Vec<OrderedRange>,
    again: Vec<OrderedRange>,
}

impl OrderTimes {
    pub(crate) fn clear(&mut self) {
        self.first.clear();
        self.again.clear();
    }

    /// The first order of these sources; ranges ascend.
    pub(crate) fn add(&mut self, first_source: u32, sources: u32, at_ns: u64) {
        self.first.push(OrderedRange { first_source, sources, at_ns });
    }

    pub(crate) fn add_repeated(&mut self, first_source: u32, sources: u32, at_ns: u64) {
        self.again.push(OrderedRange { first_source, sources, at_ns });
    }

    /// When the source was first ordered; `None`: never, or unknown.
    pub(crate) fn first_ns(&self, source: u32) -> Option<u64> {
        let after = self.first.partition_point(|range| range.first_source <= source);
        let range = self.first.get(after.checked_sub(1)?)?;
        range.covers(source).then_some(range.at_ns)
    }

    /// Repetitions for the source up to `until_ns`, and the last one's time.
    pub(crate) fn again(&self, source: u32, until_ns: u64) -> (u32, Option<u64>) {
        let again = self.again.iter().filter(|range| range.covers(source) && range.at_ns <= until_ns);
        again.fold((0, None), |(times, last_ns), range| (times + 1, last_ns.max(Some(range.at_ns))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_times_are_found_by_source() {
        let mut ordered = OrderTimes::default();
        for k in 0..10 {
            ordered.add(k * 16, 16, 100 + u64::from(k));
        }
        ordered.add_repeated(16, 16, 200);
        ordered.add_repeated(20, 1, 300);
        for (source, first_ns, until_ns, again) in [
            (0, Some(100), u64::MAX, (0, None)),
            (20, Some(101), 250, (1, Some(200))),
            (20, Some(101), 300, (2, Some(300))),
            (159, Some(109), u64::MAX, (0, None)),
            (160, None, u64::MAX, (0, None)),
        ] {
            assert_eq!((ordered.first_ns(source), ordered.again(source, until_ns)), (first_ns, again));
        }
        ordered.clear();
        assert_eq!(ordered.first_ns(0), None);
    }
}
