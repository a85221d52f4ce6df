//! Does the players' buffer drain, even though nothing has stalled yet?
//!
//! With a true capacity of C streams, N > C players drain at `1 - C/N` seconds a second and stall only after
//! `buffer / drain`: a short hold sees no stall at N = C + 1. The drain itself is seen much earlier.

use base::statistics::trend;

/// The confidence at which a trend must be a fall.
const CONFIDENCE: f64 = 0.99;
/// Fewer seconds than this say nothing about a trend.
const POINTS_MIN: usize = 5;
/// A fall over the hold by less than this is no fall: a player reads every 40 ms and a frame is as long, so the
/// slack of a healthy player moves by the sum of both as their phases shift.
const FALL_MIN_S: f64 = 0.08;

/// What is known besides the slack itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Context {
    /// How much longer a viewer would watch after the last point: the content's length less what was played.
    pub remaining_s: f64,
    /// What all players received per second over the hold, over what the content needs in the mean. Above 1 the
    /// buffers fall because this part of the film is rich, not because the server is short. `None`: not known.
    pub supply: Option<f64>,
}

/// The trend of the slack.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SlackTrend {
    /// Seconds of slack won per second; negative for a fall.
    pub slope_s_per_s: f64,
    /// Its 99 % interval; absent with too few points.
    pub interval: Option<[f64; 2]>,
    /// When the line reaches 0, in seconds after the hold's beginning; absent unless it falls.
    pub empty_at_s: Option<f64>,
    /// The rule's answer: the players are certain to run dry.
    pub drains: bool,
}

/// Judge the least slack per second (mean over the streams) of one hold; `points` are (seconds after the hold's
/// beginning, seconds of slack), evenly spaced. `None` where there are too few points for any line.
///
/// It drains when the slope's 99 % interval (widened for autocorrelation) is wholly negative, and the line reaches
/// 0 while there is content left, and the fall is more than reading in steps makes, and the server delivered less
/// than the content's mean rate.
#[must_use]
pub fn judge(points: &[(f64, f64)], context: Context) -> Option<SlackTrend> {
    let line = trend(points)?;
    let (first, last) = (points.first()?.0, points.last()?.0);
    let interval = line.slope_interval(CONFIDENCE).filter(|_| points.len() >= POINTS_MIN);
    let empty_at_s = (line.slope < 0.0).then(|| -line.intercept / line.slope);
    let falls = interval.is_some_and(|[_, high]| high < 0.0);
    let fall_s = -line.slope * (last - first);
    let in_time = empty_at_s.is_some_and(|at| at <= last + context.remaining_s);
    let short = context.supply.is_none_or(|supply| supply < 1.0);
    let drains = falls && in_time && fall_s > FALL_MIN_S && short;
    Some(SlackTrend { slope_s_per_s: line.slope, interval, empty_at_s, drains })
}
