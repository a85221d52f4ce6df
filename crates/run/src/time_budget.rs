//! The time that a search may take. Pure: times are passed in.

use std::time::Duration;

/// A larger load takes longer to start, and a trial longer to be judged.
const MARGIN: Duration = Duration::from_secs(1);

/// Whether another trial fits into the time of a search.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimeBudget {
    /// `None`: unlimited.
    whole: Option<Duration>,
    /// The longest that a trial took beside its hold; `None` before the first.
    beyond_hold: Option<Duration>,
}

impl TimeBudget {
    pub(crate) fn new(whole: Option<Duration>) -> Self {
        Self { whole, beyond_hold: None }
    }

    /// Whether a trial of this hold probably ends in time, if it begins after `elapsed`. The first always
    /// may.
    pub(crate) fn allows(&self, elapsed: Duration, hold: Duration) -> bool {
        let (Some(whole), Some(beyond_hold)) = (self.whole, self.beyond_hold) else { return true };
        elapsed + beyond_hold + hold + MARGIN <= whole
    }

    /// A trial of this hold took so long in all; one that failed may have ended before its hold did.
    pub(crate) fn note(&mut self, took: Duration, hold: Duration) {
        let beyond_hold = took.saturating_sub(hold);
        self.beyond_hold = Some(self.beyond_hold.unwrap_or_default().max(beyond_hold));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_that_would_end_too_late_is_not_begun() {
        let s = Duration::from_secs;
        let mut budget = TimeBudget::new(Some(s(50)));
        assert!(budget.allows(s(49), s(3)), "the first is made in any case");
        budget.note(s(11), s(3));
        budget.note(s(6), s(3));
        assert!(budget.allows(s(38), s(3)));
        assert!(!budget.allows(s(39), s(3)));
        let mut unlimited = TimeBudget::new(None);
        unlimited.note(s(11), s(3));
        assert!(unlimited.allows(s(10_000), s(3)));
    }
}
