//! What coordinator and agents say to each other: plain data, as JSON over zenoh.
//!
//! | key | who | what |
//! |---|---|---|
//! | `kagiri/1/agent/NAME/INSTANCE` | agent | a liveliness token: it is there |
//! | `kagiri/1/ask/NAME/INSTANCE` | agent answers | an [`Ask`], answered by an [`Answer`]; `ask/*/*` asks all |
//! | `kagiri/1/tell/NAME` | agent publishes | a [`Tell`]: progress, and lines for the user |
//! | `kagiri/1/coordinator/ID` | coordinator publishes | a [`Renewal`] of its leases |

use std::collections::BTreeMap;
use std::net::IpAddr;

use base::part::{Endpoints, HERE, Live, PartError, PartSpec, Progress};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::{self, DatagramAddress, Key, Probed};

/// The version of these messages. An agent of another one is named and left out.
pub const PROTOCOL: u32 = 1;
/// A message longer than this is refused unread.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// A longer line is cut: nobody reads it, and it would be kept.
const LINE_CHARACTERS_MAX: usize = 500;
/// Names and instances are never longer: as one label of the DNS (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 63;

/// Whether plans and keys of the bus can name a host so. The bus itself takes any characters in any number; who calls
/// itself otherwise is not heard of.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) && name != HERE
}

/// The key below which an agent says that it is there.
pub fn agent_key(name: &str, instance: &str) -> String {
    format!("kagiri/{PROTOCOL}/agent/{name}/{instance}")
}

/// All agents' keys, whatever version of these messages they speak.
pub fn agents_key() -> String {
    "kagiri/*/agent/*/*".to_owned()
}

/// The version in a key, where it is not [`PROTOCOL`].
pub fn foreign_version(key: &str) -> Option<&str> {
    let version = key.strip_prefix("kagiri/")?.split('/').next()?;
    (version.parse() != Ok(PROTOCOL)).then_some(version)
}

/// The name and the instance in an agent's key.
pub fn agent_of(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("kagiri/")?.split_once("/agent/")?.1.split_once('/')
}

/// The key that an agent is asked on; `*` for all. With the instance, so that a second agent of that name, which may come
/// at any time, is neither asked nor heard in the first one's place.
pub fn ask_key(name: &str, instance: &str) -> String {
    format!("kagiri/{PROTOCOL}/ask/{name}/{instance}")
}

/// The name in a key that an agent is asked on.
pub fn asked_of(key: &str) -> &str {
    key.rsplit('/').nth(1).unwrap_or(key)
}

/// The key that an agent tells on; `*` for all.
pub fn tell_key(name: &str) -> String {
    format!("kagiri/{PROTOCOL}/tell/{name}")
}

/// The key on which a coordinator renews its leases; `*` for all.
pub fn coordinator_key(id: &str) -> String {
    format!("kagiri/{PROTOCOL}/coordinator/{id}")
}

/// The last word of a key: a name.
pub fn name_of(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Its name in the fleet.
    pub name: String,
    /// Tells two agents of one name, or one before and after a restart, apart.
    pub instance: String,
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Its version of kagiri.
    pub version: String,
    /// Where parts on other hosts reach it.
    pub address: Option<IpAddr>,
    /// What should be the same on hosts that share a role: kernel, congestion control, buffers.
    pub configuration: BTreeMap<String, String>,
    /// Facts of the host, for the run's environment.
    pub environment: BTreeMap<String, Value>,
    /// Its calendar clock, in s since 1970, when it answered.
    pub realtime_s: f64,
    /// The run that it works for, if it does.
    pub busy: Option<String>,
}

/// What a coordinator asks of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Say who you are.
    Describe,
    /// Work for this run, until the lease has not been renewed for its length.
    Take {
        /// The run.
        run: String,
        /// Whose it is: the id that renews the lease.
        coordinator: String,
        /// What policies know it by.
        name: String,
        /// Where the fleet's hosts are reached: what policies call `fleet`.
        fleet: Vec<IpAddr>,
        /// The length of the lease.
        lease_ms: u64,
    },
    /// Compare clocks.
    Probe {
        /// Where the coordinator answers.
        target: DatagramAddress,
        /// What authenticates the probes.
        key: Key,
        /// How many, and how good they must be.
        batch: clock::Ask,
    },
    /// Build parts.
    Place {
        /// The run.
        run: String,
        /// The parts.
        specs: Vec<PartSpec>,
    },
    /// Let parts acquire what they need.
    Prepare {
        /// The run.
        run: String,
        /// Their names.
        parts: Vec<String>,
        /// What their peers have told.
        peers: Endpoints,
    },
    /// Start parts.
    Start {
        /// The run.
        run: String,
        /// Their names.
        parts: Vec<String>,
        /// When, on the agent's own monotonic clock.
        at_ns: u64,
    },
    /// End parts, and report.
    Stop {
        /// The run.
        run: String,
        /// Their names.
        parts: Vec<String>,
    },
    /// The run is over: end everything, put everything back.
    Release {
        /// The run.
        run: String,
    },
}

