//! Geometry of a rotating disk: when a byte passes the head.

use super::model::Rotating;

/// All bytes lie on one spiral; head and track switches take no time (drives skew their tracks to nearly
/// achieve this). *Turns* of a byte: rotations until everything before it has passed the head. The fraction
/// of its turns is the byte's angle; the distance of two bytes is the difference of their turns.
#[derive(Debug, Clone)]
pub(super) struct Platter {
    turn_ns: u64,
    size: f64,
    /// Bytes of the outermost turn.
    outer: f64,
    /// Bytes that the innermost turn has less; the rate falls linearly with the address.
    narrower: f64,
    seek_min_ns: f64,
    seek_range_ns: f64,
    turns_total: f64,
}

impl Platter {
    pub(super) fn new(disk: &Rotating, size_bytes: u64) -> Self {
        let turn_ns = 60_000_000_000 / u64::from(disk.rpm.max(1));
        let per_turn = |bit_per_s: u64| bit_per_s as f64 / 8.0 * turn_ns as f64 / 1e9;
        let outer = per_turn(disk.rate.bit_per_s());
        let inner = disk.rate_inner.map_or(outer, |rate| per_turn(rate.bit_per_s()));
        let mut this = Self {
            turn_ns,
            size: size_bytes.max(1) as f64,
            outer,
            narrower: outer - inner,
            seek_min_ns: disk.seek_min.ns() as f64,
            seek_range_ns: disk.seek_max.ns().saturating_sub(disk.seek_min.ns()) as f64,
            turns_total: 1.0,
        };
        this.turns_total = this.turns(size_bytes.max(1));
        this
    }

    /// The integral of 1 / (bytes of a turn) from 0 to `byte`; a turn at address x has `outer - narrower * x
    /// / size` bytes.
    pub(super) fn turns(&self, byte: u64) -> f64 {
        let byte = byte as f64;
        if self.narrower < 1e-6 * self.outer {
            return byte / self.outer;
        }
        let shrunk = self.narrower * byte / self.size / self.outer;
        -(-shrunk).ln_1p() * self.size / self.narrower
    }

    pub(super) fn byte_at(&self, turns: f64) -> u64 {
        if self.narrower < 1e-6 * self.outer {
            return (turns * self.outer) as u64;
        }
        (-(-turns * self.narrower / self.size).exp_m1() * self.outer / self.narrower * self.size) as u64
    }

    /// Time until all of `from..to` has passed the head.
    pub(super) fn pass_ns(&self, from: u64, to: u64) -> u64 {
        ((self.turns(to) - self.turns(from)) * self.turn_ns as f64).ceil().max(0.0) as u64
    }

    /// The byte that passes `after_ns` after `from`.
    pub(super) fn passed(&self, from: u64, after_ns: u64) -> u64 {
        self.byte_at(self.turns(from) + after_ns as f64 / self.turn_ns as f64).max(from)
    }

    /// Seek time between two bytes; 0 within a turn.
    pub(super) fn seek_ns(&self, from: u64, to: u64) -> u64 {
        let distance = (self.turns(from) - self.turns(to)).abs();
        if distance < 1.0 {
            return 0;
        }
        (self.seek_min_ns + self.seek_range_ns * (distance / self.turns_total).min(1.0).sqrt()) as u64
    }

    /// Time from `at_ns` until `byte` passes.
    pub(super) fn wait_ns(&self, at_ns: u64, byte: u64) -> u64 {
        let angle_ns = (self.turns(byte).fract() * self.turn_ns as f64) as u64;
        (angle_ns + self.turn_ns - at_ns % self.turn_ns) % self.turn_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::DiskModel;
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 4 << 30;

    fn platter(inner: Option<&str>) -> Platter {
        let DiskModel::Rotating(disk) = DiskModel::preset("hdd-7200").unwrap() else { unreachable!() };
        Platter::new(&Rotating { rate_inner: inner.map(|rate| rate.parse().unwrap()), ..disk }, SIZE)
    }

    #[test]
    fn inner_zones_are_slower_and_seeks_are_bounded() {
        let zoned = platter(Some("75MB/s"));
        let mb_per_s = |at: u64| 1e9 / zoned.pass_ns(at, at + 1_000_000) as f64;
        assert!((mb_per_s(0) - 150.0).abs() < 0.1, "{}", mb_per_s(0));
        assert!((mb_per_s(SIZE / 2) - 112.5).abs() < 0.1, "{}", mb_per_s(SIZE / 2));
        assert!((mb_per_s(SIZE - 1_000_000) - 75.0).abs() < 0.1);
        assert_eq!(zoned.seek_ns(0, 4096), 0);
        assert_eq!(zoned.seek_ns(0, SIZE), 15_000_000);
        // Just over one turn of 1.25 MB.
        let next = platter(None).seek_ns(0, 1_300_000);
        assert!((800_000..1_300_000).contains(&next), "{next}");
    }

    proptest! {
        #[test]
        fn turns_and_bytes_are_inverse(byte in 0..SIZE, zoned: bool) {
            let platter = platter(zoned.then_some("60MB/s"));
            let back = platter.byte_at(platter.turns(byte));
            prop_assert!(back.abs_diff(byte) <= 1, "{byte} -> {back}");
        }

        #[test]
        fn after_its_wait_a_byte_passes(at_ns in 0..u64::MAX / 2, byte in 0..SIZE) {
            let platter = platter(None);
            let wait = platter.wait_ns(at_ns, byte);
            prop_assert!(wait < platter.turn_ns);
            prop_assert_eq!(platter.wait_ns(at_ns + wait, byte), 0);
        }
    }
}
