//! Thinning of long series for drawing.

/// At most about `2 * buckets` of the points, with the least and the greatest of every bucket of time kept,
/// so that no dip and no peak is lost. `None` breaks the line and is kept where a whole bucket is unknown.
pub fn thinned(at: &[f64], values: &[Option<f64>], buckets: usize) -> Vec<(f64, Option<f64>)> {
    let n = at.len().min(values.len());
    let points = at[..n].iter().copied().zip(values[..n].iter().copied());
    if n <= buckets.saturating_mul(2) {
        return points.collect();
    }
    let (from, to) = (at[0], at[n - 1]);
    let width = ((to - from) / buckets.max(1) as f64).max(f64::MIN_POSITIVE);
    let all: Vec<_> = points.collect();
    let mut kept = Vec::with_capacity(buckets * 2);
    for bucket in all.chunk_by(|a, b| ((a.0 - from) / width).floor() == ((b.0 - from) / width).floor()) {
        keep_extremes(bucket, &mut kept);
    }
    kept
}

/// The least and the greatest of one bucket in the order of their times.
fn keep_extremes(bucket: &[(f64, Option<f64>)], kept: &mut Vec<(f64, Option<f64>)>) {
    let known = || bucket.iter().filter_map(|&(at, value)| Some((at, value?)));
    let least = known().min_by(|a, b| a.1.total_cmp(&b.1));
    let most = known().max_by(|a, b| a.1.total_cmp(&b.1));
    match (least, most) {
        (Some(a), Some(b)) if a.0 == b.0 || a.1 == b.1 => kept.push((a.0, Some(a.1))),
        (Some(a), Some(b)) => {
            let (first, second) = if a.0 < b.0 { (a, b) } else { (b, a) };
            kept.extend([(first.0, Some(first.1)), (second.0, Some(second.1))]);
        }
        _ => kept.push((bucket[0].0, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_a_single_dip() {
        let at: Vec<f64> = (0..10_000).map(|i| f64::from(i) * 0.1).collect();
        let mut values: Vec<_> = at.iter().map(|_| Some(2.0)).collect();
        values[4321] = Some(0.0);
        values[9000..9500].fill(None);
        let kept = thinned(&at, &values, 100);
        assert!(kept.len() <= 202, "{}", kept.len());
        assert!(kept.iter().any(|(at, value)| *value == Some(0.0) && (at - 432.1).abs() < 1e-6));
        assert!(kept.iter().any(|(_, value)| value.is_none()), "a gap stays a gap");
        assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn short_series_is_not_thinned() {
        assert_eq!(thinned(&[1.0, 2.0], &[None, Some(3.0)], 10), [(1.0, None), (2.0, Some(3.0))]);
        assert_eq!(thinned(&[], &[], 10), []);
    }
}