impl Ask {
    /// The run that it belongs to.
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

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Who it is.
    Description(Box<Description>),
    /// It was done.
    Done,
    /// The clocks' comparison.
    Probed(Probed),
    /// What the parts tell their peers, by part.
    Prepared(Endpoints),
    /// What became of the parts, by part.
    Stopped(BTreeMap<String, Result<Value, PartError>>),
    /// It was not done.
    Refused {
        /// The part that said no; none where the agent did.
        part: Option<String>,
        /// Why.
        error: PartError,
    },
}

impl Answer {
    /// With what will be read by people made fit to be shown.
    pub fn plain(self) -> Self {
        match self {
            Self::Description(mut one) => {
                one.version = plain(&one.version);
                one.busy = one.busy.as_deref().map(plain);
                Self::Description(one)
            }
            Self::Stopped(reports) => {
                let report = |(part, report): (_, Result<_, _>)| (part, report.map_err(plain_error));
                Self::Stopped(reports.into_iter().map(report).collect())
            }
            Self::Refused { part, error } => {
                Self::Refused { part: part.as_deref().map(plain), error: plain_error(error) }
            }
            answer => answer,
        }
    }
}

/// What an agent tells unasked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum Tell {
    /// How far its parts are.
    Beat {
        /// The run.
        run: String,
        /// The parts.
        parts: BTreeMap<String, Progress>,
        /// The numbers that they see now, of those that see any.
        #[serde(default)]
        live: BTreeMap<String, Live>,
        /// How long after the last start's moment its threads ran.
        start_late_ns: Option<u64>,
    },
    /// A line about what is being done now.
    Line {
        /// The run.
        run: String,
        /// The line.
        text: String,
    },
}

/// A coordinator's sign of life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Renewal {
    /// The run whose leases are renewed.
    pub run: String,
}

/// A message to send.
pub fn write(message: &impl Serialize) -> Vec<u8> {
    // Data of these types has string keys and finite depth: it can always be written.
    serde_json::to_vec(message).unwrap_or_default()
}

/// A message that came, if it is one.
///
/// # Errors
/// Why it is none.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(format!("a message of {} bytes is longer than any of ours", bytes.len()));
    }
    // The reason quotes what came.
    serde_json::from_slice(bytes).map_err(|error| plain(&error.to_string()))
}

/// A line that somebody else wrote, as it can be shown: without what steers a terminal or turns its words around
/// (Unicode's bidirectional overrides), and of bounded length.
pub fn plain(line: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    line.chars().take(LINE_CHARACTERS_MAX).map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// The same of an error.
pub fn plain_error(error: PartError) -> PartError {
    PartError { message: plain(&error.message), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_name_agents() {
        assert_eq!(agent_of(&agent_key("pc-1", "7f")), Some(("pc-1", "7f")));
        assert_eq!((agent_of("kagiri/1/ask/x"), name_of(&tell_key("nas"))), (None, "nas"));
        assert_eq!(asked_of(&ask_key("nas", "7f")), "nas");
        for name in ["nas", "PC_1.lab-2", "7f"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "here", "*", "a b", "a\u{1b}[2J", "\u{e9}", &"a".repeat(64)] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn what_strangers_wrote_steers_no_terminal() {
        let evil = || PartError::usage("\u{1b}[2J\nerror: \u{202e}x".repeat(1000));
        let said = |error: &PartError| {
            let clean = error.message.chars().all(|c| !c.is_control() && c != '\u{202e}');
            assert!(clean && error.message.len() <= 500 && error.usage, "{error:?}");
        };
        let refused = Answer::Refused { part: Some("\u{7}".into()), error: evil() }.plain();
        let Answer::Refused { part: Some(part), error } = refused else { panic!("{refused:?}") };
        said(&error);
        assert_eq!(part, " ");
        let stopped = Answer::Stopped([("a".to_owned(), Err(evil()))].into()).plain();
        let Answer::Stopped(reports) = stopped else { panic!("{stopped:?}") };
        said(reports["a"].as_ref().unwrap_err());
    }

    #[test]
    fn messages_read_back() {
        let ask = Ask::Take {
            run: "r".into(),
            coordinator: "7f".into(),
            name: "desk".into(),
            fleet: Vec::new(),
            lease_ms: 5000,
        };
        assert_eq!(read::<Ask>(&write(&ask)).unwrap(), ask);
        let refused = Answer::Refused { part: None, error: PartError::new("no") };
        assert_eq!(read::<Answer>(&write(&refused)).unwrap(), refused);
        assert!(read::<Ask>(br#"{"ask":"format_disk"}"#).unwrap_err().contains("format_disk"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = (read::<Ask>(&bytes), read::<Answer>(&bytes), read::<Tell>(&bytes), read::<Renewal>(&bytes));
        }
    }
}
