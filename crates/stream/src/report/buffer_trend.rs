//! Detects that the players' buffers drain before anything stalls.
//!
//! With a true capacity of C streams, the buffers of N > C players drain at `1 - C/N` seconds a second and
//! stall only after `buffer / drain`: a short hold sees no stall at N = C + 1, but it sees the drain.

use base::statistics::trend;

/// Confidence that the slope is negative.
const CONFIDENCE: f64 = 0.99;
/// Least number of points for an interval.
const POINTS_MIN: usize = 5;
/// Smaller falls over the hold are ignored: a player reads every 40 ms and a frame lasts as long, so the
/// slack of a healthy player moves by the sum of both.
const FALL_MIN_S: f64 = 0.08;

/// What a judgement needs besides the slack itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrendContext {
    /// Playing time left in the content after the last point.
    pub remaining_s: f64,
    /// Received rate of all players over the content's mean rate. Above 1 the buffers fall because this part
    /// of the content has a higher rate, not because the server is too slow. `None`: unknown.
    pub supply: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct BufferTrend {
    /// Negative for a fall.
    pub slope_s_per_s: f64,
    /// The 99 % interval of the slope; absent with too few points.
    pub interval: Option<[f64; 2]>,
    /// When the line reaches 0, in s after the hold's beginning; absent unless it falls.
    pub empty_at_s: Option<f64>,
    /// The buffers drain, by the rule of [`judge`].
    pub drains: bool,
}

/// Judge the least slack per second (mean over the streams) of one hold. `points` are (s after the hold's
/// beginning, s of slack), evenly spaced. `None` with too few points for a line.
///
/// The buffers drain when the slope's 99 % interval (widened for autocorrelation) is negative, the line
/// reaches 0 while content is left, the fall exceeds [`FALL_MIN_S`], and the server delivered less than the
/// mean rate.
pub fn judge(points: &[(f64, f64)], context: TrendContext) -> Option<BufferTrend> {
    let line = trend(points)?;
    let (first, last) = (points.first()?.0, points.last()?.0);
    let interval = line.slope_interval(CONFIDENCE).filter(|_| points.len() >= POINTS_MIN);
    let empty_at_s = (line.slope < 0.0).then(|| -line.intercept / line.slope);
    let falls = interval.is_some_and(|[_, high]| high < 0.0);
    let fall_s = -line.slope * (last - first);
    let in_time = empty_at_s.is_some_and(|at| at <= last + context.remaining_s);
    let short = context.supply.is_none_or(|supply| supply < 1.0);
    let drains = falls && in_time && fall_s > FALL_MIN_S && short;
    Some(BufferTrend { slope_s_per_s: line.slope, interval, empty_at_s, drains })
}
