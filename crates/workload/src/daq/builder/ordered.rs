//! When sources were told to send for an event.

/// Sources and when they were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    first_source: u32,
    sources: u32,
    at_ns: u64,
}

impl Told {
    const fn covers(&self, source: u32) -> bool {
        source >= self.first_source && source - self.first_source < self.sources
    }
}

/// The orders of one event; kept and cleared for the next one, so that nothing allocates.
#[derive(Debug, Clone, Default)]
pub struct Ordered {
    first: Vec<Told>,
    again: Vec<Told>,
}

impl Ordered {
    /// Forgets all: another event begins.
    pub fn clear(&mut self) {
        self.first.clear();
        self.again.clear();
    }

    /// These sources were told at `at_ns`, for the first time. Ranges come in ascending order.
    pub fn note(&mut self, first_source: u32, sources: u32, at_ns: u64) {
        self.first.push(Told { first_source, sources, at_ns });
    }

    /// These sources were told again.
    pub fn note_again(&mut self, first_source: u32, sources: u32, at_ns: u64) {
        self.again.push(Told { first_source, sources, at_ns });
    }

    /// When the source was told for the first time; `None`: never, or it is not known.
    pub fn first_ns(&self, source: u32) -> Option<u64> {
        let after = self.first.partition_point(|told| told.first_source <= source);
        let told = self.first.get(after.checked_sub(1)?)?;
        told.covers(source).then_some(told.at_ns)
    }

    /// How many times the source was told again, up to `until_ns`, and when for the last time.
    pub fn again(&self, source: u32, until_ns: u64) -> (u32, Option<u64>) {
        let again = self.again.iter().filter(|told| told.covers(source) && told.at_ns <= until_ns);
        again.fold((0, None), |(times, last_ns), told| (times + 1, last_ns.max(Some(told.at_ns))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_is_known_with_its_orders() {
        let mut ordered = Ordered::default();
        for k in 0..10 {
            ordered.note(k * 16, 16, 100 + u64::from(k));
        }
        ordered.note_again(16, 16, 200);
        ordered.note_again(20, 1, 300);
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
