//! What is shown of a trial, the resources that only an exchange of messages has, and the doubts.

use base::doubt::WorkloadDoubt;
use base::format::{number, quantity};
use base::limit_rules::WAITING;
use base::outcome::ResourceSpec;
use base::workload::{Panel, Presentation};
use serde::Serialize;

/// The time that the server takes for a message.
pub static SERVER_TIME: ResourceSpec = ResourceSpec {
    name: "server_time",
    label: "the server's processing time",
    unit: "ms",
    unit_suffix: "ms",
    remedy: "a faster server, or less work per message",
    rule: WAITING,
};

/// The receiver's window: it had not room for more.
pub static WINDOW: ResourceSpec = ResourceSpec {
    name: "window",
    label: "the receiver's window",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a larger receive buffer (net.ipv4.tcp_rmem, --receive-buffer)",
    rule: WAITING,
};

/// The sender's buffer: smaller than what the path could hold.
pub static SEND_BUFFER: ResourceSpec = ResourceSpec {
    name: "send_buffer",
    label: "the sender's buffer",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a larger send buffer (net.ipv4.tcp_wmem, --send-buffer)",
    rule: WAITING,
};

pub static PRESENTATION: Presentation = Presentation {
    panels_above: &[
        Panel { title: "response time", series: &["response_mean_ms"], has_stalls: false },
        Panel { title: "socket memory", series: &["socket_memory_bytes"], has_stalls: false },
        Panel { title: "background delivered", series: &["background_bit_per_s"], has_stalls: false },
        Panel { title: "in time", series: &["in_time_percent"], has_stalls: false },
        Panel { title: "rate of the link", series: &["link_rate_bit_per_s"], has_stalls: false },
    ],
    resources: &[&SERVER_TIME, &WINDOW, &SEND_BUFFER],
    is_brief: true,
    ..Presentation::DEFAULT
};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum ExchangeDoubt {
    /// Messages were sent later than they could have been.
    MessagesLate { late_percent: f64, late_ms_max: f64 },
    /// Too few messages for a 99th percentile.
    FewMessages { class: String, messages: u64 },
    /// The clients' own threads may have delayed messages.
    ClientsNearSaturation { cpu_percent: f64 },
    /// The server did not say what arrived of the background.
    BackgroundUnknown,
    /// The background's sender stopped before the end.
    BackgroundBroke { why: String },
}

impl WorkloadDoubt for ExchangeDoubt {
    fn message(&self) -> String {
        match self {
            Self::MessagesLate { late_percent, late_ms_max } => format!(
                "{} % of the messages were sent late, the latest by {} ms",
                number(*late_percent),
                number(*late_ms_max)
            ),
            Self::FewMessages { class, messages } => {
                format!("the 99th percentile of {class} is close to the maximum of only {messages} messages")
            }
            Self::ClientsNearSaturation { cpu_percent } => format!(
                "the busiest thread of the clients used {} of a core",
                quantity(Some(*cpu_percent), "%")
            ),
            Self::BackgroundUnknown => "the server did not report what arrived of the background".to_owned(),
            Self::BackgroundBroke { why } => format!("the background ended early: {why}"),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::MessagesLate { .. } => {
                "use a lower --rate, fewer clients or further hosts; response times include the delay"
            }
            Self::FewMessages { .. } => "measure for longer (--time) or send more messages (--count)",
            Self::ClientsNearSaturation { .. } => "use more --threads, or further hosts for the clients",
            Self::BackgroundUnknown => "repeat, and check the path between background and server",
            Self::BackgroundBroke { .. } => "fix this and measure again",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::MessagesLate { late_ms_max, .. } => *late_ms_max,
            Self::ClientsNearSaturation { cpu_percent } => *cpu_percent,
            Self::FewMessages { .. } | Self::BackgroundUnknown | Self::BackgroundBroke { .. } => 0.0,
        }
    }
}
