//! The latency statistics of a thread of requesters.

use std::time::Duration;

use base::histogram::Histogram;
use serde::{Deserialize, Serialize};

use super::over_time::OverTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentRequest {
    pub(crate) intended_ns: u64,
    pub(crate) sent_ns: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    pub answered: u64,
    /// Requests that were due by the end and not answered.
    pub unanswered: u64,
    /// Requests that were sent later than intended by more than a tenth of the time between two, and than
    /// 0.1 ms; of an open loop.
    pub late: u64,
    /// The most by which one was sent later than intended, ms.
    pub late_ms_max: f64,
    /// From first request to last answer, s.
    pub elapsed_s: f64,
    #[serde(rename = "histogram")]
    pub times: Histogram,
    /// The same times by the moments of their requests.
    #[serde(default)]
    pub over_time: OverTime,
}

impl Responses {
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut times = self.times.clone();
        times.merge(&other.times);
        let mut over_time = self.over_time.clone();
        over_time.merge(&other.over_time);
        Self {
            answered: self.answered.saturating_add(other.answered),
            unanswered: self.unanswered.saturating_add(other.unanswered),
            late: self.late.saturating_add(other.late),
            late_ms_max: self.late_ms_max.max(other.late_ms_max),
            elapsed_s: self.elapsed_s.max(other.elapsed_s),
            times,
            over_time,
        }
    }

    /// Round trips per minute at the mean of the fastest 95 % of the response times, as
    /// draft-ietf-ippm-responsiveness trims it; `None` without a response.
    pub fn round_trips_per_min(&self) -> Option<f64> {
        let steps = 950.min(self.times.count());
        let at = |step: u64| self.times.percentile_ns(95.0 * (step as f64 + 0.5) / steps as f64);
        let sum_ns: u64 = (0..steps).map(at).sum::<Option<u64>>()?;
        (sum_ns > 0).then(|| 60e9 * steps as f64 / sum_ns as f64)
    }
}

/// What the requests of a thread came to.
#[derive(Debug, Default)]
pub(crate) struct LatencyStats {
    /// Requests that are intended before this are left out.
    pub(crate) begin_ns: u64,
    responses: Responses,
    late_ns_max: u64,
    /// The moments of the first request and the last answer.
    span_ns: Option<(u64, u64)>,
}

impl LatencyStats {
    /// The stats of what is intended from a moment on; over time, of the `whole` after `from_ns`.
    pub(crate) fn new(begin_ns: u64, from_ns: u64, whole: Duration) -> Self {
        let over_time = OverTime::new(from_ns, whole);
        Self { begin_ns, responses: Responses { over_time, ..Responses::default() }, ..Self::default() }
    }

    /// A request was sent, which is late if by more than `late_ns`.
    pub(crate) fn sent(&mut self, sent: SentRequest, late_ns: u64) {
        if sent.intended_ns < self.begin_ns {
            return;
        }
        let behind_ns = sent.sent_ns.saturating_sub(sent.intended_ns);
        self.late_ns_max = self.late_ns_max.max(behind_ns);
        self.responses.late += u64::from(behind_ns > late_ns);
        self.extend(sent.intended_ns, sent.sent_ns);
    }

    pub(crate) fn answered(&mut self, sent: SentRequest, now_ns: u64) {
        if sent.intended_ns < self.begin_ns {
            return;
        }
        let response_ns = now_ns.saturating_sub(sent.intended_ns);
        self.responses.times.record_ns(response_ns);
        self.responses.over_time.count(sent.intended_ns, response_ns);
        self.responses.answered += 1;
        self.extend(sent.intended_ns, now_ns);
    }

    pub(crate) fn unanswered(&mut self, sent: SentRequest) {
        self.responses.unanswered += u64::from(sent.intended_ns >= self.begin_ns);
    }

    /// Counts requests that were due since the statistics began, and were not sent.
    pub(crate) fn unsent(&mut self, requests: u64) {
        self.responses.unanswered += requests;
    }

    fn extend(&mut self, from_ns: u64, to_ns: u64) {
        let (first_ns, last_ns) = self.span_ns.unwrap_or((from_ns, to_ns));
        self.span_ns = Some((first_ns.min(from_ns), last_ns.max(to_ns)));
    }

    pub(crate) fn with(mut self, other: &Self) -> Self {
        self.responses = self.responses.with(&other.responses);
        self.late_ns_max = self.late_ns_max.max(other.late_ns_max);
        if let Some((first_ns, last_ns)) = other.span_ns {
            self.extend(first_ns, last_ns);
        }
        self
    }

    pub(crate) fn responses(&self) -> Responses {
        let (first_ns, last_ns) = self.span_ns.unwrap_or_default();
        Responses {
            late_ms_max: self.late_ns_max as f64 / 1e6,
            elapsed_s: (last_ns - first_ns) as f64 / 1e9,
            ..self.responses.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_threads_add_up_without_the_omitted_time() {
        let sent = |intended_ns, sent_ns| SentRequest { intended_ns, sent_ns };
        let new = || LatencyStats::new(1_000, 1_000, Duration::from_secs(1));
        let mut one = new();
        for (intended, sent_at, came) in [(999, 9_000_000, 10_000_000), (1_000, 1_500, 5_000)] {
            one.sent(sent(intended, sent_at), 400);
            one.answered(sent(intended, sent_at), came);
            one.unanswered(sent(intended, sent_at));
        }
        let mut other = new();
        other.sent(sent(2_000, 2_400), 400);
        other.answered(sent(2_000, 2_400), 8_000);
        other.unsent(3);
        let sum = one.with(&other).with(&new()).responses();
        assert_eq!((sum.answered, sum.unanswered, sum.late), (2, 4, 1));
        assert_eq!((sum.late_ms_max, sum.elapsed_s), (0.0005, 7e-6));
        let times = &sum.times;
        assert_eq!((times.count(), times.max_ns(), times.percentile_ns(50.0)), (2, Some(6_003), Some(4_001)));
        let over_time: Vec<_> = sum.over_time.slots().map(|(_, slot)| slot.max_ns()).collect();
        assert_eq!(over_time, [6_000]);
    }

    #[test]
    fn round_trips_per_minute_leave_out_the_slowest() {
        let mut responses = Responses::default();
        assert_eq!(responses.round_trips_per_min(), None);
        responses.times.record_ns_times(10_000_000, 960);
        responses.times.record_ns_times(5_000_000_000, 40);
        let found = responses.round_trips_per_min().unwrap();
        assert!((found / 6000.0 - 1.0).abs() < 0.002, "{found}");
    }
}
