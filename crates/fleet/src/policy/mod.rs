//! An agent's policy: what coordinators may do on its host.
//!
//! The file is TOML. Every rule names coordinators and kinds of parts. The **first** rule that matches both
//! decides alone, so permissions of several rules never add up. A rule denies what it does not mention;
//! requests without a matching rule are denied.
//!
//! ```toml
//! [[allow]]
//! coordinator = "*"                          # name pattern; default: every coordinator
//! parts = ["stream.*", "observe.*"]
//! peers = ["loopback", "10.0.0.0/8"]         # CIDR ranges, "loopback", "fleet", "any"
//! rate_max = "1Gbit/s"                       # of all parts under this rule together; default: no limit
//! directories = ["data", "/srv/film"]        # "data": the agent's own data directory
//! system_changes = ["cgroup"]                # or true, or false
//! programs = ["mpv", "/usr/sbin/nginx"]      # exactly as requested; or "any"
//! ```

mod file;
mod grant;
mod own_host;
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
pub use own_host::OwnHost;
use path::is_below;
use pattern::Pattern;
use peers::PeerRange;

pub const SYSTEM_CHANGES: [(&str, SystemChange); 4] = [
    ("cgroup", SystemChange::Cgroup),
    ("disk", SystemChange::Disk),
    ("network", SystemChange::Network),
    ("cache", SystemChange::Cache),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("{}{problem}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Text { problem: String, line: Option<usize> },
    #[error("the policy {file}: {problem}", file = .file.display())]
    File { file: PathBuf, problem: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInfo {
    pub host: String,
    /// The agent's data directory: `data` in policies.
    pub data_dir: PathBuf,
}

/// What coordinators may do on a host; see the module for the file.
#[derive(Debug, Clone)]
pub struct Policy {
    host: String,
    origin: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Located<T> {
    value: T,
    line: Option<usize>,
}

#[derive(Debug, Clone)]
struct Rule {
    line: Option<usize>,
    coordinator: Pattern,
    parts: Vec<Pattern>,
    peers: Located<Vec<PeerRange>>,
    rate_max: Option<Located<BitRate>>,
    directories: Located<Vec<PathBuf>>,
    system_changes: Located<Vec<SystemChange>>,
    programs: Located<Vec<Program>>,
    /// Total rate of the parts under this rule, in bit/s.
    sending_bit_per_s: Arc<Mutex<u64>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Program {
    Any,
    /// A name or an absolute path, compared literally.
    Named(String),
}

#[derive(Debug, Clone, Copy)]
pub struct ActionRequest<'a> {
    pub coordinator: &'a str,
    /// The kind of the part, as `stream.viewers`.
    pub part: &'a str,
    /// The fleet's announced addresses: `fleet` in policies.
    pub fleet: &'a [IpAddr],
    pub action: Action<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    Run,
    Peer(SocketAddr),
    /// Send at this rate in bit/s; `u64::MAX` without a limit.
    Rate(u64),
    /// Use this directory: absolute, with symbolic links and `..` resolved.
    Directory(&'a Path),
    SystemChange(SystemChange),
    Program(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the policy of host {host} ({origin}) does not let coordinator {coordinator} {action}: {reason}")]
pub struct Refusal {
    pub host: String,
    pub origin: String,
    pub coordinator: String,
    pub action: String,
    /// What is allowed instead, and at which line.
    pub reason: String,
}

impl From<Refusal> for base::part::PartError {
    /// The plan must respect the host's policy.
    fn from(refusal: Refusal) -> Self {
        Self::usage(refusal)
    }
}

impl Policy {
    /// The policy without a file: all parts; peers on loopback and in private ranges (RFC 1918, RFC 4193);
    /// the agent's data directory; nothing else.
    pub fn default_for(owner: &HostInfo) -> Self {
        let rule = Rule {
            peers: Located { value: peers::private(), line: None },
            directories: Located { value: vec![owner.data_dir.clone()], line: None },
            ..Rule::any_part(Vec::new(), Vec::new(), Vec::new())
        };
        Self { host: owner.host.clone(), origin: "built in, there is no file".into(), rules: vec![rule] }
    }

    pub fn parse(text: &str, owner: &HostInfo) -> Result<Self, PolicyError> {
        let rules = file::parse(text, owner)?;
        Ok(Self { host: owner.host.clone(), origin: "its policy file".into(), rules })
    }

    /// Loads a policy file. Rejects a file that every user can write.
    pub fn load(path: &Path, owner: &HostInfo) -> Result<Self, PolicyError> {
        let policy =
            file::read(path).and_then(|text| Self::parse(&text, owner).map_err(|error| error.to_string()));
        let policy = policy.map_err(|problem| PolicyError::File { file: path.to_owned(), problem })?;
        Ok(Self { origin: path.display().to_string(), ..policy })
    }

    /// Decides a request. Pure: compares directories literally; [`Grant`] resolves them first.
    pub fn decide(&self, request: &ActionRequest<'_>) -> Result<(), Refusal> {
        let reason = match self.rule(request.coordinator, request.part) {
            Some(rule) => rule.permits(request).err(),
            None => Some(self.no_rule(request)),
        };
        reason.map_or(Ok(()), |reason| Err(self.refusal(request, reason)))
    }

    fn rule(&self, coordinator: &str, part: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| {
            rule.coordinator.matches(coordinator) && rule.parts.iter().any(|pattern| pattern.matches(part))
        })
    }

    fn no_rule(&self, request: &ActionRequest<'_>) -> String {
        let of_it = self.rules.iter().filter(|rule| rule.coordinator.matches(request.coordinator));
        let parts: Vec<_> = of_it.flat_map(|rule| rule.parts.iter().map(ToString::to_string)).collect();
        match parts.is_empty() {
            true => "no rule is for this coordinator".into(),
            false => format!("allowed parts are {}", parts.join(", ")),
        }
    }

    fn refusal(&self, request: &ActionRequest<'_>, reason: String) -> Refusal {
        let part = request.part;
        let action = match request.action {
            Action::Run => format!("run {part}"),
            Action::Peer(address) => format!("have {part} send to {address}"),
            Action::Rate(u64::MAX) => format!("have {part} send as fast as it can"),
            Action::Rate(rate) => format!("have {part} send at {}", BitRate::from_bit_per_s(rate)),
            Action::Directory(path) => format!("have {part} use the directory {}", path.display()),
            Action::SystemChange(kind) => format!("have {part} change the system ({})", name_of(kind)),
            Action::Program(program) => format!("have {part} start {program}"),
        };
        Refusal {
            host: self.host.clone(),
            origin: self.origin.clone(),
            coordinator: request.coordinator.to_owned(),
            action,
            reason,
        }
    }
}

impl Rule {
    fn any_part(peers: Vec<PeerRange>, changes: Vec<SystemChange>, programs: Vec<Program>) -> Self {
        Self {
            line: None,
            coordinator: Pattern::any(),
            parts: vec![Pattern::any()],
            peers: Located { value: peers, line: None },
            rate_max: None,
            directories: Located { value: vec!["/".into()], line: None },
            system_changes: Located { value: changes, line: None },
            programs: Located { value: programs, line: None },
            sending_bit_per_s: Arc::default(),
        }
    }

    /// Whether this rule permits the request; otherwise what it permits instead.
    fn permits(&self, request: &ActionRequest<'_>) -> Result<(), String> {
        match request.action {
            Action::Run => Ok(()),
            Action::Peer(address) => {
                let ip = address.ip();
                let permitted = self.peers.value.iter().any(|range| range.contains(ip, request.fleet));
                let special = peers::special(ip)
                    .map(|what| format!("{ip} is {what}, which only \"any\" or the address itself allows; "));
                let allowed = || self.peers.allowed("peers", ToString::to_string);
                permitted.then_some(()).ok_or_else(|| format!("{}{}", special.unwrap_or_default(), allowed()))
            }
            Action::Rate(rate) => match &self.rate_max {
                Some(max) if rate > max.value.bit_per_s() => Err(self.too_fast(max, 0)),
                _ => Ok(()),
            },
            Action::Directory(path) => {
                let permitted = self.directories.value.iter().any(|directory| is_below(path, directory));
                let shown = |path: &PathBuf| path.display().to_string();
                permitted.then_some(()).ok_or_else(|| self.directories.allowed("directories", shown))
            }
            Action::SystemChange(kind) => {
                let permitted = self.system_changes.value.contains(&kind);
                let named = |kind: &SystemChange| name_of(*kind).to_owned();
                permitted.then_some(()).ok_or_else(|| self.system_changes.allowed("system changes", named))
            }
            Action::Program(program) => {
                let permitted = self.programs.value.iter().any(|listed| match listed {
                    Program::Any => true,
                    Program::Named(name) => name == program,
                });
                permitted.then_some(()).ok_or_else(|| self.programs.allowed("programs", ToString::to_string))
            }
        }
    }

    fn too_fast(&self, max: &Located<BitRate>, others: u64) -> String {
        let taken = match others {
            0 => String::new(),
            rate => format!(", of which other parts have {}", BitRate::from_bit_per_s(rate)),
        };
        format!("at most {} is allowed{}{taken}", max.value, at(max.line))
    }
}

impl<T> Located<Vec<T>> {
    /// What is allowed, and at which line.
    fn allowed(&self, what: &str, name: impl Fn(&T) -> String) -> String {
        let listed: Vec<_> = self.value.iter().map(name).collect();
        let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
        format!("allowed {what} are {listed}{}", at(self.line))
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
