//! Policies (TOML): one bottleneck, and the classes of traffic that share it.
//!
//! ```toml
//! [bottleneck]
//! interface = "eth0"
//! capacity = "50Mbit/s"            # or "estimate"
//!
//! [[class]]
//! name = "alarm"
//! match = { process = "alarmd" }
//! priority = 1
//! target = "500ms"
//! size = "250kB"
//!
//! [[class]]
//! name = "bulk"
//! match = { process = "rsync" }
//! priority = 5
//! floor = "2Mbit/s"
//! ceiling = "20Mbit/s"
//! ```

mod check;
mod matching;
mod raw;

use base::plan::PlanError;
use base::units::{BitRate, ByteSize, Span};
use sys::net::CongestionControl;

pub use check::{SIZE_MAX, TARGET_MAX};
pub use matching::{Match, Overlap, Ports, SocketFacts, User, is_within};

/// Longest text of a policy, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most classes of a policy.
pub const CLASSES_MAX: usize = 64;

/// A checked policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub bottleneck: Bottleneck,
    /// In the order of the file; at least one.
    pub classes: Vec<Class>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// Interface through which the traffic leaves this host.
    pub interface: String,
    pub capacity: Capacity,
    /// Endpoint of the coordinator, if several hosts share the bottleneck ([`crate::hosts`]).
    pub coordinator: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    Given(BitRate),
    /// Learned from the sockets while they send ([`crate::law`]).
    Estimate,
}

/// A class of sockets. With a target it is urgent: its messages have to arrive in time. Without one it is
/// bulk: it gets what urgent classes leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    pub name: String,
    pub matches: Match,
    /// 1 is the most urgent.
    pub priority: u8,
    /// Longest response time of a message.
    pub target: Option<Span>,
    /// Size of a message; `None`: learned while the class sends.
    pub size: Option<ByteSize>,
    /// Every client sends a message once per interval; `None`: at any time.
    pub interval: Option<Span>,
    /// Messages that may be on their way at the same time.
    pub clients: u32,
    /// Part of a response that is not transfer: round-trip time and time in the server.
    pub overhead: Span,
    /// Share among classes that do not fit together, and among bulk classes.
    pub weight: f64,
    /// Rate that the class always gets, before others are served.
    pub floor: BitRate,
    /// Rate that the class never exceeds.
    pub ceiling: Option<BitRate>,
    /// Congestion control of its TCP sockets; `None`: their own.
    pub congestion_control: Option<CongestionControl>,
    /// Programs may come into the class, and state more than it has, through [`crate::daemon`]'s socket.
    pub join: bool,
}

impl Policy {
    /// Parses a policy.
    ///
    /// # Errors
    /// The error has the line and the key at fault, what was expected, and what to do.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PlanError::new("the policy is longer than 1 MiB; keep one policy per bottleneck"));
        }
        let file: raw::PolicyFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            let key = line.and_then(|line| key_of(text.lines().nth(line - 1)?));
            PlanError { line, key, problem: in_words(error.message()) }
        })?;
        check::check(file).map_err(|wrong| PlanError {
            line: wrong.at.map(|at| line_of(text, at)),
            key: Some(wrong.key),
            problem: wrong.problem,
        })
    }

    /// Index of the class of a socket: the first class in the file whose conditions all hold.
    pub fn class_of(&self, socket: &SocketFacts<'_>) -> Option<usize> {
        self.classes.iter().position(|class| class.matches.accepts(socket))
    }
}

impl Class {
    pub fn is_urgent(&self) -> bool {
        self.target.is_some()
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// A message of the TOML parser without Rust's names of types, and with what to do.
fn in_words(message: &str) -> String {
    let message = message.replace('\n', "; ").replace("expected i64", "expected a whole number");
    let message = message.replace("expected f64", "expected a number");
    match message.strip_prefix("missing field ") {
        Some(field) => format!("missing field {field}; add it here"),
        None => message,
    }
}

/// The key that a line assigns.
fn key_of(line: &str) -> Option<String> {
    let key = line.split_once('=')?.0.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (!key.is_empty() && key.chars().all(is_key)).then(|| key.to_owned())
}

#[cfg(test)]
mod tests;
