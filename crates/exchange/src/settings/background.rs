//! The load beside the messages.

use base::units::{BitRate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is sent beside the messages, from the host of the role background to the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackgroundKind {
    /// Nothing.
    #[default]
    None,
    /// Datagrams at --background-rate, whatever is lost.
    Udp,
    /// TCP flows that together send at most --background-rate.
    Tcp,
    /// TCP flows that send as fast as the path lets them.
    Greedy,
}

/// The load beside the messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BackgroundSettings {
    /// Send other traffic to the server at the same time.
    #[schemars(extend("x-flag" = {"name": "background", "value": "KIND"}))]
    pub kind: BackgroundKind,
    /// Payload rate of the background, sum of all its flows.
    #[schemars(extend("x-min" = "1kbit/s", "x-max" = "10Tbit/s",
        "x-flag" = {"name": "background-rate", "requires": "background.kind"}))]
    pub rate: Option<BitRate>,
    /// Number of background flows.
    #[schemars(range(min = 1, max = 1000),
        extend("x-flag" = {"name": "background-flows", "requires": "background.kind"}))]
    pub flows: u32,
    /// Send the background for TIME, then pause for --background-off, in turn.
    #[schemars(extend("x-min" = "1ms", "x-max" = "1h", "x-unset" = "no pauses",
        "x-flag" = {"name": "background-on", "requires": "background.off"}))]
    pub on: Option<Span>,
    /// Length of the pauses of the background.
    #[schemars(extend("x-min" = "1ms", "x-max" = "1h", "x-unset" = "no pauses",
        "x-flag" = {"name": "background-off", "requires": "background.on"}))]
    pub off: Option<Span>,
}

impl Default for BackgroundSettings {
    fn default() -> Self {
        Self { kind: BackgroundKind::None, rate: None, flows: 1, on: None, off: None }
    }
}

impl BackgroundSettings {
    pub fn is_wanted(&self) -> bool {
        self.kind != BackgroundKind::None
    }

    /// The problem with settings that do not fit together: key and sentence.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        let needs_rate = matches!(self.kind, BackgroundKind::Udp | BackgroundKind::Tcp);
        match () {
            () if needs_rate && self.rate.is_none() => {
                Some(("background.rate", "udp and tcp need a rate, such as 40Mbit/s; greedy needs none"))
            }
            () if self.kind == BackgroundKind::Greedy && self.rate.is_some() => {
                Some(("background.rate", "greedy flows have no rate; use tcp"))
            }
            () if self.on.is_some() != self.off.is_some() => {
                Some(("background.on", "needs both `background.on` and `background.off`"))
            }
            () => None,
        }
    }
}
