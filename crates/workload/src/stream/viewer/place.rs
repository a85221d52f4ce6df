//! Where in the content each player begins.
//!
//! Stream i's place depends on i and the seed alone, so that N and N + 1 streams differ by one stream and by
//! nothing else. The places follow the van der Corput sequence (0, 1/2, 1/4, 3/4, ...), which spreads any number of
//! points almost evenly, turned by the seed: cold streams then read regions that are as disjoint as can be.

use super::timeline::Timeline;

/// The place of a stream as a share of the content, 0..1.
#[must_use]
pub fn share(stream: u64, seed: u64) -> f64 {
    // 53 bits: what a double holds exactly.
    let spread = (stream.reverse_bits() >> 11) as f64 / (1_u64 << 53) as f64;
    (spread + fastrand::Rng::with_seed(seed).f64()).fract()
}

/// The group of pictures at which a stream begins.
#[must_use]
pub fn gop(timeline: &Timeline, stream: u64, seed: u64) -> usize {
    let due_ns = (share(stream, seed) * timeline.lap_ns() as f64) as u64;
    let (mut low, mut high) = (0, timeline.gops().len());
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if timeline.gop_due_ns(middle) <= due_ns { low = middle } else { high = middle }
    }
    low
}

/// How many of the streams that begin at `starts` (ns) of content of `lap_ns` read, within `read_ns`, what another has
/// read as well.
#[must_use]
pub fn overlapping(mut starts: Vec<u64>, lap_ns: u64, read_ns: u64) -> u64 {
    starts.sort_unstable();
    let n = starts.len();
    let gap = |i: usize| match i + 1 < n {
        true => starts[i + 1] - starts[i],
        // Round the end of the content to the first.
        false => starts[0].saturating_add(lap_ns).saturating_sub(starts[i]),
    };
    // A stream shares its region when it runs into its successor's, or its predecessor into its own.
    (0..n).filter(|&i| gap(i) < read_ns || gap((i + n - 1) % n) < read_ns).count() as u64
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Frame, Gop};
    use super::*;

    /// 100 s in groups of 0.5 s of one frame.
    fn film() -> Timeline {
        let frames = (0..200).map(|i| Frame { end_bytes: (i + 1) * 1000, due_ns: i * 500_000_000 }).collect();
        let gops = (0..200).map(|i| Gop { start_bytes: i * 1000, first_frame: i as usize, crc32c: None });
        Timeline::new(frames, gops.collect(), 200_000).unwrap()
    }

    #[test]
    fn places_are_spread_and_do_not_depend_on_how_many_there_are() {
        let film = film();
        let overlapping = |gops: &[usize], read_ns| {
            overlapping(gops.iter().map(|&gop| film.gop_due_ns(gop)).collect(), film.lap_ns(), read_ns)
        };
        for seed in 0..50 {
            let gops: Vec<_> = (0..8).map(|stream| gop(&film, stream, seed)).collect();
            // 8 regions of 12.5 s, to within a group.
            assert_eq!(overlapping(&gops, 12_000_000_000), 0, "{gops:?}");
            assert_eq!(overlapping(&gops, 13_000_000_000), 8);
            assert_eq!(overlapping(&gops[..2], 49_000_000_000), 0);
        }
        assert_ne!(gop(&film, 0, 1), gop(&film, 0, 2));
        assert_eq!(overlapping(&[5], 99_000_000_000), 0);
        assert_eq!(overlapping(&[5], 101_000_000_000), 1, "a lone stream laps itself");
        assert_eq!(overlapping(&[], 1), 0);
        assert_eq!(overlapping(&[5, 5, 100], 1_000_000_000), 2);
    }
}
