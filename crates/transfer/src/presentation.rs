//! What is shown of a transfer, the resources that only a connection has, and the doubts.

use base::doubt::WorkloadDoubt;
use base::format::number;
use base::limit_rules::WAITING;
use base::outcome::ResourceSpec;
use base::workload::{Panel, Presentation};
use serde::Serialize;

/// The receiver's window: it had not room for more.
pub static WINDOW: ResourceSpec = ResourceSpec {
    name: "window",
    label: "the receiver's window",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a larger receive buffer (net.ipv4.tcp_rmem, --window)",
    rule: WAITING,
};

/// The sender's buffer: smaller than what the path could hold.
pub static SEND_BUFFER: ResourceSpec = ResourceSpec {
    name: "send_buffer",
    label: "the sender's buffer",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a larger send buffer (net.ipv4.tcp_wmem, --window)",
    rule: WAITING,
};

pub static PRESENTATION: Presentation = Presentation {
    live_rates: &[("goodput_up_bit_per_s", "up"), ("goodput_down_bit_per_s", "down")],
    panels_above: &[
        Panel { title: "goodput up", series: &["goodput_up_bit_per_s"], has_stalls: false },
        Panel { title: "goodput down", series: &["goodput_down_bit_per_s"], has_stalls: false },
    ],
    resources: &[&WINDOW, &SEND_BUFFER],
    ..Presentation::DEFAULT
};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum TransferDoubt {
    /// Requests were sent later than intended: how many, and the latest by how much.
    RequestsLate { late_percent: f64, late_ms_max: f64 },
    /// All bytes moved within so short a time that it gives no rate.
    TransferTooShort { moved_ms: f64 },
    /// More arrived than the link carries in the long run.
    AboveLink { link_percent: f64 },
    /// The peer reported nothing of what it received, so that the rates are those of the sender.
    ArrivalNotReported { peer: String },
}

impl WorkloadDoubt for TransferDoubt {
    fn message(&self) -> String {
        match self {
            Self::RequestsLate { late_percent, late_ms_max } => format!(
                "{} % of the requests were sent late, the latest by {} ms",
                number(*late_percent),
                number(*late_ms_max)
            ),
            Self::TransferTooShort { moved_ms } => {
                format!("all bytes moved within {} ms, too short for a rate or a limit", number(*moved_ms))
            }
            Self::AboveLink { link_percent } => format!(
                "{} % of the link's maximum arrived: the time was too short beside a burst, or the link's \
                 nominal rate is wrong",
                number(*link_percent)
            ),
            Self::ArrivalNotReported { peer } => {
                format!("{peer} reported nothing that it received; the goodput is what was sent to it")
            }
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::RequestsLate { .. } => {
                "use a lower --requests-per-s or fewer flows; response times include the delay"
            }
            Self::TransferTooShort { .. } => {
                "transfer more bytes (--bytes 1GiB), or for a fixed time (--time 5s)"
            }
            Self::AboveLink { .. } => {
                "measure for longer (--time 10s), leave out the beginning (--omit 1s), or set the true rate \
                 with --link"
            }
            Self::ArrivalNotReported { .. } => {
                "compare with the receiver's own output, or run 'kagiri transfer --serve' there"
            }
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::RequestsLate { late_ms_max, .. } => *late_ms_max,
            Self::AboveLink { link_percent } => *link_percent,
            Self::TransferTooShort { .. } | Self::ArrivalNotReported { .. } => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_resource_limits_from_half_of_the_time() {
        for (resource, share, is_used_up) in [
            (&WINDOW, 0.4, false),
            (&WINDOW, 0.5, true),
            (&SEND_BUFFER, 0.4, false),
            (&SEND_BUFFER, 0.5, true),
        ] {
            assert_eq!(resource.rule.is_used_up(share), is_used_up, "{} {share}", resource.name);
        }
    }
}
