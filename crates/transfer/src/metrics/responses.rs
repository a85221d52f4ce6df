//! The numbers of requests and their responses.

use base::metric::Metrics;

use crate::report::Responses;

pub(super) fn of(responses: &Responses) -> Metrics {
    let times = &responses.times;
    let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    let rate = (responses.elapsed_s > 0.0).then(|| responses.answered as f64 / responses.elapsed_s);
    let named = [
        ("transactions_per_s", rate),
        ("responses_missing", Some(responses.unanswered as f64)),
        ("response_mean_us", times.mean_ns().map(|ns| ns / 1e3)),
        ("response_p50_us", us(times.percentile_ns(50.0))),
        ("response_p99_us", us(times.percentile_ns(99.0))),
        ("response_p999_us", us(times.percentile_ns(99.9))),
        ("response_max_us", us(times.max_ns())),
        ("round_trips_per_min", responses.round_trips_per_min()),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

pub(super) fn of_idle(responses: &Responses) -> Metrics {
    let us = |percent: f64| responses.times.percentile_ns(percent).map(|ns| ns as f64 / 1e3);
    let named = [
        ("idle_response_p50_us", us(50.0)),
        ("idle_response_p99_us", us(99.0)),
        ("idle_round_trips_per_min", responses.round_trips_per_min()),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}
