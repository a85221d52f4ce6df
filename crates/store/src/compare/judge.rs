//! Whether two samples differ by more than their noise.

use base::metric::{Better, MetricSpec};
use base::outcome::{Capacity, VariantOutcome};
use base::statistics::{deviation, mean, median, student_t};

use super::{CONFIDENCE, Change, Difference, Sample};

/// Fewer repetitions than this know no noise.
const REPETITIONS_MIN: usize = 2;
/// From fewer than this, that no difference shows does not mean that there is none.
const REPETITIONS_TELLING: usize = 3;

/// What a number is called, and which way is better.
#[derive(Clone, Copy)]
pub(super) struct Meaning<'a> {
    pub(super) metric: &'a str,
    pub(super) unit: &'a str,
    pub(super) better: Better,
}

impl<'a> Meaning<'a> {
    /// Of a metric, as its workload has it; one that is not named there is a fact without a direction.
    pub(super) fn of(metric: &'a str, specs: &[MetricSpec]) -> Self {
        let spec = specs.iter().find(|spec| spec.name == metric);
        let (unit, better) = spec.map_or(("", Better::Neither), |spec| (spec.unit, spec.better));
        Self { metric, unit, better }
    }
}

/// Two sides of a number that is known once per repetition. `step` is the smallest difference that a single
/// repetition can show (zero: no such limit).
pub(super) fn judge(meaning: Meaning<'_>, a: &[f64], b: &[f64], step: f64) -> Difference {
    let (sample_a, sample_b) = (sample(a), sample(b));
    let difference = sample_a.median.zip(sample_b.median).map(|(a, b)| b - a).filter(|d| d.is_finite());
    let relative = difference.zip(sample_a.median).map(|(d, a)| 100.0 * d / a.abs());
    let interval = welch(a, b, step);
    let (change, reason) = match interval {
        _ if a.is_empty() || b.is_empty() => (Change::Unknown, Some(missing(a, b))),
        None if a.len().min(b.len()) < REPETITIONS_MIN => (Change::Unknown, Some(too_few(a, b))),
        None => (Change::Unknown, Some("the numbers are too large to be judged".to_owned())),
        Some([low, high]) if low <= 0.0 && high >= 0.0 => match a.len().min(b.len()) {
            n if n < REPETITIONS_TELLING => (Change::Unknown, Some(super::TOO_FEW_TO_TELL.to_owned())),
            _ => (Change::Equal, None),
        },
        Some([low, _]) => (direction(meaning.better, low > 0.0), None),
    };
    let has_too_few = change == Change::Unknown && (1..REPETITIONS_TELLING).contains(&a.len().min(b.len()));
    Difference {
        metric: meaning.metric.to_owned(),
        unit: meaning.unit.to_owned(),
        better: meaning.better,
        a: sample_a,
        b: sample_b,
        difference,
        difference_percent: relative.filter(|percent| percent.is_finite()),
        interval,
        change,
        reason,
        has_too_few,
    }
}

fn direction(better: Better, rises: bool) -> Change {
    match (better, rises) {
        (Better::Neither, _) => Change::Differs,
        (Better::Higher, true) | (Better::Lower, false) => Change::Better,
        (Better::Higher, false) | (Better::Lower, true) => Change::Worse,
    }
}

fn missing(a: &[f64], b: &[f64]) -> String {
    match (a, b) {
        ([], []) => "unknown on both sides",
        ([], _) => "unknown on the first side",
        _ => "unknown on the second side",
    }
    .to_owned()
}

fn too_few(a: &[f64], b: &[f64]) -> String {
    match (a.len(), b.len()) {
        (n, m) if n == m => format!("n = {n}"),
        (n, m) => format!("n = {n} and {m}"),
    }
}

fn sample(values: &[f64]) -> Sample {
    Sample {
        // Between two numbers near the largest there is none that a computer could name.
        median: median(values).filter(|median| median.is_finite()),
        interval: [
            values.iter().copied().min_by(f64::total_cmp),
            values.iter().copied().max_by(f64::total_cmp),
        ],
        n: u32::try_from(values.len()).unwrap_or(u32::MAX),
    }
}

/// The interval of mean(b) - mean(a) for samples of unequal variance (Welch, Biometrika 1947). A number that
/// is known in steps cannot vary by less than a step's rounding (variance step^2 / 12), however often it
/// repeats.
fn welch(a: &[f64], b: &[f64], step: f64) -> Option<[f64; 2]> {
    if a.len().min(b.len()) < REPETITIONS_MIN {
        return None;
    }
    let of_mean = |values: &[f64]| {
        let spread = deviation(values)?.max(step / 12f64.sqrt());
        Some(spread / (values.len() as f64).sqrt())
    };
    let (error_a, error_b) = (of_mean(a)?, of_mean(b)?);
    let difference = mean(b)? - mean(a)?;
    let error = error_a.hypot(error_b);
    if error == 0.0 {
        return difference.is_finite().then_some([difference, difference]);
    }
    // Shares of the variance, so that neither very small nor very large numbers lose their squares.
    let (share_a, share_b) = ((error_a / error).powi(2), (error_b / error).powi(2));
    let degrees = 1.0 / (share_a.powi(2) / (a.len() - 1) as f64 + share_b.powi(2) / (b.len() - 1) as f64);
    let half = student_t(CONFIDENCE, degrees)? * error;
    let interval = [difference - half, difference + half];
    interval.iter().all(|end| end.is_finite()).then_some(interval)
}

