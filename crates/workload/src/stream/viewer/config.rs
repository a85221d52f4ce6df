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
/// Connections are begun at least this far apart, up to [`START_WINDOW_NS_MAX`] for all.
const START_STEP_NS: u64 = 20_000_000;
/// All connections are begun within this time ...
const START_WINDOW_NS_MAX: u64 = 1_000_000_000;
/// ... or, beyond 1000 streams, one each millisecond: every player fills its buffer as fast as it can, and more of
/// them at once than the generator can carry would be measured as its own delay.
const START_STEP_NS_MIN: u64 = 1_000_000;

/// The settings of one group of players.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewerSettings {
    /// The content. `None`: the `content_url` (or `url`) of the peer `server`.
    pub url: Option<String>,
    /// The same content as a file on this host, whose index can be read directly.
    pub content_path: Option<PathBuf>,
    /// How many players.
    pub streams: u64,
    /// How much they do with what they receive.
    pub depth: Depth,
    /// At least so many of them check every packet whatever the depth; the first also checks the content's hashes.
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
    /// `SO_RCVBUF`.
    pub receive_buffer: ByteSize,
    /// Threads that carry the players.
    pub threads: u32,
    /// CPUs for the threads in turn; empty: wherever the kernel puts them.
    pub cpus: Vec<usize>,
    /// The content is not in memory, so that places in the file matter.
    pub cold: bool,
    /// End the hold as soon as the verdict is certain.
    pub abort_early: bool,
}

impl Default for ViewerSettings {
    fn default() -> Self {
        Self {
            url: None,
            content_path: None,
            streams: 1,
            depth: Depth::Discard,
            parsing: 1,
            hold: Span::from_s(10),
            warm_up: None,
            seed: 1,
            start: Span::from_s(1),
            resume: Span::from_ms(500),
            cap: Span::from_s(2),
            receive_buffer: ByteSize::from_bytes(512 * 1024),
            threads: 1,
            cpus: Vec::new(),
            cold: false,
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

    /// What stream `stream` does with what it receives: the first ones parse, all others as told.
    #[must_use]
    pub fn depth_of(&self, stream: u64) -> Depth {
        if stream < self.parsing { Depth::Parse } else { self.depth }
    }

    /// The time over which the connections are begun.
    #[must_use]
    pub fn start_window_ns(&self) -> u64 {
        let window_ns = START_WINDOW_NS_MAX.min(self.streams * START_STEP_NS);
        window_ns.max(self.streams * START_STEP_NS_MIN)
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
        ] {
            let error = ViewerSettings::read(&settings).unwrap_err();
            assert!(error.usage && error.message.contains(part), "{settings}: {error}");
        }
        let read = ViewerSettings::read(&json!({"streams": 5, "warm_up": "5s"})).unwrap();
        assert_eq!((read.start_window_ns(), read.hold_after_ns()), (100_000_000, 5_100_000_000));
        assert_eq!((read.depth_of(0), read.depth_of(1)), (Depth::Parse, Depth::Discard));
        let many = ViewerSettings { streams: 2000, ..read };
        assert_eq!(many.start_window_ns(), 2_000_000_000);
    }
}
