//! Where in the content each player begins.
//!
//! A stream's offset depends on its number and the seed alone, so that N and N + 1 streams differ by one
//! stream. The van der Corput sequence (0, 1/2, 1/4, 3/4, ...), shifted by the seed, spreads any number of
//! points almost evenly: streams whose content must come from the disk (`cold`) read regions that are as
//! disjoint as possible.

use super::timeline::Timeline;

/// A stream's offset as a share of the content, 0..1.
fn share(stream: u64, seed: u64) -> f64 {
    // 53 bits: what a double holds exactly.
    let spread = (stream.reverse_bits() >> 11) as f64 / (1_u64 << 53) as f64;
    (spread + fastrand::Rng::with_seed(seed).f64()).fract()
}

/// The group of pictures at which a stream begins.
pub fn gop(timeline: &Timeline, stream: u64, seed: u64) -> usize {
    let due_ns = (share(stream, seed) * timeline.lap_ns() as f64) as u64;
    let (mut low, mut high) = (0, timeline.gops().len());
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if timeline.gop_due_ns(middle) <= due_ns { low = middle } else { high = middle }
    }
    low
}

/// Number of streams whose first `read_ns` of content overlap those of another stream. `starts_ns`: where the
/// streams begin; `lap_ns`: length of the content.
pub fn overlapping(mut starts_ns: Vec<u64>, lap_ns: u64, read_ns: u64) -> u64 {
    starts_ns.sort_unstable();
    let n = starts_ns.len();
    let gap = |i: usize| match i + 1 < n {
        true => starts_ns[i + 1] - starts_ns[i],
        // Past the end of the content to the first stream.
        false => starts_ns[0].saturating_add(lap_ns).saturating_sub(starts_ns[i]),
    };
    // Either the stream reaches its successor's start, or its predecessor reaches the stream's own.
    (0..n).filter(|&i| gap(i) < read_ns || gap((i + n - 1) % n) < read_ns).count() as u64
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Frame, Gop};
    use super::*;

    /// 100 s in groups of 0.5 s of one frame.
    fn content() -> Timeline {
        let frames = (0..200).map(|i| Frame { end_bytes: (i + 1) * 1000, due_ns: i * 500_000_000 }).collect();
        let gops = (0..200).map(|i| Gop { start_bytes: i * 1000, first_frame: i as usize, crc32c: None });
        Timeline::new(frames, gops.collect(), 200_000).unwrap()
    }

    #[test]
    fn start_offsets_are_spread_evenly_for_any_number_of_streams() {
        let content = content();
        let overlapping = |gops: &[usize], read_ns| {
            overlapping(gops.iter().map(|&gop| content.gop_due_ns(gop)).collect(), content.lap_ns(), read_ns)
        };
        for seed in 0..50 {
            let gops: Vec<_> = (0..8).map(|stream| gop(&content, stream, seed)).collect();
            // 8 regions of 12.5 s, to within a group.
            assert_eq!(overlapping(&gops, 12_000_000_000), 0, "{gops:?}");
            assert_eq!(overlapping(&gops, 13_000_000_000), 8);
            assert_eq!(overlapping(&gops[..2], 49_000_000_000), 0);
        }
        assert_ne!(gop(&content, 0, 1), gop(&content, 0, 2));
        assert_eq!(overlapping(&[5], 99_000_000_000), 0);
        assert_eq!(overlapping(&[5], 101_000_000_000), 1, "a lone stream laps itself");
        assert_eq!(overlapping(&[], 1), 0);
        assert_eq!(overlapping(&[5, 5, 100], 1_000_000_000), 2);
    }
}
