//! An agent's own policy: who may ask its host for what.
//!
//! The file is TOML. Every rule names the coordinators and the kinds of parts it is for; the **first** rule that fits
//! both decides alone, so that what one rule allows never adds to what another allows. What a rule does not mention
//! it does not allow, and what no rule is for is refused.
//!
//! ```toml
//! [[allow]]
//! coordinator = "*"                          # name pattern; left out: every coordinator
//! parts = ["stream.*", "observe.*"]
//! peers = ["loopback", "10.0.0.0/8"]         # CIDR ranges, "loopback", "fleet", "any"
//! rate_max = "1Gbit/s"                       # of all parts under this rule together; left out: no limit
//! directories = ["data", "/srv/film"]        # "data": the agent's own data directory
//! system_changes = ["cgroup"]                # or true, or false
//! programs = ["mpv", "/usr/sbin/nginx"]      # as they are asked for; or "any"
//! ```

mod file;
mod grant;
mod path;
mod pattern;
mod peers;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::permit::SystemChange;
use base::units::BitRate;

pub use grant::Grant;
use path::is_below;
use pattern::Pattern;
use peers::PeerRange;

/// Every kind of change to the system that a rule can allow.
pub const SYSTEM_CHANGES: [(&str, SystemChange); 4] = [
    ("cgroup", SystemChange::Cgroup),
    ("disk", SystemChange::Disk),
    ("network", SystemChange::Network),
    ("cache", SystemChange::Cache),
];

/// Why a policy cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// What is written is wrong; `line` counts from 1 where it is known.
    #[error("{}{problem}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Text {
        /// What is wrong, and what was expected.
        problem: String,
        /// Where.
        line: Option<usize>,
    },
    /// The file as a whole: not there, not readable, writable by everybody, or [`PolicyError::Text`] with its name.
    #[error("the policy {file}: {problem}", file = .file.display())]
    File {
        /// Which one.
        file: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
}

/// The host that a policy protects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name in the fleet.
    pub host: String,
    /// The agent's own data directory, which the word `data` stands for.
    pub data_dir: PathBuf,
}

/// What an agent's owner lets coordinators do; see the module for the file.
#[derive(Debug, Clone)]
pub struct Policy {
    host: String,
    /// Where it is written, for refusals.
    origin: String,
    rules: Vec<Rule>,
}

/// A value, and the line that says it.
#[derive(Debug, Clone)]
struct Said<T> {
    value: T,
    line: Option<usize>,
}

/// One `[[allow]]`.
#[derive(Debug, Clone)]
struct Rule {
    line: Option<usize>,
    coordinator: Pattern,
    parts: Vec<Pattern>,
    peers: Said<Vec<PeerRange>>,
    rate_max: Option<Said<BitRate>>,
    directories: Said<Vec<PathBuf>>,
    system_changes: Said<Vec<SystemChange>>,
    programs: Said<Vec<Program>>,
    /// What the parts that run under this rule send together, in bit/s.
    sending_bit_per_s: Arc<Mutex<u64>>,
}

/// A program that may be started.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Program {
    Any,
    /// A name to be looked up, or an absolute path; asked for by exactly these words.
    Named(String),
}

/// What is asked of a policy.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The name that the coordinator goes by.
    pub coordinator: &'a str,
    /// The kind of the part, `stream.viewers`.
    pub part: &'a str,
    /// The fleet's own addresses as announced, which the word `fleet` stands for.
    pub fleet: &'a [IpAddr],
    /// What it wants to do.
    pub wish: Wish<'a>,
}

