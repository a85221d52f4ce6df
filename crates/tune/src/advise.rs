//! What observed counters show: statements with the counters that they were read from. Functions of data.

mod host;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalogue::SETTINGS;
use crate::kernel::{Kernel, Reading};
use crate::observe::Observation;

pub use tcp::{BufferShares, LIMITED_MIN, buffer_shares};

/// What the counters show of one subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It limits or loses traffic.
    Limit,
    /// It delays traffic that shares it, and limits no rate.
    Delay,
    NotTheLimit,
    /// Nothing was seen that could show it.
    Unknown,
}

/// A number that a statement was read from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterValue {
    /// The kernel's name of it: `tcpi_busy_time`, `Udp RcvbufErrors`.
    pub name: String,
    /// How much it has grown meanwhile; of a size, the largest seen.
    pub value: u64,
    /// Empty: a count.
    pub unit: Cow<'static, str>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    pub subject: Cow<'static, str>,
    pub finding: Finding,
    /// Sentences, with the counters' names.
    pub text: String,
    pub counters: Vec<CounterValue>,
    /// The setting that it concerns.
    pub setting: Option<Cow<'static, str>>,
    /// A value of that setting to try. Only a trial shows whether it helps.
    #[serde(rename = "try")]
    pub proposal: Option<String>,
}

/// Values of settings, by name.
pub type Values = BTreeMap<&'static str, String>;

/// All values of the catalogue that this kernel has.
pub fn values_of(kernel: &Kernel) -> Values {
    let read = |setting: &crate::setting::Setting| match kernel.read(setting) {
        Reading::Value(value) => Some((setting.name, value)),
        Reading::NotHere | Reading::Failed(_) => None,
    };
    SETTINGS.iter().filter_map(read).collect()
}

/// What `seen` shows, limits first. `values`: the settings meanwhile.
pub fn advise(seen: &Observation, values: &Values) -> Vec<Statement> {
    let mut statements = tcp::buffers(seen, values);
    statements.extend(tcp::unsent(seen, values));
    statements.extend(host::loss(&seen.counters));
    statements.extend(udp::receive(seen, values));
    statements.extend(udp::send(&seen.counters, values));
    statements.extend(host::backlog(&seen.counters, values));
    statements.extend(host::receive_queue(&seen.counters, values));
    statements.extend(host::accept_queue(&seen.counters, values));
    statements.extend(host::memory(&seen.counters));
    // Stable: within a finding, in the order above.
    statements.sort_by_key(|statement| statement.finding);
    statements
}

/// The last number of a setting of one or several numbers.
fn largest(values: &Values, name: &str) -> Option<u64> {
    values.get(name)?.split(' ').next_back()?.parse().ok()
}

/// A setting of three numbers with another maximum.
fn with_largest(values: &Values, name: &str, largest: u64) -> Option<String> {
    let (before, _) = values.get(name)?.rsplit_once(' ')?;
    Some(format!("{before} {}", largest.min(i32::MAX as u64)))
}

fn count(name: impl Into<String>, value: u64) -> CounterValue {
    CounterValue { name: name.into(), value, unit: "".into() }
}
