//! Whether a player gets what it needs at an even pace: throughput against demand, and gaps.
//!
//! The report's condition "throughput does not fluctuate" cannot be put on the raw rate: the rate of a healthy
//! variable-bit-rate stream itself varies by a quarter to a half from second to second. What is compared is what
//! came with what had to come: *demanded* are the bytes of the frames by which the film advanced, counted from the
//! end of the buffer, so that a ratio of 1 keeps the buffer at the level it had.

use super::player::{Player, State};
use super::timeline::Timeline;

/// Received over demanded bytes of one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Received over demanded.
    pub value: f64,
    /// Whether the buffer was full at the window's start. A player that still fills its buffer rightly receives
    /// more than it plays, so only then is a ratio above 1 a disturbance.
    pub was_full: bool,
}

impl Ratio {
    /// Whether the ratio lies outside of `1 - tolerance ..= 1 + tolerance`.
    #[must_use]
    pub fn is_disturbed(&self, tolerance: f64) -> bool {
        self.value < 1.0 - tolerance || (self.was_full && self.value > 1.0 + tolerance)
    }
}

/// Watches one player.
#[derive(Debug, Clone, Default)]
pub struct Steady {
    opened: Option<Opened>,
    worst: Option<Ratio>,
    fed_ns: Option<u64>,
    gap_max_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    received_bytes: u64,
    received_ns: u64,
    position_ns: u64,
    was_full: bool,
}

impl Steady {
    /// Close the window that is open, if any, and open the next one. Call it once a window length.
    pub fn turn(&mut self, player: &Player, timeline: &Timeline, is_full: bool) -> Option<Ratio> {
        let ratio = self.opened.take().and_then(|opened| ratio(&opened, player, timeline));
        if let Some(ratio) = ratio {
            let off = |r: &Ratio| if r.value < 1.0 || r.was_full { (r.value - 1.0).abs() } else { 0.0 };
            if self.worst.is_none_or(|worst| off(&ratio) > off(&worst)) {
                self.worst = Some(ratio);
            }
        }
        if matches!(player.state(), State::Playing | State::Stalled) {
            self.opened = Some(Opened {
                received_bytes: player.received_bytes(),
                received_ns: player.received_ns(),
                position_ns: player.position_ns(),
                was_full: is_full,
            });
        }
        ratio
    }

    /// At `now_ns` the player wanted `wanted_bytes` and got `got_bytes`. A gap runs while it wants and gets nothing.
    #[inline]
    pub fn fed(&mut self, now_ns: u64, wanted_bytes: u64, got_bytes: u64) {
        let since_ns = *self.fed_ns.get_or_insert(now_ns);
        if got_bytes > 0 || wanted_bytes == 0 {
            self.fed_ns = Some(now_ns);
        } else {
            self.gap_max_ns = self.gap_max_ns.max(now_ns - since_ns.min(now_ns));
        }
    }

    /// Forget the gaps of before, as at the beginning of the hold; a gap that is open stays open.
    pub fn forget_gaps(&mut self) {
        self.gap_max_ns = 0;
    }

    /// The window that was farthest off.
    #[must_use]
    pub fn worst(&self) -> Option<Ratio> {
        self.worst
    }

    /// The longest time without a byte while the player wanted some.
    #[must_use]
    pub fn gap_max_ns(&self) -> u64 {
        self.gap_max_ns
    }
}

fn ratio(opened: &Opened, player: &Player, timeline: &Timeline) -> Option<Ratio> {
    let advanced_ns = player.position_ns().checked_sub(opened.position_ns)?;
    let needed_bytes = timeline.bytes_until(player.gop(), opened.received_ns + advanced_ns);
    let demanded = needed_bytes.saturating_sub(opened.received_bytes);
    let received = player.received_bytes() - opened.received_bytes;
    (demanded > 0).then(|| Ratio { value: received as f64 / demanded as f64, was_full: opened.was_full })
}
