//! Messages between coordinator and agents: JSON over zenoh.
//!
//! | key | sender | message |
//! |---|---|---|
//! | `kagiri/2/agent/NAME/INSTANCE` | agent | liveliness token |
//! | `kagiri/2/ask/NAME/INSTANCE` | coordinator | [`Request`], answered by [`Response`]; `ask/*/*`: to all |
//! | `kagiri/2/tell/NAME` | agent | [`Notification`]: heartbeat or log line |
//! | `kagiri/2/coordinator/ID` | coordinator | [`Renewal`] of its leases |

use std::collections::BTreeMap;
use std::net::IpAddr;

use base::json_memory;
use base::part::{Endpoints, HERE, Live, PartError, PartSpec, Progress};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zenoh::bytes::ZBytes;

use crate::clock::{self, BatchResult, DatagramAddress, Key};

/// Version of these messages. Agents of another version are reported and left out.
pub const PROTOCOL: u32 = 2;
/// Longer messages are rejected unread.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Memory for reading one message: its text, a copy, and the values.
pub(crate) const MESSAGE_MEMORY_MAX: u64 = 60 << 20;
/// Notifications are small, and the last one of each agent is kept.
const NOTIFICATION_MEMORY_MAX: u64 = 1 << 20;
/// Longer lines are cut.
const LINE_CHARACTERS_MAX: usize = 500;
/// Limit of a DNS label (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 63;

/// Whether a host can have this name. zenoh accepts any key; agents with other names are ignored.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) && name != HERE
}

/// Key of an agent's liveliness token.
pub fn agent_key(name: &str, instance: &str) -> String {
    format!("kagiri/{PROTOCOL}/agent/{name}/{instance}")
}

/// Liveliness tokens of all agents, of any protocol version.
pub fn agents_key() -> String {
    "kagiri/*/agent/*/*".to_owned()
}

/// The version in a key if it is not [`PROTOCOL`].
pub fn other_version(key: &str) -> Option<&str> {
    let version = key.strip_prefix("kagiri/")?.split('/').next()?;
    (version.parse() != Ok(PROTOCOL)).then_some(version)
}

pub fn parse_agent_key(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("kagiri/")?.split_once("/agent/")?.1.split_once('/')
}

/// Key for requests to an agent; `*` for all. It contains the instance, so that a second agent of the same
/// name neither receives the requests nor answers them.
pub fn request_key(name: &str, instance: &str) -> String {
    format!("kagiri/{PROTOCOL}/ask/{name}/{instance}")
}

pub fn host_of_request_key(key: &str) -> &str {
    key.rsplit('/').nth(1).unwrap_or(key)
}

/// Key for an agent's notifications; `*` for all.
pub fn notification_key(name: &str) -> String {
    format!("kagiri/{PROTOCOL}/tell/{name}")
}

/// Key for a coordinator's lease renewals; `*` for all.
pub fn coordinator_key(id: &str) -> String {
    format!("kagiri/{PROTOCOL}/coordinator/{id}")
}

pub fn last_segment(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

/// An agent's description of itself and its host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    pub name: String,
    /// Distinguishes two agents of one name, and one agent before and after a restart.
    pub instance: String,
    pub protocol: u32,
    pub version: String,
    /// Address for the parts of other hosts.
    pub address: Option<IpAddr>,
    /// Of the host; `None` where its kernel does not tell.
    pub kernel: Option<String>,
    pub congestion_control: Option<String>,
    /// Wall clock at the time of the response, in s since 1970.
    pub realtime_s: f64,
    /// The current run.
    pub busy: Option<String>,
}