/// What a part wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish<'a> {
    /// Run at all.
    Run,
    /// Exchange traffic with this address.
    Peer(SocketAddr),
    /// Send as fast as this, in bit/s; `u64::MAX` where nothing bounds it.
    Rate(u64),
    /// Read and write below this directory: absolute, symbolic links and `..` resolved.
    Directory(&'a Path),
    /// Change the system.
    SystemChange(SystemChange),
    /// Start a program, by absolute path or by name.
    Program(&'a str),
}

/// A refusal: by whose policy, what was asked for, and which rule says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the policy of host {host} ({origin}) does not let coordinator {coordinator} {wish}: {reason}")]
pub struct Refusal {
    /// The host that refuses.
    pub host: String,
    /// Where its policy is written.
    pub origin: String,
    /// Who asked.
    pub coordinator: String,
    /// For what.
    pub wish: String,
    /// What is allowed instead, and the line that says so.
    pub reason: String,
}

impl From<Refusal> for base::part::PartError {
    /// What a host does not allow is for the plan to respect.
    fn from(refusal: Refusal) -> Self {
        Self::usage(refusal)
    }
}

impl Policy {
    /// The policy without a file: all parts, peers on loopback and in private ranges (RFC 1918, RFC 4193, link-local),
    /// the agent's own data directory, nothing else.
    pub fn built_in(owner: &Owner) -> Self {
        let rule = Rule {
            peers: Said { value: peers::private(), line: None },
            directories: Said { value: vec![owner.data_dir.clone()], line: None },
            ..Rule::of_everything(Vec::new(), Vec::new(), Vec::new())
        };
        Self { host: owner.host.clone(), origin: "built in, there is no file".into(), rules: vec![rule] }
    }

    /// Everything, for the bus within one process: there the user asks himself.
    pub fn open() -> Self {
        let rule = Rule::of_everything(
            vec![PeerRange::Any],
            SYSTEM_CHANGES.iter().map(|(_, kind)| *kind).collect(),
            vec![Program::Any],
        );
        Self { host: base::part::HERE.into(), origin: "open".into(), rules: vec![rule] }
    }

    /// Read a policy.
    ///
    /// # Errors
    /// What is wrong, with its line: no TOML, an unknown key, a value out of its range, a rule that is never reached.
    pub fn parse(text: &str, owner: &Owner) -> Result<Self, PolicyError> {
        let rules = file::parse(text, owner)?;
        Ok(Self { host: owner.host.clone(), origin: "its policy file".into(), rules })
    }

    /// Read a policy file. One that everybody may write protects nobody, and is refused.
    ///
    /// # Errors
    /// The file cannot be read, others may write it, or what is written is wrong.
    pub fn load(path: &Path, owner: &Owner) -> Result<Self, PolicyError> {
        let policy =
            file::read(path).and_then(|text| Self::parse(&text, owner).map_err(|error| error.to_string()));
        let policy = policy.map_err(|problem| PolicyError::File { file: path.to_owned(), problem })?;
        Ok(Self { origin: path.display().to_string(), ..policy })
    }

    /// Decide. Pure: directories are compared as they are given, see [`Grant`] for those of the file system.
    ///
    /// # Errors
    /// The refusal.
    pub fn decide(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let reason = match self.rule(request.coordinator, request.part) {
            Some(rule) => rule.permits(request).err(),
            None => Some(self.no_rule(request)),
        };
        reason.map_or(Ok(()), |reason| Err(self.refusal(request, reason)))
    }

    /// The rule that decides alone about these parts of this coordinator.
    fn rule(&self, coordinator: &str, part: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| {
            rule.coordinator.matches(coordinator) && rule.parts.iter().any(|pattern| pattern.matches(part))
        })
    }

    fn no_rule(&self, request: &Request<'_>) -> String {
        let of_it = self.rules.iter().filter(|rule| rule.coordinator.matches(request.coordinator));
        let parts: Vec<_> = of_it.flat_map(|rule| rule.parts.iter().map(ToString::to_string)).collect();
        match parts.is_empty() {
            true => "no rule is for this coordinator".into(),
            false => format!("allowed parts are {}", parts.join(", ")),
        }
    }

    fn refusal(&self, request: &Request<'_>, reason: String) -> Refusal {
        let part = request.part;
        let wish = match request.wish {
            Wish::Run => format!("run {part}"),
            Wish::Peer(address) => format!("have {part} send to {address}"),
            Wish::Rate(u64::MAX) => format!("have {part} send as fast as it can"),
            Wish::Rate(rate) => format!("have {part} send at {}", BitRate::from_bit_per_s(rate)),
            Wish::Directory(path) => format!("have {part} use the directory {}", path.display()),
            Wish::SystemChange(kind) => format!("have {part} change the system ({})", name_of(kind)),
            Wish::Program(program) => format!("have {part} start {program}"),
        };
        Refusal {
            host: self.host.clone(),
            origin: self.origin.clone(),
            coordinator: request.coordinator.to_owned(),
            wish,
            reason,
        }
    }
}

