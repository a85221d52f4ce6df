//! Contents for the players' tests.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod hold;
pub mod permit;
pub mod reports;

use stream::content::timeline::{Frame, Gop, Timeline};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// 25 frames a second in groups of 12, the first frame of each five times as large as the others, each
/// group's size drawn (`sigma` of its logarithm). 25 Mbit/s in the mean.
pub fn vbr_timeline(groups: usize, sigma: f64, seed: u64) -> Timeline {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut frames, mut gops) = (Vec::new(), Vec::new());
    let (mut bytes, mut owed) = (0_u64, 0.0);
    for group in 0..groups {
        gops.push(Gop { start_bytes: bytes, first_frame: group * 12, crc32c: None });
        // Sum of 12 uniform draws: normal enough.
        let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        // Feedback: what a group takes beyond its share is owed by the next ones.
        let factor = (sigma * normal - owed / 4e6).exp();
        let unit = 25e6 / 8.0 * 0.48 / 16.0 * factor;
        for frame in 0..12 {
            bytes += (unit * if frame == 0 { 5.0 } else { 1.0 }) as u64;
            frames.push(Frame { end_bytes: bytes, due_ns: (group * 12 + frame) as u64 * 40 * MS });
        }
        owed += unit * 16.0 - 25e6 / 8.0 * 0.48;
    }
    Timeline::new(frames, gops, bytes).expect("a valid timeline")
}

/// Ten frames a second of 1000 bytes, groups of ten: 8 kbit/s x 10, easy to reckon with.
pub fn cbr_timeline(seconds: usize) -> Timeline {
    let frames = (0..seconds as u64 * 10).map(|i| Frame { end_bytes: (i + 1) * 1000, due_ns: i * 100 * MS });
    let gops =
        (0..seconds).map(|g| Gop { start_bytes: g as u64 * 10_000, first_frame: g * 10, crc32c: None });
    Timeline::new(frames.collect(), gops.collect(), seconds as u64 * 10_000).expect("a valid timeline")
}