/// A coordinator's request to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Describe the agent and its host.
    Describe,
    /// Work for this run until the lease expires. `coordinator`: id, which renews the lease; `name`: its name
    /// in policies; `fleet`: addresses of the fleet's hosts (`fleet` in policies).
    Take { run: String, coordinator: String, name: String, fleet: Vec<IpAddr>, lease_ms: u64 },
    /// Compare clocks with the coordinator's responder at `target`; `key` authenticates the probes.
    Probe { target: DatagramAddress, key: Key, batch: clock::BatchRequest },
    /// Build parts.
    Place { run: String, specs: Vec<PartSpec> },
    /// Let parts acquire what they need.
    Prepare { run: String, parts: Vec<String>, peers: Endpoints },
    /// `at_ns`: on the agent's monotonic clock.
    Start { run: String, parts: Vec<String>, at_ns: u64 },
    /// End parts and return their reports.
    Stop { run: String, parts: Vec<String> },
    /// End the run: drop all parts and undo their changes.
    Release { run: String },
}

impl Request {
    pub fn run(&self) -> Option<&str> {
        match self {
            Self::Describe | Self::Probe { .. } => None,
            Self::Take { run, .. }
            | Self::Place { run, .. }
            | Self::Prepare { run, .. }
            | Self::Start { run, .. }
            | Self::Stop { run, .. }
            | Self::Release { run } => Some(run),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Describe`].
    Description(Box<Description>),
    /// To [`Request::Take`]: the agent works for the run. With what only runs need.
    Taken {
        /// What should be equal on hosts of one role: kernel, congestion control, buffers.
        configuration: BTreeMap<String, String>,
        /// Facts about the host.
        environment: BTreeMap<String, Value>,
    },
    /// Done, without a result.
    Done,
    /// Probes of the clock.
    Probed(BatchResult),
    /// Endpoint of each part.
    Prepared(Endpoints),
    /// Report of each part.
    Stopped(BTreeMap<String, Result<Value, PartError>>),
    /// `part`: the part that refused; `None` if the agent did.
    Refused { part: Option<String>, error: PartError },
}

impl Response {
    pub fn sanitized(self) -> Self {
        match self {
            Self::Description(mut one) => {
                one.version = sanitize(&one.version);
                one.busy = one.busy.as_deref().map(sanitize);
                Self::Description(one)
            }
            Self::Stopped(reports) => {
                let report = |(part, report): (_, Result<_, _>)| (part, report.map_err(sanitize_error));
                Self::Stopped(reports.into_iter().map(report).collect())
            }
            Self::Refused { part, error } => {
                Self::Refused { part: part.as_deref().map(sanitize), error: sanitize_error(error) }
            }
            answer => answer,
        }
    }
}

/// What an agent sends without a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum Notification {
    /// Progress of the parts.
    #[serde(rename = "beat")]
    Heartbeat {
        run: String,
        parts: BTreeMap<String, Progress>,
        /// Live numbers of the parts that have any.
        #[serde(default)]
        live: BTreeMap<String, Live>,
        /// Delay of the agent's threads at the last start.
        start_late_ns: Option<u64>,
    },
    /// A message for the user.
    #[serde(rename = "line")]
    Log {
        run: String,
        text: String,
        /// Whether the user needs it in order to go on, even if he asked for quiet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        needed: bool,
    },
}

/// A coordinator's lease renewal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Renewal {
    pub run: String,
}

pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have string keys and finite depth")
}

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    memory_bytes(bytes, MESSAGE_MEMORY_MAX)?;
    read(bytes)
}

/// Decodes a message without an answer, of which a peer can send any number.
pub fn decode_short<T: DeserializeOwned>(payload: &ZBytes) -> Result<T, String> {
    // Its pieces are not put together before that is known.
    if payload.len() as u64 > NOTIFICATION_MEMORY_MAX {
        return Err("it is too long".to_owned());
    }
    let bytes = payload.to_bytes();
    memory_bytes(&bytes, NOTIFICATION_MEMORY_MAX)?;
    read(&bytes)
}

/// Memory for reading a message.
/// Errors: More than `bytes_max`, or no JSON.
pub(crate) fn memory_bytes(bytes: &[u8], bytes_max: u64) -> Result<u64, String> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(format!("a message of {} bytes exceeds the limit of {MESSAGE_BYTES_MAX}", bytes.len()));
    }
    json_memory::estimate(bytes, &[], bytes_max).map_err(|error| sanitize(&error.to_string()))
}

/// Reads a message for which there is [`memory_bytes`].
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    // The error quotes the input.
    serde_json::from_slice(bytes).map_err(|error| sanitize(&error.to_string()))
}

/// Makes text of another host safe to print: replaces control characters and bidirectional overrides
/// (Unicode), and cuts long lines.
pub fn sanitize(line: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    line.chars().take(LINE_CHARACTERS_MAX).map(|c| if steers(c) { ' ' } else { c }).collect()
}

pub fn sanitize_error(error: PartError) -> PartError {
    PartError { message: sanitize(&error.message), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_contain_name_and_instance() {
        assert_eq!(parse_agent_key(&agent_key("pc-1", "7f")), Some(("pc-1", "7f")));
        assert_eq!(
            (parse_agent_key("kagiri/2/ask/x"), last_segment(&notification_key("nas"))),
            (None, "nas")
        );
        assert_eq!(host_of_request_key(&request_key("nas", "7f")), "nas");
        for name in ["nas", "PC_1.lab-2", "7f"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "here", "*", "a b", "a\u{1b}[2J", "\u{e9}", &"a".repeat(64)] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn sanitize_removes_terminal_control() {
        let evil = || PartError::usage("\u{1b}[2J\nerror: \u{202e}x".repeat(1000));
        let said = |error: &PartError| {
            let clean = error.message.chars().all(|c| !c.is_control() && c != '\u{202e}');
            assert!(clean && error.message.len() <= 500 && error.usage, "{error:?}");
        };
        let refused = Response::Refused { part: Some("\u{7}".into()), error: evil() }.sanitized();
        let Response::Refused { part: Some(part), error } = refused else { panic!("{refused:?}") };
        said(&error);
        assert_eq!(part, " ");
        let stopped = Response::Stopped([("a".to_owned(), Err(evil()))].into()).sanitized();
        let Response::Stopped(reports) = stopped else { panic!("{stopped:?}") };
        said(reports["a"].as_ref().unwrap_err());
    }

    /// An agent of another build of this protocol's version sends these.
    #[test]
    fn tags_of_notifications_are_those_of_protocol_1() {
        let (run, parts, live) = ("r".to_owned(), BTreeMap::new(), BTreeMap::new());
        let beat = Notification::Heartbeat { run: run.clone(), parts, live, start_late_ns: None };
        let beat_json = r#"{"tell":"beat","run":"r","parts":{},"live":{},"start_late_ns":null}"#;
        let line = |needed| Notification::Log { run: run.clone(), text: "x".into(), needed };
        for (message, json) in [
            (beat, beat_json),
            (line(false), r#"{"tell":"line","run":"r","text":"x"}"#),
            (line(true), r#"{"tell":"line","run":"r","text":"x","needed":true}"#),
        ] {
            assert_eq!(encode(&message), json.as_bytes());
            assert_eq!(decode::<Notification>(json.as_bytes()).as_ref(), Ok(&message));
        }
    }

    #[test]
    fn messages_survive_a_round_trip() {
        let ask = Request::Take {
            run: "r".into(),
            coordinator: "7f".into(),
            name: "desk".into(),
            fleet: Vec::new(),
            lease_ms: 5000,
        };
        assert_eq!(decode::<Request>(&encode(&ask)).unwrap(), ask);
        let refused = Response::Refused { part: None, error: PartError::new("no") };
        assert_eq!(decode::<Response>(&encode(&refused)).unwrap(), refused);
        assert!(decode::<Request>(br#"{"ask":"format_disk"}"#).unwrap_err().contains("format_disk"));
    }

    proptest! {
        #[test]
        fn decode_never_panics(bytes: Vec<u8>) {
            let _ = (decode::<Request>(&bytes), decode::<Response>(&bytes));
            let _ = (decode::<Notification>(&bytes), decode::<Renewal>(&bytes));
        }
    }
}
