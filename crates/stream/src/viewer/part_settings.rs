//! The settings of the part `stream.viewers`.

use std::path::PathBuf;

use base::part::PartError;
use base::units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

use super::player::BufferRules;
use crate::settings::Depth;

/// Longest time to a stream's first picture (S. Krishnan and R. Sitaraman, IMC 2012: viewers begin to leave
/// after 2 s).
pub const STARTUP_MAX_NS: u64 = 2_000_000_000;
/// Up to this many viewers start one after the other: a new player fills its buffer as fast as it can, and
/// several at once could start late on a server that carries them once they play.
const FEW: u64 = 16;
/// Start interval of few viewers ...
const FEW_STEP_NS: u64 = 1_000_000_000;
/// ... shortened so that all start within this time.
const FEW_WINDOW_NS_MAX: u64 = 6_000_000_000;
/// More than [`FEW`] start within a second ...
const START_WINDOW_NS: u64 = 1_000_000_000;
/// ... beyond 250 at this interval, since filling all buffers at once would be a load many times that of the
/// hold.
const MANY_STEP_NS: u64 = 4_000_000;
const MANY_WINDOW_NS_MAX: u64 = 4_000_000_000;

/// The settings of one group of players: all of a trial, or those on one of several hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewerSettings {
    pub url: String,
    /// The same content as a file on this host, whose index can be read directly.
    pub content_path: Option<PathBuf>,
    pub streams: u64,
    /// The number of the group's first player among all of the trial. A player's number decides when it
    /// starts, where in the content, and its depth.
    pub first: u64,
    /// From one player's number to the next one's.
    pub step: u64,
    /// Players on all hosts together. `None`: there are no others.
    pub of: Option<u64>,
    pub depth: Depth,
    /// At least this many of all players parse whatever the depth, if any then one on every host; the first
    /// also checks the content's hashes.
    pub parsing: u64,
    pub hold: Span,
    /// From the last player's start to the hold. `None`: until all play, and two caps more.
    pub warm_up: Option<Span>,
    /// Seed of the players' start offsets.
    pub seed: u64,
    pub start: Span,
    /// Buffered before play resumes after a stall.
    pub resume: Span,
    pub cap: Span,
    /// `SO_RCVBUF`; raised to twice what the content needs between two reads.
    pub receive_buffer: ByteSize,
    pub threads: u32,
    /// CPUs to pin the threads to in turn; empty: not pinned.
    pub cpus: Vec<usize>,
    /// The content is not in memory, so overlapping regions matter.
    pub cold: bool,
    pub calls: bool,
    /// End the hold as soon as the verdict is certain.
    pub abort_early: bool,
}

impl Default for ViewerSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
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
    pub fn check(&self) -> Result<(), PartError> {
        self.check_ranges().map_err(|problem| PartError::usage(format!("the players' settings: {problem}")))
    }

    fn check_ranges(&self) -> Result<(), &'static str> {
        let within = |span: Span, low_s: f64, high_s: f64| (low_s..=high_s).contains(&span.s());
        if !(1..=1_000_000).contains(&self.streams) {
            return Err("streams: choose 1 to 1000000");
        }
        let last = (self.streams - 1).checked_mul(self.step).and_then(|steps| steps.checked_add(self.first));
        if self.step == 0 || last.is_none_or(|last| last >= self.all()) {
            return Err("first, step, of: stream numbers must be below the total");
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

    pub fn rules(&self) -> BufferRules {
        BufferRules { start_ns: self.start.ns(), resume_ns: self.resume.ns(), cap_ns: self.cap.ns() }
    }

    /// Players on all hosts together.
    pub fn all(&self) -> u64 {
        self.of.unwrap_or(self.streams)
    }

    /// Whether there are players on other hosts, whose progress this group does not know.
    pub fn is_part(&self) -> bool {
        self.streams < self.all()
    }

    /// The numbers of this group's streams among all of the trial.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, step) = (self.first, self.step);
        (0..self.streams).map(move |own| first + own * step)
    }

    /// The depth of a stream: the first ones parse.
    pub fn depth_of(&self, stream: u64) -> Depth {
        // Numbers alternate over the hosts, so the first `step` streams are the first of every host.
        let parsing = if self.parsing == 0 { 0 } else { self.parsing.max(self.step) };
        if stream < parsing { Depth::Parse } else { self.depth }
    }

    /// The time over which connections start.
    pub fn start_window_ns(&self) -> u64 {
        match self.all() {
            0..=1 => 0,
            few @ 2..=FEW => FEW_WINDOW_NS_MAX.min(few * FEW_STEP_NS),
            many => MANY_WINDOW_NS_MAX.min(many * MANY_STEP_NS).max(START_WINDOW_NS),
        }
    }

    /// The latest beginning of the hold, in ns after the group's start.
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
    fn settings_are_validated() {
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
            let error = match ViewerSettings::deserialize(&settings) {
                Ok(read) => read.check().unwrap_err().message,
                Err(error) => error.to_string(),
            };
            assert!(error.contains(part), "{settings}: {error}");
        }
        let read = ViewerSettings::deserialize(json!({"streams": 5, "warm_up": "5s"})).unwrap();
        read.check().unwrap();
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
