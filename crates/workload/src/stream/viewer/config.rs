//! The settings of a group of players, as the part is given them.

use std::path::PathBuf;

use base::part::PartError;
use base::units::{ByteSize, Span};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::player::Rules;
use crate::stream::settings::Depth;

/// A stream's first picture must be there within this time (S. Krishnan and R. Sitaraman, IMC 2012: viewers begin
/// to leave after 2 s).
pub const STARTUP_MAX_NS: u64 = 2_000_000_000;
/// Up to so many viewers come one after the other: a new player fills its buffer as fast as it can, and several at
/// once would find a server near its limit slow to start, although it carries them once they play.
const FEW: u64 = 16;
/// The time between few viewers ...
const FEW_STEP_NS: u64 = 1_000_000_000;
/// ... which is shortened so that all of them come within this time.
const FEW_WINDOW_NS_MAX: u64 = 6_000_000_000;
/// More than a few come within a second ...
const START_WINDOW_NS: u64 = 1_000_000_000;
/// ... unless there are more than 250: every player fills its buffer as fast as it can, and all at once would be a
/// load many times that of the hold, on the server as on the generator.
const MANY_STEP_NS: u64 = 4_000_000;
/// The longest time that many take.
const MANY_WINDOW_NS_MAX: u64 = 4_000_000_000;

/// The settings of one group of players: all that play, or those on one host of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewerSettings {
    /// The content. `None`: the `content_url` (or `url`) of the peer `server`.
    pub url: Option<String>,
    /// The same content as a file on this host, whose index can be read directly.
    pub content_path: Option<PathBuf>,
    /// How many players.
    pub streams: u64,
    /// The number of the first among all that play, on whichever host: it decides when it begins, where in the
    /// content, and how deeply it looks.
    pub first: u64,
    /// From the number of one player to that of the next.
    pub step: u64,
    /// How many play on all hosts together. `None`: there are no others.
    pub of: Option<u64>,
    /// How much they do with what they receive.
    pub depth: Depth,
    /// At least so many of all check every packet whatever the depth, and if any, then one on every host; the first
    /// also checks the content's hashes.
    pub parsing: u64,
    /// How long the load is held.
    pub hold: Span,
    /// From the last player's start to the hold. `None`: until all play, and two caps more.
    pub warm_up: Option<Span>,
    /// Seeds the players' places in the content.
    pub seed: u64,
    /// Buffered before play begins.
    pub start: Span,
    /// Buffered before play resumes after a stall.
    pub resume: Span,
    /// Buffered at most.
    pub cap: Span,
    /// `SO_RCVBUF`; raised to twice what the content needs between two reads.
    pub receive_buffer: ByteSize,
    /// Threads that carry the players.
    pub threads: u32,
    /// CPUs for the threads in turn; empty: wherever the kernel puts them.
    pub cpus: Vec<usize>,
    /// The content is not in memory, so that places in the file matter.
    pub cold: bool,
    /// Time the players' calls to the kernel.
    pub calls: bool,
    /// End the hold as soon as the verdict is certain.
    pub abort_early: bool,
}

impl Default for ViewerSettings {
    fn default() -> Self {
        Self {
            url: None,
            content_path: None,
            streams: 1,
            first: 0,
            step: 1,
            of: None,
            depth: Depth::Discard,
            parsing: 1,
            hold: Span::from_s(10),
            warm_up: None,
            seed: 1,
            start: Span::from_s(1),
            resume: Span::from_ms(500),
            cap: Span::from_s(2),
            receive_buffer: ByteSize::from_bytes(256 * 1024),
            threads: 1,
            cpus: Vec::new(),
            cold: false,
            calls: false,
            abort_early: false,
        }
    }
}

impl ViewerSettings {
    /// Read and check.
    ///
    /// # Errors
    /// A usage error that names the key.
    pub fn read(settings: &Value) -> Result<Self, PartError> {
        let read: Self = serde_json::from_value(settings.clone())
            .map_err(|error| PartError::usage(format!("the players' settings: {error}")))?;
        read.check().map_err(|problem| PartError::usage(format!("the players' settings: {problem}")))?;
        Ok(read)
    }

