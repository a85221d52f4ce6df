//! When operations are meant to start. Pure: no clock, so that the tests are tables of cases.

mod byte_rate;
mod open_loop;

pub use byte_rate::{ByteRate, Due};
pub use open_loop::OpenLoop;

/// The schedule of an open-loop generator.
///
/// Latency counts from the intended time, whether or not the generator managed to start then: leaving late
/// operations out of the account is the "coordinated omission" that flatters a slow target.
pub trait Pacer {
    /// The intended start of operation `k` (from 0), in ns after the start; `None` when there is no such one.
    fn intended_ns(&self, k: u64) -> Option<u64>;
}

/// `count` operations evenly spread over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Even {
    /// How many operations there are.
    pub count: u64,
    pub window_ns: u64,
}

impl Pacer for Even {
    fn intended_ns(&self, k: u64) -> Option<u64> {
        // 128 bits: k * window passes 2^64 after some minutes at a few million operations.
        (k < self.count).then(|| (u128::from(k) * u128::from(self.window_ns) / u128::from(self.count)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_spreads_without_drift_or_overflow() {
        let pace = Even { count: 3, window_ns: 10 };
        assert_eq!([0, 1, 2, 3].map(|k| pace.intended_ns(k)), [Some(0), Some(3), Some(6), None]);
        assert_eq!(Even { count: 0, window_ns: 10 }.intended_ns(0), None);
        let long = Even { count: u64::MAX, window_ns: u64::MAX };
        assert_eq!(long.intended_ns(u64::MAX - 1), Some(u64::MAX - 1));
    }
}
