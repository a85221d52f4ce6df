//! Whether a player receives at an even pace: throughput against demand, and gaps.
//!
//! The raw rate of a healthy variable-bit-rate stream varies by a quarter to a half from second to second, so
//! received bytes are compared with *demanded* ones: those of the frames by which the content advanced,
//! counted from the end of the buffer. A ratio of 1 keeps the buffer at its level.

use super::player::{Player, State};
use crate::content::timeline::Timeline;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub value: f64,
    /// Whether the buffer was full at the window's start. Only then is a ratio above 1 a disturbance: a
    /// player that still fills its buffer receives more than it plays.
    pub was_full: bool,
}

impl Ratio {
    /// Whether the ratio lies outside of `1 - tolerance ..= 1 + tolerance`.
    pub fn is_disturbed(&self, tolerance: f64) -> bool {
        self.value < 1.0 - tolerance || (self.was_full && self.value > 1.0 + tolerance)
    }
}

#[derive(Debug, Clone, Default)]
pub struct ThroughputCheck {
    window: Option<Window>,
    worst: Option<Ratio>,
    last_fed_ns: Option<u64>,
    gap_max_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    received_bytes: u64,
    received_ns: u64,
    position_ns: u64,
    was_full: bool,
}

impl ThroughputCheck {
    /// Close the open window, if any, and open the next one. Returns the ratio of the closed one.
    pub fn next_window(&mut self, player: &Player, timeline: &Timeline, is_full: bool) -> Option<Ratio> {
        let ratio = self.window.take().and_then(|window| ratio(&window, player, timeline));
        if let Some(ratio) = ratio {
            let deviation = |r: &Ratio| if r.value < 1.0 || r.was_full { (r.value - 1.0).abs() } else { 0.0 };
            if self.worst.is_none_or(|worst| deviation(&ratio) > deviation(&worst)) {
                self.worst = Some(ratio);
            }
        }
        if matches!(player.state(), State::Playing | State::Stalled) {
            self.window = Some(Window {
                received_bytes: player.received_bytes(),
                received_ns: player.received_ns(),
                position_ns: player.position_ns(),
                was_full: is_full,
            });
        }
        ratio
    }

    /// Record a read. A gap lasts while the player wants bytes and receives none.
    #[inline]
    pub fn record_read(&mut self, now_ns: u64, wanted_bytes: u64, received_bytes: u64) {
        let since_ns = *self.last_fed_ns.get_or_insert(now_ns);
        if received_bytes > 0 || wanted_bytes == 0 {
            self.last_fed_ns = Some(now_ns);
        } else {
            self.gap_max_ns = self.gap_max_ns.max(now_ns - since_ns.min(now_ns));
        }
    }

    /// Discard the gaps so far; an open gap stays open.
    pub fn reset_gaps(&mut self) {
        self.gap_max_ns = 0;
    }

    pub fn worst(&self) -> Option<Ratio> {
        self.worst
    }

    pub fn gap_max_ns(&self) -> u64 {
        self.gap_max_ns
    }
}

fn ratio(window: &Window, player: &Player, timeline: &Timeline) -> Option<Ratio> {
    let advanced_ns = player.position_ns().checked_sub(window.position_ns)?;
    let needed_bytes = timeline.bytes_until(player.gop(), window.received_ns + advanced_ns);
    let demanded = needed_bytes.saturating_sub(window.received_bytes);
    let received = player.received_bytes() - window.received_bytes;
    (demanded > 0).then(|| Ratio { value: received as f64 / demanded as f64, was_full: window.was_full })
}
