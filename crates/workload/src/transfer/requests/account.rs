//! The account of a thread of requesters.

use base::histogram::Histogram;

use super::super::report::Responses;
use super::window::Sent;

/// What the requests of a thread came to.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Requests that are intended before this are left out.
    begin_ns: u64,
    times: Histogram,
    answered: u64,
    unanswered: u64,
    late: u64,
    late_ns_max: u64,
    /// The moments of the first request and the last answer.
    span_ns: Option<(u64, u64)>,
}

impl Account {
    /// An account of what is intended from a moment on.
    pub(super) fn new(begin_ns: u64) -> Self {
        Self { begin_ns, ..Self::default() }
    }

    pub(super) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// A request was sent, which is late if by more than `late_ns`.
    pub(super) fn sent(&mut self, sent: Sent, late_ns: u64) {
        if sent.intended_ns < self.begin_ns {
            return;
        }
        let behind_ns = sent.sent_ns.saturating_sub(sent.intended_ns);
        self.late_ns_max = self.late_ns_max.max(behind_ns);
        self.late += u64::from(behind_ns > late_ns);
        self.extend(sent.intended_ns, sent.sent_ns);
    }

    /// Its answer was there.
    pub(super) fn answered(&mut self, sent: Sent, now_ns: u64) {
        if sent.intended_ns < self.begin_ns {
            return;
        }
        self.times.record_ns(now_ns.saturating_sub(sent.intended_ns));
        self.answered += 1;
        self.extend(sent.intended_ns, now_ns);
    }

    /// It was given up.
    pub(super) fn unanswered(&mut self, sent: Sent) {
        self.unanswered += u64::from(sent.intended_ns >= self.begin_ns);
    }

    /// So many were due, none of them before the account begins, and not even sent.
    pub(super) fn unsent(&mut self, requests: u64) {
        self.unanswered += requests;
    }

    fn extend(&mut self, from_ns: u64, to_ns: u64) {
        let (first_ns, last_ns) = self.span_ns.unwrap_or((from_ns, to_ns));
        self.span_ns = Some((first_ns.min(from_ns), last_ns.max(to_ns)));
    }

    /// Adds that of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        self.late += other.late;
        self.late_ns_max = self.late_ns_max.max(other.late_ns_max);
        if let Some((first_ns, last_ns)) = other.span_ns {
            self.extend(first_ns, last_ns);
        }
    }

    /// As it is told.
    pub(super) fn responses(&self) -> Responses {
        let (first_ns, last_ns) = self.span_ns.unwrap_or_default();
        Responses {
            answered: self.answered,
            unanswered: self.unanswered,
            late: self.late,
            late_ms_max: self.late_ns_max as f64 / 1e6,
            elapsed_s: (last_ns - first_ns) as f64 / 1e9,
            histogram: self.times.to_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_the_beginning_is_left_out() {
        let sent = |intended_ns, sent_ns| Sent { intended_ns, sent_ns };
        let mut one = Account::new(1_000);
        for (intended, sent_at, came) in [(999, 9_000_000, 10_000_000), (1_000, 1_500, 5_000)] {
            one.sent(sent(intended, sent_at), 400);
            one.answered(sent(intended, sent_at), came);
            one.unanswered(sent(intended, sent_at));
        }
        let mut other = Account::new(1_000);
        other.sent(sent(2_000, 2_400), 400);
        other.answered(sent(2_000, 2_400), 8_000);
        other.unsent(3);
        one.merge(&other);
        one.merge(&Account::new(1_000));
        let told = one.responses();
        assert_eq!((told.answered, told.unanswered, told.late), (2, 4, 1));
        assert_eq!((told.late_ms_max, told.elapsed_s), (0.0005, 7e-6));
        let times = told.times();
        assert_eq!((times.count(), times.max_ns(), times.percentile_ns(50.0)), (2, Some(6_003), Some(4_001)));
    }
}
