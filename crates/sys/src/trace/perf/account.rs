//! How what the kernel counted, what it lost and what was told are brought together.

/// The open events of one kind on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// How many are open.
    pub(super) opened: u64,
    /// What the kernel counted.
    pub(super) counted: u64,
    /// What it had no room for.
    pub(super) lost: u64,
    /// What was handed out.
    pub(super) told: u64,
}

impl Account {
    /// What the kernel counted and then neither told nor lost, because it was switched off in between: newer kernels (from
    /// 6.12.77 and 6.18.17 on) look once more before they tell whether it is on (`perf_swevent_event()` in
    /// kernel/events/core.c). Each open event is switched off once, so that no more than these can be.
    pub(super) fn cut(&self) -> u64 {
        self.counted.saturating_sub(self.told + self.lost).min(self.opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_open_event_may_be_cut_and_no_more() {
        let account = Account { opened: 2, counted: 100, lost: 10, told: 90 };
        assert_eq!(account.cut(), 0);
        assert_eq!(Account { told: 89, ..account }.cut(), 1);
        assert_eq!(Account { told: 80, ..account }.cut(), 2, "the others are missing");
        assert_eq!(Account { told: 91, ..account }.cut(), 0);
    }
}