    fn check(&self) -> Result<(), &'static str> {
        let within = |span: Span, low_s: f64, high_s: f64| (low_s..=high_s).contains(&span.s());
        if !(1..=1_000_000).contains(&self.streams) {
            return Err("streams: choose 1 to 1000000");
        }
        let last = (self.streams - 1).checked_mul(self.step).and_then(|steps| steps.checked_add(self.first));
        if self.step == 0 || last.is_none_or(|last| last >= self.all()) {
            return Err("first, step, of: the streams' numbers must be below the number of all");
        }
        if !within(self.hold, 0.1, 86_400.0) {
            return Err("hold: choose 100ms to 24h");
        }
        if self.warm_up.is_some_and(|span| !within(span, 0.0, 3600.0)) {
            return Err("warm_up: choose up to 60min");
        }
        if [self.start, self.resume, self.cap].iter().any(|&span| !within(span, 0.05, 600.0)) {
            return Err("start, resume, cap: choose 50ms to 10min");
        }
        if self.start > self.cap || self.resume > self.cap {
            return Err("cap: it must be at least as long as start and resume");
        }
        if !(4096..=1 << 30).contains(&self.receive_buffer.bytes()) {
            return Err("receive_buffer: choose 4KiB to 1GiB");
        }
        if !(1..=1024).contains(&self.threads) {
            return Err("threads: choose 1 to 1024");
        }
        Ok(())
    }

    /// The habits of each player.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules { start_ns: self.start.ns(), resume_ns: self.resume.ns(), cap_ns: self.cap.ns() }
    }

    /// How many play on all hosts together.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.of.unwrap_or(self.streams)
    }

    /// Whether others play elsewhere, of whom this group does not know how far they are.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.streams < self.all()
    }

    /// The numbers of this group's streams among all.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, step) = (self.first, self.step);
        (0..self.streams).map(move |own| first + own * step)
    }

    /// What the stream of this number does with what it receives: the first ones parse, all others as told.
    #[must_use]
    pub fn depth_of(&self, stream: u64) -> Depth {
        // Shared out in turn, the first of every host are the first of all.
        let parsing = if self.parsing == 0 { 0 } else { self.parsing.max(self.step) };
        if stream < parsing { Depth::Parse } else { self.depth }
    }

    /// The time over which all connections are begun.
    #[must_use]
    pub fn start_window_ns(&self) -> u64 {
        match self.all() {
            0..=1 => 0,
            few @ 2..=FEW => FEW_WINDOW_NS_MAX.min(few * FEW_STEP_NS),
            many => MANY_WINDOW_NS_MAX.min(many * MANY_STEP_NS).max(START_WINDOW_NS),
        }
    }

    /// The latest beginning of the hold, in ns after the group's start.
    #[must_use]
    pub fn hold_after_ns(&self) -> u64 {
        let usual_ns = STARTUP_MAX_NS + 2 * self.cap.ns();
        self.start_window_ns() + self.warm_up.map_or(usual_ns, Span::ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_checked() {
        for (settings, part) in [
            (json!({"stream": 1}), "unknown field"),
            (json!({"streams": 0}), "streams"),
            (json!({"hold": "0s"}), "hold"),
            (json!({"cap": "500ms"}), "cap"),
            (json!({"receive_buffer": "1B"}), "receive_buffer"),
            (json!({"threads": 0}), "threads"),
            (json!({"streams": 3, "first": 1, "step": 4, "of": 9}), "first, step, of"),
            (json!({"streams": 2, "step": 0}), "first, step, of"),
            (json!({"streams": 2, "step": u64::MAX, "first": 1}), "first, step, of"),
        ] {
            let error = ViewerSettings::read(&settings).unwrap_err();
            assert!(error.usage && error.message.contains(part), "{settings}: {error}");
        }
        let read = ViewerSettings::read(&json!({"streams": 5, "warm_up": "5s"})).unwrap();
        assert_eq!((read.start_window_ns(), read.hold_after_ns()), (5_000_000_000, 10_000_000_000));
        assert_eq!((read.depth_of(0), read.depth_of(1)), (Depth::Parse, Depth::Discard));
        let shared = ViewerSettings { streams: 2, first: 1, step: 3, of: Some(5), ..read.clone() };
        assert_eq!(shared.numbers().collect::<Vec<_>>(), [1, 4]);
        assert_eq!(shared.hold_after_ns(), read.hold_after_ns(), "the hold is that of all");
        assert_eq!(
            (shared.depth_of(1), shared.depth_of(4)),
            (Depth::Parse, Depth::Discard),
            "one on every host"
        );
        assert_eq!(ViewerSettings { parsing: 0, ..shared }.depth_of(1), Depth::Discard);
        let many = ViewerSettings { streams: 2000, ..read };
        assert_eq!(many.start_window_ns(), 4_000_000_000);
    }
}