/// The capacities of two variants. An open capacity ("this or more") can win, but never lose.
pub(super) fn capacity(a: &VariantOutcome, b: &VariantOutcome) -> Difference {
    let known = |outcome: &VariantOutcome| -> Vec<f64> {
        let all = if outcome.repetitions.is_empty() {
            std::slice::from_ref(&outcome.capacity)
        } else {
            &outcome.repetitions[..]
        };
        all.iter().filter_map(|capacity| capacity.value).filter(|value| value.is_finite()).collect()
    };
    let step = [a, b].into_iter().flat_map(|o| o.repetitions.iter().filter_map(width)).fold(0.0, f64::max);
    let unit = &a.capacity.unit;
    let meaning = Meaning { metric: "capacity", unit, better: Better::Higher };
    let mut found = judge(meaning, &known(a), &known(b), step);
    found.a.interval = a.capacity.interval;
    found.b.interval = b.capacity.interval;
    if *unit != b.capacity.unit {
        // Different things have no difference.
        (found.change, found.difference, found.difference_percent) = (Change::Unknown, None, None);
        (found.interval, found.has_too_few) = (None, false);
        found.reason = Some(format!("the loads are counted in {unit} and in {}", b.capacity.unit));
        return found;
    }
    let open = |outcome: &VariantOutcome| {
        outcome
            .repetitions
            .iter()
            .chain([&outcome.capacity])
            .any(|c| c.value.is_some() && c.interval[1].is_none())
    };
    let hidden = match (open(a), open(b), found.change) {
        (true, true, _) => Some("both capacities are lower bounds"),
        (_, _, Change::Unknown) | (false, false, _) => None,
        (true, false, Change::Better | Change::Equal) => Some("the first capacity is a lower bound"),
        (false, true, Change::Worse | Change::Equal) => Some("the second capacity is a lower bound"),
        _ => None,
    };
    if let Some(hidden) = hidden {
        (found.change, found.has_too_few) = (Change::Unknown, false);
        found.reason = Some(hidden.to_owned());
    }
    found
}

/// The result of one load: the first of the findings, if both sides have the same.
pub(super) fn finding(a: &VariantOutcome, b: &VariantOutcome, specs: &[MetricSpec]) -> Option<Difference> {
    let (a, b) = (a.findings.first()?, b.findings.first()?);
    let meaning = Meaning::of(&a.metric, specs);
    (a.metric == b.metric).then(|| judge(meaning, &a.values, &b.values, 0.0))
}

/// Width of a repetition's interval: loads within it were not distinguished.
fn width(capacity: &Capacity) -> Option<f64> {
    let [Some(low), Some(high)] = capacity.interval else { return None };
    (capacity.value.is_some() && high > low).then_some(high - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(better: Better, a: &[f64], b: &[f64]) -> (Change, Option<String>) {
        let found = judge(Meaning { metric: "x", unit: "s", better }, a, b, 0.0);
        (found.change, found.reason)
    }

    #[test]
    fn difference_within_noise_is_equal() {
        let (slow, fast, wide) = ([5.0, 5.1, 4.9], [4.0, 4.1, 3.9], [3.0, 5.0, 7.0]);
        assert_eq!(change(Better::Lower, &slow, &fast), (Change::Better, None));
        assert_eq!(change(Better::Higher, &slow, &fast), (Change::Worse, None));
        assert_eq!(change(Better::Neither, &slow, &fast), (Change::Differs, None));
        assert_eq!(change(Better::Lower, &slow, &wide), (Change::Equal, None));
        assert_eq!(change(Better::Lower, &[0.0; 3], &[0.0; 3]), (Change::Equal, None));
        // A third more with two repetitions each: unknown.
        let few = change(Better::Higher, &[90.0, 110.0], &[110.0, 151.4]);
        assert_eq!(few, (Change::Unknown, Some(super::super::TOO_FEW_TO_TELL.to_owned())));
    }

    #[test]
    fn too_few_repetitions_are_unknown_with_n() {
        let unknown = |text: &str| (Change::Unknown, Some(text.to_owned()));
        assert_eq!(change(Better::Lower, &[1.0], &[2.0]), unknown("n = 1"));
        assert_eq!(change(Better::Lower, &[1.0, 2.0], &[2.0]), unknown("n = 2 and 1"));
        assert_eq!(change(Better::Lower, &[], &[2.0]), unknown("unknown on the first side"));
    }

    #[test]
    fn interval_is_that_of_welchs_test() {
        // Worked by hand: means 2 and 6, variances 1 and 4 (n = 3 each), error sqrt(5/3), 2.941 degrees.
        let [low, high] = welch(&[1.0, 2.0, 3.0], &[4.0, 6.0, 8.0], 0.0).unwrap();
        assert!(((low + high) / 2.0 - 4.0).abs() < 1e-9);
        assert!(((high - low) / 2.0 - 1.290_994 * 3.2186).abs() < 5e-3, "{low} {high}");
    }

    #[test]
    fn difference_below_resolution_is_equal() {
        let meaning = Meaning { metric: "capacity", unit: "streams", better: Better::Higher };
        assert_eq!(judge(meaning, &[5.0; 3], &[4.5; 3], 1.0).change, Change::Equal);
        let few = judge(meaning, &[5.0; 2], &[4.0; 2], 1.0);
        assert_eq!(
            (few.change, few.reason.as_deref()),
            (Change::Unknown, Some(super::super::TOO_FEW_TO_TELL))
        );
        assert_eq!(judge(meaning, &[5.0; 3], &[4.0; 3], 1.0).change, Change::Worse);
    }
}