impl Rule {
    fn of_everything(peers: Vec<PeerRange>, changes: Vec<SystemChange>, programs: Vec<Program>) -> Self {
        Self {
            line: None,
            coordinator: Pattern::any(),
            parts: vec![Pattern::any()],
            peers: Said { value: peers, line: None },
            rate_max: None,
            directories: Said { value: vec!["/".into()], line: None },
            system_changes: Said { value: changes, line: None },
            programs: Said { value: programs, line: None },
            sending_bit_per_s: Arc::default(),
        }
    }

    /// Whether this rule permits it; otherwise, what it permits instead.
    fn permits(&self, request: &Request<'_>) -> Result<(), String> {
        match request.wish {
            Wish::Run => Ok(()),
            Wish::Peer(address) => {
                let ip = address.ip();
                let permitted = self.peers.value.iter().any(|range| range.contains(ip, request.fleet));
                let special = peers::special(ip)
                    .map(|what| format!("{ip} is {what}, which only \"any\" or the address itself allows; "));
                permitted
                    .then_some(())
                    .ok_or_else(|| format!("{}{}", special.unwrap_or_default(), self.peers.allowed("peers")))
            }
            Wish::Rate(rate) => match &self.rate_max {
                Some(max) if rate > max.value.bit_per_s() => Err(self.too_fast(max, 0)),
                _ => Ok(()),
            },
            Wish::Directory(path) => {
                let permitted = self.directories.value.iter().any(|directory| is_below(path, directory));
                permitted.then_some(()).ok_or_else(|| self.directories.shown().allowed("directories"))
            }
            Wish::SystemChange(kind) => {
                let permitted = self.system_changes.value.contains(&kind);
                permitted.then_some(()).ok_or_else(|| self.system_changes.named().allowed("system changes"))
            }
            Wish::Program(program) => {
                let permitted = self.programs.value.iter().any(|listed| match listed {
                    Program::Any => true,
                    Program::Named(name) => name == program,
                });
                permitted.then_some(()).ok_or_else(|| self.programs.allowed("programs"))
            }
        }
    }

    fn too_fast(&self, max: &Said<BitRate>, others: u64) -> String {
        let taken = match others {
            0 => String::new(),
            rate => format!(", of which other parts have {}", BitRate::from_bit_per_s(rate)),
        };
        format!("at most {} is allowed{}{taken}", max.value, at(max.line))
    }
}

impl<T> Said<Vec<T>> {
    /// What is allowed, and the line that says so.
    fn allowed(&self, what: &str) -> String
    where
        T: fmt::Display,
    {
        let listed: Vec<_> = self.value.iter().map(ToString::to_string).collect();
        let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
        format!("allowed {what} are {listed}{}", at(self.line))
    }
}

impl Said<Vec<PathBuf>> {
    fn shown(&self) -> Said<Vec<String>> {
        Said { value: self.value.iter().map(|path| path.display().to_string()).collect(), line: self.line }
    }
}

impl Said<Vec<SystemChange>> {
    fn named(&self) -> Said<Vec<&'static str>> {
        Said { value: self.value.iter().map(|kind| name_of(*kind)).collect(), line: self.line }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Named(name) => name,
        })
    }
}

fn name_of(kind: SystemChange) -> &'static str {
    SYSTEM_CHANGES.iter().find(|(_, of)| *of == kind).map_or("other", |(name, _)| name)
}

fn at(line: Option<usize>) -> String {
    line.map(|line| format!(" (line {line})")).unwrap_or_default()
}
