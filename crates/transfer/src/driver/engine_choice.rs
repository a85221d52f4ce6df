//! How the flows of a group are moved: plain data.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the receiver does with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Copy them to the memory of the receiving program.
    #[default]
    Copy,
    /// Drop them in the kernel (`MSG_TRUNC`, tcp(7)), to measure without the cost of the copy.
    Discard,
}

/// How a TCP sender gives its bytes to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Copy them with large `send` calls.
    Write,
    /// Pass the same memory pages again and again, without a copy (tee(2), splice(2)).
    Splice,
}

/// What an engine did in the probe, towards a receiver that copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    pub engine: Engine,
    /// CPU time of both ends for 10^9 bytes, s.
    pub cpu_s_per_gb: f64,
    pub bit_per_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The engine that took the least CPU time a byte.
    pub chosen: Engine,
    pub engines: Vec<Probed>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineChoice {
    /// How TCP senders gave their bytes to the kernel; absent without any.
    pub sender: Option<Engine>,
    /// Where received bytes ended; absent without receivers.
    pub mode: Option<Mode>,
    /// Whether the kernel cut UDP senders' calls into datagrams (`UDP_SEGMENT`); absent without any.
    pub segmented: Option<bool>,
    pub threads: u32,
    /// Whether several flows shared a thread, by epoll(7).
    pub shared_threads: bool,
    /// What the choice of the sender's engine rests on; absent if it was given, or nothing was probed.
    pub probe: Option<ProbeReport>,
}

impl EngineChoice {
    /// Whether the flows are requests and responses, which have no engine.
    pub(crate) fn is_requests(&self) -> bool {
        self.sender.is_none() && self.mode.is_none() && self.segmented.is_none()
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_requests() {
            return f.write_str("requests");
        }
        // As the options are called.
        let mut words: Vec<String> = Vec::new();
        words.extend(self.sender.map(|sender| format!("engine {}", sender.word())));
        words.extend(self.mode.map(|mode| format!("mode {}", mode.word())));
        let segmented = self.segmented.map(|cut| if cut { "UDP GSO" } else { "single datagrams" });
        words.extend(segmented.map(str::to_owned));
        let threads = self.threads;
        let plural = if threads == 1 { "thread" } else { "threads" };
        let how = if self.shared_threads { " with epoll" } else { "" };
        write!(f, "{}, {threads} {plural}{how}", words.join(", "))
    }
}

impl Engine {
    pub fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Splice => "splice",
        }
    }
}

impl Mode {
    pub fn word(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Discard => "discard",
        }
    }
}
